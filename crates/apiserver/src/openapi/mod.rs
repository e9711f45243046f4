//! OpenAPI documents: one of version 3 per group and version, and one of version 2.
//!
//! kubectl reads them to explain fields, and to find out whether the server validates fields and
//! supports dry runs. They are made when they are first read, and kept.

mod metadata;
mod operations;
mod schemas;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use portunus_apis::ServedVersion;
use portunus_objects::status::Status;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::Api;
use crate::body::Body;
use crate::failure::Outcome;
use crate::negotiate::{JSON, first_json};
use crate::request::Query;
use crate::respond::{bytes_response, json_response};

const TITLE: &str = "Portunus API server";

/// A document with the hash of its bytes.
struct Document {
    bytes: Bytes,
    hash: String,
}

impl Document {
    fn new(document: &Value) -> Document {
        let bytes = serde_json::to_vec(document).unwrap_or_default();
        let hash = format!("{:X}", Sha256::digest(&bytes));
        Document {
            bytes: bytes.into(),
            hash,
        }
    }

    /// Returns the document. With the hash in its address it never changes.
    fn response(&self, headers: &HeaderMap, is_immutable: bool) -> Response<Body> {
        let tag = format!("\"{}\"", self.hash);
        let known = headers.get(IF_NONE_MATCH).and_then(|it| it.to_str().ok());
        let mut response = if known == Some(&*tag) {
            bytes_response(StatusCode::NOT_MODIFIED, JSON, Bytes::new())
        } else {
            bytes_response(StatusCode::OK, JSON, self.bytes.clone())
        };
        let headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        if is_immutable {
            let value = HeaderValue::from_static("public, immutable");
            headers.insert(CACHE_CONTROL, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        response
    }
}

/// The documents of a server.
#[derive(Default)]
pub(crate) struct OpenApi {
    versions: OnceLock<BTreeMap<String, Document>>,
    v2: OnceLock<Document>,
}

impl OpenApi {
    /// Answers a path below `/openapi`; the segments follow it.
    pub(crate) fn answer(
        &self,
        api: &Api,
        segments: &[&str],
        headers: &HeaderMap,
        query: &Query,
    ) -> Outcome<Response<Body>> {
        first_json(headers, |_| Some(()))?;
        match segments {
            ["v2"] => {
                let document = self.v2.get_or_init(|| Document::new(&v2(api)));
                Ok(document.response(headers, false))
            }
            ["v3"] => Ok(self.index(api)),
            ["v3", path @ ..] => {
                let documents = self.documents(api);
                let document = documents.get(&path.join("/"));
                let document = document.ok_or_else(|| Status::unknown_path(""))?;
                let is_immutable = query.get("hash") == document.hash;
                Ok(document.response(headers, is_immutable))
            }
            _ => Err(Status::unknown_path("").into()),
        }
    }

    fn documents(&self, api: &Api) -> &BTreeMap<String, Document> {
        self.versions.get_or_init(|| {
            let groups = api.served().groups().iter();
            let versions = groups.flat_map(|group| &group.versions);
            versions
                .map(|version| (path_of(version), Document::new(&v3(api, version))))
                .collect()
        })
    }

    fn index(&self, api: &Api) -> Response<Body> {
        let documents = self.documents(api).iter();
        let paths = documents.map(|(path, document)| {
            let address = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({"serverRelativeURL": address}))
        });
        let paths: Map<String, Value> = paths.collect();
        json_response(StatusCode::OK, &json!({"paths": paths}))
    }
}

/// Returns the path of a version without a leading slash, such as `apis/example.io/v1`.
fn path_of(version: &ServedVersion) -> String {
    let root = if version.name.group.is_empty() {
        "api"
    } else {
        "apis"
    };
    format!("{root}/{}", version.name)
}

/// Returns the title and the emulated release, as kube-apiserver shows it.
fn info(api: &Api) -> Value {
    let emulated = api.options().current();
    json!({"title": TITLE, "version": format!("v{emulated}.0")})
}

fn v3(api: &Api, version: &ServedVersion) -> Value {
    let mut schemas = metadata::schemas("#/components/schemas/");
    let mut paths = Map::new();
    for served in &version.resources {
        let name = &served.name;
        if let Ok(target) = api.find(&name.group, name.version.as_str(), &name.resource) {
            schemas.extend(schemas::of(target, "#/components/schemas/"));
            paths.extend(operations::of(target));
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": info(api),
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn v2(api: &Api) -> Value {
    let mut definitions = metadata::schemas("#/definitions/");
    for served in api.served().resources() {
        let name = &served.name;
        if let Ok(target) = api.find(&name.group, name.version.as_str(), &name.resource) {
            definitions.extend(schemas::of(target, "#/definitions/"));
        }
    }
    json!({"swagger": "2.0", "info": info(api), "paths": {}, "definitions": definitions})
}
