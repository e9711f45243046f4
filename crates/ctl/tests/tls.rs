//! Connections with TLS: through etcdctl and through `portctl`, against one server with client
//! certificates.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use portunus_testkit::certificates::{Authority, IssuedFiles, Subject};
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until_blocking;
use support::running::Running;
use support::{Ran, Server, clean, etcdctl, for_each_server, portctl, run};
use tempfile::TempDir;

/// A server that requires client certificates of its CA.
struct TlsServer {
    member: Member,
    directory: TempDir,
    authority: Authority,
    ca: PathBuf,
    root: IssuedFiles,
    alice: IssuedFiles,
}

impl TlsServer {
    fn start(program: &Program) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path();
        let authority = Authority::new("clients and servers");
        let ca = authority.write_to(folder, "ca.crt");
        let own = authority.server("server").write_to(folder, "server");
        let mut member = Member::new("m1", program.clone(), folder).unwrap();
        let url = format!("https://{}", member.endpoint());
        member.flags = vec![
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--cert-file={}", own.certificate.display()),
            format!("--key-file={}", own.key.display()),
            format!("--trusted-ca-file={}", ca.display()),
            "--client-cert-auth".to_owned(),
            "--bcrypt-cost=4".to_owned(),
        ];
        member.launch(&[]);
        let server = Self {
            root: authority.client("root").write_to(folder, "root"),
            alice: authority.client("alice").write_to(folder, "alice"),
            member,
            directory,
            authority,
            ca,
        };
        until_blocking("healthy server", || {
            match server.portctl(&server.root, &["endpoint", "health"]) {
                ran if ran.success => Ok(()),
                ran => Err((ran, server.member.log())),
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("https://{}", self.member.endpoint())
    }

    fn flags(&self, identity: &IssuedFiles) -> [String; 3] {
        [
            format!("--cacert={}", self.ca.display()),
            format!("--cert={}", identity.certificate.display()),
            format!("--key={}", identity.key.display()),
        ]
    }

    fn portctl(&self, identity: &IssuedFiles, arguments: &[&str]) -> Ran {
        let mut command = portctl();
        command
            .arg(format!("--endpoints={}", self.url()))
            .args(self.flags(identity))
            .args(arguments);
        run(&mut command, b"")
    }

    /// Runs a command that must fail soon; returns its outcome.
    fn refused(&self, endpoint: &str, arguments: &[&str]) -> Ran {
        let mut command = portctl();
        command
            .args(["--dial-timeout=500ms", "--command-timeout=500ms"])
            .arg(format!("--endpoints={endpoint}"))
            .args(arguments)
            .args(["get", "k"]);
        let ran = run(&mut command, b"");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.err.ends_with("Error: context deadline exceeded\n"),
            "{ran:?}"
        );
        ran
    }
}

#[test]
fn commands_with_tls_answer_as_etcdctl_does() {
    const TEST: &str = "tls::commands_with_tls_answer_as_etcdctl_does";
    let Some(etcdctl) = etcdctl(TEST) else {
        return;
    };
    for_each_server(TEST, |program| {
        let server = TlsServer::start(program);
        answers_are_the_same(&server, &etcdctl);
        common_names_identify_users(&server, &etcdctl);
    });
}

/// Runs a command with both programs and compares them.
#[track_caller]
fn both(etcdctl: &Path, arguments: &[&str], environment: &[(&str, String)]) -> Ran {
    let one = |program: &OsStr| {
        let mut command = clean(Command::new(program));
        let environment = environment.iter().map(|(name, value)| (*name, value));
        command.envs(environment).args(arguments);
        let mut ran = run(&mut command, b"");
        ran.out = comparable(&ran.out);
        ran.err = comparable(&ran.err);
        ran
    };
    let ours = one(env!("CARGO_BIN_EXE_portctl").as_ref());
    let theirs = one(etcdctl.as_os_str());
    assert_eq!(
        ours, theirs,
        "portctl, then etcdctl: {arguments:?} {environment:?}"
    );
    ours
}

/// Removes times and log lines of etcdctl.
fn comparable(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("{\"level\""))
        .map(|line| line.find("took").map_or(line, |start| &line[..start]));
    lines.collect::<Vec<_>>().join("\n")
}

fn answers_are_the_same(server: &TlsServer, etcdctl: &Path) {
    let [cacert, cert, key] = server.flags(&server.root);
    let (url, address) = (server.url(), server.member.endpoint());
    let saved = server.directory.path().join("saved.db");
    let saved = saved.to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["put", "k", "v"],
        &["get", "k"],
        &["member", "list"],
        &["alarm", "list"],
        &["lease", "list"],
        &["compaction", "99999"],
        &["lease", "revoke", "1234"],
        &["lease", "keep-alive", "--once", "1234"],
        &["auth", "status"],
        &["user", "list"],
        &["endpoint", "health"],
        &["endpoint", "health", "--cluster"],
        &["endpoint", "hashkv"],
        &["endpoint", "hashkv", "--cluster"],
        &["defrag"],
        &["snapshot", "save", saved],
    ];
    for endpoint in [url.as_str(), address.as_str()] {
        let endpoints = format!("--endpoints={endpoint}");
        for command in commands {
            let flags: [&str; 4] = [&endpoints, &cacert, &cert, &key];
            let ran = both(etcdctl, &[&flags, *command].concat(), &[]);
            let is_refused = ["lease", "compaction"].contains(&command[0]);
            assert!(ran.success || is_refused, "{ran:?}");
        }
        let any_server = [
            &endpoints,
            "--insecure-skip-tls-verify",
            &cert,
            &key,
            "get",
            "k",
        ];
        assert!(both(etcdctl, &any_server, &[]).success);
        let environment = [
            ("ETCDCTL_ENDPOINTS", endpoint.to_owned()),
            ("ETCDCTL_CACERT", value(&cacert)),
            ("ETCDCTL_CERT", value(&cert)),
            ("ETCDCTL_KEY", value(&key)),
        ];
        assert!(both(etcdctl, &["get", "k"], &environment).success);
    }
    // Commands of portctl alone, and with answers that change from one to the next.
    let status = server.portctl(&server.root, &["endpoint", "status", "--cluster"]);
    assert!(status.ok().contains(&url));
    let gates = server.portctl(&server.root, &["gate", "list"]);
    assert!(
        gates.err.contains("feature gates") || gates.success,
        "{gates:?}"
    );
    for arguments in [
        &["--cert=", "get", "k"][..],
        &["--key=", "get", "k"],
        &["--cacert=", "get", "k"],
        &[&cert, "get", "k"],
        &[&key, "get", "k"],
        &[&cert, &key, "get"],
    ] {
        let ran = both(etcdctl, arguments, &[]);
        assert_eq!(ran.code, Some(128), "{ran:?}");
    }
}

fn value(flag: &str) -> String {
    flag.split_once('=').unwrap().1.to_owned()
}

/// With client certificates, the common name is the user.
fn common_names_identify_users(server: &TlsServer, etcdctl: &Path) {
    for command in [
        &["user", "add", "root", "--no-password"][..],
        &["user", "add", "alice", "--no-password"],
        &["user", "add", "bob:bobpw"],
        &["role", "add", "root"],
        &["role", "add", "readers"],
        &["role", "grant-permission", "readers", "read", "k"],
        &["user", "grant-role", "root", "root"],
        &["user", "grant-role", "alice", "readers"],
        &["auth", "enable"],
    ] {
        server.portctl(&server.root, command).ok();
    }
    let endpoints = format!("--endpoints={}", server.url());
    for identity in [&server.root, &server.alice] {
        let [cacert, cert, key] = server.flags(identity);
        for command in [
            &["get", "k"][..],
            &["put", "k", "w"],
            &["get", "other"],
            &["user", "get", "alice"],
            &["user", "list"],
            &["watch", "other"],
            &["--user=bob:bobpw", "get", "k"],
            &["--user=bob:wrong", "get", "k"],
            &["endpoint", "health"],
        ] {
            if command[0] == "watch" && identity == &server.root {
                continue;
            }
            let flags: [&str; 4] = [&endpoints, &cacert, &cert, &key];
            both(etcdctl, &[&flags, command].concat(), &[]);
        }
    }
}

#[test]
fn connections_without_trust_fail_with_the_cause() {
    const TEST: &str = "tls::connections_without_trust_fail_with_the_cause";
    for_each_server(TEST, |program| {
        let server = TlsServer::start(program);
        let folder = server.directory.path();
        let [cacert, cert, key] = server.flags(&server.root);
        let url = server.url();

        // The server wants a certificate.
        let ran = server.refused(&url, &[&cacert]);
        assert!(ran.err.contains("CertificateRequired"), "{ran:?}");
        // The client trusts another CA, or those of the system.
        let foreign = Authority::new("foreign");
        let foreign_ca = foreign.write_to(folder, "foreign.crt");
        let foreign_ca = format!("--cacert={}", foreign_ca.display());
        for arguments in [&[foreign_ca.as_str(), &cert, &key][..], &[&cert, &key]] {
            let ran = server.refused(&url, arguments);
            assert!(ran.err.contains("UnknownIssuer"), "{ran:?}");
        }
        // The server trusts another CA.
        let identity = foreign.client("root").write_to(folder, "foreign");
        let [_, cert_of_foreign, key_of_foreign] = server.flags(&identity);
        let ran = server.refused(&url, &[&cacert, &cert_of_foreign, &key_of_foreign]);
        assert!(ran.err.contains("fatal alert"), "{ran:?}");
        // The certificate of the client has expired.
        let expired = server.authority.issue(&Subject {
            common_name: "root",
            names: &[],
            is_expired: true,
        });
        let [_, expired_cert, expired_key] = server.flags(&expired.write_to(folder, "expired"));
        let ran = server.refused(&url, &[&cacert, &expired_cert, &expired_key]);
        assert!(ran.err.contains("fatal alert"), "{ran:?}");
        // The scheme says that there is no TLS, although there are settings.
        let plain = url.replace("https", "http");
        server.refused(&plain, &[&cacert, &cert, &key]);
        // Without settings an endpoint without a scheme has no TLS.
        server.refused(&server.member.endpoint(), &[]);
        // The certificate of the server has another name. Portunus looks for it once a second.
        let own = server.authority.issue(&Subject {
            common_name: "server",
            names: &["elsewhere.example"],
            is_expired: false,
        });
        own.write_to(folder, "server");
        until_blocking("the new certificate", || {
            match server.portctl(&server.root, &["get", "k"]) {
                ran if ran.success => Err(ran),
                _ => Ok(()),
            }
        });
        let ran = server.refused(&url, &[&cacert, &cert, &key]);
        assert!(ran.err.contains("not valid for name"), "{ran:?}");
    });
}

/// The destination of a mirror has TLS settings and a user of its own, and the metrics of a server
/// are read with TLS.
#[test]
fn mirror_and_check_datascale_use_tls_and_users() {
    for_each_server("tls::mirror_and_check_datascale", |program| {
        let source = Server::start(program);
        let target = TlsServer::start(program);
        source.portctl(["put", "a", "1"]).ok();
        let ctl = |arguments: &[&str]| target.portctl(&target.root, arguments).ok();
        let scale = ctl(&["check", "datascale"]);
        assert!(
            scale.contains("\nPASS: Approximate system memory"),
            "{scale}"
        );

        ctl(&["user", "add", "root:pw"]);
        ctl(&["user", "grant-role", "root", "root"]);
        ctl(&["auth", "enable"]);
        let with_user = |user: &str| {
            let mut command = source.command(env!("CARGO_BIN_EXE_portctl"));
            command.args(["make-mirror", &target.url(), user]).args(
                target.flags(&target.alice).map(|flag| {
                    let flag = flag.trim_start_matches("--");
                    format!("--dest-{flag}")
                }),
            );
            command
        };
        let refused = run(&mut with_user("--dest-user=root:wrong"), b"");
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.err.contains("invalid user ID or password"),
            "{refused:?}"
        );
        let _mirror = Running::start(&mut with_user("--dest-user=root:pw"));
        until_blocking("mirrored key", || {
            match target.portctl(&target.root, &["get", "a"]) {
                ran if ran.out == "a\n1\n" => Ok(()),
                ran => Err(ran),
            }
        });
        let untrusted = ["make-mirror", &target.url()];
        let untrusted = run(
            source
                .command(env!("CARGO_BIN_EXE_portctl"))
                .args(untrusted)
                .arg("--dest-cert=only.crt"),
            b"",
        );
        assert_eq!(untrusted.code, Some(128), "{untrusted:?}");
    });
}
