//! Gadgets: a resource as users of kube-rs declare it.

use kube::api::{Api, ObjectMeta};
use kube::{Client, Config, CustomResource, CustomResourceExt};
use portunus_apis::Lifecycle;
use portunus_apiserver::testing::{self, TestServer};
use portunus_apiserver::{Definition, ServiceOptions};
use portunus_client::kubernetes::Memory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub const NAMESPACE: &str = "shop";

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.io",
    version = "v1",
    kind = "Gadget",
    namespaced,
    status = "GadgetStatus",
    shortname = "gd",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GadgetSpec {
    /// The size in metres.
    #[schemars(range(min = 0))]
    pub size: i64,
    #[serde(default)]
    pub part_names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GadgetStatus {
    pub phase: String,
}

pub fn definition() -> Definition {
    let document = serde_json::to_value(Gadget::crd()).unwrap();
    Definition::from_custom_resource(&document, &Lifecycle::since("1.36")).unwrap()
}

pub fn gadget(name: &str, size: i64) -> Gadget {
    let spec = GadgetSpec {
        size,
        part_names: Vec::new(),
        color: None,
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Gadget {
        metadata,
        spec,
        status: None,
    }
}

/// Returns a client of a server, as the documentation of `testing` says.
pub fn client(server: &TestServer) -> Client {
    let config = Config::new(server.url().parse().unwrap());
    Client::try_from(config).unwrap()
}

/// Starts a server and returns a client of its gadgets.
pub async fn start() -> (TestServer, Api<Gadget>) {
    let server = testing::start([definition()]).await.unwrap();
    let gadgets = Api::namespaced(client(&server), NAMESPACE);
    (server, gadgets)
}

/// Starts a server on a store.
pub async fn start_on(store: &Memory) -> (TestServer, Api<Gadget>) {
    let unchanged = |_: &mut ServiceOptions| {};
    let server = testing::start_on([definition()], Arc::new(store.clone()), unchanged);
    let server = server.await.unwrap();
    let gadgets = Api::namespaced(client(&server), NAMESPACE);
    (server, gadgets)
}
