//! Questions to other members.

use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use portunus_gates::Version;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use portunus_proto::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use portunus_rafthttp::PeerClient;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::member::membership::MemberRecord;
use crate::member::settings::ApplySettings;

/// Longest answer to a question.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Where members tell each other what their apply depends on; etcd has no such path.
pub const SETTINGS_PATH: &str = "/portunus/settings";
const PROTOBUF: (&str, &str) = ("content-type", "application/protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

/// What `GET /version` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Of the binary, or what it emulates.
    pub etcdserver: String,
    /// Of the cluster, or `not_decided`.
    pub etcdcluster: String,
    /// Whether it knows cluster features and so obeys params; etcd's members do not say.
    #[serde(rename = "clusterParams", default)]
    pub knows_gates: bool,
    /// How far it has come with founding, while the cluster version is undecided; only from
    /// members that take part in cluster features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founding: Option<String>,
}

impl Versions {
    /// The version of the server, if it is one.
    pub fn server(&self) -> Option<Version> {
        Version::parse(&self.etcdserver).ok()
    }
}

/// The hash of a member's data, as members tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHash {
    /// Of the member's newest revision.
    pub header: PeerHashHeader,
    /// The hash.
    pub hash: u32,
    /// From here.
    pub compact_revision: i64,
    /// To here.
    pub hash_revision: i64,
}

/// The part of a header that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHashHeader {
    /// Whose data it is.
    #[serde(default)]
    pub member_id: u64,
    /// The newest revision.
    #[serde(default)]
    pub revision: i64,
}

/// Asks one member, at one of its URLs after the other.
pub struct Asked<'a> {
    /// How.
    pub client: &'a PeerClient,
    /// Whom.
    pub urls: &'a [String],
    /// Longest wait for each.
    pub timeout: Duration,
}

type Answer = (StatusCode, HeaderMap, Bytes);

fn cluster_id(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get("x-etcd-cluster-id")?.to_str().ok()?;
    u64::from_str_radix(text, 16).ok()
}

/// Runs all questions at once and returns the answers in the order of the questions.
pub async fn all_at_once<T: Send + 'static>(
    questions: impl IntoIterator<Item = impl Future<Output = Option<T>> + Send + 'static>,
) -> Vec<Option<T>> {
    let running: Vec<_> = questions.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(running.len());
    for answer in running {
        // A question ends early only if its runtime does, and this future with it.
        answers.push(answer.await.ok().flatten());
    }
    answers
}

impl Asked<'_> {
    async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: Option<(&str, &str)>,
        body: Bytes,
    ) -> Option<Answer> {
        for url in self.urls {
            let url = format!("{url}{path}");
            let headers: Vec<(&str, &str)> = kind.into_iter().collect();
            let answer = self.client.request(
                method.clone(),
                &url,
                &headers,
                body.clone(),
                ANSWER_BYTES_MAX,
                self.timeout,
            );
            match answer.await {
                Ok(answer) => return Some(answer),
                Err(error) => tracing::debug!(url, %error, "a peer did not answer"),
            }
        }
        None
    }

    /// Its versions.
    pub async fn versions(&self) -> Option<Versions> {
        let (status, _, body) = self
            .ask(Method::GET, "/version", None, Bytes::new())
            .await?;
        (status == StatusCode::OK)
            .then(|| serde_json::from_slice(&body).ok())
            .flatten()
    }

    /// The settings that its apply depends on, and the id of its cluster; members of etcd do
    /// not tell.
    pub async fn settings(&self) -> Option<(u64, ApplySettings)> {
        let (status, headers, body) = self
            .ask(Method::GET, SETTINGS_PATH, None, Bytes::new())
            .await?;
        if status != StatusCode::OK {
            return None;
        }
        Some((cluster_id(&headers)?, serde_json::from_slice(&body).ok()?))
    }

    /// Whether a downgrade is under way there.
    pub async fn downgrade_enabled(&self) -> Option<bool> {
        let path = "/downgrade/enabled";
        let (status, _, body) = self.ask(Method::GET, path, None, Bytes::new()).await?;
        match (status, body.trim_ascii()) {
            (StatusCode::OK, b"true") => Some(true),
            (StatusCode::OK, b"false") => Some(false),
            _ => None,
        }
    }

    /// The members it knows, and the id of its cluster.
    pub async fn members(&self) -> Option<(u64, Vec<MemberRecord>)> {
        let (status, headers, body) = self
            .ask(Method::GET, "/members", None, Bytes::new())
            .await?;
        if status != StatusCode::OK {
            return None;
        }
        Some((cluster_id(&headers)?, serde_json::from_slice(&body).ok()?))
    }

    /// The hash of its data up to a revision; or why there is none.
    pub async fn hash_kv(&self, revision: i64) -> Option<Result<PeerHash, String>> {
        let body = format!(r#"{{"revision":{revision}}}"#);
        let path = "/members/hashkv";
        let (status, _, body) = self.ask(Method::GET, path, Some(JSON), body.into()).await?;
        if status != StatusCode::OK {
            return Some(Err(String::from_utf8_lossy(&body).trim().to_owned()));
        }
        serde_json::from_slice(&body).ok().map(Ok)
    }

    /// Has the leader promote a learner.
    pub async fn promote(&self, id: u64) -> Result<Vec<MemberRecord>, EtcdError> {
        let path = format!("/members/promote/{id}");
        let Some((status, _, body)) = self.ask(Method::POST, &path, None, Bytes::new()).await
        else {
            return Err(EtcdError::Timeout);
        };
        let text = String::from_utf8_lossy(&body);
        match status {
            StatusCode::OK => serde_json::from_slice(&body).map_err(|_| EtcdError::Stopped),
            StatusCode::NOT_FOUND => Err(EtcdError::MemberNotFound),
            StatusCode::REQUEST_TIMEOUT => Err(EtcdError::Timeout),
            StatusCode::PRECONDITION_FAILED if text.contains(EtcdError::LearnerNotReady.text()) => {
                Err(EtcdError::LearnerNotReady)
            }
            StatusCode::PRECONDITION_FAILED => Err(EtcdError::MemberNotLearner),
            _ => Err(EtcdError::Unhealthy),
        }
    }

    /// Has the leader renew a lease; the new life in seconds.
    pub async fn keep_alive(&self, id: i64) -> Result<i64, EtcdError> {
        let request = LeaseKeepAliveRequest { id }.encode_to_vec();
        let body = self.leases("/leases", request).await?;
        let response =
            LeaseKeepAliveResponse::decode(body).map_err(|_| EtcdError::TimeoutDueToLeaderFail)?;
        Ok(response.ttl)
    }

    /// Asks the leader how long a lease lives.
    pub async fn time_to_live(
        &self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, EtcdError> {
        let request = LeaseInternalRequest {
            lease_time_to_live_request: Some(request),
        };
        let body = self
            .leases("/leases/internal", request.encode_to_vec())
            .await?;
        LeaseInternalResponse::decode(body)
            .ok()
            .and_then(|response| response.lease_time_to_live_response)
            .ok_or(EtcdError::TimeoutDueToLeaderFail)
    }

    async fn leases(&self, path: &str, request: Vec<u8>) -> Result<Bytes, EtcdError> {
        let asked = self.ask(Method::POST, path, Some(PROTOBUF), request.into());
        match asked.await {
            Some((StatusCode::OK, _, body)) => Ok(body),
            Some((StatusCode::NOT_FOUND, ..)) => Err(EtcdError::LeaseNotFound),
            Some((StatusCode::REQUEST_TIMEOUT, ..)) => Err(EtcdError::Timeout),
            _ => Err(EtcdError::NoLeader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_names_are_in_their_canonical_form() {
        assert_eq!(PROTOBUF.0, axum::http::header::CONTENT_TYPE.as_str());
    }

    #[test]
    fn versions_of_etcd_of_this_and_of_later_members_are_read() {
        let etcds = r#"{"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}"#;
        let later = r#"{"etcdserver":"3.8.0","etcdcluster":"not_decided","storage":"unknown",
            "major":"3","minor":"9","emulationMinor":"8","clusterParams":true,"more":[1]}"#;
        for (text, server, knows_gates) in [(etcds, "3.7.1", false), (later, "3.8.0", true)] {
            let versions: Versions = serde_json::from_str(text).unwrap();
            assert_eq!(versions.server(), Version::parse(server).ok());
            assert_eq!(versions.knows_gates, knows_gates);
        }
    }

    #[test]
    fn hashes_are_plain_numbers_as_go_writes_them() {
        let text = r#"{"header":{"cluster_id":1,"member_id":2,"revision":3,"raft_term":4},"hash":5,"compact_revision":-1,"hash_revision":3}"#;
        let hash: PeerHash = serde_json::from_str(text).unwrap();
        assert_eq!((hash.hash, hash.header.revision), (5, 3));
    }
}
