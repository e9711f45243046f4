//! Feature gates of one member for operators and tools: over HTTP, in metrics, in the data, and
//! under emulated versions.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::gates::{MECHANISM, NO_MECHANISM, requiring, wants};
use common::requests::{get, put};
use common::stored::bucket;
use common::{HttpAnswer, Process, Server, data_dir, http_at, launch, portunus};
use portunus_proto::FILE_DESCRIPTOR_SET;
use portunus_proto::etcdserverpb::{FeatureGateStatusRequest, LeaseGrantRequest, RangeRequest};
use portunus_proto::membershippb::ClusterParams;
use prost::Message;
use tonic::Code;

fn json(answer: &HttpAnswer) -> serde_json::Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"))
}

async fn until_on(server: &Server, feature: &str) {
    let path = format!("/featuregate?feature={feature}");
    common::eventually("the feature is on", async || {
        (server.get(&path).body == "true").then_some(())
    })
    .await;
}

/// Proves: S1-8, S1-9, S1-A2, S0-42, S0-A14
#[tokio::test]
async fn gates_are_served_over_http() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[MECHANISM, &wants("ApplyTag=true")]);
    until_on(&server, "ApplyTag").await;
    for (query, body) in [
        ("?feature=LeaseCheckpoint", "false"),
        ("?feature=NoSuchFeature", "false"),
        ("?feature=FastLeaseKeepAlive", "false"),
        ("?feature=FastLeaseKeepAlive&isServerFeature=true", "true"),
        ("?isServerFeature=false&feature=ApplyTag", "true"),
        ("?feature=ApplyTag&isServerFeature=true", "false"),
    ] {
        let answer = server.get(&format!("/featuregate{query}"));
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, body),
            "{query}"
        );
    }
    let all = json(&server.get("/featuregate"));
    assert_eq!(all["ApplyTag"], true);
    assert_eq!(all["LogCompression"], false);
    assert!(all.get("FastLeaseKeepAlive").is_none());
    let own = json(&server.get("/featuregate?isServerFeature=true"));
    assert_eq!(own["ClusterFeatureGate"], true);
    let bad = server.get("/featuregate?isServerFeature=perhaps");
    assert_eq!(bad.status, 400);
    assert_eq!(server.get("/featuregate?feature=").status, 400);
    assert_eq!(server.http("POST", "/featuregate").status, 405);

    let post = |body: &str| {
        let path = "/v3/maintenance/featuregate";
        http_at(server.address, "POST", path, &[], body.as_bytes())
    };
    let answer = json(&post(r#"{"features":["ApplyTag","LeaseCheckpoint"]}"#));
    assert_eq!(
        answer["features"],
        serde_json::json!([{"name":"ApplyTag","enabled":true},{"name":"LeaseCheckpoint"}])
    );
    assert!(answer["header"]["cluster_id"].is_string());
    assert!(answer.get("isServerFeature").is_none());
    let enabled = json(&post(""));
    assert_eq!(enabled["features"].as_array().unwrap().len(), 1);
    for spelling in ["isServerFeature", "is_server_feature"] {
        let answer = json(&post(&format!(r#"{{"{spelling}":true,"allKnown":true}}"#)));
        assert_eq!(answer["isServerFeature"], true);
        let details = answer["details"].as_array().unwrap();
        let gate = details.iter().find(|it| it["name"] == "ClusterFeatureGate");
        assert_eq!(gate.unwrap()["source"], "flag", "{answer}");
    }
    let unknown = json(&post(r#"{"features":["Nope"],"allKnown":true}"#));
    assert_eq!(unknown["details"][0]["source"], "unknown");
    assert_eq!(post("{").status, 400);
    assert_eq!(post(r#"{"features":[""]}"#).status, 400);
}

/// No endpoint can change a gate.
/// Proves: S0-6
#[test]
fn no_method_changes_a_gate() {
    let files = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let services = files.file.iter().flat_map(|file| &file.service);
    let methods: Vec<(&str, bool)> = services
        .flat_map(|service| &service.method)
        .filter(|method| {
            let input = method.input_type();
            let about = |text: &str| text.contains("Gate") || text.contains("Feature");
            about(method.name()) || about(input) || input.starts_with(".portunuspb")
        })
        .map(|method| (method.name(), method.client_streaming()))
        .collect();
    let reading = [
        ("FeatureGateStatus", false),
        ("History", false),
        ("Watch", false),
    ];
    assert_eq!(methods, reading);
}

/// Series follow the values, disabled features are 0, and a withdrawn proposal leaves no
/// series.
/// Proves: S0-A22, S0-49, X8
#[tokio::test]
async fn metrics_follow_every_decision() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[MECHANISM, &wants("ApplyTag=true")]);
    until_on(&server, "ApplyTag").await;
    let metrics = server.get("/metrics").body;
    for line in [
        r#"etcd_cluster_feature_enabled{name="ApplyTag",stage="ALPHA"} 1"#,
        r#"etcd_cluster_feature_enabled{name="LogCompression",stage="ALPHA"} 0"#,
        r#"etcd_server_feature_enabled{name="ClusterFeatureGate",stage="BETA"} 1"#,
        r#"etcd_cluster_params_reconcile_total{result="decided"} 1"#,
        r#"version_info{binary="3.8",component="portunus",emulation="3.8",min_compat="3.7"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let proposal = |metrics: &str| {
        let mut lines = metrics.lines();
        lines
            .find(|line| line.starts_with("etcd_cluster_feature_proposal{"))
            .map(str::to_owned)
    };
    assert!(
        proposal(&metrics)
            .unwrap()
            .ends_with(r#"name="ApplyTag"} 1"#)
    );
    server.stop();
    let server = Server::start(&dir, &[MECHANISM]);
    common::eventually("the feature is off", async || {
        (server.get("/featuregate?feature=ApplyTag").body == "false").then_some(())
    })
    .await;
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains(r#"etcd_cluster_feature_enabled{name="ApplyTag",stage="ALPHA"} 0"#),
        "{metrics}"
    );
    assert_eq!(proposal(&metrics), None);
}

/// Flags for cluster features have no effect with the mechanism off: the member warns, starts
/// and proposes nothing.
/// Proves: S0-18, S0-49, S0-A27
#[tokio::test]
async fn cluster_flags_with_the_mechanism_off_are_a_warning() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[NO_MECHANISM, &wants("ApplyTag=true")]);
    let log = server.process.log();
    assert!(log.contains("ClusterFeatureGate=true"), "{log}");
    let members = bucket(&mut server.connect().await, "members").await;
    let record = members.values().next().unwrap();
    assert!(!String::from_utf8_lossy(record).contains("proposed"));
    assert_eq!(server.get("/featuregate?feature=ApplyTag").body, "false");
    server.stop();
}

/// The key of the config file takes the flag's text or a map, and both become this member's
/// proposal, as written; an unknown feature prevents the start.
/// Proves: S0-18
#[tokio::test]
async fn config_file_proposes_cluster_features_as_the_flag_does() {
    let (guard, dir) = data_dir();
    let file = guard.path().join("member.yaml");
    let with = |gates: &str| {
        let text = format!(
            "data-dir: {}\nlisten-client-urls: http://127.0.0.1:0\n\
             advertise-client-urls: http://127.0.0.1:2379\n\
             feature-gates: {{ClusterFeatureGate: true}}\ncluster-feature-gates: {gates}\n",
            dir.display()
        );
        std::fs::write(&file, text).unwrap();
        let mut command = portunus();
        Process::spawn(command.arg(format!("--config-file={}", file.display())))
    };
    for (gates, proposed) in [
        (
            "ApplyTag=t,AllBeta=0",
            r#"{"AllBeta":false,"ApplyTag":true}"#,
        ),
        ("{ApplyTag: true}", r#"{"ApplyTag":true}"#),
    ] {
        let server = with(gates).ready();
        until_on(&server, "ApplyTag").await;
        let members = bucket(&mut server.connect().await, "members").await;
        let record: serde_json::Value =
            serde_json::from_slice(members.values().next().unwrap()).unwrap();
        let flags = &record["proposedClusterParams"]["featureGates"];
        assert_eq!(flags.to_string(), proposed);
        // It is no server feature, regardless of the file.
        let own = server.get("/featuregate?feature=ApplyTag&isServerFeature=true");
        assert_eq!(own.body, "false");
        server.stop();
    }
    for (gates, complaint) in [
        ("ApplyTag", "ApplyTag"),
        ("{ApplyTag: 1}", "cannot be used"),
        ("{PriorityRequest: true}", "--feature-gates"),
        ("{Zebra: true}", "Zebra"),
    ] {
        let (status, log) = with(gates).ended();
        assert!(!status.success(), "{gates}");
        assert!(log.contains(complaint), "{gates}: {log}");
    }
}

/// Params and raw proposals are stored where the formats document, beside etcd's own records.
/// Proves: S0-A26, S0-19, X8
#[tokio::test]
async fn cluster_params_are_stored_under_their_own_key() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[MECHANISM, &wants("ApplyTag=true,AllBeta=false")]);
    until_on(&server, "ApplyTag").await;
    let mut clients = server.connect().await;
    let cluster = bucket(&mut clients, "cluster").await;
    let params = ClusterParams::decode(&cluster["clusterParams"][..]).unwrap();
    assert_eq!(params.version, "3.8");
    let on: Vec<&str> = params
        .feature_gates
        .iter()
        .filter(|feature| feature.enabled)
        .map(|feature| feature.name.as_str())
        .collect();
    assert_eq!(on, ["ApplyTag"]);
    assert!(cluster.contains_key("clusterParamsHistory"));
    let own = clients
        .maintenance
        .status(portunus_proto::etcdserverpb::StatusRequest {});
    let id = own.await.unwrap().into_inner().header.unwrap().member_id;
    let members = bucket(&mut clients, "members").await;
    let record: serde_json::Value = serde_json::from_slice(&members[&format!("{id:x}")]).unwrap();
    assert_eq!(
        record["proposedClusterParams"],
        serde_json::json!({"version":"3.8","featureGates":{"AllBeta":false,"ApplyTag":true}})
    );
}

/// A feature that a version did not have is absent when it is emulated, and one that it had is
/// present.
/// Proves: S2-8, S2-9, S2-42, S0-49
#[tokio::test]
async fn emulated_version_answers_gate_calls_as_that_version() {
    for (version, has_streams) in [("3.6", false), ("3.7", true)] {
        let (_guard, dir) = data_dir();
        let flag = format!("--emulated-version={version}");
        let server = Server::start(&dir, &[&flag]);
        let mut clients = server.connect().await;
        let grant = LeaseGrantRequest { id: 7, ttl: 60 };
        clients.lease.lease_grant(grant).await.unwrap();
        let mut request = put("a", "b");
        request.lease = 7;
        clients.kv.put(request).await.unwrap();
        let stream = clients.kv.range_stream(get("a")).await;
        assert_eq!(stream.is_ok(), has_streams);
        if let Err(status) = stream {
            assert_eq!(status.code(), Code::Unimplemented);
            assert_eq!(
                status.message(),
                "unknown method RangeStream for service etcdserverpb.KV"
            );
        }
        let request = RangeRequest {
            keys_only: true,
            ..get("a")
        };
        let found = clients.kv.range(request).await.unwrap().into_inner();
        // 3.7 reads keys from its index, which has no leases.
        assert_eq!(found.kvs[0].lease, if has_streams { 0 } else { 7 });
        assert!(found.kvs[0].value.is_empty());
        let request = FeatureGateStatusRequest::default();
        let status = clients.maintenance.feature_gate_status(request).await;
        assert_eq!(status.is_ok(), has_streams);
        assert_eq!(
            server.get("/featuregate").status,
            if has_streams { 200 } else { 404 }
        );
        let told = json(&server.get("/version"));
        let release = told["etcdserver"].as_str().unwrap();
        assert!(release.starts_with(&format!("{version}.")), "{release}");
        assert_eq!(told["etcdcluster"], format!("{version}.0"));
        // A feature of a later version is off, so a request that requires it is refused.
        let required = clients
            .kv
            .range(requiring("LogCompression", get("a")))
            .await;
        assert_eq!(required.unwrap_err().code(), Code::FailedPrecondition);
    }
}

/// Features that the emulated version does not have cannot be enabled.
/// Proves: S2-12, S2-29
#[test]
fn flags_are_those_of_the_emulated_version() {
    let (_guard, dir) = data_dir();
    for (flags, complaint) in [
        (
            vec!["--emulated-version=3.6", MECHANISM],
            "ClusterFeatureGate",
        ),
        (
            vec![
                "--emulated-version=3.7",
                MECHANISM,
                "--cluster-feature-gates=LogCompression=true",
            ],
            "LogCompression",
        ),
        (vec!["--emulated-version=3.9"], "3.5"),
        (vec!["--emulated-version=3.4"], "3.5"),
    ] {
        let (status, log) = launch(&dir, &flags).ended();
        assert!(!status.success(), "{flags:?}");
        assert!(log.contains(complaint), "{flags:?}: {log}");
    }
}
