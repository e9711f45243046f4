//! TLS for clients and peers: real processes, etcdctl, and Go etcd members as TLS peers.
//!
//! Tests that need Go programs (see `portunus_testkit::go`) print a warning without them.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::requests::{get, put};
use common::{Clients, Server, data_dir, http_at, launch};
use portunus_proto::etcdserverpb::{
    HashKvRequest, MemberAddRequest, MoveLeaderRequest, StatusRequest,
};
use portunus_testkit::certificates::{Authority, Issued, IssuedFiles, Subject, replace};
use portunus_testkit::client::connect_with_tls;
use portunus_testkit::go::{Tool, find_for_test};
use portunus_testkit::member::{self, InitialState, Member};
use portunus_testkit::process::Process;
use portunus_testkit::program::Program;
use portunus_testkit::wait;
use portunus_tls::{ALPN_GRPC, ALPN_HTTP, ClientOptions, ClientTls, KeyPairFiles};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A directory with a CA, and certificates for a member and for a client.
struct Pki {
    directory: TempDir,
    authority: Authority,
    ca: PathBuf,
    server: IssuedFiles,
    client: IssuedFiles,
}

impl Pki {
    fn new() -> Pki {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("test ca");
        let ca = authority.write_to(directory.path(), "ca.crt");
        let server = authority.server("member");
        let client = authority.client("alice");
        Pki {
            server: server.write_to(directory.path(), "server"),
            client: client.write_to(directory.path(), "client"),
            directory,
            authority,
            ca,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, issued: &Issued, name: &str) -> IssuedFiles {
        issued.write_to(self.path(), name)
    }

    /// The flags of a client listener that requires certificates.
    fn client_flags(&self) -> Vec<String> {
        let mut flags = self.open_flags();
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", self.ca.display()));
        flags
    }

    /// The flags of a client listener without client certificates.
    fn open_flags(&self) -> Vec<String> {
        vec![
            "--listen-client-urls=https://127.0.0.1:0".to_owned(),
            "--advertise-client-urls=https://127.0.0.1:2379".to_owned(),
            format!("--cert-file={}", self.server.certificate.display()),
            format!("--key-file={}", self.server.key.display()),
        ]
    }

    /// The flags of mutual TLS among peers.
    fn peer_flags(&self) -> Vec<String> {
        vec![
            format!("--peer-cert-file={}", self.server.certificate.display()),
            format!("--peer-key-file={}", self.server.key.display()),
            format!("--peer-trusted-ca-file={}", self.ca.display()),
            "--peer-client-cert-auth".to_owned(),
        ]
    }

    fn dialler(&self, identity: Option<&IssuedFiles>) -> ClientTls {
        self.dialler_with(identity, ALPN_GRPC)
    }

    fn dialler_with(
        &self,
        identity: Option<&IssuedFiles>,
        alpn: &'static [&'static str],
    ) -> ClientTls {
        let identity = identity.map(|files| KeyPairFiles {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        });
        let options = ClientOptions {
            trusted_ca_file: Some(self.ca.clone()),
            identity,
            alpn,
            ..ClientOptions::default()
        };
        ClientTls::new(options).unwrap()
    }

    /// Runs etcdctl with the certificate of the client.
    fn etcdctl(&self, program: &Path, endpoint: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command
            .arg(format!("--endpoints=https://{endpoint}"))
            .arg(format!("--cacert={}", self.ca.display()))
            .arg(format!("--cert={}", self.client.certificate.display()))
            .arg(format!("--key={}", self.client.key.display()))
            .arg("--command-timeout=30s");
        command.args(arguments).output().unwrap()
    }
}

fn start(dir: &Path, flags: &[String]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Server::start(dir, &flags)
}

/// Writes a key on a new connection.
async fn write(address: SocketAddr, tls: &ClientTls) -> Result<(), String> {
    let mut clients = connect_with_tls(address, tls).await?;
    let written = clients.kv.put(put("a", "b")).await;
    written.map(drop).map_err(|status| status.to_string())
}

/// Sends a GET request over TLS.
async fn https_get(address: SocketAddr, tls: &ClientTls, path: &str) -> std::io::Result<String> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let mut stream = tls.connect(&address.ip().to_string(), stream).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer).unwrap())
}

/// The reasons in the counters of refused connections.
fn refusals(metrics: &str) -> Vec<String> {
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with("portunus_tls_rejected_connections_total{"));
    lines.map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn clients_with_certificates_use_grpc_and_http_on_one_port() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let server = start(&dir, &pki.client_flags());
    let alice = pki.dialler(Some(&pki.client));
    write(server.address, &alice).await.unwrap();
    let http = pki.dialler_with(Some(&pki.client), ALPN_HTTP);
    let answer = https_get(server.address, &http, "/health").await.unwrap();
    assert!(answer.contains(r#""health":"true""#), "{answer}");

    if let Some(etcdctl) = find_for_test(Tool::Etcdctl, "clients_with_certificates") {
        let endpoint = server.address.to_string();
        let output = pki.etcdctl(&etcdctl, &endpoint, &["get", "a", "--print-value-only"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "b\n", "{output:?}");
    }
    server.stop();
}

#[tokio::test]
async fn refused_clients_are_counted_and_named_in_the_log() {
    let pki = Pki::new();
    let crl = pki.path().join("revoked.crl");
    let mallory = pki.authority.client("mallory");
    replace(&crl, &pki.authority.revocation_list(&[&mallory]));
    let mut flags = pki.client_flags();
    flags.push(format!("--client-crl-file={}", crl.display()));
    let (_guard, dir) = data_dir();
    let server = start(&dir, &flags);

    let expired = pki.authority.issue(&Subject {
        common_name: "alice",
        names: &[],
        is_expired: true,
    });
    let identities = [
        (None, "no_certificate"),
        (
            Some(Authority::new("other").client("alice")),
            "unknown_issuer",
        ),
        (Some(expired), "expired"),
        (Some(mallory), "revoked"),
    ];
    for (identity, reason) in &identities {
        let files = identity.as_ref().map(|issued| pki.write(issued, reason));
        let refused = write(server.address, &pki.dialler(files.as_ref())).await;
        assert!(refused.is_err(), "{reason}");
    }
    // A client without TLS gets no answer at all.
    let plain = portunus_testkit::client::connect(server.address);
    let mut plain = tokio::time::timeout(Duration::from_secs(30), plain)
        .await
        .unwrap();
    assert!(plain.kv.put(put("a", "b")).await.is_err());

    let alice = pki.dialler_with(Some(&pki.client), ALPN_HTTP);
    let metrics = https_get(server.address, &alice, "/metrics").await.unwrap();
    let counted = refusals(&metrics);
    let expected = identities.iter().map(|(_, reason)| *reason);
    for reason in expected.chain(["plaintext"]) {
        let label = format!(r#"endpoint="client",reason="{reason}""#);
        assert!(
            counted.iter().any(|line| line.contains(&label)),
            "{reason}: {counted:?}"
        );
    }
    let line = server
        .process
        .find_line("rejected connection on client endpoint");
    let line = line.unwrap();
    assert!(
        line.contains("the client presented no certificate"),
        "{line}"
    );
    assert!(line.contains(r#""remote_addr":"127.0.0.1:"#), "{line}");
    // All others came within a second, or in lines of their own, never more than one each second.
    let lines = server.process.log().matches("rejected connection").count();
    assert!(lines <= identities.len() + 1, "{}", server.process.log());
    server.stop();
}

#[tokio::test]
async fn wrong_server_name_and_foreign_server_are_refused_by_clients() {
    let pki = Pki::new();
    let named = pki.authority.issue(&Subject {
        common_name: "member",
        names: &["other.test"],
        is_expired: false,
    });
    pki.write(&named, "server");
    let (_guard, dir) = data_dir();
    let server = start(&dir, &pki.open_flags());
    let error = write(server.address, &pki.dialler(None)).await.unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");
    server.stop();
}

#[tokio::test]
async fn silent_and_slow_clients_do_not_keep_others_out() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let server = start(&dir, &pki.open_flags());
    let mut silent = Vec::new();
    for number in 0..200 {
        let mut stream = tokio::net::TcpStream::connect(server.address)
            .await
            .unwrap();
        // Half of them begin a handshake and never finish it.
        if number % 2 == 0 {
            stream.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
        }
        silent.push(stream);
    }
    write(server.address, &pki.dialler(None)).await.unwrap();
    drop(silent);
    server.stop();
}

/// Writes on one connection, and on a new one for each write, until told to stop.
async fn load(address: SocketAddr, tls: ClientTls, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    let mut kept = connect_with_tls(address, &tls).await.unwrap();
    while !stop.load(Ordering::Acquire) {
        kept.kv.put(put("kept", "x")).await.unwrap();
        write(address, &tls).await.unwrap();
        done.fetch_add(1, Ordering::AcqRel);
    }
}

#[tokio::test]
async fn certificates_are_rotated_under_load_without_a_failed_request() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let server = start(&dir, &pki.client_flags());
    let (stop, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let tls = pki.dialler(Some(&pki.client));
    let running = tokio::spawn(load(
        server.address,
        tls,
        Arc::clone(&stop),
        Arc::clone(&done),
    ));
    let progress = async |reloads: usize| {
        wait::until("reload", async || {
            let log = server.process.log();
            let reloaded = log.matches("reloaded TLS certificates").count();
            (reloaded >= reloads).then_some(()).ok_or(log)
        })
        .await;
        let before = done.load(Ordering::Acquire);
        wait::until("writes after a reload", async || {
            let now = done.load(Ordering::Acquire);
            (now >= before + 5).then_some(()).ok_or(now)
        })
        .await;
    };
    progress(0).await;
    // Both sides trust the next CA, then both get certificates of it, then the first CA leaves.
    let next = Authority::new("next ca");
    let both = format!("{}{}", pki.authority.pem(), next.pem());
    replace(&pki.ca, both.as_bytes());
    progress(1).await;
    // The client notices the file within a second of its next dial.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    pki.write(&next.client("alice"), "client");
    pki.write(&next.server("member"), "server");
    progress(2).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    replace(&pki.ca, next.pem().as_bytes());
    progress(3).await;
    stop.store(true, Ordering::Release);
    running.await.unwrap();

    let old = pki.write(&pki.authority.client("alice"), "old");
    assert!(
        write(server.address, &pki.dialler(Some(&old)))
            .await
            .is_err()
    );
    server.stop();
}

#[tokio::test]
async fn broken_certificate_file_keeps_the_previous_one_in_use() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let server = start(&dir, &pki.open_flags());
    let tls = pki.dialler(None);
    replace(&pki.server.certificate, b"broken");
    wait::until("failed reload", async || {
        write(server.address, &tls).await.unwrap();
        let failed = server
            .process
            .has_logged("failed to reload TLS certificates");
        failed.then_some(()).ok_or(())
    })
    .await;
    write(server.address, &tls).await.unwrap();
    let log = server.process.log();
    assert_eq!(log.matches("failed to reload").count(), 1, "{log}");
    server.stop();
}

#[tokio::test]
async fn revocation_list_takes_effect_while_the_member_runs() {
    let pki = Pki::new();
    let crl = pki.path().join("revoked.crl");
    replace(&crl, &pki.authority.revocation_list(&[]));
    let bob = pki.authority.client("bob");
    let files = pki.write(&bob, "bob");
    let mut flags = pki.client_flags();
    flags.push(format!("--client-crl-file={}", crl.display()));
    let (_guard, dir) = data_dir();
    let server = start(&dir, &flags);
    let tls = pki.dialler(Some(&files));
    write(server.address, &tls).await.unwrap();
    replace(&crl, &pki.authority.revocation_list(&[&bob]));
    wait::until("refusal of the revoked client", async || {
        match write(server.address, &tls).await {
            Err(_) => Ok(()),
            Ok(()) => Err("still accepted"),
        }
    })
    .await;
    let alice = pki.dialler(Some(&pki.client));
    write(server.address, &alice).await.unwrap();
    server.stop();
}

#[tokio::test]
async fn self_signed_certificate_is_made_and_kept() {
    let (_guard, dir) = data_dir();
    let flags = [
        "--auto-tls".to_owned(),
        "--listen-client-urls=https://127.0.0.1:0".to_owned(),
        "--advertise-client-urls=https://127.0.0.1:2379".to_owned(),
    ];
    let certificate = dir.join("fixtures/client/cert.pem");
    let mut first = Vec::new();
    for _ in 0..2 {
        let server = start(&dir, &flags);
        let trusting = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(certificate.clone()),
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        });
        write(server.address, &trusting.unwrap()).await.unwrap();
        if let Some(etcdctl) = find_for_test(Tool::Etcdctl, "self_signed_certificate") {
            let output = Command::new(etcdctl)
                .arg(format!("--endpoints=https://{}", server.address))
                .arg(format!("--cacert={}", certificate.display()))
                .args(["get", "a", "--print-value-only"])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "b\n", "{output:?}");
        }
        server.stop();
        let content = std::fs::read(&certificate).unwrap();
        assert!(first.is_empty() || first == content);
        first = content;
    }
}

#[tokio::test]
async fn http_and_https_share_an_address_and_metrics_have_tls() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let (client, metrics) = (common::free_address(), common::free_address());
    let mut flags = pki.open_flags();
    flags.extend([
        format!("--listen-client-urls=http://{client},https://{client}"),
        format!("--listen-metrics-urls=https://{metrics}"),
    ]);
    let server = start(&dir, &flags);
    write(client, &pki.dialler(None)).await.unwrap();
    let mut plain = portunus_testkit::client::connect(client).await;
    plain.kv.range(get("a")).await.unwrap();
    let http = pki.dialler_with(None, ALPN_HTTP);
    let answer = https_get(metrics, &http, "/metrics").await.unwrap();
    assert!(answer.contains("etcd_server_has_leader 1"), "{answer}");
    let warned = "ignoring key and cert files";
    assert!(
        server.process.has_logged(warned),
        "{}",
        server.process.log()
    );
    server.stop();
}

#[tokio::test]
async fn http_urls_take_http_from_the_client_urls() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let http_address = common::free_address();
    let mut flags = pki.open_flags();
    flags.push(format!("--listen-client-http-urls=https://{http_address}"));
    let server = start(&dir, &flags);
    write(server.address, &pki.dialler(None)).await.unwrap();
    let http = pki.dialler_with(None, ALPN_HTTP);
    let answer = https_get(http_address, &http, "/health").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = https_get(server.address, &http, "/health").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let mut grpc = connect_with_tls(http_address, &pki.dialler(None))
        .await
        .unwrap();
    assert!(grpc.kv.range(get("a")).await.is_err());
    server.stop();
}

#[tokio::test]
async fn cipher_suites_and_versions_are_enforced() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let mut flags = pki.open_flags();
    flags.extend([
        "--tls-max-version=TLS1.2".to_owned(),
        "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned(),
    ]);
    let server = start(&dir, &flags);
    let with = |suites: &[&str], min: &str| {
        ClientTls::new(ClientOptions {
            trusted_ca_file: Some(pki.ca.clone()),
            alpn: ALPN_GRPC,
            versions: portunus_tls::VersionRange::parse(min, "").unwrap(),
            cipher_suites: portunus_tls::CipherSuites::parse(suites.iter().copied()).unwrap(),
            ..ClientOptions::default()
        })
        .unwrap()
    };
    write(server.address, &with(&[], "")).await.unwrap();
    assert!(write(server.address, &with(&[], "TLS1.3")).await.is_err());
    let other = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"];
    assert!(write(server.address, &with(&other, "")).await.is_err());
    server.stop();
}

/// The flags of a static pod that kubeadm writes, with other paths and free ports.
#[tokio::test]
async fn flags_of_a_kubeadm_manifest_start_a_member() {
    let pki = Pki::new();
    let (_guard, dir) = data_dir();
    let client = common::free_address();
    let peer = common::free_address();
    let metrics = common::free_address();
    let cert = |name: &str| pki.path().join(name).display().to_string();
    let mut command = Program::portunus().command();
    command.args([
        format!("--advertise-client-urls=https://{client}"),
        format!("--cert-file={}", cert("server.crt")),
        "--client-cert-auth=true".to_owned(),
        format!("--data-dir={}", dir.display()),
        "--feature-gates=InitialCorruptCheck=true".to_owned(),
        format!("--initial-advertise-peer-urls=https://{peer}"),
        format!("--initial-cluster=node-1=https://{peer}"),
        format!("--key-file={}", cert("server.key")),
        format!("--listen-client-urls=https://{client}"),
        format!("--listen-metrics-urls=http://{metrics}"),
        format!("--listen-peer-urls=https://{peer}"),
        "--name=node-1".to_owned(),
        format!("--peer-cert-file={}", cert("server.crt")),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-key-file={}", cert("server.key")),
        format!("--peer-trusted-ca-file={}", cert("ca.crt")),
        "--snapshot-count=10000".to_owned(),
        format!("--trusted-ca-file={}", cert("ca.crt")),
        "--watch-progress-notify-interval=5s".to_owned(),
    ]);
    let server = Process::spawn(&mut command).ready();
    write(client, &pki.dialler(Some(&pki.client)))
        .await
        .unwrap();
    assert_eq!(http_at(metrics, "GET", "/readyz", &[], &[]).status, 200);
    assert!(write(client, &pki.dialler(None)).await.is_err());
    server.stop();
}

/// Members with mutual TLS among them, and their processes.
struct TlsCluster {
    pki: Pki,
    members: Vec<Member>,
    dir: TempDir,
}

impl TlsCluster {
    fn new() -> TlsCluster {
        TlsCluster {
            pki: Pki::new(),
            members: Vec::new(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn add(&mut self, program: Program) -> usize {
        let number = self.members.len();
        let name = format!("m{number}");
        let mut member = Member::new(&name, program, self.dir.path()).unwrap();
        member.client_is_tls = true;
        member.peer_is_tls = true;
        member.flags = self.flags();
        member.initial_cluster = member.initial_cluster_entry();
        self.members.push(member);
        number
    }

    /// The flags of mutual TLS at both ports.
    fn flags(&self) -> Vec<String> {
        let mut flags = self.pki.peer_flags();
        let urls = |flag: &String| !flag.contains("-client-urls=");
        flags.extend(self.pki.client_flags().into_iter().filter(urls));
        flags
    }

    async fn clients(&self, member: usize) -> Clients {
        let tls = self.pki.dialler(Some(&self.pki.client));
        let address = self.members[member].client;
        self.until(&format!("connection to m{member}"), async || {
            connect_with_tls(address, &tls).await
        })
        .await
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
        match wait::try_until(wait::WAIT_MAX, look).await {
            Ok(found) => found,
            Err(error) => panic!("no {what}: {error}{}", member::log_tails(&self.members, 30)),
        }
    }

    async fn put(&self, member: usize, key: &str, value: &str) {
        let mut clients = self.clients(member).await;
        self.until(&format!("write at m{member}"), async || {
            let written = clients.kv.put(put(key, value)).await;
            written.map(drop).map_err(|status| status.to_string())
        })
        .await;
    }

    async fn agree(&self) {
        self.until("agreement", async || {
            let mut views = Vec::new();
            for number in 0..self.members.len() {
                let mut clients = self.clients(number).await;
                let hash = clients.maintenance.hash_kv(HashKvRequest { revision: 0 });
                let hash = hash
                    .await
                    .map_err(|status| status.to_string())?
                    .into_inner();
                views.push((hash.hash, hash.hash_revision));
            }
            match views.iter().all(|view| *view == views[0]) {
                true => Ok(()),
                false => Err(format!("{views:?}")),
            }
        })
        .await;
    }

    /// Starts another member that joins by the first one.
    async fn join(&mut self, program: Program, extra_flags: &[&str]) -> usize {
        let number = self.add(program);
        let url = self.members[number].peer_url();
        let mut clients = self.clients(0).await;
        self.until("addition of a member", async || {
            let request = MemberAddRequest {
                peer_urls: vec![url.clone()],
                is_learner: false,
            };
            let added = clients.cluster.member_add(request).await;
            added.map(drop).map_err(|status| status.to_string())
        })
        .await;
        let all = member::initial_cluster(&self.members);
        let joining = &mut self.members[number];
        joining.initial_cluster = all;
        joining.initial_state = InitialState::Existing;
        joining
            .flags
            .extend(extra_flags.iter().map(|flag| (*flag).to_owned()));
        joining.launch(&[]);
        number
    }

    async fn move_leader(&self, to: usize) {
        self.until("change of leader", async || {
            let refused = |status: tonic::Status| status.to_string();
            let mut target = self.clients(to).await;
            let status = target.maintenance.status(StatusRequest {});
            let status = status.await.map_err(refused)?.into_inner();
            let target_id = status.header.unwrap().member_id;
            if status.leader == target_id {
                return Ok(());
            }
            for number in 0..self.members.len() {
                let request = MoveLeaderRequest { target_id };
                let mut clients = self.clients(number).await;
                let _ = clients.maintenance.move_leader(request).await;
            }
            Err("another member leads".to_owned())
        })
        .await;
    }
}

#[tokio::test]
async fn three_members_replicate_over_mutual_tls() {
    let mut cluster = TlsCluster::new();
    for _ in 0..3 {
        cluster.add(Program::portunus());
    }
    member::found(&mut cluster.members);
    for member in &mut cluster.members {
        member.launch(&[]);
    }
    for number in 0..3 {
        cluster.put(number, &format!("k{number}"), "v").await;
    }
    cluster.agree().await;

    // A caller without a certificate reaches no peer route, one without TLS neither.
    let peer = cluster.members[0].peer;
    let anonymous = cluster.pki.dialler_with(None, ALPN_HTTP);
    assert!(https_get(peer, &anonymous, "/members").await.is_err());
    let own = cluster
        .pki
        .dialler_with(Some(&cluster.pki.server), ALPN_HTTP);
    let answer = https_get(peer, &own, "/members").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A certificate of another machine is refused, although its CA is trusted.
    let elsewhere = cluster.pki.authority.issue(&Subject {
        common_name: "member",
        names: &["10.9.8.7"],
        is_expired: false,
    });
    let elsewhere = cluster.pki.write(&elsewhere, "elsewhere");
    let elsewhere = cluster.pki.dialler_with(Some(&elsewhere), ALPN_HTTP);
    assert!(https_get(peer, &elsewhere, "/members").await.is_err());
    let process = cluster.members[0].process.as_ref().unwrap();
    let line = process.find_line("rejected connection on peer endpoint");
    assert!(line.is_some());

    // A member that was away catches up over TLS.
    cluster.members[2].kill();
    cluster.put(0, "while away", "v").await;
    cluster.members[2].launch(&[]);
    cluster.agree().await;
}

#[tokio::test]
async fn peers_without_an_allowed_name_are_kept_out() {
    let mut cluster = TlsCluster::new();
    for _ in 0..3 {
        cluster.add(Program::portunus());
    }
    // The third has a certificate of the trusted CA, but not of a member.
    let stranger = cluster.pki.authority.server("stranger");
    let stranger = cluster.pki.write(&stranger, "stranger");
    for member in &mut cluster.members {
        member
            .flags
            .push("--peer-cert-allowed-cn=member".to_owned());
    }
    let flags = &mut cluster.members[2].flags;
    flags.push(format!(
        "--peer-cert-file={}",
        stranger.certificate.display()
    ));
    flags.push(format!("--peer-key-file={}", stranger.key.display()));
    member::found(&mut cluster.members);
    for member in &mut cluster.members {
        member.launch(&[]);
    }
    cluster.put(0, "a", "b").await;
    cluster.put(1, "a", "c").await;
    let process = cluster.members[0].process.as_ref().unwrap();
    let line = process.find_line("rejected connection on peer endpoint");
    let line = line.unwrap();
    assert!(line.contains("stranger"), "{line}");
    assert!(!cluster.members[2].log().contains(common::READY));
}

#[tokio::test]
async fn members_with_self_signed_certificates_replicate() {
    let mut cluster = TlsCluster::new();
    for _ in 0..3 {
        let number = cluster.add(Program::portunus());
        let flags = &mut cluster.members[number].flags;
        flags.retain(|flag| !flag.starts_with("--peer-"));
        flags.push("--peer-auto-tls".to_owned());
    }
    member::found(&mut cluster.members);
    for member in &mut cluster.members {
        member.launch(&[]);
    }
    cluster.put(1, "a", "b").await;
    cluster.agree().await;
}

#[tokio::test]
async fn portunus_joins_a_go_founder_over_mutual_tls() {
    let Some(etcd) = Program::etcd("portunus_joins_a_go_founder_over_mutual_tls") else {
        return;
    };
    let mut cluster = TlsCluster::new();
    cluster.add(etcd);
    cluster.members[0].launch(&[]);
    cluster.put(0, "before", "v").await;
    let joined = cluster
        .join(Program::portunus(), &["--emulated-version=3.7"])
        .await;
    cluster.put(joined, "by portunus", "v").await;
    cluster.agree().await;
    cluster.move_leader(joined).await;
    cluster.put(0, "by etcd", "v").await;
    cluster.agree().await;
    cluster.move_leader(0).await;
    cluster.put(joined, "again", "v").await;
    cluster.agree().await;
}

#[tokio::test]
async fn go_member_joins_a_portunus_founder_over_mutual_tls() {
    let Some(etcd) = Program::etcd("go_member_joins_a_portunus_founder_over_mutual_tls") else {
        return;
    };
    let mut cluster = TlsCluster::new();
    cluster.add(Program::portunus());
    let founder = &mut cluster.members[0];
    founder.flags.push("--emulated-version=3.7".to_owned());
    // The entries before this are sent as a snapshot.
    founder.flags.push("--snapshot-count=50".to_owned());
    founder
        .flags
        .push("--snapshot-catchup-entries=5".to_owned());
    founder.launch(&[]);
    for number in 0..120 {
        cluster.put(0, &format!("k{number}"), "v").await;
    }
    let joined = cluster.join(etcd, &[]).await;
    cluster.put(joined, "by etcd", "v").await;
    cluster.agree().await;
    cluster.move_leader(joined).await;
    cluster.put(0, "by portunus", "v").await;
    cluster.agree().await;
}

#[tokio::test]
async fn go_and_portunus_members_share_self_signed_peer_certificates() {
    let Some(etcd) = Program::etcd("go_and_portunus_members_share_self_signed") else {
        return;
    };
    let mut cluster = TlsCluster::new();
    for program in [etcd, Program::portunus()] {
        let is_portunus = program.kind == portunus_testkit::program::Kind::Portunus;
        let number = cluster.add(program);
        let flags = &mut cluster.members[number].flags;
        flags.retain(|flag| !flag.starts_with("--peer-"));
        flags.push("--peer-auto-tls".to_owned());
        if is_portunus {
            flags.push("--emulated-version=3.7".to_owned());
        }
    }
    member::found(&mut cluster.members);
    for member in &mut cluster.members {
        member.launch(&[]);
    }
    cluster.put(0, "a", "b").await;
    cluster.put(1, "a", "c").await;
    cluster.agree().await;
}

#[test]
fn unusable_certificates_stop_the_start_and_leave_nothing() {
    let pki = Pki::new();
    let other = pki.write(&pki.authority.server("other"), "other");
    let mut flags = pki.open_flags();
    flags.push(format!("--key-file={}", other.key.display()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (_guard, dir) = data_dir();
    let (status, log) = launch(&dir, &flags).ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("cannot be used together"), "{log}");
    assert!(!dir.exists());
}
