//! Bodies in Kubernetes' protobuf format, as client-go sends the built-in kinds.
//!
//! The documents are written here byte by byte, by the field numbers of Kubernetes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "resources")]

mod common;

use common::{Client, WIDGETS, widgets};
use portunus_apiserver::resources::Resources;
use portunus_apiserver::testing::{self, TestServer};
use portunus_testkit::random::Random;
use serde_json::json;

const NAMESPACES: &str = "/api/v1/namespaces";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A field with a length: text, bytes or a message.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u8::try_from(content.len()).unwrap();
    assert!(number < 16 && length < 128, "one byte each is enough here");
    [&[number << 3 | 2, length], content].concat()
}

/// A field with a number.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    let mut left = value;
    while left >= 128 {
        bytes.push(left as u8 | 128);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

/// The envelope of an object.
fn document(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, types), field(2, raw)].concat()
}

async fn server() -> TestServer {
    let mut definitions = Resources::new(1).definitions().unwrap();
    definitions.push(widgets());
    testing::start(definitions).await.unwrap()
}

/// A client with the headers of client-go.
fn client(server: &TestServer) -> Client {
    Client::new(server)
        .with_header("content-type", PROTOBUF)
        .with_header("accept", &format!("{PROTOBUF},application/json"))
}

/// What `kubectl create namespace` sends: fields that are not set are there, and empty.
fn namespace(name: &str) -> Vec<u8> {
    let label = [field(1, "team"), field(2, "a")].concat();
    let metadata = [
        field(1, name),
        field(2, ""),
        field(3, ""),
        number(7, 0),
        field(8, ""),
        field(11, label),
    ]
    .concat();
    let raw = [field(1, metadata), field(2, ""), field(3, field(1, ""))].concat();
    document("v1", "Namespace", &raw)
}

#[tokio::test]
async fn namespace_in_protobuf_is_created_and_answered_in_json() {
    let server = server().await;
    let client = client(&server);
    let target = format!("{NAMESPACES}?fieldValidation=Strict");
    let created = client.send("POST", &target, namespace("shop")).await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    assert_eq!(created.headers["content-type"], "application/json");
    let created = created.json();
    assert_eq!(created["kind"], "Namespace");
    assert_eq!(created["metadata"]["labels"], json!({"team": "a"}));
    assert!(created["metadata"]["creationTimestamp"].is_string());
    // JSON yields the same object.
    let body = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "json", "labels": {"team": "a"}}, "spec": {}, "status": {}});
    let mut same = Client::new(&server).post(NAMESPACES, &body).await.json();
    for name in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        same["metadata"][name] = created["metadata"][name].clone();
    }
    assert_eq!(same, created);
}

#[tokio::test]
async fn object_in_protobuf_is_replaced() {
    let server = server().await;
    let client = client(&server);
    let created = client.send("POST", NAMESPACES, namespace("shop")).await;
    let created = created.json();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let target = format!("{NAMESPACES}/shop");
    let metadata = [field(1, "shop"), field(6, version)].concat();
    let body = document("v1", "Namespace", &field(1, metadata));
    let replaced = client.send("PUT", &target, body).await;
    assert_eq!(replaced.code, 200, "{:?}", replaced.body);
    assert_eq!(replaced.json()["metadata"]["labels"], json!(null));
}

#[tokio::test]
async fn event_in_protobuf_has_every_field() {
    let server = server().await;
    let second = |micros: u64| [number(1, 1_600_000_000), number(2, micros * 1000)].concat();
    let reference = [
        field(1, "Widget"),
        field(2, "default"),
        field(3, "w"),
        field(4, "u"),
        field(5, "example.io/v1"),
        field(6, "7"),
        field(7, "spec"),
    ]
    .concat();
    let source = [field(1, "controller"), field(2, "host")].concat();
    let parts = [
        field(1, [field(1, "e"), field(3, "default")].concat()),
        field(2, reference),
        field(3, "Started"),
        field(4, "It started"),
        field(5, source),
        field(6, second(0)),
        field(7, second(0)),
        number(8, 3),
        field(9, "Normal"),
        field(10, second(42)),
        field(12, "Start"),
        field(14, "example.io/controller"),
        field(15, "one"),
    ];
    let raw = parts.concat();
    // More than one byte of length.
    let length = [raw.len() as u8 | 128, (raw.len() >> 7) as u8];
    let types = [field(1, "v1"), field(2, "Event")].concat();
    let envelope = [field(1, types), vec![2 << 3 | 2], length.to_vec(), raw].concat();
    let body = [b"k8s\0".to_vec(), envelope].concat();
    let created = client(&server).send("POST", EVENTS, body).await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    let mut event = created.json();
    assert_eq!(event["metadata"]["name"], "e");
    event.as_object_mut().unwrap().remove("metadata");
    let time = "2020-09-13T12:26:40Z";
    assert_eq!(
        event,
        json!({
            "apiVersion": "v1", "kind": "Event", "reason": "Started", "message": "It started",
            "involvedObject": {"kind": "Widget", "namespace": "default", "name": "w", "uid": "u",
                "apiVersion": "example.io/v1", "resourceVersion": "7", "fieldPath": "spec"},
            "source": {"component": "controller", "host": "host"},
            "firstTimestamp": time, "lastTimestamp": time, "count": 3, "type": "Normal",
            "eventTime": "2020-09-13T12:26:40.000042Z", "action": "Start",
            "reportingComponent": "example.io/controller", "reportingInstance": "one",
        })
    );
}

#[tokio::test]
async fn options_of_deletions_are_read_in_protobuf() {
    let server = server().await;
    let client = client(&server);
    client.send("POST", NAMESPACES, namespace("shop")).await;
    let target = format!("{NAMESPACES}/shop");
    let options = |fields: &[u8]| document("meta.k8s.io/v1", "DeleteOptions", fields);
    let of_another = options(&field(2, field(1, "another")));
    let refused = client.send("DELETE", &target, of_another).await;
    assert_eq!(refused.code, 409, "{:?}", refused.body);
    let dry_run = options(&field(5, "All"));
    assert_eq!(client.send("DELETE", &target, dry_run).await.code, 200);
    assert_eq!(client.get(&target).await.code, 200);
    let wrong = options(&field(4, "Sometimes"));
    assert_eq!(client.send("DELETE", &target, wrong).await.code, 422);
    let deletion = options(&[number(1, 0), field(4, "Background")].concat());
    assert_eq!(client.send("DELETE", &target, deletion).await.code, 200);
    assert_eq!(client.get(&target).await.code, 404);
}

#[tokio::test]
async fn protobuf_is_refused_where_it_is_not_declared() {
    let server = server().await;
    let client = client(&server);
    let widget = document("example.io/v1", "Widget", &field(1, field(1, "a")));
    let refused = client.send("POST", WIDGETS, widget).await;
    assert_eq!(
        (refused.code.as_u16(), refused.message()),
        (
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json".to_owned()
        )
    );
    let options = document("meta.k8s.io/v1", "DeleteOptions", &[]);
    let refused = client
        .send("DELETE", &format!("{WIDGETS}/a"), options)
        .await;
    assert_eq!(refused.code, 415);
    let other = document("v1", "Event", &field(1, field(1, "a")));
    let refused = client.send("POST", NAMESPACES, other).await;
    assert_eq!(refused.code, 422, "{:?}", refused.body);
    let json = client.send("POST", NAMESPACES, "{}").await;
    assert_eq!(json.code, 400);
    assert!(
        json.message()
            .contains("does not appear to be a protobuf message")
    );
    // Nothing is answered in protobuf.
    let only = Client::new(&server).with_header("accept", PROTOBUF);
    assert_eq!(only.get(NAMESPACES).await.code, 406);
}

#[tokio::test]
async fn any_bytes_after_the_magic_get_an_answer() {
    let server = server().await;
    let client = client(&server);
    let mut random = Random::seeded("any_bytes_after_the_magic_get_an_answer");
    let good = namespace("shop");
    for round in 0..2000 {
        let mut body = if round % 2 == 0 {
            // A good document with a few other bytes.
            good.clone()
        } else {
            let length = random.below(200);
            let noise = (0..length).map(|_| random.below(256) as u8).collect();
            [b"k8s\0".to_vec(), noise].concat()
        };
        for _ in 0..random.below(4) {
            let place = 4 + random.below(body.len() as u64 - 3) as usize;
            if let Some(byte) = body.get_mut(place) {
                *byte = random.below(256) as u8;
            }
        }
        let (method, target) = match random.below(3) {
            0 => ("POST", NAMESPACES.to_owned()),
            1 => ("PUT", format!("{NAMESPACES}/shop")),
            _ => ("DELETE", format!("{NAMESPACES}/shop")),
        };
        let answer = client.send(method, &target, body.clone()).await;
        let code = answer.code.as_u16();
        assert!(code < 500, "{code} to {method} {body:?}");
    }
}
