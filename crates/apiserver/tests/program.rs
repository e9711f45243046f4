//! The program: wrong flags, `dev`, the store, and the end.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "program")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use portunus_testkit::certificates::Authority;
use portunus_testkit::process::Process;
use portunus_testkit::{ports, wait};
use portunus_tls::{ALPN_HTTP, ClientOptions, ClientTls, KeyPairFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portunus-apiserver"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A client of a server at an address.
struct Caller {
    address: String,
    tls: ClientTls,
}

impl Caller {
    fn new(address: &str, ca: &Path, identity: Option<KeyPairFiles>) -> Caller {
        let options = ClientOptions {
            trusted_ca_file: Some(ca.to_owned()),
            identity,
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        };
        Caller {
            address: address.to_owned(),
            tls: ClientTls::new(options).unwrap(),
        }
    }

    /// Returns the status and the body of an answer.
    async fn try_get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let stream = TcpStream::connect(&self.address).await?;
        let mut stream = self.tls.connect("127.0.0.1", stream).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned());
        Ok((status.unwrap_or(0), body.unwrap_or_default()))
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).await.unwrap()
    }
}

/// A running `dev`.
struct Dev {
    process: Process,
    address: String,
    directory: PathBuf,
}

impl Dev {
    /// Starts it and waits for its kubeconfig.
    async fn start(directory: &Path, flags: &[&str]) -> Dev {
        let kubeconfig = directory.join("kubeconfig");
        let _ = fs::remove_file(&kubeconfig);
        let mut command = program(&["dev", "--data-dir"]);
        command.arg(directory).args(flags).stdout(Stdio::null());
        let process = Process::spawn(&mut command);
        let mut process = process;
        let text = wait::eventually("kubeconfig", async || {
            assert!(!process.has_ended(), "{}", process.log());
            fs::read_to_string(&kubeconfig).ok()
        });
        let text = text.await;
        let server = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("server: https://"));
        Dev {
            process,
            address: server.unwrap().to_owned(),
            directory: directory.to_owned(),
        }
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.directory.join("certificates").join(name)
    }

    fn caller(&self, user: Option<&str>) -> Caller {
        let identity = user.map(|user| KeyPairFiles {
            certificate: self.certificate(&format!("{user}.crt")),
            key: self.certificate(&format!("{user}.key")),
        });
        Caller::new(&self.address, &self.certificate("ca.crt"), identity)
    }

    fn stop(self) {
        self.process.signal(Signal::SIGINT);
        let (status, log) = self.process.ended();
        assert!(status.success(), "{status} {log}");
    }
}

#[test]
fn wrong_flags_exit_with_1_and_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let authority = Authority::new("ca");
    let server = authority
        .server("server")
        .write_to(directory.path(), "server");
    let certificate = format!("--tls-cert-file={}", server.certificate.display());
    let key = format!("--tls-private-key-file={}", server.key.display());
    let policy = format!("--authorization-policy-file={}", file("policy", "{}"));
    let tokens = format!("--token-auth-file={}", file("tokens", "a,b"));
    let store = "--etcd-servers=http://127.0.0.1:1";
    let tls = [store, &certificate, &key];
    for (flags, expected) in [
        (&[][..], "--etcd-servers must be specified"),
        (&["--unknown"], "unexpected argument '--unknown'"),
        (
            &[store],
            "--tls-cert-file and --tls-private-key-file are required",
        ),
        (
            &[store, "--emulated-version=1.40"],
            "emulation version 1.40 is not between [1.34, 1.37]",
        ),
        (
            &[store, "--emulated-version=1.36.2"],
            "patch version not allowed, got: kube=1.36.2",
        ),
        (
            &[store, "--emulated-version=wardle=1.2"],
            "component not registered: wardle",
        ),
        (
            &[store, "--runtime-config=api/all=false"],
            "invalid runtime-config with only api/all=false",
        ),
        (
            &[store, "--runtime-config=nothing.io/v1=true"],
            "unknown api groups nothing.io",
        ),
        (
            &[store, "--emulation-forward-compatible"],
            "--emulation-forward-compatible needs an emulated version",
        ),
        (
            &[store, "--feature-gates=A=true,kube:B=true"],
            "do not mix use",
        ),
        (&[store, "--max-requests-inflight=x"], "invalid value 'x'"),
        (
            &[store, "--request-timeout=1"],
            "write a duration such as 30s",
        ),
        (&[store, "--request-timeout=0s"], "it must be above 0"),
        (
            &[
                "dev",
                "--data-dir=/none/none",
                "--runtime-config=nothing.io/v1=true",
            ],
            "unknown api groups nothing.io",
        ),
        (
            &["dev", "--data-dir=/proc/none"],
            "give another with --data-dir",
        ),
        (&["--etcd-servers=::"], "--etcd-servers cannot be used"),
        (
            &[store, "--etcd-prefix=x"],
            "--etcd-prefix=x cannot be used",
        ),
        (
            &[store, "--etcd-certfile=x"],
            "--etcd-certfile and --etcd-keyfile belong together",
        ),
        (
            &[
                store,
                "--tls-cert-file=/none",
                "--tls-private-key-file=/none",
            ],
            "/none cannot be read",
        ),
        (
            &[tls[0], tls[1], tls[2], "--client-ca-file=/none"],
            "--client-ca-file cannot be used",
        ),
        (
            &[tls[0], tls[1], tls[2], &policy],
            "line 1 of the policy file is no policy",
        ),
        (
            &[tls[0], tls[1], tls[2], &tokens],
            "line 1 of the token file has 2 columns",
        ),
        (
            &[tls[0], tls[1], tls[2], "--authorization-mode=ABAC"],
            "authorization policy file not passed",
        ),
        (
            &[tls[0], tls[1], tls[2], "--authorization-mode=RBAC"],
            "invalid value 'RBAC'",
        ),
        (
            &[tls[0], tls[1], tls[2], "--tls-min-version=TLS1.3"],
            "use VersionTLS12 or VersionTLS13",
        ),
        (
            &[tls[0], tls[1], tls[2], "--tls-cipher-suites=RC4"],
            "unexpected TLS cipher suite",
        ),
    ] {
        let ended = program(flags).output().unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{flags:?}: {text}");
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
    let help = program(&["--help"]).output().unwrap();
    assert!(help.status.success());
}

#[tokio::test]
async fn dev_is_ready_soon_and_serves_its_administrator_only() {
    let directory = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let dev = Dev::start(directory.path(), &[]).await;
    let (admin, anonymous) = (dev.caller(Some("admin")), dev.caller(None));
    assert_eq!(anonymous.get("/readyz").await, (200, "ok".to_owned()));
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(admin.get("/apis").await.0, 200);
    assert_eq!(anonymous.get("/apis").await.0, 403);
    // The certificate with which the API server calls the store is no user of the API.
    assert_eq!(dev.caller(Some("store-client")).get("/apis").await.0, 401);
    let (status, version) = admin.get("/version").await;
    assert_eq!(status, 200);
    assert!(
        version.contains("\"gitVersion\":\"v1.37.0+portunus."),
        "{version}"
    );
    let (_, metrics) = admin.get("/metrics").await;
    assert!(
        metrics.contains("version_info{binary=\"1.37.0\",component=\"kube\""),
        "{metrics}"
    );
    dev.stop();

    // The data and the directory can be used again.
    let dev = Dev::start(directory.path(), &["--emulated-version=1.35"]).await;
    let (_, version) = dev.caller(Some("admin")).get("/version").await;
    assert!(version.contains("\"emulationMinor\":\"35\""), "{version}");
    dev.stop();

    // The version of the component `portunus` is the store's, which has newer data here.
    let mut command = program(&["dev", "--emulated-version=portunus=3.7", "--data-dir"]);
    let refused = command.arg(directory.path()).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the cluster version is 3.8, above 3.7"),
        "{text}"
    );
}

#[tokio::test]
async fn watches_end_when_the_program_stops() {
    let directory = tempfile::tempdir().unwrap();
    let dev = Dev::start(directory.path(), &[]).await;
    let admin = dev.caller(Some("admin"));
    let path = "/apis/operators.coreos.com/v1/olmconfigs?watch=true&timeoutSeconds=600";
    let watch = async {
        let started = Instant::now();
        let (status, _) = admin.get(path).await;
        (status, started.elapsed())
    };
    let stop = async {
        let monitor = dev.caller(Some("admin"));
        wait::eventually("open watch", async || {
            let (_, metrics) = monitor.get("/metrics").await;
            let mut lines = metrics.lines();
            lines.find(|line| {
                line.starts_with("apiserver_longrunning_requests{") && line.ends_with(" 1")
            })?;
            Some(())
        })
        .await;
        dev.process.signal(Signal::SIGTERM);
    };
    let ((status, lasted), ()) = tokio::join!(watch, stop);
    assert_eq!(status, 200);
    assert!(lasted < wait::WAIT_MAX, "{lasted:?}");
    let (status, log) = dev.process.ended();
    assert!(status.success(), "{status} {log}");
}

#[tokio::test]
async fn ephemeral_dev_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let mut command = program(&["dev", "--ephemeral", "--kubeconfig"]);
    command.arg(&kubeconfig).env("TMPDIR", directory.path());
    let process = Process::spawn(command.stdout(Stdio::null()));
    wait::eventually("kubeconfig", async || kubeconfig.exists().then_some(())).await;
    let entries = || fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(entries(), 2);
    let (status, log) = process.terminate();
    assert!(status.success(), "{status} {log}");
    assert_eq!(entries(), 1);
}

/// The flags of a server with certificates of one CA and its own certificate.
fn server_flags(directory: &Path, authority: &Authority, port: u16) -> Vec<String> {
    let ca = authority.write_to(directory, "ca.crt");
    let server = authority.server("server").write_to(directory, "server");
    vec![
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", server.certificate.display()),
        format!("--tls-private-key-file={}", server.key.display()),
        format!("--client-ca-file={}", ca.display()),
    ]
}

#[tokio::test]
async fn server_without_its_store_is_alive_and_not_ready_until_the_delay_has_passed() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let port = ports::free_port().unwrap();
    let mut flags = server_flags(directory.path(), &authority, port);
    flags.push(format!(
        "--etcd-servers=http://127.0.0.1:{}",
        ports::free_port().unwrap()
    ));
    flags.push("--shutdown-delay-duration=2s".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let process = Process::spawn(&mut program(&flags));
    let caller = Caller::new(
        &format!("127.0.0.1:{port}"),
        &directory.path().join("ca.crt"),
        None,
    );
    let alive = wait::eventually("answer", async || caller.try_get("/livez").await.ok());
    assert_eq!(alive.await, (200, "ok".to_owned()));
    let (status, text) = caller.get("/readyz").await;
    assert_eq!(status, 500);
    assert!(
        text.contains("[-]store failed: reason withheld\n[+]shutdown ok\n"),
        "{text}"
    );

    process.signal(Signal::SIGTERM);
    wait::eventually("failure of the check", async || {
        let (_, text) = caller.try_get("/readyz?exclude=store").await.ok()?;
        text.contains("[-]shutdown failed").then_some(())
    })
    .await;
    assert_eq!(
        caller.get("/livez").await.0,
        200,
        "requests are served during the delay"
    );
    let (status, log) = process.ended();
    assert!(status.success(), "{status} {log}");
    assert!(caller.try_get("/livez").await.is_err());
}

#[tokio::test]
async fn policy_file_decides_who_may_read_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let policy = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"monitors","readonly":true,"nonResourcePath":"/metrics"}}"#;
    let policy_file = directory.path().join("policy.jsonl");
    fs::write(&policy_file, policy).unwrap();
    let port = ports::free_port().unwrap();
    let mut flags = server_flags(directory.path(), &authority, port);
    flags.push("--etcd-servers=http://127.0.0.1:1".to_owned());
    flags.push(format!(
        "--authorization-policy-file={}",
        policy_file.display()
    ));
    flags.push("--anonymous-auth=false".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let process = Process::spawn(&mut program(&flags));
    let caller = |user: &str, groups: &[&str]| {
        let files = authority
            .user(user, groups)
            .write_to(directory.path(), user);
        let identity = KeyPairFiles {
            certificate: files.certificate,
            key: files.key,
        };
        let ca = directory.path().join("ca.crt");
        Caller::new(&format!("127.0.0.1:{port}"), &ca, Some(identity))
    };
    let (monitor, other) = (caller("monitor", &["monitors"]), caller("other", &[]));
    let served = wait::eventually("answer", async || monitor.try_get("/metrics").await.ok());
    assert_eq!(served.await.0, 200);
    assert_eq!(other.get("/metrics").await.0, 403);
    assert_eq!(
        caller("root", &["system:masters"]).get("/metrics").await.0,
        200
    );
    let ca = directory.path().join("ca.crt");
    let anonymous = Caller::new(&format!("127.0.0.1:{port}"), &ca, None);
    assert_eq!(anonymous.get("/metrics").await.0, 401);
    let (status, log) = process.terminate();
    assert!(status.success(), "{status} {log}");
}
