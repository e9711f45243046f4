//! Starting and stopping: refusals in one line with the next step, settings from three places,
//! and a stop that does not wait for clients.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use common::{Process, Server, data_dir, launch, member_flags, portunus, soon};
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    MemberListRequest, PutRequest, RangeRequest, StatusRequest, WatchCreateRequest, WatchRequest,
};
use portunus_testkit::wait::until_blocking;
use tokio_stream::StreamExt;

/// Returns the one line on stderr of a process that refuses to start. Log lines are not
/// counted.
fn refused(process: Process) -> String {
    let (status, log) = process.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(lines.len(), 1, "one line, not:\n{log}");
    assert!(lines[0].starts_with("portunus: "), "{log}");
    lines[0].to_owned()
}

#[test]
fn invalid_settings_are_refused() {
    for (flags, expected) in [
        (&["--nmae=m1"][..], "did you mean --name?"),
        (&["--frobnicate"], "there is no flag --frobnicate"),
        (&["--cert-file=a.pem"], "must both be present"),
        (&["--client-cert-auth"], "needs --trusted-ca-file"),
        (
            &["--cert-file=/nowhere/a.pem", "--key-file=/nowhere/a.key"],
            "/nowhere/a.pem cannot be read",
        ),
        (
            &["--listen-client-urls=https://127.0.0.1:0"],
            "TLS key/cert (--cert-file, --key-file) must be provided",
        ),
        (
            &["--initial-cluster=a=http://localhost:2380,b=http://localhost:2480"],
            "no member named default",
        ),
        (&["--feature-gates=NoSuchGate=true"], "NoSuchGate"),
        (
            &["--feature-gates=PriorityRequest=maybe"],
            "--feature-gates",
        ),
        (&["--feature-gates=PriorityRequest"], "--feature-gates"),
        (
            &["--feature-gates=LeaseCheckpoint=true"],
            "set it with --cluster-feature-gates",
        ),
        (&["--emulated-version=3.4"], "choose one from 3.5 to 3.8"),
        (&["--emulated-version=3.9"], "choose one from 3.5 to 3.8"),
        (&["--unsafe-no-fsync"], "every acknowledged write is synced"),
        (&["--quota-backend-bytes=lots"], "whole number"),
        (&["--snapshot-count=-1"], "whole number"),
        (&["serve"], "neither a flag nor a command"),
        (&["--config-file=/does/not/exist"], "check --config-file"),
    ] {
        let (_guard, dir) = data_dir();
        let line = refused(launch(&dir, flags));
        assert!(line.contains(expected), "{flags:?}: {line}");
        assert!(!dir.exists(), "{flags:?} left something behind");
    }
}

#[test]
fn port_in_use_is_refused_and_nothing_is_created() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let (_guard, dir) = data_dir();
    let line = refused(launch(&dir, &[&format!("--listen-client-urls={url}")]));
    assert!(line.contains(&format!("{url} is taken")), "{line}");
    assert!(line.contains("--listen-client-urls"), "{line}");
    assert!(!dir.exists());
}

#[tokio::test]
async fn data_directory_in_use_is_refused_and_its_owner_continues() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let line = refused(launch(&dir, &[]));
    assert!(line.contains("is in use by another process"), "{line}");
    assert!(line.contains(&dir.display().to_string()), "{line}");
    server.connect().await.kv.put(put("a", "1")).await.unwrap();
}

#[test]
fn join_without_a_reachable_member_is_refused() {
    let (_guard, dir) = data_dir();
    let line = refused(launch(&dir, &["--initial-cluster-state=existing"]));
    assert!(line.contains("needs the other members"), "{line}");
    let flags = [
        "--initial-cluster-state=existing",
        "--initial-cluster=default=http://localhost:2380,b=http://127.0.0.1:1",
    ];
    let line = refused(launch(&dir, &flags));
    assert!(line.contains("no member of the cluster answers"), "{line}");
}

#[test]
fn unreadable_data_of_etcd_is_refused_and_unchanged() {
    let (_guard, dir) = data_dir();
    let db = dir.join("member/snap/db");
    fs::create_dir_all(db.parent().unwrap()).unwrap();
    fs::write(&db, b"bbolt").unwrap();
    let line = refused(launch(&dir, &[]));
    assert!(line.contains("cannot be taken over"), "{line}");
    assert_eq!(fs::read(&db).unwrap(), b"bbolt");
    assert!(!dir.join("member/wal").exists());
}

#[test]
fn unwritable_data_directory_is_refused() {
    // The kernel lets no user create anything there, not even root.
    let line = refused(launch("/proc/member.etcd".as_ref(), &[]));
    assert!(line.contains("/proc/member.etcd cannot be used"), "{line}");
    let (guard, _) = data_dir();
    let file = guard.path().join("file");
    fs::write(&file, b"").unwrap();
    let line = refused(launch(&file, &[]));
    assert!(line.contains("is no directory"), "{line}");
}

/// Root may write anywhere, so this proves nothing for root.
/// The log, the backend and the lock are for the user that runs the server alone, also in a
/// directory that others may enter.
#[tokio::test]
async fn data_directory_is_accessible_to_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for existing_mode in [None, Some(0o755)] {
        let (_guard, dir) = data_dir();
        if let Some(mode) = existing_mode {
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        }
        let server = Server::start(&dir, &[]);
        server.connect().await.kv.put(put("a", "1")).await.unwrap();
        assert_eq!(mode(&dir), existing_mode.unwrap_or(0o700));
        let entries: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap()).collect();
        for entry in &entries {
            let path = entry.path();
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        }
        assert_eq!(entries.len(), 2, "the lock, and a directory for the rest");
    }
}

#[test]
fn read_only_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (_guard, dir) = data_dir();
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(dir.join("probe"), b"").is_ok() {
        eprintln!("SKIPPED read_only_directory_is_refused: this user may write anywhere");
        return;
    }
    let line = refused(launch(&dir, &[]));
    assert!(
        line.contains("check that it exists and may be written"),
        "{line}"
    );
}

#[test]
fn version_output_starts_with_the_line_of_etcd() {
    for flag in ["--version", "-version", "version"] {
        let output = portunus().arg(flag).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().next(), Some("etcd Version: 3.8.0"));
    }
}

#[tokio::test]
async fn environment_sets_what_flags_do_not() {
    let (_guard, dir) = data_dir();
    let mut command = portunus();
    command
        .env("ETCD_DATA_DIR", &dir)
        .env("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:0")
        .env("ETCD_ADVERTISE_CLIENT_URLS", "http://127.0.0.1:2379")
        .env("ETCD_NAME", "from-environment")
        .env("ETCD_MAX_TXN_OPS", "1")
        .arg("--name=from-flag");
    let server = Process::spawn(&mut command).ready();
    assert_eq!(name(&server).await, "from-flag");
    assert!(dir.join("member/wal").is_dir());
    server.stop();

    let mut command = portunus();
    command
        .args(member_flags(&dir))
        .env("ETCD_CERT_FILE", "a.pem");
    let line = refused(Process::spawn(&mut command));
    assert!(line.contains("--key-file must both be present"), "{line}");
}

#[tokio::test]
async fn config_file_replaces_flags_and_environment() {
    let (guard, dir) = data_dir();
    let file = guard.path().join("member.yaml");
    let text = format!(
        "name: from-file\ndata-dir: {}\nlisten-client-urls: http://127.0.0.1:0\n\
         advertise-client-urls: http://127.0.0.1:2379\nquota-backend-bytes: 123456789\n\
         backend-batch-interval: 5000000\nfeature-gates: PriorityRequest=true\n",
        dir.display()
    );
    fs::write(&file, text).unwrap();
    let mut command = portunus();
    command
        .arg(format!("--config-file={}", file.display()))
        .arg("--name=from-flag")
        .env("ETCD_NAME", "from-environment");
    let server = Process::spawn(&mut command).ready();
    assert_eq!(name(&server).await, "from-file");
    let status = server
        .connect()
        .await
        .maintenance
        .status(StatusRequest {})
        .await;
    assert_eq!(status.unwrap().into_inner().db_size_quota, 123_456_789);
    let metrics = server.get("/metrics").body;
    assert!(
        metrics.contains(r#"etcd_server_feature_enabled{name="PriorityRequest",stage="ALPHA"} 1"#),
        "{metrics}"
    );

    fs::write(&file, "name: [1, {}]\n").unwrap();
    let mut command = portunus();
    command.arg(format!("--config-file={}", file.display()));
    assert!(refused(Process::spawn(&mut command)).contains("in the config file"));
}

/// Proves: S2-A1
#[tokio::test]
async fn clients_see_the_emulated_version() {
    for flag in ["--emulated-version=3.6", "--emulation-version=3.6"] {
        let (_guard, dir) = data_dir();
        let server = Server::start(&dir, &[flag]);
        let status = server
            .connect()
            .await
            .maintenance
            .status(StatusRequest {})
            .await;
        let status = status.unwrap().into_inner();
        assert_eq!(status.version, "3.6.5");
        assert_eq!(status.storage_version, "3.6.0");
        assert_eq!(
            server.get("/version").body,
            r#"{"etcdserver":"3.6.5","etcdcluster":"3.6.0","storage":"3.6.0","major":"3","minor":"8","emulationMajor":"3","emulationMinor":"6","minCompatibilityMajor":"3","minCompatibilityMinor":"5","gitVersion":"v3.8.0","clusterParams":true}"#
        );
    }
}

/// Data of a later version is not served as an earlier one; the reverse is an upgrade.
#[tokio::test]
async fn emulated_version_can_be_raised_but_not_lowered_below_the_cluster_version() {
    let (_guard, dir) = data_dir();
    Server::start(&dir, &["--emulated-version=3.6"]).stop();
    let server = Server::start(&dir, &[]);
    assert!(
        server
            .get("/version")
            .body
            .contains(r#""etcdcluster":"3.8.0""#)
    );
    server.stop();
    let refusal = refused(launch(&dir, &["--emulated-version=3.7"]));
    assert!(
        refusal.contains("the cluster version is 3.8, above 3.7"),
        "{refusal}"
    );
    Server::start(&dir, &[]).stop();
}

/// Clients with open streams, and idle ones, do not delay the stop.
#[tokio::test]
async fn stop_does_not_wait_for_clients() {
    for signal in [
        nix::sys::signal::Signal::SIGTERM,
        nix::sys::signal::Signal::SIGINT,
    ] {
        let (_guard, dir) = data_dir();
        let server = Server::start(&dir, &[]);
        let mut idle = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..5 {
            let mut clients = server.connect().await;
            let (requests, stream) = watch_everything(&mut clients).await;
            streams.push((requests, stream));
            idle.push((
                server.connect().await,
                std::net::TcpStream::connect(server.address),
            ));
        }
        server.connect().await.kv.put(put("a", "1")).await.unwrap();
        server.process.signal(signal);
        let ended = tokio::task::spawn_blocking(move || server.process.ended());
        let (status, log) = soon("the end", ended).await.unwrap();
        assert!(status.success(), "{log}");
        assert!(log.contains("\"stopped\""), "{log}");
        for (_requests, mut stream) in streams {
            // The event from before, then the end of the stream.
            let end = soon("the end of the stream", async {
                loop {
                    match stream.next().await {
                        Some(Ok(_)) => {}
                        end => break end,
                    }
                }
            });
            if let Some(Err(status)) = end.await {
                assert_ne!(status.code(), tonic::Code::Ok);
            }
        }
        // All data is there, and nothing had to be repaired.
        let server = Server::start(&dir, &[]);
        let request = RangeRequest {
            key: "a".into(),
            ..RangeRequest::default()
        };
        let response = server.connect().await.kv.range(request).await.unwrap();
        assert_eq!(response.into_inner().kvs[0].value, "1");
        assert!(
            !server.process.log().contains("torn"),
            "{}",
            server.process.log()
        );
    }
}

/// A member handles a signal at any time: it never has to be killed, and logs "ready" only when
/// it can be stopped cleanly.
#[test]
fn stop_during_or_right_after_the_start_succeeds() {
    use std::os::unix::process::ExitStatusExt;
    let (_guard, dir) = data_dir();
    let mut random = common::random::Random::seeded("stop during the start");
    for _ in 0..8 {
        let process = launch(&dir, &[]);
        // There is no event for "in the middle of the start".
        std::thread::sleep(std::time::Duration::from_micros(random.below(150_000)));
        let (status, log) = process.terminate();
        // Before it handles signals it has done nothing yet, and just ends.
        assert!(
            status.success() || status.signal() == Some(15),
            "{status}:\n{log}"
        );
    }
    for _ in 0..8 {
        Server::start(&dir, &[]).stop();
    }
}

type Requests = tokio::sync::mpsc::Sender<WatchRequest>;
type Responses = tonic::Streaming<portunus_proto::etcdserverpb::WatchResponse>;

async fn watch_everything(clients: &mut common::Clients) -> (Requests, Responses) {
    let (requests, receiver) = tokio::sync::mpsc::channel(8);
    let create = WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    requests.send(request).await.unwrap();
    let receiver = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut stream = clients.watch.watch(receiver).await.unwrap().into_inner();
    let created = soon("the watch", stream.next()).await.unwrap().unwrap();
    assert!(created.created);
    (requests, stream)
}

async fn name(server: &Server) -> String {
    let request = MemberListRequest { linearizable: true };
    let response = server
        .connect()
        .await
        .cluster
        .member_list(request)
        .await
        .unwrap();
    response.into_inner().members[0].name.clone()
}

fn put(key: &'static str, value: &'static str) -> PutRequest {
    PutRequest {
        key: key.into(),
        value: value.into(),
        ..PutRequest::default()
    }
}

/// Flags that can be checked without data are checked before there is any.
#[test]
fn refused_flags_leave_no_data_directory() {
    for flags in [
        &["--max-txn-ops=many"][..],
        &["--emulated-version=3.6", "--emulation-version=3.7"],
        &["--feature-gates=NoSuchFeature=true"],
        &[
            "--feature-gates=ClusterFeatureGate=true",
            "--cluster-feature-gates=NoSuchFeature=true",
        ],
    ] {
        let (_guard, dir) = data_dir();
        let (status, log) = launch(&dir, flags).ended();
        assert!(!status.success(), "{flags:?}");
        assert!(!dir.exists(), "{flags:?}: {log}");
    }
}

/// A refusal after the data directory was opened leaves nothing behind either.
#[test]
fn refused_first_start_leaves_no_data_directory() {
    let unreachable = "--initial-cluster=default=http://localhost:2380,b=http://127.0.0.1:1";
    for (flags, expected) in [
        (&["--force-new-cluster"][..], "needs the data of a member"),
        (
            &["--initial-cluster-state=existing", unreachable],
            "no member of the cluster answers",
        ),
        (
            &["--initial-cluster-state=existing"],
            "needs the other members",
        ),
    ] {
        let (_guard, dir) = data_dir();
        let line = refused(launch(&dir, flags));
        assert!(line.contains(expected), "{flags:?}: {line}");
        assert!(!dir.exists(), "{flags:?} left a data directory");

        // A volume that was mounted empty, and a log elsewhere.
        fs::create_dir(&dir).unwrap();
        let (_wal_guard, wal_dir) = data_dir();
        let wal_flag = format!("--wal-dir={}", wal_dir.display());
        let flags: Vec<&str> = flags.iter().copied().chain([&*wal_flag]).collect();
        let line = refused(launch(&dir, &flags));
        assert!(line.contains(expected), "{flags:?}: {line}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{flags:?}");
        assert!(!wal_dir.exists(), "{flags:?} left a log");
    }
}

#[test]
fn start_is_logged_as_one_line_with_fields() {
    let (_guard, dir) = data_dir();
    let mut command = common::portunus();
    command
        .args(common::member_flags(&dir))
        .args(["--emulated-version=3.7", "--max-txn-ops=200"])
        .arg("--feature-gates=InitialCorruptCheck=true")
        .env("ETCD_QUOTA_BACKEND_BYTE", "1");
    let server = common::Process::spawn(&mut command).ready();
    let line = server.process.find_line("starting an etcd server").unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["emulated_version"], "3.7.1");
    assert_eq!(line["etcd_version"], "3.8.0");
    assert_eq!(line["data_dir"], dir.display().to_string());
    assert_eq!(line["changed_gates"], "InitialCorruptCheck=true");
    let flags = line["changed_flags"].as_str().unwrap();
    assert!(flags.contains("--max-txn-ops=200"), "{flags}");
    assert!(!flags.contains("--max-request-bytes"), "{flags}");
    let line = server
        .process
        .find_line("unrecognized environment variable");
    let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
    assert_eq!(line["environment_variable"], "ETCD_QUOTA_BACKEND_BYTE");
    assert_eq!(line["similar"], "ETCD_QUOTA_BACKEND_BYTES");
    for line in server.process.log().lines() {
        let fields: serde_json::Value = serde_json::from_str(line).unwrap();
        for (name, value) in fields.as_object().unwrap() {
            let text = value.as_str().unwrap_or_default();
            let is_debug = text == "None" || text.starts_with("Some(") || text.starts_with('[');
            assert!(!is_debug, "{name} in {line}");
        }
    }
}

/// The names of the table "Threads" of ARCHITECTURE.md as the kernel keeps them: the first 15
/// letters, without numbers. With each whether every member has such a thread.
fn documented_threads() -> Vec<(String, bool)> {
    const DOCUMENT: &str = include_str!("../../../ARCHITECTURE.md");
    let (_, section) = DOCUMENT.split_once("### Threads").unwrap();
    let section = section.split("\n### ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cell = row.split('|').nth(1).unwrap();
        let is_there_sometimes = [", for a while", ", with ", ", if "];
        let is_always_there = !is_there_sometimes.iter().any(|it| cell.contains(it));
        let names = cell.split('`').skip(1).step_by(2);
        let names = names.filter(|name| !name.starts_with("--"));
        names.map(move |name| {
            let name: String = name.trim_end_matches("-N").chars().take(15).collect();
            (name, is_always_there)
        })
    })
    .collect()
}

#[test]
fn threads_of_a_member_are_those_of_the_table() {
    let documented = documented_threads();
    assert!(documented.len() > 10, "{documented:?}");
    let (_keep, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let tasks = format!("/proc/{}/task", server.process.id());
    let name = |task: fs::DirEntry| -> Option<String> {
        // A thread may have ended since it was listed.
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let name = name.trim();
        Some(
            name.trim_end_matches(|it: char| it.is_ascii_digit())
                .trim_end_matches('-')
                .to_owned(),
        )
    };
    let always_there = documented
        .iter()
        .filter(|(_, is_always_there)| *is_always_there);
    // A thread has the name of its parent until it sets its own.
    let running = until_blocking("the threads of the table", || {
        let tasks = fs::read_dir(&tasks).unwrap().map(Result::unwrap);
        let running: BTreeSet<String> = tasks.filter_map(name).collect();
        let missing = always_there
            .clone()
            .find(|(name, _)| !running.contains(name));
        match missing {
            None => Ok(running),
            Some((name, _)) => Err(format!("no thread {name} in {running:?}")),
        }
    });
    server.stop();
    for name in &running {
        let is_known = documented.iter().any(|(known, _)| known == name);
        assert!(is_known, "the table has no thread {name}");
    }
}
