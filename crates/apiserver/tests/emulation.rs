//! Servers of different emulation and minimum compatibility versions over the same stored
//! objects: in one process in memory, and as processes over a real store.
//!
//! No program that ships serves the widgets of these tests. A server process is this test program
//! itself, started with the name of the test [`server_process`] and its versions in the
//! environment.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use common::{Client, widget, widgets};
use portunus_apiserver::testing::{self, TestServer};
use portunus_client::kubernetes::{GetOptions, Interface, Kubernetes, Memory};
use portunus_gates::MajorMinor;
use portunus_testkit::http::{HttpAnswer, http_at};
use portunus_testkit::process::Process;
use portunus_testkit::standalone::{Server, data_dir};
use serde_json::{Value, json};

/// Every legal pair of emulation and minimum compatibility version, upwards.
const GRID: [(&str, &str); 10] = [
    ("1.34", "1.34"),
    ("1.35", "1.34"),
    ("1.35", "1.35"),
    ("1.36", "1.34"),
    ("1.36", "1.35"),
    ("1.36", "1.36"),
    ("1.37", "1.34"),
    ("1.37", "1.35"),
    ("1.37", "1.36"),
    ("1.37", "1.37"),
];

async fn start(store: &Memory, emulation: &str, min_compat: &str) -> TestServer {
    start_on(Arc::new(store.clone()), emulation, min_compat).await
}

async fn start_on(store: Arc<dyn Interface>, emulation: &str, min_compat: &str) -> TestServer {
    let release = |text: &str| {
        let parsed = portunus_gates::Version::parse(text).unwrap();
        parsed.major_minor()
    };
    let (emulation, min_compat): (MajorMinor, MajorMinor) =
        (release(emulation), release(min_compat));
    testing::start_on([widgets()], store, |options| {
        options.api.versions.set_emulation(emulation);
        options.api.versions.set_min_compat(min_compat);
    })
    .await
    .unwrap()
}

/// Returns the versions of widgets that a server serves, the preferred one first.
async fn served(client: &Client) -> Vec<String> {
    let group = client.get("/apis/example.io").await.json();
    let versions = group["versions"].as_array().unwrap().iter();
    versions
        .map(|it| it["version"].as_str().unwrap().to_owned())
        .collect()
}

async fn stored_version(store: &dyn Interface, name: &str) -> String {
    let key = format!("/registry/example.io/widgets/ns/{name}");
    let read = store.get(key.as_bytes(), GetOptions::default()).await;
    let value: Value = serde_json::from_slice(&read.unwrap().kv.unwrap().value).unwrap();
    value["apiVersion"].as_str().unwrap().to_owned()
}

fn path(version: &str) -> String {
    format!("/apis/example.io/{version}/namespaces/ns/widgets")
}

/// The size of a widget in the field of its version.
fn size(object: &Value) -> i64 {
    let spec = &object["spec"];
    let size = spec["size"].as_i64().or(spec["length"].as_i64());
    size.unwrap_or_else(|| panic!("no size in {object}"))
}

/// v1 is introduced in 1.36, so 1.34 and 1.35 can neither serve nor read it: it is stored only
/// if every release from the minimum compatibility version on knows it.
///
/// Proves: S2-20, S2-25, S2-37
#[tokio::test]
async fn upgrades_and_rollbacks_keep_every_object_readable() {
    let store = Memory::new();
    let mut names = Vec::new();
    let steps = GRID.iter().chain(GRID.iter().rev()).enumerate();
    for (step, (emulation, min_compat)) in steps {
        let server = start(&store, emulation, min_compat).await;
        let client = Client::new(&server);
        let versions = served(&client).await;
        let expected: &[&str] = match *emulation {
            "1.34" | "1.35" => &["v1beta1"],
            _ => &["v1", "v1beta1"],
        };
        assert_eq!(versions, expected, "{emulation}");
        let name = format!("w{step}");
        let field = if versions[0] == "v1" {
            "size"
        } else {
            "length"
        };
        let mut body = widget(&name, json!({field: step}));
        body["apiVersion"] = json!(format!("example.io/{}", versions[0]));
        let created = client.post(&path(&versions[0]), &body).await;
        assert_eq!(created.code, 201, "{:?}", created.body);
        let expected = match *min_compat {
            "1.36" | "1.37" => "example.io/v1",
            _ => "example.io/v1beta1",
        };
        assert_eq!(
            stored_version(&store, &name).await,
            expected,
            "{emulation} {min_compat}"
        );
        names.push(name);
        for version in &versions {
            for (number, name) in names.iter().enumerate() {
                let read = client.get(&format!("{}/{name}", path(version))).await;
                assert_eq!(read.code, 200, "{name} at {emulation}");
                assert_eq!(size(&read.json()), i64::try_from(number).unwrap());
            }
        }
    }
}

/// Two servers with different emulation share a store: each reads and changes what the other
/// wrote, and a write without a change goes to the store once at most.
#[tokio::test]
async fn servers_of_different_emulation_share_objects() {
    let store = Memory::new();
    let (old, new) = (
        start(&store, "1.35", "1.34").await,
        start(&store, "1.37", "1.36").await,
    );
    let (old, new) = (Client::new(&old), Client::new(&new));
    let mut events = old.watch(&format!("{}?watch=1", path("v1beta1"))).await;
    new.post(&path("v1"), &widget("a", json!({"size": 1})))
        .await;
    let added = events.next().await.unwrap();
    assert_eq!(added["object"]["apiVersion"], "example.io/v1beta1");
    assert_eq!(added["object"]["spec"]["length"], 1);
    let target = format!("{}/a", path("v1beta1"));
    let patched = old.merge(&target, &json!({"spec": {"length": 2}})).await;
    assert_eq!(patched.code, 200);
    assert_eq!(stored_version(&store, "a").await, "example.io/v1beta1");
    let target = format!("{}/a", path("v1"));
    let read = new.get(&target).await.json();
    assert_eq!(size(&read), 2);
    // The first write in the other storage version is a change of bytes; after it nothing is
    // written any more.
    new.put(&target, &read).await;
    let revision = store.revision();
    for _ in 0..3 {
        let read = new.get(&target).await.json();
        assert_eq!(new.put(&target, &read).await.code, 200);
    }
    assert_eq!(store.revision(), revision);
    assert_eq!(stored_version(&store, "a").await, "example.io/v1");
}

/// Proves: S2-22
#[tokio::test]
async fn fields_are_not_pruned_by_emulation() {
    let store = Memory::new();
    let server = start(&store, "1.34", "1.34").await;
    let client = Client::new(&server);
    let body = json!({"metadata": {"name": "a"}, "spec": {"length": 1, "parts": [{"name": "x"}]}});
    let created = client.post(&path("v1beta1"), &body).await.json();
    assert_eq!(created["spec"]["parts"], json!([{"name": "x"}]));
}

/// The emulation version, the minimum compatibility version and the store of a server process.
const ROLE_VARIABLE: &str = "PORTUNUS_TEST_EMULATED_SERVER";
/// What a server process writes before its address.
const SERVING: &str = "serving at ";

fn connect(store: &str) -> Kubernetes {
    let options = portunus_client::Options {
        endpoints: vec![store.to_owned()],
        ..portunus_client::Options::default()
    };
    Kubernetes::new(portunus_client::Client::connect(options).unwrap())
}

/// A server in a process of its own. It ends with the value.
struct ServerProcess {
    /// Killed when it is dropped.
    _process: Process,
    address: SocketAddr,
    /// The served versions, the preferred one first.
    versions: Vec<String>,
}

impl ServerProcess {
    fn start(store: &str, emulation: &str, min_compat: &str) -> ServerProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "server_process", "--ignored", "--nocapture"])
            .env(ROLE_VARIABLE, format!("{emulation},{min_compat},{store}"));
        let process = Process::spawn(&mut command);
        let line = process.find_line(SERVING);
        let line = line.unwrap_or_else(|| panic!("no server: {}", process.log()));
        let (_, address) = line.split_once(SERVING).unwrap();
        let mut server = ServerProcess {
            _process: process,
            address: address.trim().parse().unwrap(),
            versions: Vec::new(),
        };
        let group: Value = server.json("GET", "/apis/example.io", b"").1;
        let versions = group["versions"].as_array().unwrap().iter();
        let versions = versions.map(|it| it["version"].as_str().unwrap().to_owned());
        server.versions = versions.collect();
        server
    }

    fn json(&self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let HttpAnswer { status, body, .. } = http_at(self.address, method, path, &[], body);
        let value = serde_json::from_str(&body);
        (
            status,
            value.unwrap_or_else(|error| panic!("{error}: {body}")),
        )
    }

    /// Creates a widget in the preferred version.
    fn create(&self, name: &str, widget_size: usize) {
        let version = &self.versions[0];
        let field = match &**version {
            "v1" => "size",
            _ => "length",
        };
        let mut body = widget(name, json!({field: widget_size}));
        body["apiVersion"] = json!(format!("example.io/{version}"));
        let (status, created) = self.json("POST", &path(version), body.to_string().as_bytes());
        assert_eq!(status, 201, "{created}");
    }

    /// Reads every widget in every served version, by itself and in a list.
    fn assert_reads(&self, names: &[String]) {
        for version in &self.versions {
            for (number, name) in names.iter().enumerate() {
                let (status, read) = self.json("GET", &format!("{}/{name}", path(version)), b"");
                assert_eq!(status, 200, "{read}");
                assert_eq!(size(&read), i64::try_from(number).unwrap());
                assert_eq!(read["apiVersion"], format!("example.io/{version}"));
            }
            let (status, list) = self.json("GET", &path(version), b"");
            let items = list["items"].as_array().map_or(0, Vec::len);
            assert_eq!((status, items), (200, names.len()));
        }
    }
}

/// The role of a server process; a test only in name.
#[tokio::test]
#[ignore = "the role of a process that other tests start"]
async fn server_process() {
    let Ok(role) = std::env::var(ROLE_VARIABLE) else {
        return;
    };
    let [emulation, min_compat, store] = role.split(',').collect::<Vec<_>>()[..] else {
        panic!("{ROLE_VARIABLE}={role}");
    };
    let server = start_on(Arc::new(connect(store)), emulation, min_compat).await;
    eprintln!("{SERVING}{}", server.url().trim_start_matches("http://"));
    std::future::pending::<()>().await;
}

/// Every step of the grid is a process of its own, upwards and back. It starts while the process
/// of the step before still serves, as in a rolling upgrade, and both read what either wrote.
///
/// Proves: S2-20, S2-25, S2-37
#[tokio::test(flavor = "multi_thread")]
async fn processes_of_an_upgrade_and_its_rollback_read_every_object() {
    let (_guard, dir) = data_dir();
    let member = Server::start(&dir, &[]);
    let store = connect(&member.url());
    let mut names = Vec::new();
    let mut before: Option<ServerProcess> = None;
    let steps = GRID.iter().chain(GRID.iter().rev()).enumerate();
    for (step, (emulation, min_compat)) in steps {
        let server = ServerProcess::start(&member.url(), emulation, min_compat);
        let expected: &[&str] = match *emulation {
            "1.34" | "1.35" => &["v1beta1"],
            _ => &["v1", "v1beta1"],
        };
        assert_eq!(server.versions, expected, "{emulation}");
        let name = format!("w{step}");
        server.create(&name, step);
        names.push(name.clone());
        let expected = match *min_compat {
            "1.36" | "1.37" => "example.io/v1",
            _ => "example.io/v1beta1",
        };
        let stored = stored_version(&store, &name).await;
        assert_eq!(stored, expected, "{emulation} {min_compat}");
        server.assert_reads(&names);
        if let Some(before) = before {
            before.assert_reads(&names);
        }
        before = Some(server);
    }
    drop(before);
    member.stop();
}
