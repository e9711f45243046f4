//! Feature gates of running clusters, as `portctl` shows, explains and plans them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_client::{Client, Options};
use portunus_proto::etcdserverpb::PutRequest;
use portunus_testkit::http::http_at;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until_blocking;
use support::Server;
use support::cluster::{Cluster, MECHANISM, WANTS_IT};

const PRIORITY: &str = "--feature-gates=ClusterFeatureGate=true,PriorityRequest=true";
/// Exit code of a blocked plan.
const BLOCKED: Option<i32> = Some(7);

fn is_on(cluster: &Cluster, feature: &str) -> String {
    cluster.portctl(["endpoint", "featuregate", feature]).ok()
}

#[track_caller]
fn until_on(cluster: &Cluster, feature: &str, value: bool) {
    let expected = format!("{value}\n");
    cluster.until(&["endpoint", "featuregate", feature], |ran| {
        ran.out == expected
    });
}

/// The last line of an explanation is a command that plans the change, and the change has the
/// planned effect.
///
/// Proves: S0-43, S0-44, S0-A15, S0-A16, S1-10, S1-A6
#[test]
fn feature_is_listed_explained_planned_and_switched() {
    let mut cluster =
        Cluster::start(&[&[MECHANISM, WANTS_IT], &[PRIORITY, WANTS_IT], &[MECHANISM]]);
    let explain = &["gate", "explain", "LeaseCheckpoint"];
    let explained = cluster.until(explain, |ran| ran.out.contains("m3 did not set it"));

    // The answer is one value; server features and unknown names are off in the cluster.
    for name in [
        "LeaseCheckpoint",
        "PriorityRequest",
        "ClusterFeatureGate",
        "Zebra",
    ] {
        assert_eq!(is_on(&cluster, name), "false\n", "{name}");
    }
    let empty = cluster.portctl(["endpoint", "featuregate", ""]);
    assert_eq!((empty.code, &*empty.out), (Some(128), ""));

    // Servers answer for themselves, endpoint by endpoint.
    let server_feature = [
        "endpoint",
        "featuregate",
        "PriorityRequest",
        "--is-server-feature",
    ];
    let lines = |values: [bool; 3], scheme: &str| -> Vec<String> {
        let nodes = cluster.members.iter().zip(values);
        nodes
            .map(|(node, value)| format!("{scheme}{}, {value}", node.endpoint()))
            .collect()
    };
    let values = [false, true, false];
    let given = cluster.portctl(server_feature).ok();
    assert_eq!(given.lines().collect::<Vec<_>>(), lines(values, ""));
    let whole = cluster
        .portctl(server_feature.iter().chain(&["--cluster"]))
        .ok();
    let mut whole: Vec<&str> = whole.lines().collect();
    let mut expected = lines(values, "http://");
    whole.sort_unstable();
    expected.sort_unstable();
    assert_eq!(whole, expected);
    let json = ["-w", "json", "--endpoints", &cluster.members[1].endpoint()];
    let json = cluster.portctl(server_feature.iter().chain(&json)).ok();
    let feature =
        r#""is_server_feature":true,"features":[{"name":"PriorityRequest","enabled":true}]"#;
    assert!(json.contains(feature), "{json}");

    // Lists have both levels; without names only what is on.
    let list = cluster.portctl(["gate", "list"]).ok();
    let row = "LeaseCheckpoint, cluster, false, ALPHA, false, false, consensus, -\n";
    assert!(list.contains(row), "{list}");
    assert_eq!(
        list.matches("ClusterFeatureGate, server, true, ").count(),
        3
    );
    let status = cluster.portctl(["gate", "status"]).ok();
    assert_eq!(
        status.matches("PriorityRequest, server, true, ").count(),
        1,
        "{status}"
    );
    assert!(!status.contains(", false, "), "{status}");
    let status = cluster
        .portctl(["gate", "status", "Zebra", "LeaseCheckpoint"])
        .ok();
    let rows: Vec<&str> = status.lines().collect();
    assert_eq!(
        rows,
        [
            "Zebra, unknown, false, -, no server that was asked knows it",
            "LeaseCheckpoint, cluster, false, -, it is off by default and m3 did not set it to true"
        ]
    );

    // The next command of the explanation plans the change.
    let next = explained.out.lines().last().unwrap();
    let next = next.strip_prefix("  next      ").unwrap();
    assert_eq!(
        next,
        "portctl gate plan restart m3 --cluster-feature-gates=LeaseCheckpoint=true"
    );
    let plan = cluster.typed(next).ok();
    let row = "LeaseCheckpoint (cluster): off -> on: every voting member set it to true\n";
    assert!(plan.contains(row), "{plan}");
    assert!(plan.ends_with(": not blocked\n"), "{plan}");
    cluster.restart(2, &[MECHANISM, WANTS_IT]);
    until_on(&cluster, "LeaseCheckpoint", true);

    // Explanation and plan while a member is down.
    cluster.members[2].kill();
    let explained = cluster.portctl(explain).ok();
    assert!(
        explained.starts_with("LeaseCheckpoint (cluster feature) is on: "),
        "{explained}"
    );
    assert!(
        explained.contains("  assumed   m3 does not answer ("),
        "{explained}"
    );
    let next = explained.lines().last().unwrap();
    let next = next.strip_prefix("  next      ").unwrap();
    assert!(
        next.ends_with(" --cluster-feature-gates=LeaseCheckpoint=false"),
        "{next}"
    );
    let plan = cluster.typed(next).ok();
    assert!(
        plan.contains("LeaseCheckpoint (cluster): on -> off: "),
        "{plan}"
    );
    assert!(plan.contains("assumed: m3 does not answer ("), "{plan}");

    // Without a quorum only what needs none.
    cluster.members[1].kill();
    let short = ["--command-timeout", "2s"];
    assert!(!cluster.portctl(explain.iter().chain(&short)).success);
    let local = ["--consistency", "s", "--command-timeout", "2s"];
    let explained = cluster.portctl(explain.iter().chain(&local)).ok();
    assert_eq!(explained.matches("  assumed   ").count(), 2, "{explained}");
}

#[test]
fn plan_of_membership_changes_counts_votes() {
    let mut cluster = Cluster::start(&[&[MECHANISM, WANTS_IT]]);
    until_on(&cluster, "LeaseCheckpoint", true);

    let add = ["gate", "plan", "add", "m2"];
    let no_mechanism = "--feature-gates=ClusterFeatureGate=false";
    let bare = cluster.portctl(add.iter().chain(&[no_mechanism])).ok();
    let off = "LeaseCheckpoint (cluster): on -> off: m2 published no proposal";
    assert!(bare.starts_with(off), "{bare}");
    let silent = cluster.portctl(add.iter().chain(&[MECHANISM])).ok();
    assert!(
        silent.contains("LeaseCheckpoint (cluster): on -> off: "),
        "{silent}"
    );
    let agreeing = cluster
        .portctl(add.iter().chain(&[MECHANISM, WANTS_IT]))
        .ok();
    assert!(agreeing.ends_with("add member m2: no feature changes, not blocked\n"));
    let learner = cluster
        .portctl(add.iter().chain(&[MECHANISM, "--learner"]))
        .ok();
    assert!(
        learner.contains("add learner m2: no feature changes"),
        "{learner}"
    );

    cluster.add_learner("m2", &[MECHANISM, WANTS_IT]);
    let promote = ["gate", "plan", "promote", "m2"];
    // Once the learner has published what it was started with, nothing is assumed.
    let told = cluster.until(&promote, |ran| !ran.out.contains("assumed: "));
    let told = told.ok();
    assert_eq!(
        told,
        "cluster version: 3.8\npromote m2: no feature changes, not blocked\n"
    );
    let members = cluster.portctl(["member", "list"]).ok();
    let member = members
        .lines()
        .find(|line| line.contains(", m2, "))
        .unwrap();
    let (id, _) = member.split_once(',').unwrap();
    let by_id = cluster.portctl(["gate", "plan", "promote", id]).ok();
    assert_eq!(by_id, told);
    // The promotion has the planned effect.
    cluster.until(&["member", "promote", id], |ran| ran.success);
    let explained = ["gate", "explain", "LeaseCheckpoint"];
    let explained = cluster
        .until(&explained, |ran| !ran.out.contains(") learner "))
        .out;
    assert_eq!(explained.matches(") true\n").count(), 2, "{explained}");
    assert_eq!(is_on(&cluster, "LeaseCheckpoint"), "true\n");

    // A member that would not start is an obstacle, in JSON, too.
    let bad = "--feature-gates=ClusterFeatureGate=true,Zebra=true";
    let refused = cluster.portctl(["gate", "plan", "restart", "m1", bad, "-w", "json"]);
    assert_eq!(refused.code, BLOCKED, "{refused:?}");
    assert!(refused.out.contains(r#""blocked":true"#), "{refused:?}");
    assert!(refused.out.contains(r#""block":"unknown""#), "{refused:?}");
    let nobody = cluster.portctl(["gate", "plan", "remove", "m7"]);
    assert_eq!((nobody.code, &*nobody.out), (Some(128), ""));
}

/// A program of this version plans the upgrade of a cluster of the previous version.
///
/// Proves: C28, C29
#[test]
fn newer_portctl_plans_an_upgrade() {
    const OLDER: &str = "--emulated-version=3.7";
    let mut cluster = Cluster::start(&[&[OLDER, MECHANISM, WANTS_IT]]);
    until_on(&cluster, "LeaseCheckpoint", true);
    let unknown = cluster.portctl(["gate", "status", "LogCompression"]).ok();
    assert!(
        unknown.starts_with("LogCompression, unknown, false, "),
        "{unknown}"
    );
    let explained = cluster.portctl(["gate", "explain", "LogCompression"]).ok();
    assert!(
        explained.ends_with("  next      portctl gate plan upgrade 3.8\n"),
        "{explained}"
    );
    let plan = cluster.portctl(["gate", "plan", "upgrade", "3.8"]).ok();
    assert_eq!(
        plan,
        "\
LogCompression (cluster): absent -> off: the default of its ALPHA stage at cluster version 3.8
cluster version: 3.7 -> 3.8
upgrade to 3.8: not blocked
"
    );
    cluster.restart(
        0,
        &[
            MECHANISM,
            WANTS_IT,
            "--feature-gates=ClusterFeatureGate=true",
        ],
    );
    let status = ["gate", "status", "LogCompression"];
    let status = cluster
        .until(&status, |ran| !ran.out.contains("unknown"))
        .out;
    assert_eq!(
        status,
        "LogCompression, cluster, false, -, the default of its ALPHA stage at cluster version 3.8\n"
    );
    assert_eq!(is_on(&cluster, "LeaseCheckpoint"), "true\n");

    let back = cluster.portctl(["gate", "plan", "downgrade", "3.7.4"]).ok();
    assert!(
        back.contains("LogCompression (cluster): off -> absent: "),
        "{back}"
    );
    assert!(back.contains("cluster version: 3.8 -> 3.7\n"), "{back}");
    let too_far = cluster.portctl(["gate", "plan", "downgrade", "3.6"]);
    assert_eq!(too_far.code, BLOCKED, "{too_far:?}");
    let unspeakable = cluster.portctl(["gate", "plan", "upgrade", "3.99"]);
    assert_eq!((unspeakable.code, &*unspeakable.out), (Some(128), ""));
}

/// Every decision is kept with what it changed, and restarts do not lose it.
///
/// Proves: C30
#[test]
fn gate_history_lists_decisions_and_survives_a_restart() {
    let mut cluster = Cluster::start(&[&[MECHANISM]]);
    until_on(&cluster, "LeaseCheckpoint", false);
    cluster.restart(0, &[MECHANISM, WANTS_IT]);
    until_on(&cluster, "LeaseCheckpoint", true);
    cluster.restart(0, &[MECHANISM]);
    until_on(&cluster, "LeaseCheckpoint", false);

    let history = cluster.portctl(["gate", "history"]).ok();
    let rows: Vec<Vec<&str>> = history
        .lines()
        .map(|row| row.split(", ").collect())
        .collect();
    let changes = rows
        .iter()
        .map(|row| row[4])
        .filter(|it| it.contains("LeaseCheckpoint"));
    let changes: Vec<&str> = changes.collect();
    assert_eq!(
        changes,
        ["LeaseCheckpoint=true", "LeaseCheckpoint=false"],
        "{history}"
    );
    let causes: Vec<&str> = rows.iter().map(|row| row[5]).collect();
    assert_eq!(causes.first(), Some(&"first decision"), "{history}");
    let last = ["m1 set LeaseCheckpoint=true", "m1 dropped LeaseCheckpoint"];
    assert!(causes.ends_with(&last), "{history}");
    let indexes: Vec<u64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(indexes.is_sorted_by(|a, b| a < b), "{history}");
    for row in &rows {
        assert_eq!((row[2], row[3]), ("3.8", "m1"), "{history}");
    }
    let json = cluster.portctl(["gate", "history", "-w", "json"]).ok();
    let change = r#""changed":[{"name":"LeaseCheckpoint","enabled":true}]"#;
    assert!(json.contains(change), "{json}");

    cluster.restart(0, &[MECHANISM]);
    assert_eq!(cluster.portctl(["gate", "history"]).ok(), history);
}

/// Proves: C31
#[test]
fn gate_watch_prints_state_and_changes_over_a_server_restart() {
    let mut cluster = Cluster::start(&[&[MECHANISM, WANTS_IT]]);
    until_on(&cluster, "LeaseCheckpoint", true);
    let mut watching = Following::start(&cluster, &["gate", "watch"]);
    let now = watching.line();
    let row = ", 3.8, m1, LeaseCheckpoint=true, first decision";
    assert!(now.ends_with(row), "{now}");
    // The only member restarts; the watch waits for it.
    cluster.restart(0, &[MECHANISM]);
    let off = watching.line();
    let row = ", 3.8, m1, LeaseCheckpoint=false, m1 dropped LeaseCheckpoint";
    assert!(off.ends_with(row), "{off}");
    cluster.restart(0, &[MECHANISM, WANTS_IT]);
    let on = watching.line();
    let row = ", 3.8, m1, LeaseCheckpoint=true, m1 set LeaseCheckpoint=true";
    assert!(on.ends_with(row), "{on}");

    // From an index on, the same again.
    let (index, _) = now.split_once(',').unwrap();
    let mut again = Following::start(&cluster, &["gate", "watch", "--after-index", index]);
    assert_eq!([again.line(), again.line()], [off, on]);
}

/// Calls of a client that requires a feature are refused until it is on, and only that client's.
///
/// Proves: S0-45
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_require_a_feature_are_refused_until_it_is_on() {
    let mut cluster = Cluster::start(&[&[MECHANISM]]);
    until_on(&cluster, "LeaseCheckpoint", false);
    let options = Options {
        endpoints: vec![cluster.members[0].endpoint()],
        ..Options::default()
    };
    let client = Client::connect(options).unwrap();
    let demanding = client.requiring(["LeaseCheckpoint"]).unwrap();
    let put = || PutRequest {
        key: "k".into(),
        ..PutRequest::default()
    };
    client.put(put()).await.unwrap();
    let refused = demanding.put(put()).await.unwrap_err();
    assert!(refused.to_string().contains("LeaseCheckpoint"), "{refused}");
    assert!(!refused.is_unavailable(), "{refused}");
    cluster.restart(0, &[MECHANISM, WANTS_IT]);
    until_on(&cluster, "LeaseCheckpoint", true);
    // The connection broke with the restart, and writes are not repeated by the client.
    demanding.status().await.unwrap();
    demanding.put(put()).await.unwrap();
}

fn metrics(endpoint: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(endpoint).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// `portctl` and programs that use the client library send their version to the server.
///
/// Proves: S2-27
#[tokio::test(flavor = "multi_thread")]
async fn client_version_is_sent_with_every_call() {
    let cluster = Cluster::start(&[&["--emulated-version=3.7"]]);
    let endpoint = cluster.members[0].endpoint();
    cluster.portctl(["get", "a"]).ok();
    let options = Options {
        endpoints: vec![endpoint.clone()],
        ..Options::default()
    };
    let client = Client::connect(options).unwrap();
    client.status().await.unwrap();
    let metrics = metrics(&endpoint);
    for series in [
        r#"portunus_server_client_version_skew_total{component="portctl",verdict="newer"} "#,
        r#"portunus_server_client_version_skew_total{component="portunus-client",verdict="newer"} 1"#,
        r#"etcd_server_client_requests_total{client_api_version="3.8",type="unary"} "#,
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    let unsayable = Options {
        user_agent: "a\nb".to_owned(),
        ..Options::default()
    };
    let refused = Client::connect(unsayable).unwrap_err().to_string();
    assert!(refused.contains("user agent"), "{refused}");
}

/// A `portctl` that goes on printing; ended when dropped.
struct Following {
    process: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Following {
    fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        use std::io::BufRead;
        let mut command = cluster.command();
        let command = command.args(arguments).stdout(std::process::Stdio::piped());
        let mut process = command.spawn().unwrap();
        let out = process.stdout.take().unwrap();
        let lines = std::io::BufReader::new(out).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server without gates is reported as such; a plan takes that into account and does not fail.
#[test]
fn server_without_gates_is_distinguished_from_a_refusal() {
    const TEST: &str = "gates::server_without_gates_is_distinguished_from_a_refusal";
    let Some(program) = Program::etcd(TEST) else {
        return;
    };
    let etcd = Server::start(&program);
    // A new cluster begins at an older version, which a plan would find an obstacle.
    until_blocking("the cluster version", || {
        let address = etcd.endpoint().parse().unwrap();
        let version = http_at(address, "GET", "/version", &[], &[]).body;
        match version.contains(r#""etcdcluster":"3.7"#) {
            true => Ok(()),
            false => Err(version),
        }
    });
    for arguments in [
        &["endpoint", "featuregate", "LeaseCheckpoint"][..],
        &["endpoint", "featuregate", "A", "--is-server-feature"],
        &["gate", "list"],
        &["gate", "history"],
        &["gate", "watch"],
    ] {
        let ran = etcd.portctl(arguments);
        assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{arguments:?}");
        let note = "this server does not support that request about feature gates\nError: ";
        assert!(ran.err.contains(note), "{ran:?}");
    }
    let explained = etcd.portctl(["gate", "explain", "LeaseCheckpoint"]).ok();
    assert!(
        explained.contains("  assumed   m1 does not know feature gates"),
        "{explained}"
    );
    let plan = etcd
        .portctl(["gate", "plan", "add", "m2", MECHANISM, WANTS_IT])
        .ok();
    assert!(
        plan.contains("assumed: m1 does not know feature gates"),
        "{plan}"
    );
    assert!(plan.ends_with("add member m2: no feature changes, not blocked\n"));

    // Together with a server that has gates, in either order.
    let gated = Cluster::start(&[&[MECHANISM]]);
    let (without, with) = (etcd.endpoint(), gated.members[0].endpoint());
    for endpoints in [format!("{without},{with}"), format!("{with},{without}")] {
        let listed = gated
            .portctl(["--endpoints", &endpoints, "gate", "list"])
            .ok();
        assert!(
            listed.contains("LeaseCheckpoint, cluster, false"),
            "{listed}"
        );
        assert!(listed.contains(&format!("default, {with}\n")), "{listed}");
        let last = listed.lines().last().unwrap();
        assert!(
            last.starts_with(&format!("{without} does not know feature gates")),
            "{listed}"
        );
        let one = ["endpoint", "featuregate", "LeaseCheckpoint"];
        let one = ["--endpoints", &endpoints].into_iter().chain(one);
        assert_eq!(gated.portctl(one).ok(), "false\n");
        let status = gated
            .portctl(["--endpoints", &endpoints, "gate", "status"])
            .ok();
        assert!(
            status.contains("ClusterFeatureGate, server, true"),
            "{status}"
        );
        let decided = gated.until(&["--endpoints", &endpoints, "gate", "history"], |ran| {
            !ran.out.is_empty()
        });
        let decided = decided.ok();
        assert!(
            decided.ends_with(", 3.8, m1, nothing, first decision\n"),
            "{decided}"
        );
        let watch = ["--endpoints", &endpoints, "gate", "watch"];
        let now = Following::start(&gated, &watch).line();
        assert!(now.ends_with(", 3.8, m1, nothing, first decision"), "{now}");
    }
}
