//! Handshakes between `ServerTls` and `ClientTls`, with certificates that are made for each test.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a failing test panics

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portunus_testkit::certificates::{Authority, Issued, IssuedFiles, Subject, replace};
use portunus_testkit::random::Random;
use portunus_testkit::wait;
use portunus_tls::{
    ALPN_GRPC, ALPN_GRPC_AND_HTTP, AcceptError, AllowedNames, CipherSuites, ClientCa,
    ClientCertificate, ClientOptions, ClientTls, KeyPairFiles, LoadError, RefusedCertificate,
    ServerOptions, ServerTls, VersionRange, self_signed,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// A directory with a CA and a certificate of a server.
struct Fixture {
    directory: TempDir,
    authority: Authority,
    ca: PathBuf,
    server: IssuedFiles,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("ca");
        let ca = authority.write_to(directory.path(), "ca.crt");
        let server = authority
            .server("server")
            .write_to(directory.path(), "server");
        Fixture {
            directory,
            authority,
            ca,
            server,
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, issued: &Issued, name: &str) -> KeyPairFiles {
        pair(&issued.write_to(self.path(), name))
    }

    /// A listener that asks for client certificates.
    fn listener(&self) -> ServerOptions {
        ServerOptions {
            trusted_ca_file: Some(self.ca.clone()),
            ..self.open_listener()
        }
    }

    /// A listener without client certificates.
    fn open_listener(&self) -> ServerOptions {
        ServerOptions {
            identity: pair(&self.server),
            trusted_ca_file: None,
            crl_file: None,
            allowed: AllowedNames::Any,
            versions: VersionRange::default(),
            cipher_suites: CipherSuites::default(),
            alpn: ALPN_GRPC_AND_HTTP,
        }
    }

    fn dialler(&self, identity: Option<KeyPairFiles>) -> ClientOptions {
        ClientOptions {
            trusted_ca_file: Some(self.ca.clone()),
            identity,
            alpn: ALPN_GRPC,
            ..ClientOptions::default()
        }
    }
}

fn pair(files: &IssuedFiles) -> KeyPairFiles {
    KeyPairFiles {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
    }
}

type Identity = Option<Arc<ClientCertificate>>;

/// The outcome of both sides: the identity that the server saw, and whether an echo arrived.
async fn connect(
    server: &ServerTls,
    client: &ClientTls,
    host: &str,
) -> (Result<Identity, AcceptError>, io::Result<()>) {
    let (near, far) = duplex(64 * 1024);
    let accepting = async {
        let mut accepted = server.accept(far).await?;
        // A client of TLS 1.3 may find out only now that it was refused.
        let mut letter = [0];
        if accepted.stream.read_exact(&mut letter).await.is_ok() {
            let _ = accepted.stream.write_all(&letter).await;
            let _ = accepted.stream.flush().await;
        }
        Ok(accepted.client)
    };
    let dialling = async {
        let mut stream = client.connect(host, near).await?;
        stream.write_all(b"x").await?;
        stream.flush().await?;
        stream.read_exact(&mut [0]).await.map(drop)
    };
    tokio::join!(accepting, dialling)
}

async fn refusal(server: &ServerOptions, client: &ClientOptions) -> AcceptError {
    let server = ServerTls::new(server.clone()).unwrap();
    let client = ClientTls::new(client.clone()).unwrap();
    let (accepted, dialled) = connect(&server, &client, "localhost").await;
    assert!(dialled.is_err(), "the client was not refused");
    accepted.expect_err("the client was accepted")
}

async fn accepted(server: &ServerOptions, client: &ClientOptions) -> Identity {
    let server = ServerTls::new(server.clone()).unwrap();
    let client = ClientTls::new(client.clone()).unwrap();
    let (accepted, dialled) = connect(&server, &client, "localhost").await;
    dialled.unwrap();
    accepted.unwrap()
}

#[tokio::test]
async fn client_certificate_is_the_identity_of_the_connection() {
    let fixture = Fixture::new();
    let alice = fixture.write(&fixture.authority.client("alice"), "alice");
    for version in ["TLS1.2", "TLS1.3"] {
        let mut listener = fixture.listener();
        listener.versions = VersionRange::parse(version, version).unwrap();
        let client = accepted(&listener, &fixture.dialler(Some(alice.clone()))).await;
        assert_eq!(client.unwrap().common_name, "alice", "{version}");
    }
    let anonymous = accepted(&fixture.open_listener(), &fixture.dialler(None)).await;
    assert_eq!(anonymous, None);
}

#[tokio::test]
async fn names_in_a_certificate_are_read() {
    let fixture = Fixture::new();
    let subject = Subject {
        common_name: "",
        names: &["one.test", "*.two.test", "10.0.0.1", "fd00::1"],
        is_expired: false,
    };
    let files = fixture.write(&fixture.authority.issue(&subject), "named");
    let client = accepted(&fixture.listener(), &fixture.dialler(Some(files))).await;
    let client = client.unwrap();
    assert_eq!(client.common_name, "");
    assert_eq!(client.dns_names, ["one.test", "*.two.test"]);
    let ips: Vec<_> = client
        .ip_addresses
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(ips, ["10.0.0.1", "fd00::1"]);
}

#[tokio::test]
async fn client_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let directory = fixture.path();
    let foreign = fixture.write(&Authority::new("ca").client("alice"), "foreign");
    let expired = fixture.write(
        &fixture.authority.issue(&Subject {
            common_name: "alice",
            names: &[],
            is_expired: true,
        }),
        "expired",
    );
    let revoked = fixture.authority.client("mallory");
    let crl_file = directory.join("revoked.crl");
    replace(&crl_file, &fixture.authority.revocation_list(&[&revoked]));
    let revoked = fixture.write(&revoked, "revoked");
    let alice = fixture.write(&fixture.authority.client("alice"), "alice");

    let mut listener = fixture.listener();
    listener.crl_file = Some(crl_file);
    accepted(&listener, &fixture.dialler(Some(alice.clone()))).await;
    let stranger = fixture.write(&Authority::new("other").client("alice"), "stranger");
    for (identity, kind) in [
        (None, "no_certificate"),
        (Some(stranger), "unknown_issuer"),
        (Some(foreign), "unknown_issuer"),
        (Some(expired), "expired"),
        (Some(revoked), "revoked"),
    ] {
        let refused = refusal(&listener, &fixture.dialler(identity)).await;
        assert_eq!(refused.kind(), kind, "{}", refused.reason());
    }
    listener.allowed = AllowedNames::CommonNames(vec!["bob".to_owned()]);
    let refused = refusal(&listener, &fixture.dialler(Some(alice))).await;
    assert_eq!(refused.kind(), "name", "{}", refused.reason());
    assert!(refused.reason().contains("\"alice\""), "{refused}");
}

#[tokio::test]
async fn allowed_names_admit_only_certificates_that_have_one() {
    let fixture = Fixture::new();
    let subject = Subject {
        common_name: "m1",
        names: &["m1.example.test", "10.0.0.1"],
        is_expired: false,
    };
    let files = fixture.write(&fixture.authority.issue(&subject), "m1");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (allowed, is_admitted) in [
        (AllowedNames::CommonNames(names(&["m2", "m1"])), true),
        (
            AllowedNames::CommonNames(names(&["m1.example.test"])),
            false,
        ),
        (AllowedNames::Hostnames(names(&["m1.example.test"])), true),
        (AllowedNames::Hostnames(names(&["x", "10.0.0.1"])), true),
        (AllowedNames::Hostnames(names(&["m1", "10.0.0.2"])), false),
    ] {
        let mut listener = fixture.listener();
        listener.allowed = allowed.clone();
        let dialler = fixture.dialler(Some(files.clone()));
        match is_admitted {
            true => drop(accepted(&listener, &dialler).await),
            false => assert_eq!(refusal(&listener, &dialler).await.kind(), "name"),
        }
    }
}

#[tokio::test]
async fn plain_request_is_recognised() {
    let fixture = Fixture::new();
    let server = ServerTls::new(fixture.open_listener()).unwrap();
    for request in ["GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let (mut near, far) = duplex(1024);
        near.write_all(request.as_bytes()).await.unwrap();
        let refused = server.accept(far).await.err().unwrap();
        assert!(matches!(refused, AcceptError::Plaintext), "{refused:?}");
    }
    let (near, far) = duplex(1024);
    drop(near);
    let refused = server.accept(far).await.err().unwrap();
    assert_eq!(refused.kind(), "ended_by_client");
}

#[tokio::test]
async fn arbitrary_bytes_are_refused_without_a_panic() {
    let fixture = Fixture::new();
    let server = ServerTls::new(fixture.listener()).unwrap();
    let mut random = Random::seeded("arbitrary_bytes_are_refused_without_a_panic");
    for _ in 0..500 {
        let mut bytes: Vec<u8> = (0..random.below(200))
            .map(|_| random.below(256) as u8)
            .collect();
        // Half of them begin as a handshake does.
        if random.below(2) == 0 {
            bytes.splice(0..0, [0x16, 3, 1, 0, random.below(256) as u8, 1, 0, 0]);
        }
        let (mut near, far) = duplex(1024);
        near.write_all(&bytes).await.unwrap();
        near.shutdown().await.unwrap();
        assert!(server.accept(far).await.is_err());
    }
}

#[tokio::test]
async fn server_is_refused_if_it_is_not_the_dialled_one() {
    let fixture = Fixture::new();
    let server = ServerTls::new(fixture.open_listener()).unwrap();
    let dial = |options: ClientOptions, host: &'static str| {
        let client = ClientTls::new(options).unwrap();
        let server = &server;
        async move { connect(server, &client, host).await }
    };
    dial(fixture.dialler(None), "127.0.0.1").await.1.unwrap();
    dial(fixture.dialler(None), "[::1]").await.1.unwrap();
    let (accepted, dialled) = dial(fixture.dialler(None), "other.test").await;
    let error = dialled.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
    assert_eq!(accepted.unwrap_err().kind(), "ended_by_client");

    let named = ClientOptions {
        server_name: Some("localhost".to_owned()),
        ..fixture.dialler(None)
    };
    dial(named, "other.test").await.1.unwrap();
    let foreign = ClientOptions {
        trusted_ca_file: Some(Authority::new("ca").write_to(fixture.path(), "foreign.crt")),
        ..fixture.dialler(None)
    };
    assert!(dial(foreign.clone(), "localhost").await.1.is_err());
    let careless = ClientOptions {
        skip_verification: true,
        ..foreign
    };
    dial(careless, "other.test").await.1.unwrap();
    let picky = ClientOptions {
        allowed: AllowedNames::CommonNames(vec!["other".to_owned()]),
        ..fixture.dialler(None)
    };
    assert!(dial(picky, "localhost").await.1.is_err());
}

#[tokio::test]
async fn self_signed_certificate_is_trusted_by_those_that_have_it() {
    let fixture = Fixture::new();
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let own = self_signed(&fixture.path().join("own"), &hosts, 1).unwrap();
    let listener = ServerOptions {
        identity: own.clone(),
        trusted_ca_file: Some(own.certificate.clone()),
        ..fixture.open_listener()
    };
    let dialler = ClientOptions {
        trusted_ca_file: Some(own.certificate.clone()),
        ..fixture.dialler(Some(own))
    };
    accepted(&listener, &dialler).await;
    let alice = fixture.write(&fixture.authority.client("alice"), "alice");
    let other = ClientOptions {
        identity: Some(alice),
        ..dialler
    };
    assert_eq!(refusal(&listener, &other).await.kind(), "unknown_issuer");
}

#[tokio::test]
async fn certificate_of_a_ca_that_is_itself_trusted_can_be_a_server() {
    let fixture = Fixture::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let files = KeyPairFiles {
        certificate: fixture.path().join("own.crt"),
        key: fixture.path().join("own.key"),
    };
    replace(&files.certificate, certificate.pem().as_bytes());
    replace(&files.key, key.serialize_pem().as_bytes());
    let listener = ServerOptions {
        identity: files.clone(),
        ..fixture.open_listener()
    };
    let dialler = ClientOptions {
        trusted_ca_file: Some(files.certificate),
        ..fixture.dialler(None)
    };
    accepted(&listener, &dialler).await;
    let server = ServerTls::new(listener).unwrap();
    let client = ClientTls::new(dialler).unwrap();
    assert!(connect(&server, &client, "127.0.0.1").await.1.is_err());
}

/// Connects until both sides agree with `wanted`, a kind of refusal or `accepted`.
async fn eventually(server: &ServerTls, client: &ClientTls, wanted: &str) {
    let look = async || {
        let kind = match connect(server, client, "localhost").await {
            (Ok(_), Ok(())) => "accepted",
            (Err(refused), _) => refused.kind(),
            (Ok(_), Err(_)) => "refused_by_client",
        };
        (kind == wanted).then_some(()).ok_or(kind)
    };
    wait::until(wanted, look).await;
}

#[tokio::test]
async fn replaced_files_are_used_without_a_restart() {
    let fixture = Fixture::new();
    let alice = fixture.authority.client("alice");
    let files = fixture.write(&alice, "alice");
    let crl_file = fixture.path().join("revoked.crl");
    replace(&crl_file, &fixture.authority.revocation_list(&[]));
    let listener = ServerOptions {
        crl_file: Some(crl_file.clone()),
        ..fixture.listener()
    };
    let server = ServerTls::new(listener).unwrap();
    let client = ClientTls::new(fixture.dialler(Some(files))).unwrap();
    eventually(&server, &client, "accepted").await;
    // A list is added to, then the client gets another certificate of its own.
    replace(&crl_file, &fixture.authority.revocation_list(&[&alice]));
    eventually(&server, &client, "revoked").await;
    fixture.write(&fixture.authority.client("alice"), "alice");
    eventually(&server, &client, "accepted").await;
    // The certificate without its key is not used; with its key it is, and the client does not
    // trust its CA until its file has both.
    let next = Authority::new("next");
    let renewed = next.server("server");
    replace(&fixture.server.certificate, renewed.certificate.as_bytes());
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    eventually(&server, &client, "accepted").await;
    replace(&fixture.server.key, renewed.key.as_bytes());
    eventually(&server, &client, "ended_by_client").await;
    let both = format!("{}{}", fixture.authority.pem(), next.pem());
    replace(&fixture.ca, both.as_bytes());
    eventually(&server, &client, "accepted").await;
}

#[test]
fn unusable_files_are_refused_with_their_path() {
    let fixture = Fixture::new();
    let other = fixture
        .authority
        .server("other")
        .write_to(fixture.path(), "other");
    let empty = fixture.path().join("empty.pem");
    replace(&empty, b"no pem at all\n");
    let fail = |change: &dyn Fn(&mut ServerOptions)| -> LoadError {
        let mut listener = fixture.listener();
        change(&mut listener);
        ServerTls::new(listener).unwrap_err()
    };
    let missing = PathBuf::from("/nonexistent/ca.crt");
    let read = fail(&|it| it.trusted_ca_file = Some(missing.clone()));
    assert!(read.to_string().contains("/nonexistent/ca.crt"), "{read}");
    let none = fail(&|it| it.identity.certificate = empty.clone());
    assert!(none.to_string().contains("no certificate"), "{none}");
    let no_key = fail(&|it| it.identity.key = empty.clone());
    assert!(no_key.to_string().contains("no private key"), "{no_key}");
    let mixed = fail(&|it| it.identity.key = other.key.clone());
    assert!(matches!(mixed, LoadError::KeyPair { .. }), "{mixed}");
    let no_list = fail(&|it| it.crl_file = Some(empty.clone()));
    assert!(matches!(no_list, LoadError::RevocationList { .. }));
}

/// The certificates that a listener receives which only requests them.
async fn presented(
    fixture: &Fixture,
    version: &str,
    identity: Option<KeyPairFiles>,
) -> Vec<Vec<u8>> {
    let mut listener = fixture.listener();
    listener.versions = VersionRange::parse(version, version).unwrap();
    let server = ServerTls::requesting_certificates(listener).unwrap();
    let client = ClientTls::new(fixture.dialler(identity)).unwrap();
    let (near, far) = duplex(64 * 1024);
    let (accepted, dialled) = tokio::join!(server.accept(far), client.connect("localhost", near));
    dialled.unwrap();
    let accepted = accepted.unwrap();
    accepted.certificates().map(<[u8]>::to_vec).collect()
}

#[tokio::test]
async fn requested_certificate_is_verified_after_the_handshake() {
    let fixture = Fixture::new();
    let foreign = Authority::new("ca");
    let ca = ClientCa::from_file(fixture.ca.clone()).unwrap();
    for version in ["TLS1.2", "TLS1.3"] {
        assert!(presented(&fixture, version, None).await.is_empty());

        let alice = fixture.authority.user("alice", &["admins", "readers"]);
        let alice = fixture.write(&alice, "alice");
        let chain = presented(&fixture, version, Some(alice)).await;
        let identity = ca.verify(&chain).unwrap();
        assert_eq!(identity.common_name, "alice");
        assert_eq!(identity.organizations, ["admins", "readers"]);

        let mallory = fixture.write(&foreign.user("alice", &["admins"]), "mallory");
        let chain = presented(&fixture, version, Some(mallory)).await;
        let refused = ca.verify(&chain).unwrap_err();
        assert!(
            matches!(refused, RefusedCertificate::Untrusted(_)),
            "{refused}"
        );
    }
    let none: [&[u8]; 0] = [];
    assert_eq!(ca.verify(&none).unwrap_err(), RefusedCertificate::Missing);
    assert!(ca.verify(&[b"no certificate"]).is_err());
}

#[tokio::test]
async fn client_without_the_key_of_its_certificate_fails_the_handshake() {
    let fixture = Fixture::new();
    let mallory = fixture.authority.client("mallory");
    let ring = rustls::crypto::ring::default_provider();
    let key = PrivateKeyDer::from_pem_slice(mallory.key.as_bytes()).unwrap();
    let key = ring.key_provider.load_private_key(key).unwrap();
    let alice = CertificateDer::from(der(&fixture.authority.client("alice")));
    // The certificate of alice with the key of mallory, which `ClientTls` would not load.
    let stolen = Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![alice], key)));
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(fixture.authority.pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(ring.clone()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_cert_resolver(Arc::clone(&stolen) as _);
        let client = tokio_rustls::TlsConnector::from(Arc::new(client));
        let server = ServerTls::requesting_certificates(fixture.open_listener()).unwrap();
        let (near, far) = duplex(64 * 1024);
        let name = "localhost".try_into().unwrap();
        let (accepted, _) = tokio::join!(server.accept(far), client.connect(name, near));
        assert!(accepted.is_err(), "{version:?}");
    }
}

#[test]
fn expired_certificate_is_refused_and_a_changed_ca_file_is_used() {
    let fixture = Fixture::new();
    let expired = fixture.authority.issue(&Subject {
        common_name: "alice",
        names: &[],
        is_expired: true,
    });
    let ca = ClientCa::from_file(fixture.ca.clone()).unwrap();
    assert!(ca.verify(&[der(&expired)]).is_err());
    let other = Authority::new("other");
    let bob = der(&other.client("bob"));
    assert!(ca.verify(std::slice::from_ref(&bob)).is_err());
    replace(&fixture.ca, other.pem().as_bytes());
    wait::until_blocking("use of the new CA", || {
        ca.verify(std::slice::from_ref(&bob))
    });
}

fn der(issued: &Issued) -> Vec<u8> {
    let pem = issued.certificate.as_bytes();
    CertificateDer::from_pem_slice(pem).unwrap().to_vec()
}
