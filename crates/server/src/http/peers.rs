//! HTTP requests of other members, besides raft messages.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use portunus_proto::LogIndex;
use portunus_proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use portunus_proto::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use portunus_proto::{EtcdError, LeaseId};
use prost::Message;
use serde::Deserialize;

use crate::coarse_timeout::coarse_timeout;
use crate::config::ApplySettings;
use crate::handles::hashing::HashError;
use crate::member::Member;
use crate::peers::ask::{CLUSTER_ID, CLUSTER_ID_MISMATCH, PeerHash, PeerHashHeader, SETTINGS_PATH};
use portunus_statemachine::membership::MemberRecord;

/// The longest request body.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest wait of a lease request for the entries committed before it.
const LEASE_WAIT_MAX: Duration = Duration::from_secs(1);

type Shared = State<Arc<Member>>;

super::endpoints! {
    /// Refused with 412 for a member of another cluster.
    pub const OF_CLUSTER, fn of_cluster;
    post "/members/promote/{id}" => promote, "promotes a learner; for the leader";
    get "/members/hashkv" => hash_kv, "hash of the data at a revision, for corruption checks";
    post "/leases" => keep_alive, "renews a lease; for the leader";
    post "/leases/internal" => time_to_live, "remaining time of a lease; for the leader";
}

super::endpoints! {
    /// Answered for every caller.
    pub const OPEN, fn open;
    get "/members" => members, "the members of the cluster";
    get "/version" => super::version, "versions of the member, of the cluster and of the data";
    get SETTINGS_PATH => settings, "the flags that all members must have alike; etcd does not have it";
    get "/downgrade/enabled" => downgrade_enabled, "whether a downgrade is in progress";
}

/// The router of all paths.
pub fn router(member: &Arc<Member>) -> Router {
    let for_own_cluster = from_fn_with_state(Arc::clone(member), refuse_other_clusters);
    of_cluster()
        .route_layer(for_own_cluster)
        .merge(open())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(Arc::clone(member))
}

fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_string(value) {
        // Go ends every document with a line feed.
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refused(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

// Hex digits are always a legal value.
#[allow(clippy::expect_used)]
fn cluster_id(member: &Member) -> (HeaderName, HeaderValue) {
    let id = member.cluster.identity.cluster_id.to_string();
    // Hex digits are always a legal value.
    let value = HeaderValue::from_str(&id).expect("hex digits are a header value");
    (HeaderName::from_static(CLUSTER_ID), value)
}

/// Refuses a request with the id of another cluster: that cluster may have moved to other
/// addresses. etcd sends its cluster id only with `/members/hashkv`.
async fn refuse_other_clusters(State(member): Shared, request: Request, next: Next) -> Response {
    let (name, own) = cluster_id(&member);
    match request.headers().get(&name) {
        Some(named) if *named != own => {
            refused(StatusCode::PRECONDITION_FAILED, CLUSTER_ID_MISMATCH)
        }
        _ => next.run(request).await,
    }
}

async fn members(State(member): Shared) -> Response {
    let membership = member.cluster.membership();
    let all: Vec<&MemberRecord> = membership.iter().collect();
    ([cluster_id(&member)], json(&all)).into_response()
}

async fn settings(State(member): Shared) -> Response {
    let settings = ApplySettings::of(&member.process.config);
    ([cluster_id(&member)], json(&settings)).into_response()
}

async fn promote(State(member): Shared, Path(id): Path<u64>) -> Response {
    match member.promote_here(id).await {
        Ok(membership) => json(&membership.iter().collect::<Vec<_>>()),
        Err(error) => {
            let status = match error {
                EtcdError::MemberNotFound => StatusCode::NOT_FOUND,
                EtcdError::MemberNotLearner | EtcdError::LearnerNotReady => {
                    StatusCode::PRECONDITION_FAILED
                }
                EtcdError::Timeout => StatusCode::REQUEST_TIMEOUT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refused(status, error.text())
        }
    }
}

#[derive(Deserialize)]
struct HashKvQuestion {
    #[serde(default)]
    revision: i64,
}

async fn hash_kv(State(member): Shared, body: Bytes) -> Response {
    let Ok(question) = serde_json::from_slice::<HashKvQuestion>(&body) else {
        return refused(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    let reader = member.store.reader().clone();
    let seconds = member.process.metrics.hash_revision_seconds.clone();
    let hashed = member.store.peer_hashes.run(move || {
        let hash = seconds.observe_closure_duration(|| reader.hash_kv(question.revision))?;
        // From the same reader: a snapshot of the leader may have replaced the store meanwhile.
        Ok((hash, reader.revision()))
    });
    match hashed.await {
        Ok((hash, revision)) => {
            let answer = json(&PeerHash {
                header: PeerHashHeader {
                    cluster_id: member.cluster.identity.cluster_id.0,
                    member_id: member.cluster.own_id().0,
                    revision,
                },
                hash: hash.hash,
                compact_revision: hash.compact_revision,
                hash_revision: hash.revision,
            });
            ([cluster_id(&member)], answer).into_response()
        }
        Err(error) => {
            let status = match error {
                HashError::Read(_) => StatusCode::BAD_REQUEST,
                HashError::TooMany => StatusCode::TOO_MANY_REQUESTS,
                HashError::Thread(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refused(status, &error.to_string())
        }
    }
}

async fn downgrade_enabled(State(member): Shared) -> Response {
    if let Err(error) = member.store.linearizable().await {
        return refused(StatusCode::INTERNAL_SERVER_ERROR, error.text());
    }
    let enabled = member.cluster.membership().downgrade.enabled;
    ([cluster_id(&member)], enabled.to_string()).into_response()
}

/// Waits until this member has applied the entries that it knows to be committed.
async fn caught_up(member: &Arc<Member>) -> Result<(), Response> {
    let commit = member.consensus.status().commit;
    let waited = coarse_timeout(
        LEASE_WAIT_MAX,
        member.store.applied.wait_for(LogIndex(commit)),
    );
    waited
        .await
        .ok_or_else(|| refused(StatusCode::REQUEST_TIMEOUT, EtcdError::Timeout.text()))
}

fn protobuf(message: &impl Message) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/protobuf")];
    (kind, message.encode_to_vec()).into_response()
}

fn lease_refused(error: EtcdError) -> Response {
    let status = match error {
        EtcdError::LeaseNotFound => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    refused(status, error.text())
}

async fn keep_alive(State(member): Shared, body: Bytes) -> Response {
    let Ok(request) = LeaseKeepAliveRequest::decode(body) else {
        return refused(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    if let Err(response) = caught_up(&member).await {
        return response;
    }
    match member.renew_here(LeaseId(request.id)).await {
        Ok(ttl) => protobuf(&LeaseKeepAliveResponse {
            header: None,
            id: request.id,
            ttl,
        }),
        Err(error) => lease_refused(error),
    }
}

async fn time_to_live(State(member): Shared, body: Bytes) -> Response {
    let request = LeaseInternalRequest::decode(body)
        .ok()
        .and_then(|request| request.lease_time_to_live_request);
    let Some(request) = request else {
        return refused(StatusCode::BAD_REQUEST, "error unmarshalling request");
    };
    if let Err(response) = caught_up(&member).await {
        return response;
    }
    match member.time_to_live_here(&request) {
        Ok(response) => protobuf(&LeaseInternalResponse {
            lease_time_to_live_response: Some(response),
        }),
        Err(error) => lease_refused(error),
    }
}
