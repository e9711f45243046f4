//! Plain HTTP: health, version, metrics and feature gates on the client port; the requests of
//! other members on the peer port.

mod endpoint;
mod feature_gates;
pub mod peers;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use portunus_features::version::version_text;
use portunus_gates::VersionInfo;
use portunus_gates::cluster::FoundingPhase;
use portunus_gates::cluster::MemberId;
use portunus_proto::etcdserverpb::{AlarmType, RangeRequest};
use serde::Serialize;

use crate::member::Member;
use crate::scrape;
pub use endpoint::Endpoint;
pub(crate) use endpoint::endpoints;
pub use feature_gates::GATES;

endpoints! {
    /// Metrics and probes: on the client port and at `--listen-metrics-urls`.
    pub const WATCHING, fn watching;
    get "/health" => health, "`{\"health\":\"true\"}`, or 503 with the reason: an alarm, no leader, a failed read; `?exclude=ALARM`, `?serializable=true`";
    get "/livez" => livez, "liveness: all its checks; `?verbose`, `?exclude=CHECK`";
    get "/livez/{check}" => livez_one, "one check: `serializable_read`";
    get "/readyz" => readyz, "readiness: all its checks; `?verbose`, `?exclude=CHECK`";
    get "/readyz/{check}" => readyz_one, "one check: `data_corruption`, `serializable_read`, `linearizable_read`, `non_learner`";
    get "/metrics" => metrics, "metrics in Prometheus' text format";
}

endpoints! {
    /// On the client port besides those.
    pub const VERSION, fn with_version;
    get "/version" => version, "versions of the member, of the cluster and of the data";
}

/// The router of all paths besides gRPC.
pub fn router(member: &Arc<Member>) -> Router {
    watching()
        .merge(with_version())
        .merge(feature_gates::router())
        .with_state(Arc::clone(member))
}

/// The router of `--listen-metrics-urls`: metrics and probes, no data and no settings.
pub fn watching_router(member: &Arc<Member>) -> Router {
    watching().fallback(unknown).with_state(Arc::clone(member))
}

/// Answers a path that no service has: gRPC callers get a gRPC status, all others a plain 404,
/// which probes and proxies understand.
pub async fn unknown(uri: Uri, headers: HeaderMap) -> Response {
    let is_grpc = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if is_grpc {
        return tonic::Status::unimplemented(crate::grpc::unknown_call(uri.path())).into_http();
    }
    not_found()
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

type Shared = State<Arc<Member>>;

/// Returns the values of a parameter that may be repeated.
fn parameters(query: Option<&str>, name: &str) -> BTreeSet<String> {
    query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then(|| value.to_owned())
        })
        .collect()
}

async fn health(State(member): Shared, RawQuery(query): RawQuery) -> Response {
    let excluded = parameters(query.as_deref(), "exclude");
    let serializable = parameters(query.as_deref(), "serializable").contains("true");
    let reason = unhealthy(&member, &excluded, serializable).await;
    let (status, word) = match &reason {
        None => {
            member.process.metrics.health_success.inc();
            (StatusCode::OK, "true")
        }
        Some(reason) => {
            member.process.metrics.health_failures.inc();
            tracing::warn!(reason, "a health check failed");
            (StatusCode::SERVICE_UNAVAILABLE, "false")
        }
    };
    let body = serde_json::json!({"health": word, "reason": reason.unwrap_or_default()});
    // etcd's order of keys, which some scripts compare.
    let text = format!(
        r#"{{"health":{},"reason":{}}}"#,
        body["health"], body["reason"]
    );
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn unhealthy(
    member: &Arc<Member>,
    excluded: &BTreeSet<String>,
    serializable: bool,
) -> Option<String> {
    for alarm in member.cluster.alarms().list(AlarmType::None as i32) {
        let kind = AlarmType::try_from(alarm.alarm)
            .unwrap_or(AlarmType::None)
            .as_str_name();
        if !excluded.contains(kind) {
            return Some(format!("ALARM {kind}"));
        }
    }
    if !serializable && member.consensus.status().leader == MemberId::NONE {
        return Some("RAFT NO LEADER".to_owned());
    }
    read_check(member, !serializable)
        .await
        .err()
        .map(|error| format!("RANGE ERROR:{error}"))
}

/// Reads a key as a client would.
async fn read_check(member: &Arc<Member>, linearizable: bool) -> Result<(), String> {
    if linearizable {
        member
            .store
            .linearizable()
            .await
            .map_err(|error| error.text().to_owned())?;
    }
    let request = RangeRequest {
        key: bytes::Bytes::from_static(b"a"),
        limit: 1,
        ..RangeRequest::default()
    };
    member
        .store
        .reader()
        .range(&request)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

const LIVEZ: &[&str] = &["serializable_read"];
const READYZ: &[&str] = &[
    "data_corruption",
    "serializable_read",
    "linearizable_read",
    "non_learner",
];

async fn run_check(member: &Arc<Member>, check: &str) -> Result<(), String> {
    match check {
        "serializable_read" => read_check(member, false).await,
        "linearizable_read" => read_check(member, true).await,
        "data_corruption" => match member.cluster.alarms().is_raised_by_any(AlarmType::Corrupt) {
            true => Err("alarm activated: CORRUPT".to_owned()),
            false => Ok(()),
        },
        "non_learner" => match member.consensus.status().is_learner {
            true => Err("not supported for learner".to_owned()),
            false => Ok(()),
        },
        _ => Err("no such check".to_owned()),
    }
}

async fn checks(member: &Arc<Member>, kind: &str, names: &[&str], query: Option<&str>) -> Response {
    let excluded = parameters(query, "exclude");
    let verbose = query
        .unwrap_or_default()
        .split('&')
        .any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let mut report = String::new();
    let mut failed = false;
    for name in names.iter().filter(|name| !excluded.contains(**name)) {
        let outcome = run_check(member, name).await;
        let metrics = &member.process.metrics;
        let word = if outcome.is_ok() { "success" } else { "error" };
        metrics
            .health_checks
            .with_label_values(&[kind, *name, word])
            .inc();
        metrics
            .health_check
            .with_label_values(&[kind, *name])
            .set(i64::from(outcome.is_ok()));
        match outcome {
            Ok(()) => report.push_str(&format!("[+]{name} ok\n")),
            Err(error) => {
                failed = true;
                report.push_str(&format!("[-]{name} failed: {error}\n"));
            }
        }
    }
    match (failed, verbose) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, report).into_response(),
        (false, true) => (StatusCode::OK, report + "ok\n").into_response(),
        (false, false) => (StatusCode::OK, "ok\n").into_response(),
    }
}

async fn livez(State(member): Shared, RawQuery(query): RawQuery) -> Response {
    checks(&member, "livez", LIVEZ, query.as_deref()).await
}

async fn readyz(State(member): Shared, RawQuery(query): RawQuery) -> Response {
    checks(&member, "readyz", READYZ, query.as_deref()).await
}

async fn livez_one(
    State(member): Shared,
    Path(check): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    one(&member, "livez", LIVEZ, &check, query.as_deref()).await
}

async fn readyz_one(
    State(member): Shared,
    Path(check): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    one(&member, "readyz", READYZ, &check, query.as_deref()).await
}

async fn one(
    member: &Arc<Member>,
    kind: &str,
    known: &[&str],
    check: &str,
    query: Option<&str>,
) -> Response {
    if known.contains(&check) {
        checks(member, kind, &[check], query).await
    } else {
        (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
    }
}

/// The response of `GET /version`: etcd's three keys, then those of Kubernetes' version info.
/// Readers of either ignore the keys of the other.
#[derive(Serialize)]
struct VersionReply<'a> {
    etcdserver: String,
    etcdcluster: &'a str,
    storage: &'a str,
    #[serde(flatten)]
    versions: VersionInfo,
    /// True: this program supports cluster features, whether it proposes any or not. etcd's
    /// members omit the key.
    #[serde(rename = "clusterParams")]
    knows_gates: bool,
    /// The founding phase, which other founders read while the cluster version is undecided.
    #[serde(skip_serializing_if = "Option::is_none")]
    founding: Option<&'static str>,
}

/// Returns this member's versions and the cluster version.
pub async fn version(State(member): Shared) -> Response {
    let cluster = member.cluster.membership().cluster_version;
    let decided = cluster.map(|version| format!("{version}.0"));
    let version = &member.process.config.version;
    let reply = VersionReply {
        etcdserver: version_text(version),
        etcdcluster: decided.as_deref().unwrap_or("not_decided"),
        storage: decided.as_deref().unwrap_or("unknown"),
        versions: version.info(Some(&format!("v{}.0", version.binary().major_minor()))),
        knows_gates: true,
        founding: match member.cluster.gates.specs().is_decided(cluster) {
            true => None,
            false => member.cluster.founding.phase().map(FoundingPhase::text),
        },
    };
    match serde_json::to_string(&reply) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn metrics(State(member): Shared) -> Response {
    match scrape::render(&member) {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
