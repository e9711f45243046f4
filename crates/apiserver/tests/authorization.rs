//! Every route and every identity: who is let through, and that nothing happens before.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use portunus_apis::{Lifecycle, Options};
use portunus_apiserver::authn::{AnyOf, FrontProxy, FrontProxyHeaders, Tokens};
use portunus_apiserver::authz::{FirstAllowed, Masters, PolicyFile, PublicPaths};
use portunus_apiserver::{
    Connection, Definition, Drain, LimitOptions, Metrics, Service, ServiceOptions,
    VersionDefinition, kube_version,
};
use portunus_client::kubernetes::{
    CountOptions, DeleteOptions, DeleteResponse, Error, GetOptions, GetResponse, Interface,
    ListOptions, ListResponse, Memory, PutOptions, PutResponse, RequestProgressOptions,
    WatchEvents, WatchOptions,
};
use serde_json::json;

const TOKENS: &str = "t-master,root,1,\"system:masters\"\n\
                      t-reader,rita,2,\"readers\"\n\
                      t-writer,willy,3\n\
                      t-stranger,sam,4\n";

fn policy(spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{spec}}}"#
    )
}

/// Readers read every resource; the writer may do everything to widgets of one namespace, and
/// read the metrics.
fn policies() -> PolicyFile {
    let lines = [
        policy(
            r#"{"group":"readers","readonly":true,"apiGroup":"*","resource":"*","namespace":"*"}"#,
        ),
        policy(r#"{"user":"willy","apiGroup":"example.io","resource":"widgets","namespace":"ns"}"#),
        policy(r#"{"user":"willy","readonly":true,"nonResourcePath":"/metrics"}"#),
    ];
    PolicyFile::parse(&lines.join("\n")).unwrap()
}

/// The credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Master,
    Reader,
    Writer,
    Stranger,
    Nobody,
    WrongToken,
    SpoofedHeaders,
}

const CALLERS: [Caller; 7] = [
    Caller::Master,
    Caller::Reader,
    Caller::Writer,
    Caller::Stranger,
    Caller::Nobody,
    Caller::WrongToken,
    Caller::SpoofedHeaders,
];

impl Caller {
    fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Caller::Master => &[("authorization", "Bearer t-master")],
            Caller::Reader => &[("authorization", "Bearer t-reader")],
            Caller::Writer => &[("authorization", "Bearer t-writer")],
            Caller::Stranger => &[("authorization", "Bearer t-stranger")],
            Caller::Nobody => &[],
            Caller::WrongToken => &[("authorization", "Bearer t-none")],
            Caller::SpoofedHeaders => &[
                ("x-remote-user", "root"),
                ("x-remote-group", "system:masters"),
            ],
        }
    }
}

/// A path and what kind of thing it names.
#[derive(Debug, Clone, Copy)]
struct Route {
    path: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Health,
    Discovery,
    Metrics,
    /// Widgets of the namespace that the writer may change.
    OwnWidgets,
    OtherResource,
    Unknown,
}

const ROUTES: [Route; 33] = {
    const fn route(path: &'static str, kind: Kind) -> Route {
        Route { path, kind }
    }
    use Kind::{Discovery, Health, Metrics, OtherResource, OwnWidgets, Unknown};
    [
        route("/healthz", Health),
        route("/livez", Health),
        route("/readyz?verbose", Health),
        route("/readyz/ping", Health),
        route("/livez/none", Health),
        route("/api", Discovery),
        route("/api/v1", Discovery),
        route("/apis", Discovery),
        route("/apis/example.io", Discovery),
        route("/apis/example.io/v1", Discovery),
        route("/apis/none.io/v1", Discovery),
        route("/openapi/v2", Discovery),
        route("/openapi/v3", Discovery),
        route("/openapi/v3/apis/example.io/v1", Discovery),
        route("/version", Discovery),
        route("/metrics", Metrics),
        route("/apis/example.io/v1/namespaces/ns/widgets", OwnWidgets),
        route(
            "/apis/example.io/v1/namespaces/ns/widgets?limit=1",
            OwnWidgets,
        ),
        route("/apis/example.io/v1/namespaces/ns/widgets/a", OwnWidgets),
        route(
            "/apis/example.io/v1/namespaces/ns/widgets/a/status",
            OwnWidgets,
        ),
        route(
            "/apis/example.io/v1/namespaces/ns/widgets/a/b/c",
            OwnWidgets,
        ),
        route("/apis/example.io/v9/namespaces/ns/widgets", OwnWidgets),
        route(
            "/apis/example.io/v1/namespaces/other/widgets",
            OtherResource,
        ),
        route(
            "/apis/example.io/v1/namespaces/other/widgets/a",
            OtherResource,
        ),
        route("/apis/example.io/v1/widgets", OtherResource),
        route("/apis/example.io/v1/namespaces/ns/gadgets", OtherResource),
        route("/apis/none.io/v1/namespaces/ns/widgets", OtherResource),
        route("/api/v1/namespaces", OtherResource),
        route("/api/v1/namespaces/ns", OtherResource),
        route("/api/v1/namespaces/ns/widgets", OtherResource),
        route("/", Unknown),
        route("/debug/pprof", Unknown),
        route("/healthzz", Unknown),
    ]
};

const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE",
];

/// The refusal that a request must get; none if it must reach its handler.
fn refusal(caller: Caller, method: &str, kind: Kind) -> Option<u16> {
    let is_get = matches!(method, "GET" | "HEAD");
    let is_read = is_get || method == "OPTIONS";
    let is_known = !matches!(caller, Caller::Nobody | Caller::SpoofedHeaders);
    let is_allowed = match kind {
        _ if caller == Caller::WrongToken => return Some(401),
        _ if caller == Caller::Master => true,
        Kind::Health => is_get,
        Kind::Discovery => is_get && is_known,
        Kind::Metrics => is_read && caller == Caller::Writer,
        // The methods of resources are verbs; those without one are never reads.
        Kind::OwnWidgets => caller == Caller::Writer || (is_get && caller == Caller::Reader),
        Kind::OtherResource => is_get && caller == Caller::Reader,
        Kind::Unknown => false,
    };
    (!is_allowed).then_some(403)
}

/// Counts the calls to a store.
struct Counting {
    memory: Memory,
    calls: Arc<AtomicUsize>,
}

impl Counting {
    fn count(&self) -> &Memory {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.memory
    }
}

#[async_trait]
impl Interface for Counting {
    async fn get(&self, key: &[u8], options: GetOptions) -> Result<GetResponse, Error> {
        self.count().get(key, options).await
    }

    async fn list(&self, prefix: &[u8], options: ListOptions) -> Result<ListResponse, Error> {
        self.count().list(prefix, options).await
    }

    async fn count(&self, prefix: &[u8], options: CountOptions) -> Result<i64, Error> {
        Interface::count(Counting::count(self), prefix, options).await
    }

    async fn optimistic_put(
        &self,
        key: &[u8],
        value: Bytes,
        expected_revision: i64,
        options: PutOptions,
    ) -> Result<PutResponse, Error> {
        let store = Counting::count(self);
        store
            .optimistic_put(key, value, expected_revision, options)
            .await
    }

    async fn optimistic_delete(
        &self,
        key: &[u8],
        expected_revision: i64,
        options: DeleteOptions,
    ) -> Result<DeleteResponse, Error> {
        let store = Counting::count(self);
        store
            .optimistic_delete(key, expected_revision, options)
            .await
    }

    async fn watch(&self, key: &[u8], options: WatchOptions) -> Result<WatchEvents, Error> {
        Counting::count(self).watch(key, options).await
    }

    async fn request_progress(&self, options: RequestProgressOptions) -> Result<(), Error> {
        Counting::count(self).request_progress(options).await
    }
}

fn service(anonymous: bool, calls: &Arc<AtomicUsize>) -> Service {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = VersionDefinition::new("v1", Lifecycle::since("1.34"), schema).unwrap();
    let widgets = Definition::new("example.io", "Widget", "widgets").with_version(version);
    let metrics = Metrics::new();
    let untrusted = metrics.untrusted_front_proxy_headers.clone();
    let authenticator = AnyOf::new()
        .or(FrontProxy::new(
            None,
            FrontProxyHeaders::default(),
            untrusted,
        ))
        .or(Tokens::parse(TOKENS).unwrap());
    let authorizer = FirstAllowed::new()
        .or(Masters)
        .or(PublicPaths)
        .or(policies());
    let store = Counting {
        memory: Memory::new(),
        calls: Arc::clone(calls),
    };
    let options = ServiceOptions {
        api: Options::new(kube_version().unwrap()),
        authenticator: Arc::new(authenticator),
        authorizer: Arc::new(authorizer),
        anonymous,
        storage_prefix: "/registry".to_owned(),
        limits: LimitOptions::default(),
        metrics,
        drain: Drain::new(),
        address: "localhost:6443".to_owned(),
    };
    Service::new([widgets], Arc::new(store), options).unwrap()
}

async fn status(service: &Service, caller: Caller, method: &str, path: &str) -> u16 {
    let mut request = Request::builder()
        .method(Method::from_bytes(method.as_bytes()).unwrap())
        .uri(path)
        .header("content-type", "application/json");
    for (name, value) in caller.headers() {
        request = request.header(*name, *value);
    }
    let body = r#"{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"name":"a"}}"#;
    let request = request
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap();
    let response = service.handle(request, &Connection::default()).await;
    response.status().as_u16()
}

#[tokio::test]
async fn every_route_is_decided_for_every_identity() {
    let calls = Arc::new(AtomicUsize::new(0));
    let service = service(true, &calls);
    for caller in CALLERS {
        for route in ROUTES {
            for method in METHODS {
                let before = calls.load(Ordering::Relaxed);
                let status = status(&service, caller, method, route.path).await;
                let what = format!("{caller:?} {method} {}: {status}", route.path);
                match refusal(caller, method, route.kind) {
                    Some(expected) => {
                        assert_eq!(status, expected, "{what}");
                        let after = calls.load(Ordering::Relaxed);
                        assert_eq!(before, after, "{what}: a refused request used the store");
                    }
                    None => assert!(status != 401 && status != 403, "{what}"),
                }
            }
        }
    }
    assert!(
        calls.load(Ordering::Relaxed) > 0,
        "no allowed request used the store"
    );
}

#[tokio::test]
async fn requests_without_credentials_are_refused_unless_anonymous_ones_are_served() {
    let calls = Arc::new(AtomicUsize::new(0));
    let service = service(false, &calls);
    for route in ROUTES {
        for caller in [Caller::Nobody, Caller::SpoofedHeaders, Caller::WrongToken] {
            let status = status(&service, caller, "GET", route.path).await;
            assert_eq!(status, 401, "{caller:?} {}", route.path);
        }
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let path = "/apis/example.io/v1/namespaces/ns/widgets";
    assert_eq!(status(&service, Caller::Writer, "GET", path).await, 200);
}
