//! A server of widgets, and requests to it without a connection.
#![allow(dead_code)]

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use portunus_apis::Lifecycle;
use portunus_apiserver::testing::{self, TestServer};
use portunus_apiserver::{Body, Connection, Definition, Service, VersionDefinition};
use portunus_objects::convert::{Conversions, ConvertError};
use portunus_objects::table::Columns;
use serde_json::{Value, json};

pub const WIDGETS: &str = "/apis/example.io/v1/namespaces/ns/widgets";

pub fn schema() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "description": "The wanted state.", "properties": {
            "size": {"type": "integer", "minimum": 0, "description": "The size in metres."},
            "color": {"type": "string", "default": "red"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }})
}

fn old_schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "length": {"type": "integer", "minimum": 0},
            "color": {"type": "string", "default": "red"},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    }})
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
}

#[allow(clippy::unnecessary_wraps)]
fn to_hub(object: &mut Value) -> Result<(), ConvertError> {
    rename(object, "length", "size");
    Ok(())
}

#[allow(clippy::unnecessary_wraps)]
fn from_hub(object: &mut Value) -> Result<(), ConvertError> {
    rename(object, "size", "length");
    Ok(())
}

/// Widgets: v1beta1 with a `length`, since 1.34, deprecated; v1 with a `size`, since 1.36.
pub fn widgets() -> Definition {
    let columns = || {
        Columns::named()
            .column("Color", "string", ".spec.color")
            .and_then(|columns| columns.wide_column("Phase", "string", ".status.phase"))
            .and_then(Columns::age)
            .unwrap()
    };
    let beta = Lifecycle::since("1.34").deprecated("1.36").removed("1.39");
    let beta = VersionDefinition::new("v1beta1", beta, old_schema()).unwrap();
    let ga = VersionDefinition::new("v1", Lifecycle::since("1.36"), schema()).unwrap();
    Definition::new("example.io", "Widget", "widgets")
        .with_short_names(["wd"])
        .with_categories(["all"])
        .with_version(
            beta.served_by_default(true)
                .with_status()
                .with_columns(columns()),
        )
        .with_version(ga.with_status().with_columns(columns()))
        .with_conversions(Conversions::hub("example.io", "v1").version("v1beta1", to_hub, from_hub))
        .with_selectable_fields(["spec.color"])
}

pub async fn server() -> TestServer {
    testing::start([widgets()]).await.unwrap()
}

/// A response with its body.
#[derive(Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub fn message(&self) -> String {
        self.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn reason(&self) -> String {
        self.json()["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }
}

/// A client of a service.
#[derive(Clone)]
pub struct Client {
    service: Service,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    pub fn new(server: &TestServer) -> Client {
        Client {
            service: server.service().clone(),
            headers: Vec::new(),
        }
    }

    pub fn with_header(mut self, name: &'static str, value: &str) -> Client {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub async fn open(&self, method: &str, target: &str, body: Vec<u8>) -> http::Response<Body> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        self.service.handle(request, &Connection::default()).await
    }

    pub async fn send(&self, method: &str, target: &str, body: impl Into<Vec<u8>>) -> Answer {
        let response = self.open(method, target, body.into()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status,
            headers: parts.headers,
            body,
        }
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, "").await
    }

    pub async fn post(&self, target: &str, body: &Value) -> Answer {
        self.send("POST", target, body.to_string()).await
    }

    pub async fn put(&self, target: &str, body: &Value) -> Answer {
        self.send("PUT", target, body.to_string()).await
    }

    pub async fn delete(&self, target: &str) -> Answer {
        self.send("DELETE", target, "").await
    }

    pub async fn merge(&self, target: &str, patch: &Value) -> Answer {
        let client = self
            .clone()
            .with_header("content-type", "application/merge-patch+json");
        client.send("PATCH", target, patch.to_string()).await
    }

    pub async fn json_patch(&self, target: &str, patch: &Value) -> Answer {
        let client = self
            .clone()
            .with_header("content-type", "application/json-patch+json");
        client.send("PATCH", target, patch.to_string()).await
    }

    /// Creates a widget and returns it.
    pub async fn create(&self, name: &str, spec: Value) -> Value {
        let created = self.post(WIDGETS, &widget(name, spec)).await;
        assert_eq!(created.code, 201, "{:?}", created.body);
        created.json()
    }

    /// Opens a watch.
    pub async fn watch(&self, target: &str) -> Events {
        let response = self.open("GET", target, Vec::new()).await;
        assert_eq!(response.status(), 200);
        Events {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }
}

pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": spec})
}

/// The events of a watch.
pub struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// Waits for the next event; none at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame();
            let frame = tokio::time::timeout(std::time::Duration::from_secs(30), frame);
            let frame = frame.await.expect("no event within 30 s")?;
            self.rest.extend(frame.unwrap().into_data().unwrap());
        }
    }

    /// Returns type and name of the next event.
    pub async fn next_name(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        )
    }
}
