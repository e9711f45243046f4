//! Versions of one member for its operators: the ones it reports, what it writes at which, how
//! an upgrade fails, and clients whose version is too far away.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::cluster::Cluster;
use common::gates::{MECHANISM, NEWEST_ONLY, wants};
use common::requests::{get, put};
use common::stored::logged_requests;
use common::{Server, clients_of, data_dir, eventually, http_at, launch};
use portunus_features::version::{effective_version, version_text};
use portunus_proto::etcdserverpb::wrapped_request::Packing;
use tonic::transport::Endpoint;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

fn version_of(server: &Server) -> serde_json::Value {
    json(&server.get("/version").body)
}

/// `/version` has the binary version, regardless of the emulated one, and the minimum
/// compatibility version, after the keys of etcd, at both ports, so that members and tools of
/// either kind find theirs.
/// Proves: S2-24, S2-A2
#[tokio::test(flavor = "multi_thread")]
async fn version_reply_has_binary_emulation_and_min_compatibility_versions() {
    for (flags, emulation, minimum) in [
        (&[][..], "8", "7"),
        (&["--emulated-version=3.7"], "7", "6"),
        (&["--emulated-version=3.5"], "5", "5"),
        (&["--min-compatibility-version=3.8"], "8", "8"),
        (
            &["--emulated-version=3.7", "--min-compatibility-version=3.5"],
            "7",
            "5",
        ),
    ] {
        let cluster = Cluster::start("version_reply", 1, flags).await;
        let mut version = effective_version();
        version.set_emulation(format!("3.{emulation}").parse().unwrap());
        let expected = serde_json::json!({
            "etcdserver": version_text(&version),
            "etcdcluster": format!("3.{emulation}.0"),
            "storage": format!("3.{emulation}.0"),
            "major": "3", "minor": "8",
            "emulationMajor": "3", "emulationMinor": emulation,
            "minCompatibilityMajor": "3", "minCompatibilityMinor": minimum,
            "gitVersion": "v3.8.0", "clusterParams": true,
        });
        let node = &cluster.members[0];
        eventually("the version is decided", async || {
            let answer = http_at(node.client, "GET", "/version", &[], &[]);
            (json(&answer.body) == expected).then_some(())
        })
        .await;
        let answer = cluster.ask_peer_port(0, "GET", "/version", &[], &[]).await;
        assert_eq!(json(&answer.body), expected, "{flags:?}");
    }
}

/// Returns what a client can list: paths, metrics, versions.
async fn surface(dir: &Path, flags: &[&str]) -> (Vec<u16>, BTreeSet<String>, serde_json::Value) {
    let server = Server::start(dir, flags);
    server.connect().await.kv.put(put("a", "b")).await.unwrap();
    let paths = ["/health", "/livez", "/readyz", "/version", "/metrics"];
    let statuses = paths.map(|path| server.get(path).status).to_vec();
    let metrics = server.get("/metrics").body;
    let names = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    // Decisions of this process: a restarted member makes none.
    let names = names.filter(|name| !name.starts_with("etcd_cluster_params_reconcile_total"));
    let names = names.map(str::to_owned).collect();
    let version = version_of(&server);
    server.stop();
    (statuses, names, version)
}

/// The flags at their defaults equal no flags, and without the fields about versions the
/// response is that of etcd.
/// Proves: S2-47
#[tokio::test]
async fn default_version_flags_change_only_the_version_reply() {
    let (_guard, dir) = data_dir();
    let plain = surface(&dir, &[]).await;
    let (_other_guard, other) = data_dir();
    let defaults = [
        "--emulated-version=3.8",
        "--min-compatibility-version=3.7",
        "--strict-emulation=false",
    ];
    assert_eq!(surface(&other, &defaults).await, plain);
    // Data written with either can be read with the other.
    assert_eq!(surface(&other, &[]).await, plain);
    assert_eq!(surface(&dir, &defaults).await, plain);
    let mut version = plain.2;
    let keys = version.as_object_mut().unwrap();
    for added in [
        "major",
        "minor",
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
        "gitVersion",
        "clusterParams",
    ] {
        assert!(keys.remove(added).is_some(), "{added}");
    }
    let etcds = serde_json::json!({
        "etcdserver": "3.8.0", "etcdcluster": "3.8.0", "storage": "3.8.0",
    });
    assert_eq!(version, etcds);
}

/// The binary, the emulated version, and the minimum compatibility version are three steps of
/// an upgrade. Each can fail alone, has its own error text, and leaves what the step before
/// reached.
/// Proves: S2-26
#[tokio::test]
async fn each_step_of_an_upgrade_fails_separately() {
    let (_guard, dir) = data_dir();
    // The state that the old binary left.
    let server = Server::start(&dir, &["--emulated-version=3.6"]);
    server.connect().await.kv.put(put("a", "b")).await.unwrap();
    server.stop();

    let numbers = |server: &Server| {
        let told = version_of(server);
        ["minor", "emulationMinor", "minCompatibilityMinor"]
            .map(|key| told[key].as_str().unwrap().to_owned())
    };
    let of_binary = "Zebra";
    let of_emulation = "emulation version 3.9 is out of range: choose one from 3.5 to 3.8";
    let of_minimum =
        "minimum compatibility version 3.8 is out of range: choose one from 3.5 to 3.7";
    let all = [of_binary, of_emulation, of_minimum];
    for (step, failing, complaint, working, reached) in [
        (
            "the binary, with flags it does not know any more",
            &["--emulated-version=3.6", "--feature-gates=Zebra=true"][..],
            of_binary,
            &["--emulated-version=3.6"][..],
            ["8", "6", "5"],
        ),
        (
            "the emulated version, too far",
            &["--emulated-version=3.9"],
            of_emulation,
            &["--emulated-version=3.7"],
            ["8", "7", "6"],
        ),
        (
            "the minimum, above what is emulated",
            &["--emulated-version=3.7", "--min-compatibility-version=3.8"],
            of_minimum,
            &["--emulated-version=3.7", "--min-compatibility-version=3.7"],
            ["8", "7", "7"],
        ),
    ] {
        let (status, log) = launch(&dir, failing).ended();
        assert!(!status.success(), "{step}");
        let said: Vec<&str> = all.into_iter().filter(|text| log.contains(text)).collect();
        assert_eq!(said, [complaint], "{step}: {log}");
        let server = Server::start(&dir, working);
        assert_eq!(numbers(&server), reached, "{step}");
        let found = server.connect().await.kv.range(get("a")).await.unwrap();
        assert_eq!(found.into_inner().kvs[0].value, "b", "{step}");
        server.stop();
    }
    // The emulated version is lowered as a separate step as well, with a separate error text
    // where it cannot be.
    let (status, log) = launch(&dir, &["--emulated-version=3.6"]).ended();
    assert!(!status.success());
    assert!(
        log.contains("the cluster version is 3.7, above 3.6"),
        "{log}"
    );
}

/// A version can read data that it does not write yet: a member that must be able to go back to
/// the version before does not write data which that version cannot read, although all members
/// agreed.
/// Proves: S2-18, S2-41
#[tokio::test]
async fn data_unreadable_by_the_min_compatibility_version_is_not_written() {
    let (_guard, dir) = data_dir();
    let value = "v".repeat(10_000);
    let mut packed_before = 0;
    for (minimum, is_packed) in [
        (None, false),
        (Some(NEWEST_ONLY), true),
        // It still reads existing data.
        (Some("--min-compatibility-version=3.7"), false),
    ] {
        let wish = wants("LogCompression=true");
        let mut flags = vec![MECHANISM, &wish];
        flags.extend(minimum);
        let server = Server::start(&dir, &flags);
        eventually("the feature is on", async || {
            let on = server.get("/featuregate?feature=LogCompression").body;
            (on == "true").then_some(())
        })
        .await;
        assert_eq!(
            server.process.log().contains("writes nothing with it"),
            !is_packed,
            "{}",
            server.process.log()
        );
        let mut clients = server.connect().await;
        for _ in 0..3 {
            clients.kv.put(put("a", &value)).await.unwrap();
        }
        let found = clients.kv.range(get("a")).await.unwrap().into_inner();
        assert_eq!(found.kvs[0].value, value);
        server.kill();
        let requests = logged_requests(&dir);
        let wrapped = requests.iter().filter_map(|it| it.wrapped.as_ref());
        let packed = wrapped.filter(|it| it.packing() == Packing::Lz4Block);
        let packed = packed.count();
        assert_eq!(packed - packed_before, if is_packed { 3 } else { 0 });
        packed_before = packed;
    }
    // The version before has neither the feature nor a flag for it.
    let (_guard, dir) = data_dir();
    let wish = wants("LogCompression=true");
    let (status, log) = launch(&dir, &["--emulated-version=3.7", MECHANISM, &wish]).ended();
    assert!(!status.success() && log.contains("LogCompression"), "{log}");
}

/// Clients that send their version are counted, once for each connection; clients that send
/// only a library name, as etcd's do, are not, and appear in
/// `etcd_server_client_requests_total`.
/// Proves: S2-27, S2-A12
#[tokio::test]
async fn clients_are_counted_by_component_and_skew() {
    const NAME: &str = "portunus_server_client_version_skew_total";
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &["--emulated-version=3.7"]);
    let call = async |agent: &str, requests: usize| {
        let endpoint = Endpoint::from_shared(server.url()).unwrap();
        let endpoint = endpoint.user_agent(agent).unwrap();
        let mut clients = clients_of(endpoint.connect().await.unwrap());
        for _ in 0..requests {
            let mut request = tonic::Request::new(get("a"));
            let version = "3.8".parse().unwrap();
            request.metadata_mut().insert("client-api-version", version);
            clients.kv.range(request).await.unwrap();
        }
    };
    call("grpc-go/1.71.0", 2).await;
    let metrics = server.get("/metrics").body;
    assert!(!metrics.contains(NAME), "{metrics}");
    let counted = r#"etcd_server_client_requests_total{client_api_version="3.8",type="unary"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");

    for (agent, requests) in [
        ("portctl/v3.7.0", 3),
        ("portctl/v3.7.9", 1),
        ("portctl/v3.6.1", 1),
        ("portctl/v3.8.0", 1),
        ("portctl/v3.5.0", 1),
        ("portunus-client/v4.0.0", 1),
        ("nobody/v9.9.9", 2),
        ("nothing/v0.0.1", 1),
    ] {
        call(agent, requests).await;
    }
    let metrics = server.get("/metrics").body;
    let series: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(NAME))
        .collect();
    assert_eq!(
        series,
        [
            r#"{component="other",verdict="unknown"} 2"#,
            r#"{component="portctl",verdict="newer"} 1"#,
            r#"{component="portctl",verdict="older"} 1"#,
            r#"{component="portctl",verdict="outside"} 1"#,
            r#"{component="portctl",verdict="same"} 2"#,
            r#"{component="portunus-client",verdict="outside"} 1"#,
        ]
    );
}

/// Returns the value of a server feature in the metrics.
fn is_on(client: std::net::SocketAddr, feature: &str) -> bool {
    let metrics = http_at(client, "GET", "/metrics", &[], &[]).body;
    let start = format!(r#"etcd_server_feature_enabled{{name="{feature}","#);
    let line = metrics.lines().find(|line| line.starts_with(&start));
    line.expect("every feature has a series").ends_with(" 1")
}

/// Where version 3.6 has the old flag of a feature as well as its gate, the two do the same;
/// later only the gate is left, and members of both versions run together. A flag whose feature
/// all members decide is treated as that feature's gate is: it does not exist at 3.6.
/// Proves: S1-15
#[tokio::test(flavor = "multi_thread")]
async fn experimental_flag_sets_its_gate_at_3_6() {
    const OLD: &str = "--experimental-initial-corrupt-check";
    const GATE: &str = "--feature-gates=InitialCorruptCheck=true";
    const FEATURE: &str = "InitialCorruptCheck";
    let (_guard, dir) = data_dir();
    for (flags, complaint) in [
        (vec![OLD], "use --feature-gates=InitialCorruptCheck=true"),
        (vec!["--emulated-version=3.7", OLD], "is gone"),
        (
            vec!["--emulated-version=3.6", OLD, GATE],
            "set only the gate",
        ),
        // Where the gate does not exist, neither does its old name.
        (vec!["--emulated-version=3.5", OLD], FEATURE),
        (vec!["--emulated-version=3.5", GATE], FEATURE),
    ] {
        let (status, log) = launch(&dir, &flags).ended();
        assert!(!status.success(), "{flags:?}");
        assert!(log.contains(complaint), "{flags:?}: {log}");
    }
    let of_the_cluster = [
        "--experimental-enable-lease-checkpoint",
        "--cluster-feature-gates=LeaseCheckpoint=true",
    ];
    let refusals = of_the_cluster.map(|flag| {
        let (status, log) = launch(&dir, &["--emulated-version=3.6", flag]).ended();
        assert!(!status.success(), "{flag}");
        let line = log.lines().last().unwrap().to_owned();
        assert!(line.contains("LeaseCheckpoint"), "{line}");
        line
    });
    assert_eq!(refusals[0], refusals[1]);

    // One member with the old flag, one with the gate, one without either.
    let mut cluster = Cluster::prepare("old_flags", 3, &[]).await;
    for node in &mut cluster.members {
        node.flags = vec!["--emulated-version=3.6".to_owned()];
    }
    cluster.members[0].flags.push(format!("{OLD}=true"));
    cluster.members[1].flags.push(GATE.to_owned());
    cluster.start_all(&[0, 1, 2]).await;
    let values = |cluster: &Cluster| {
        let nodes = cluster.members.iter();
        let values: Vec<bool> = nodes.map(|node| is_on(node.client, FEATURE)).collect();
        values
    };
    assert_eq!(values(&cluster), [true, true, false]);
    assert!(
        cluster.members[0]
            .log()
            .contains("gone from version 3.7 on")
    );
    assert!(
        !cluster.members[1]
            .log()
            .contains("gone from version 3.7 on")
    );
    // The member with the gate is upgraded; the one with the old flag once it has the gate,
    // too.
    cluster.stop(1).await;
    cluster.members[1].flags = vec!["--emulated-version=3.7".to_owned(), GATE.to_owned()];
    cluster.start_one(1).await;
    let mut clients = cluster.clients(1);
    clients.kv.put(put("a", "b")).await.unwrap();
    assert_eq!(values(&cluster), [true, true, false]);
    cluster.stop(0).await;
    cluster.members[0].flags = vec!["--emulated-version=3.7".to_owned(), OLD.to_owned()];
    cluster.launch(0);
    let (is_well, log) = cluster.ended(0).await;
    assert!(!is_well && log.contains("is gone"), "{log}");
    cluster.members[0].flags[1] = GATE.to_owned();
    cluster.start_one(0).await;
    assert_eq!(values(&cluster), [true, true, false]);
    cluster.agree().await;
}
