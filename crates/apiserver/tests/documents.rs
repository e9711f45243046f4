//! Discovery, OpenAPI, `/version`, and the answer for known APIs that are not served.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Client, server, widgets};
use portunus_apiserver::testing;
use portunus_client::kubernetes::Memory;
use portunus_gates::MajorMinor;
use serde_json::{Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

#[tokio::test]
async fn discovery_has_both_forms_with_an_entity_tag() {
    let server = server().await;
    let client = Client::new(&server);
    let groups = client.get("/apis").await.json();
    assert_eq!(groups["kind"], "APIGroupList");
    assert_eq!(groups["groups"][0]["preferredVersion"]["version"], "v1");
    let resources = client.get("/apis/example.io/v1").await.json();
    let names: Vec<&str> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["widgets", "widgets/status"]);
    assert_eq!(client.get("/api").await.json()["kind"], "APIVersions");
    assert_eq!(client.get("/apis/example.io/v9").await.code, 404);
    assert_eq!(client.get("/apis/none.io").await.code, 404);

    let modern = client.clone().with_header("accept", AGGREGATED);
    let aggregated = modern.get("/apis").await;
    assert_eq!(
        aggregated.headers["content-type"],
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_eq!(
        aggregated.json()["items"][0]["versions"][0]["resources"][0]["resource"],
        "widgets"
    );
    assert_eq!(modern.get("/api").await.json()["items"], json!([]));
    let tag = aggregated.headers["etag"].to_str().unwrap().to_owned();
    let known = modern.with_header("if-none-match", &tag).get("/apis").await;
    assert_eq!((known.code.as_u16(), known.body.len()), (304, 0));
}

/// kubectl finds out by these documents whether the server validates fields and supports dry
/// runs, and explains fields with them.
#[tokio::test]
async fn openapi_has_schemas_and_the_parameters_that_kubectl_looks_for() {
    let server = server().await;
    let client = Client::new(&server);
    let index = client.get("/openapi/v3").await.json();
    let address = index["paths"]["apis/example.io/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let document = client.get(address).await;
    assert_eq!(document.headers["cache-control"], "public, immutable");
    let document = document.json();
    let path = &document["paths"]["/apis/example.io/v1/namespaces/{namespace}/widgets/{name}"];
    let patch = &path["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "example.io", "version": "v1", "kind": "Widget"})
    );
    let parameters: Vec<&str> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert!(parameters.contains(&"fieldValidation") && parameters.contains(&"dryRun"));
    let schema = &document["components"]["schemas"]["io.example.v1.Widget"];
    assert_eq!(
        schema["properties"]["spec"]["properties"]["size"]["description"],
        "The size in metres."
    );
    assert_eq!(
        schema["x-kubernetes-group-version-kind"][0]["kind"],
        "Widget"
    );
    let reference = schema["properties"]["metadata"]["allOf"][0]["$ref"]
        .as_str()
        .unwrap();
    let name = reference.rsplit('/').next().unwrap();
    assert!(document["components"]["schemas"][name].is_object());
    let v2 = client.get("/openapi/v2").await.json();
    assert_eq!(v2["swagger"], "2.0");
    assert!(v2["definitions"]["io.example.v1.Widget"].is_object());
    let protobuf = client.clone().with_header(
        "accept",
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    );
    assert_eq!(protobuf.get("/openapi/v2").await.code, 406);
}

/// Proves: S2-23, G115
#[tokio::test]
async fn emulated_server_explains_what_it_does_not_serve() {
    let server = testing::start_on([widgets()], Arc::new(Memory::new()), |options| {
        options
            .api
            .versions
            .set_emulation(MajorMinor::literal("1.35"));
    })
    .await
    .unwrap();
    let client = Client::new(&server);
    let missing = client.get("/apis/example.io/v1/widgets").await;
    assert_eq!(missing.code, 404);
    assert_eq!(
        missing.message(),
        "widgets.v1.example.io is known to this server but not served: it is introduced in 1.36, and this server emulates 1.35. \
         It is served with --emulated-version=1.37, or with --emulation-forward-compatible=true"
    );
    let groups = client.get("/apis").await.json();
    assert_eq!(
        groups["groups"][0]["versions"],
        json!([{"groupVersion": "example.io/v1beta1", "version": "v1beta1"}])
    );
    let paths = client.get("/openapi/v3").await.json()["paths"].clone();
    let paths: Vec<String> = paths.as_object().unwrap().keys().cloned().collect();
    assert_eq!(paths, ["apis/example.io/v1beta1"]);
    let document = client
        .get("/openapi/v3/apis/example.io/v1beta1")
        .await
        .json();
    assert_eq!(document["info"]["version"], "v1.35.0");
    let schema = &document["components"]["schemas"]["io.example.v1beta1.Widget"];
    assert!(schema["properties"]["spec"]["properties"]["parts"].is_object());
    let old = client.get("/apis/example.io/v1beta1/widgets").await;
    assert_eq!(
        (old.code.as_u16(), old.warnings().len()),
        (200, 0),
        "not deprecated in 1.35"
    );
}

/// Proves: S2-24, G132
#[tokio::test]
async fn version_shows_binary_emulation_and_minimum_compatibility() {
    let server = testing::start_on([widgets()], Arc::new(Memory::new()), |options| {
        options
            .api
            .versions
            .set_emulation(MajorMinor::literal("1.36"));
    })
    .await
    .unwrap();
    let version = Client::new(&server).get("/version").await.json();
    let fields = [
        "major",
        "minor",
        "emulationMinor",
        "minCompatibilityMinor",
        "binaryMinor",
    ];
    let values: Vec<&Value> = fields.iter().map(|field| &version[field]).collect();
    assert_eq!(
        values,
        [
            &json!("1"),
            &json!("37"),
            &json!("36"),
            &json!("35"),
            &json!("37")
        ]
    );
    assert!(
        version["gitVersion"]
            .as_str()
            .unwrap()
            .starts_with("v1.37.0+portunus.")
    );
}

#[tokio::test]
async fn index_lists_what_is_served() {
    let server = server().await;
    let index = Client::new(&server).get("/").await.json();
    let paths = index["paths"].as_array().unwrap();
    for path in ["/apis/example.io/v1", "/readyz", "/openapi/v3"] {
        assert!(paths.contains(&json!(path)), "{path}");
    }
}
