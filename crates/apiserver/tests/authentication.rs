//! Who a client is, over real handshakes: certificates of several CAs, tokens, front proxies.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use portunus_apiserver::authn::{
    AnyOf, Certificates, FrontProxy, FrontProxyHeaders, FrontProxyTrust, Tokens,
};
use portunus_apiserver::{
    Authenticator, Body, Connection, Drain, Handler, Listener, ListenerOptions, Metrics, full_body,
};
use portunus_testkit::certificates::{Authority, Issued, Subject};
use portunus_tls::{
    ALPN_GRPC_AND_HTTP, ALPN_HTTP, AllowedNames, CipherSuites, ClientCa, ClientOptions, ClientTls,
    KeyPairFiles, ServerOptions, ServerTls, VersionRange,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TOKENS: &str = "secret,tina,1,\"readers\"\n";

/// Answers with the user and the groups, and with the credentials that are left in the headers.
#[derive(Clone)]
struct WhoAmI {
    authenticator: Arc<AnyOf>,
}

impl Handler for WhoAmI {
    async fn handle(&self, request: Request<Incoming>, connection: &Connection) -> Response<Body> {
        let mut headers = request.into_parts().0.headers;
        let found = self.authenticator.authenticate(&mut headers, connection);
        let is_secret = |name: &str| name == "authorization" || name.starts_with("x-remote");
        let left = headers.keys().filter(|name| is_secret(name.as_str()));
        let left = left.count();
        match found {
            Err(refused) => {
                let mut response = Response::new(full_body(refused.reason));
                *response.status_mut() = StatusCode::UNAUTHORIZED;
                response
            }
            Ok(None) => Response::new(full_body(format!("anonymous, {left} left"))),
            Ok(Some(identity)) => {
                let (user, groups) = (identity.user, identity.groups.join(" "));
                Response::new(full_body(format!("{user}: {groups}, {left} left")))
            }
        }
    }
}

struct Fixture {
    directory: TempDir,
    users: Authority,
    proxies: Authority,
    server_ca: PathBuf,
    address: SocketAddr,
    metrics: Metrics,
    drain: Drain,
}

impl Fixture {
    async fn new(allowed_names: &[&str]) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let [servers, users, proxies] = ["servers", "users", "proxies"].map(Authority::new);
        let server_ca = servers.write_to(path, "servers.crt");
        let ca = |authority: &Authority, name: &str| {
            let file = authority.write_to(path, name);
            Arc::new(ClientCa::from_file(file).unwrap())
        };
        let metrics = Metrics::new();
        let trust = FrontProxyTrust {
            ca: ca(&proxies, "proxies.crt"),
            allowed_names: allowed_names.iter().map(|name| (*name).into()).collect(),
        };
        let counter = metrics.untrusted_front_proxy_headers.clone();
        let authenticator = AnyOf::new()
            .or(FrontProxy::new(
                Some(trust),
                FrontProxyHeaders::default(),
                counter,
            ))
            .or(Certificates::new(ca(&users, "users.crt")))
            .or(Tokens::parse(TOKENS).unwrap());
        let identity = servers.server("server").write_to(path, "server");
        let tls = ServerTls::requesting_certificates(ServerOptions {
            identity: KeyPairFiles {
                certificate: identity.certificate,
                key: identity.key,
            },
            trusted_ca_file: None,
            crl_file: None,
            allowed: AllowedNames::Any,
            versions: VersionRange::default(),
            cipher_suites: CipherSuites::default(),
            alpn: ALPN_GRPC_AND_HTTP,
        });
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = ListenerOptions::default();
        let listener = Listener::new(socket, Some(tls.unwrap()), options, metrics.clone());
        let (address, drain) = (listener.address().unwrap(), Drain::new());
        let handler = WhoAmI {
            authenticator: Arc::new(authenticator),
        };
        tokio::spawn(listener.serve(handler, drain.clone()));
        Fixture {
            directory,
            users,
            proxies,
            server_ca,
            address,
            metrics,
            drain,
        }
    }

    /// Sends a request with a certificate and headers; returns the status and the body.
    async fn ask(&self, certificate: Option<&Issued>, headers: &[(&str, &str)]) -> (u16, String) {
        let identity = certificate.map(|issued| {
            let files = issued.write_to(self.directory.path(), "client");
            KeyPairFiles {
                certificate: files.certificate,
                key: files.key,
            }
        });
        let client = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(self.server_ca.clone()),
            identity,
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        });
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut stream = client.unwrap().connect("localhost", stream).await.unwrap();
        let lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let request = format!(
            "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}\r\n",
            lines.concat()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, body.to_owned())
    }
}

fn ok(body: &str) -> (u16, String) {
    (200, body.to_owned())
}

const CLAIM: [(&str, &str); 2] = [
    ("X-Remote-User", "admin"),
    ("X-Remote-Group", "system:masters"),
];

#[tokio::test]
async fn certificate_of_the_client_ca_is_a_user() {
    let fixture = Fixture::new(&[]).await;
    assert_eq!(fixture.ask(None, &[]).await, ok("anonymous, 0 left"));
    let alice = fixture.users.user("alice", &["admins", "readers"]);
    let answer = fixture.ask(Some(&alice), &[]).await;
    assert_eq!(
        answer,
        ok("alice: admins readers system:authenticated, 0 left")
    );
    let nameless = fixture.users.user("", &["system:masters"]);
    assert_eq!(
        fixture.ask(Some(&nameless), &[]).await,
        ok("anonymous, 0 left")
    );
}

#[tokio::test]
async fn foreign_and_expired_certificates_are_refused() {
    let fixture = Fixture::new(&[]).await;
    let foreign = Authority::new("users").user("alice", &["system:masters"]);
    let expired = fixture.users.issue(&Subject {
        common_name: "alice",
        names: &[],
        is_expired: true,
    });
    for certificate in [foreign, expired] {
        let (status, reason) = fixture.ask(Some(&certificate), &[]).await;
        assert_eq!(status, 401, "{reason}");
        // A valid token counts in spite of the certificate, as in Kubernetes.
        let header = ("Authorization", "Bearer secret");
        let answer = fixture.ask(Some(&certificate), &[header]).await;
        assert_eq!(answer, ok("tina: readers system:authenticated, 0 left"));
    }
    assert_eq!(fixture.metrics.handshake_errors.get(), 0);
}

#[tokio::test]
async fn tokens_are_users_and_wrong_ones_are_refused() {
    let fixture = Fixture::new(&[]).await;
    let ask = async |value| fixture.ask(None, &[("Authorization", value)]).await;
    let tina = ok("tina: readers system:authenticated, 0 left");
    assert_eq!(ask("Bearer secret").await, tina);
    assert_eq!(ask("Bearer wrong").await.0, 401);
    // A certificate is a user whatever the token is, and the token does not reach a handler.
    let alice = fixture.users.user("alice", &[]);
    let answer = fixture
        .ask(Some(&alice), &[("Authorization", "Bearer wrong")])
        .await;
    assert_eq!(answer, ok("alice: system:authenticated, 0 left"));
}

#[tokio::test]
async fn front_proxy_headers_count_only_with_the_certificate_of_the_front_proxy() {
    let fixture = Fixture::new(&["aggregator"]).await;
    let proxy = fixture.proxies.user("aggregator", &[]);
    let admin = ok("admin: system:masters system:authenticated, 0 left");
    assert_eq!(fixture.ask(Some(&proxy), &CLAIM).await, admin);
    let untrusted = &fixture.metrics.untrusted_front_proxy_headers;
    assert_eq!(untrusted.get(), 0);

    assert_eq!(fixture.ask(None, &CLAIM).await, ok("anonymous, 0 left"));
    let alice = fixture.users.user("alice", &[]);
    let answer = fixture.ask(Some(&alice), &CLAIM).await;
    assert_eq!(answer, ok("alice: system:authenticated, 0 left"));
    // A name of the right kind from the CA of the users is not a front proxy either.
    let impostor = fixture.users.user("aggregator", &[]);
    let answer = fixture.ask(Some(&impostor), &CLAIM).await;
    assert_eq!(answer, ok("aggregator: system:authenticated, 0 left"));
    assert_eq!(untrusted.get(), 3);

    let other_name = fixture.proxies.user("other", &[]);
    assert_eq!(fixture.ask(Some(&other_name), &CLAIM).await.0, 401);
    let foreign = Authority::new("proxies").user("aggregator", &[]);
    assert_eq!(fixture.ask(Some(&foreign), &CLAIM).await.0, 401);
    assert_eq!(untrusted.get(), 5);
    // Without headers, the certificate of a front proxy is no user.
    assert_eq!(fixture.ask(Some(&proxy), &[]).await.0, 401);
}

#[tokio::test]
async fn connection_without_tls_is_refused_and_the_server_lives_on() {
    let fixture = Fixture::new(&[]).await;
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/1.1 2"));
    assert_eq!(fixture.ask(None, &[]).await.0, 200);
    assert_eq!(fixture.metrics.handshake_errors.get(), 1);
    fixture.drain.begin(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn replaced_certificate_of_the_server_is_used_without_a_restart() {
    let mut fixture = Fixture::new(&[]).await;
    assert_eq!(fixture.ask(None, &[]).await.0, 200);
    let other = Authority::new("other");
    other
        .server("server")
        .write_to(fixture.directory.path(), "server");
    fixture.server_ca = other.write_to(fixture.directory.path(), "other.crt");
    portunus_testkit::wait::eventually("new certificate", async || {
        let client = ClientTls::new(ClientOptions {
            trusted_ca_file: Some(fixture.server_ca.clone()),
            alpn: ALPN_HTTP,
            ..ClientOptions::default()
        });
        let stream = TcpStream::connect(fixture.address).await.unwrap();
        client.unwrap().connect("localhost", stream).await.ok()
    })
    .await;
    assert_eq!(fixture.ask(None, &[]).await.0, 200);
}
