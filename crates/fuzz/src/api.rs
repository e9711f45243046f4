//! Requests to the API server, and the files that decide about them.

mod fresh_store;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use portunus_apis::Lifecycle;
use portunus_apiserver::authn::Tokens;
use portunus_apiserver::authz::PolicyFile;
use portunus_apiserver::resources::Resources;
use portunus_apiserver::{
    Authenticator, Authorizer, Connection, Decision, Definition, Drain, Identity, LimitOptions,
    MASTERS, Metrics, Query, RequestInfo, Service, ServiceOptions, Unauthenticated,
    VersionDefinition, kube_version,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use fresh_store::FreshStore;

use crate::input::{line, run, until_idle};

/// Makes every client an administrator.
struct Everybody;

impl Authenticator for Everybody {
    fn authenticate(
        &self,
        _headers: &mut HeaderMap,
        _connection: &Connection,
    ) -> Result<Option<Identity>, Unauthenticated> {
        Ok(Some(Identity::new("fuzzer", vec![MASTERS.to_owned()])))
    }
}

impl Authorizer for Everybody {
    fn authorize(&self, _identity: &Identity, _request: &RequestInfo) -> Decision {
        Decision::Allowed
    }
}

/// Returns a server with the resources of the program and with widgets, and with an empty store.
fn service() -> Service {
    thread_local! {
        static CREATED: (Service, Arc<FreshStore>) = create();
    }
    CREATED.with(|(service, store)| {
        store.replace();
        service.clone()
    })
}

fn create() -> (Service, Arc<FreshStore>) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    let version = VersionDefinition::new("v1", Lifecycle::since("1.34"), schema);
    let version = version.expect("a legal schema").with_status();
    let widgets = Definition::new("example.io", "Widget", "widgets")
        .with_version(version)
        .with_selectable_fields(["spec.size"]);
    let mut definitions = Resources::new(0).definitions().expect("legal definitions");
    definitions.push(widgets);
    let options = ServiceOptions {
        api: portunus_apis::Options::new(kube_version().expect("a version")),
        authenticator: Arc::new(Everybody),
        authorizer: Arc::new(Everybody),
        anonymous: false,
        storage_prefix: "/registry".to_owned(),
        limits: LimitOptions::default(),
        metrics: Metrics::new(),
        drain: Drain::new(),
        address: "localhost:6443".to_owned(),
    };
    let store = Arc::new(FreshStore::new());
    let service = Service::new(definitions, store.clone(), options);
    (service.expect("a service"), store)
}

/// Answers a request, and takes what there is of the answer at once.
async fn answer(service: &Service, request: Request<Full<Bytes>>) -> u16 {
    let response = service.handle(request, &Connection::default()).await;
    let status = response.status().as_u16();
    // Watches do not end.
    let _ = until_idle(response.into_body().collect()).await;
    status
}

/// Sends requests without a connection: a line with method and target, lines with headers until an
/// empty one, and a body until a line with `---`.
pub fn api_requests(data: &[u8]) {
    let service = service();
    run(async {
        let mut rest = data;
        for _ in 0..6 {
            let Some(request) = take_request(&mut rest) else {
                return;
            };
            let status = answer(&service, request).await;
            assert_ne!(status, 500, "no request makes the server fail");
        }
    });
}

fn take_request(data: &mut &[u8]) -> Option<Request<Full<Bytes>>> {
    let (first, mut rest) = line(data);
    let first = std::str::from_utf8(first).ok()?;
    let (method, target) = first.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    loop {
        let (header, after) = line(rest);
        rest = after;
        if header.is_empty() {
            break;
        }
        let at = header.iter().position(|byte| *byte == b':')?;
        request = request.header(&header[..at], header[at + 1..].trim_ascii());
    }
    const END: &[u8] = b"\n---\n";
    let end = rest.windows(END.len()).position(|part| part == END);
    let (body, after) = match end {
        None => (rest, &[][..]),
        Some(at) => (&rest[..at], &rest[at + END.len()..]),
    };
    *data = after;
    let body = Full::new(Bytes::copy_from_slice(body));
    request.body(body).ok()
}

/// Parses the path and the query of a request.
pub fn request_targets(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let query = Query::parse(query);
    let _ = (
        query.get("watch"),
        query.flag("watch"),
        query.selected_name(),
    );
    for method in [Method::GET, Method::POST, Method::DELETE, Method::HEAD] {
        if let Ok(info) = RequestInfo::parse(&method, path, &query) {
            assert!(!info.verb.is_empty());
            let _ = (info.is_read_only(), info.is_long_running());
        }
    }
}

/// Continues a list with any token, as given and as the content of a token.
pub fn continue_tokens(data: &[u8]) {
    let service = service();
    run(async {
        for token in [data.to_vec(), URL_SAFE_NO_PAD.encode(data).into_bytes()] {
            let token = percent_encode(&token, NON_ALPHANUMERIC);
            for path in [
                "/api/v1/namespaces",
                "/apis/example.io/v1/namespaces/a/widgets",
            ] {
                let target = format!("{path}?limit=1&continue={token}");
                // The HTTP library refuses longer ones.
                let Ok(request) = Request::get(target).body(Full::default()) else {
                    return;
                };
                let status = answer(&service, request).await;
                assert_ne!(status, 500, "no token makes the server fail");
            }
        }
    });
}

/// Sends bytes to the HTTP server, as a connection.
pub fn api_connections(data: &[u8]) {
    let service = service();
    run(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let server = tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let service = service.clone();
                async move {
                    let response = service.handle(request, &Connection::default()).await;
                    Ok::<_, std::convert::Infallible>(response)
                }
            });
            let connection = auto::Builder::new(TokioExecutor::new());
            let _ = connection
                .serve_connection(TokioIo::new(server), answer)
                .await;
        });
        let exchange = async {
            if client.write_all(data).await.is_ok() {
                let _ = client.read_to_end(&mut Vec::new()).await;
            }
        };
        let _ = until_idle(exchange).await;
        server.abort();
    });
}

/// Reads a file of policies, and asks it about a request.
pub fn policy_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(policies) = PolicyFile::parse(text) else {
        return;
    };
    let user = Identity::new("alice", vec!["readers".to_owned()]);
    let targets = [
        "/api/v1/namespaces/a",
        "/apis/example.io/v1/widgets",
        "/version",
    ];
    for target in targets {
        let info = RequestInfo::parse(&Method::GET, target, &Query::default());
        let _ = policies.authorize(&user, &info.expect("a path"));
    }
}

/// Reads a file of tokens, and looks one up.
pub fn token_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(tokens) = Tokens::parse(text) else {
        return;
    };
    let first = text.split([',', '\n']).next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    if let Ok(value) = format!("Bearer {first}").parse() {
        headers.insert(http::header::AUTHORIZATION, value);
    }
    let _ = tokens.authenticate(&mut headers, &Connection::default());
}
