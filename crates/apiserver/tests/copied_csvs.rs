//! The example `copied-csvs` against `portunus-apiserver dev`: its feature is switched at run time.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "program")]

#[path = "../examples/copied_csvs/controller/mod.rs"]
mod controller;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use controller::{Client, Controller};
use http::Method;
use nix::sys::signal::Signal;
use portunus_testkit::process::Process;
use portunus_testkit::wait;
use serde_json::{Value, json};

const V1: &str = "/apis/operators.coreos.com/v1/olmconfigs";
const V2ALPHA1: &str = "/apis/operators.coreos.com/v2alpha1/olmconfigs";
const CSVS: &str = "/apis/operators.coreos.com/v1alpha1/clusterserviceversions";

async fn start(directory: &Path) -> Process {
    let kubeconfig = directory.join("kubeconfig");
    let _ = fs::remove_file(&kubeconfig);
    let mut command = Command::new(env!("CARGO_BIN_EXE_portunus-apiserver"));
    command.args(["dev", "--data-dir"]).arg(directory);
    let mut process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()));
    wait::eventually("kubeconfig", async || {
        assert!(!process.has_ended(), "{}", process.log());
        kubeconfig.exists().then_some(())
    })
    .await;
    process
}

/// Stops the server. The controller closes its connection meanwhile, so the runtime must not wait.
async fn stop(process: Process) {
    process.signal(Signal::SIGTERM);
    let ended = tokio::task::spawn_blocking(|| process.ended());
    let (status, log) = ended.await.unwrap();
    assert!(status.success(), "{status} {log}");
}

/// A user of the API server.
struct User(Client);

impl User {
    async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let sent = self.0.request(method, path, Some(body)).await;
        sent.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let list = self.0.request(Method::GET, path, None).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    async fn create_namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.send(Method::POST, "/api/v1/namespaces", &namespace)
            .await;
    }

    /// Installs an operator in the namespace `operators`.
    async fn create_csv(&self, name: &str, targets: &str) {
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": name, "annotations": {"olm.targetNamespaces": targets}},
            "spec": {"displayName": name, "version": "1.0.0"}});
        let path =
            "/apis/operators.coreos.com/v1alpha1/namespaces/operators/clusterserviceversions";
        let mut created = self.send(Method::POST, path, &csv).await;
        created["status"] = json!({"phase": "Succeeded", "reason": "InstallSucceeded"});
        self.send(Method::PUT, &format!("{path}/{name}/status"), &created)
            .await;
    }

    /// Switches the feature as a client that knows only v1.
    async fn disable_copies(&self, value: bool) {
        let patch = json!({"spec": {"features": {"disableCopiedCSVs": value}}});
        self.send(Method::PATCH, &format!("{V1}/cluster"), &patch)
            .await;
    }

    /// Waits until the copies of a CSV are in these namespaces and in no others.
    async fn expect_copies(&self, name: &str, namespaces: &[&str]) {
        let expected: BTreeSet<&str> = namespaces.iter().copied().collect();
        wait::until("wanted copies", async || {
            let csvs = self.items(CSVS).await;
            let copies = csvs.iter().filter(|csv| {
                csv["metadata"]["name"] == name
                    && csv["metadata"]["labels"]["olm.copiedFrom"] == "operators"
                    && csv["status"]["phase"] == "Succeeded"
                    && csv["status"]["reason"] == "Copied"
                    && csv["spec"]["version"] == "1.0.0"
            });
            let found: BTreeSet<&str> = copies
                .map(|csv| csv["metadata"]["namespace"].as_str().unwrap())
                .collect();
            // A copy without its status yet is not as expected either.
            let all = csvs.iter().filter(|csv| csv["metadata"]["name"] == name);
            let is_exact = all.count() == found.len() + 1;
            match found == expected && is_exact {
                true => Ok(()),
                false => Err(format!("{csvs:?}")),
            }
        })
        .await;
    }

    /// Waits until the configuration has a condition with this status and reason.
    async fn expect_condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        wait::until("wanted condition", async || {
            let configs = self.items(V2ALPHA1).await;
            let condition = portunus_olm::condition(&configs[0], kind);
            let generation = &configs[0]["metadata"]["generation"];
            match condition {
                Some(condition)
                    if condition["status"] == status
                        && condition["reason"] == reason
                        && condition["observedGeneration"] == *generation =>
                {
                    Ok(condition.clone())
                }
                _ => Err(format!("{configs:?}")),
            }
        })
        .await
    }

    /// Waits until there are this many Warning events for a CSV.
    async fn expect_warnings(&self, name: &str, count: usize) {
        let selector = format!("involvedObject.name={name},type=Warning,reason=DisabledCopiedCSVs");
        let path = format!("/api/v1/namespaces/operators/events?fieldSelector={selector}");
        wait::until("Warning events", async || {
            let events = self.items(&path).await;
            match events.len() == count {
                true => Ok(()),
                false => Err(events),
            }
        })
        .await;
    }
}

/// Proves: S3-2, S3-9, S3-14
#[tokio::test]
async fn feature_is_switched_at_run_time_by_patches_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let kubeconfig = directory.path().join("kubeconfig");
    let user = User(Client::new(&kubeconfig));
    let controller = Controller::new(Client::new(&kubeconfig), vec!["openshift".to_owned()]);
    let controller = tokio::spawn(controller.unwrap().run());
    for name in ["operators", "openshift", "tenant-a", "tenant-b"] {
        user.create_namespace(name).await;
    }

    // Without a configuration copies are enabled.
    user.create_csv("etcd.v1", "").await;
    user.create_csv("single.v1", "tenant-a").await;
    let everywhere = ["openshift", "tenant-a", "tenant-b"];
    user.expect_copies("etcd.v1", &everywhere).await;

    // Nothing of a configuration without the gate changes that. An unknown gate is reported.
    let config = json!({
        "apiVersion": "operators.coreos.com/v2alpha1", "kind": "OLMConfig",
        "metadata": {"name": "cluster"},
        "spec": {"features": {"gates": [{"name": "preview", "value": true}]}}});
    user.send(Method::POST, V2ALPHA1, &config).await;
    let condition = user
        .expect_condition("GatesValid", "False", "UnknownGate")
        .await;
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("unknown feature \"preview\""),
        "{condition}"
    );
    user.expect_condition("DisabledCopiedCSVs", "False", "CopiedCSVsEnabled")
        .await;
    user.expect_warnings("etcd.v1", 0).await;

    // On: copies are removed, except in the protected namespace, and each CSV has its event.
    user.disable_copies(true).await;
    user.expect_copies("etcd.v1", &["openshift"]).await;
    user.expect_condition("DisabledCopiedCSVs", "True", "CopiedCSVsDisabled")
        .await;
    user.expect_warnings("etcd.v1", 1).await;
    user.create_csv("vault.v1", "").await;
    user.expect_warnings("vault.v1", 1).await;
    user.expect_copies("vault.v1", &["openshift"]).await;

    // Off, after the server was replaced by one with another address and other certificates.
    stop(server).await;
    let server = start(directory.path()).await;
    let user = User(Client::new(&kubeconfig));
    user.create_namespace("tenant-c").await;
    user.disable_copies(false).await;
    let everywhere = ["openshift", "tenant-a", "tenant-b", "tenant-c"];
    user.expect_copies("etcd.v1", &everywhere).await;
    user.expect_copies("vault.v1", &everywhere).await;
    user.expect_condition("DisabledCopiedCSVs", "False", "CopiedCSVsEnabled")
        .await;
    user.expect_warnings("etcd.v1", 1).await;

    // On again is reported again. Without the configuration copies are enabled.
    user.disable_copies(true).await;
    user.expect_warnings("etcd.v1", 2).await;
    user.expect_copies("etcd.v1", &["openshift"]).await;
    let path = format!("{V1}/cluster");
    user.send(Method::DELETE, &path, &json!({})).await;
    user.expect_copies("etcd.v1", &everywhere).await;

    // An operator for one namespace has no copies, and no event.
    user.expect_copies("single.v1", &[]).await;
    user.expect_warnings("single.v1", 0).await;
    assert!(!controller.is_finished());
    controller.abort();
    stop(server).await;
}
