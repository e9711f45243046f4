//! HTTP requests to other members.

use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use portunus_gates::Version;
use portunus_proto::etcdserverpb::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use portunus_proto::leasepb::{LeaseInternalRequest, LeaseInternalResponse};
use portunus_proto::{ClusterId, EtcdError, LeaseId};
use portunus_rafthttp::PeerClient;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::config::ApplySettings;
use portunus_statemachine::membership::MemberRecord;

/// The longest response that is read.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Serves the settings that a member's apply depends on; etcd has no such path.
pub const SETTINGS_PATH: &str = "/portunus/settings";
const PROTOBUF: (&str, &str) = ("content-type", "application/protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");
/// The header with the cluster of the sender, in hexadecimal digits.
pub const CLUSTER_ID: &str = "x-etcd-cluster-id";
/// The error text of etcd for a request from another cluster.
pub const CLUSTER_ID_MISMATCH: &str = "cluster ID mismatch";

/// The response of `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The version of the binary, or the version it emulates.
    pub etcdserver: String,
    /// The cluster version, or `not_decided`.
    pub etcdcluster: String,
    /// Whether the member supports cluster features and so obeys params; false for etcd's
    /// members, which omit the key.
    #[serde(rename = "clusterParams", default)]
    pub knows_gates: bool,
    /// The founding phase, while the cluster version is undecided; only from members that take
    /// part in cluster features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founding: Option<String>,
}

impl Versions {
    /// Returns the version of the server, if it parses.
    pub fn server(&self) -> Option<Version> {
        Version::parse(&self.etcdserver).ok()
    }
}

/// The hash of a member's data, as members exchange it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHash {
    /// The part of the response header that is used.
    pub header: PeerHashHeader,
    /// The hash of the revisions between the two below.
    pub hash: u32,
    /// The compaction revision, where the hash starts.
    pub compact_revision: i64,
    /// The revision where the hash ends.
    pub hash_revision: i64,
}

/// The used fields of a response header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHashHeader {
    /// The cluster of the data; 0 if the member omits it.
    #[serde(default)]
    pub cluster_id: u64,
    /// The member of the data; 0 if the member omits it.
    #[serde(default)]
    pub member_id: u64,
    /// The newest revision of the member.
    #[serde(default)]
    pub revision: i64,
}

/// The member whose hash is requested. A member of another cluster may listen at the same URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashedMember {
    /// The id of its cluster.
    pub cluster_id: ClusterId,
    /// The id of the member.
    pub member_id: u64,
}

impl HashedMember {
    /// Fails if the response is of another cluster or member. A response without ids is
    /// accepted.
    fn check(&self, headers: &HeaderMap, hash: &PeerHash) -> Result<(), String> {
        let named = cluster_id(headers);
        let is_other = |said: u64, wanted: u64| said != 0 && said != wanted;
        if named.is_some_and(|named| named != self.cluster_id)
            || is_other(hash.header.cluster_id, self.cluster_id.0)
        {
            return Err(CLUSTER_ID_MISMATCH.to_owned());
        }
        match is_other(hash.header.member_id, self.member_id) {
            true => Err(format!("member {:x} answered", hash.header.member_id)),
            false => Ok(()),
        }
    }
}

/// Sends requests to one member, to each of its URLs until one responds.
pub struct Asked {
    /// Sends the requests.
    pub client: PeerClient,
    /// The peer URLs of the member.
    pub urls: Vec<String>,
    /// The longest wait for the response of each URL.
    pub timeout: Duration,
}

type Answer = (StatusCode, HeaderMap, Bytes);

fn cluster_id(headers: &HeaderMap) -> Option<ClusterId> {
    let text = headers.get(CLUSTER_ID)?.to_str().ok()?;
    u64::from_str_radix(text, 16).ok().map(ClusterId)
}

/// Runs all futures at once and returns their outputs in the same order.
pub async fn all_at_once<T: Send + 'static>(
    questions: impl IntoIterator<Item = impl Future<Output = Option<T>> + Send + 'static>,
) -> Vec<Option<T>> {
    let running: Vec<_> = questions.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(running.len());
    for answer in running {
        // A task ends early only with its runtime, which ends this future, too.
        answers.push(answer.await.ok().flatten());
    }
    answers
}

/// Sends the same request to every peer at once and returns the responses in the order of the
/// peers. Each peer is given by its URLs.
pub async fn ask_each<T, F>(
    client: &PeerClient,
    peers: Vec<Vec<String>>,
    timeout: Duration,
    question: impl Fn(Asked) -> F,
) -> Vec<Option<T>>
where
    T: Send + 'static,
    F: Future<Output = Option<T>> + Send + 'static,
{
    let questions = peers.into_iter().map(|urls| {
        let client = client.clone();
        question(Asked {
            client,
            urls,
            timeout,
        })
    });
    all_at_once(questions).await
}

impl Asked {
    async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: Option<(&str, &str)>,
        body: Bytes,
    ) -> Option<Answer> {
        let headers: Vec<(&str, &str)> = kind.into_iter().collect();
        self.ask_with(method, path, &headers, body).await
    }

    async fn ask_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Option<Answer> {
        for url in &self.urls {
            let url = format!("{url}{path}");
            let answer = self.client.request(
                method.clone(),
                &url,
                headers,
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

    /// Returns the member's versions.
    pub async fn versions(&self) -> Option<Versions> {
        let (status, _, body) = self
            .ask(Method::GET, "/version", None, Bytes::new())
            .await?;
        (status == StatusCode::OK)
            .then(|| serde_json::from_slice(&body).ok())
            .flatten()
    }

    /// Returns the settings that the member's apply depends on, and the id of its cluster; None
    /// for members of etcd.
    pub async fn settings(&self) -> Option<(ClusterId, ApplySettings)> {
        let (status, headers, body) = self
            .ask(Method::GET, SETTINGS_PATH, None, Bytes::new())
            .await?;
        if status != StatusCode::OK {
            return None;
        }
        Some((cluster_id(&headers)?, serde_json::from_slice(&body).ok()?))
    }

    /// Returns whether a downgrade is enabled at the member.
    pub async fn downgrade_enabled(&self) -> Option<bool> {
        let path = "/downgrade/enabled";
        let (status, _, body) = self.ask(Method::GET, path, None, Bytes::new()).await?;
        match (status, body.trim_ascii()) {
            (StatusCode::OK, b"true") => Some(true),
            (StatusCode::OK, b"false") => Some(false),
            _ => None,
        }
    }

    /// Returns the member list of the member, and the id of its cluster.
    pub async fn members(&self) -> Option<(ClusterId, Vec<MemberRecord>)> {
        let (status, headers, body) = self
            .ask(Method::GET, "/members", None, Bytes::new())
            .await?;
        if status != StatusCode::OK {
            return None;
        }
        Some((cluster_id(&headers)?, serde_json::from_slice(&body).ok()?))
    }

    /// Returns the hash of the member's data up to a revision, or the error text.
    pub async fn hash_kv(
        &self,
        member: HashedMember,
        revision: i64,
    ) -> Option<Result<PeerHash, String>> {
        let question = format!(r#"{{"revision":{revision}}}"#);
        let cluster_id = member.cluster_id.to_string();
        let headers = [JSON, (CLUSTER_ID, cluster_id.as_str())];
        let path = "/members/hashkv";
        let asked = self.ask_with(Method::GET, path, &headers, question.into());
        let (status, headers, body) = asked.await?;
        if status != StatusCode::OK {
            return Some(Err(String::from_utf8_lossy(&body).trim().to_owned()));
        }
        let hash: PeerHash = serde_json::from_slice(&body).ok()?;
        Some(member.check(&headers, &hash).map(|()| hash))
    }

    /// Restricts requests to members of this cluster.
    pub fn within(self, cluster_id: ClusterId) -> AskedWithin {
        AskedWithin {
            asked: self,
            cluster_id: cluster_id.to_string(),
        }
    }
}

/// Sends requests to one member with the cluster id: members of other clusters refuse them.
pub struct AskedWithin {
    asked: Asked,
    /// The cluster id in hexadecimal digits.
    cluster_id: String,
}

impl AskedWithin {
    async fn post(&self, path: &str, kind: Option<(&str, &str)>, body: Bytes) -> Option<Answer> {
        let named = (CLUSTER_ID, self.cluster_id.as_str());
        let headers: Vec<_> = kind.into_iter().chain([named]).collect();
        let asked = self.asked.ask_with(Method::POST, path, &headers, body);
        asked.await
    }

    /// Requests the promotion of a learner from the leader.
    pub async fn promote(&self, id: u64) -> Result<Vec<MemberRecord>, EtcdError> {
        let path = format!("/members/promote/{id}");
        let Some((status, _, body)) = self.post(&path, None, Bytes::new()).await else {
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
            StatusCode::PRECONDITION_FAILED if text.contains(CLUSTER_ID_MISMATCH) => {
                Err(EtcdError::Unhealthy)
            }
            StatusCode::PRECONDITION_FAILED => Err(EtcdError::MemberNotLearner),
            _ => Err(EtcdError::Unhealthy),
        }
    }

    /// Requests the renewal of a lease from the leader; returns the new TTL in seconds.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<i64, EtcdError> {
        let request = LeaseKeepAliveRequest { id: id.0 }.encode_to_vec();
        let body = self.leases("/leases", request).await?;
        let response =
            LeaseKeepAliveResponse::decode(body).map_err(|_| EtcdError::TimeoutDueToLeaderFail)?;
        Ok(response.ttl)
    }

    /// Requests the time to live of a lease from the leader.
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
        match self.post(path, Some(PROTOBUF), request.into()).await {
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
    fn version_replies_of_etcd_and_of_later_members_parse() {
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
        assert_eq!(hash.header.cluster_id, 1);
    }

    /// Accepts one connection, reads one request and sends `answer`; returns its URL.
    async fn peer_that_answers(answer: String) -> (String, tokio::task::JoinHandle<String>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                connection.read_buf(&mut request).await.unwrap();
            }
            connection.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap().to_ascii_lowercase()
        });
        (url, served)
    }

    fn http(header: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\n{header}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    }

    #[tokio::test]
    async fn hash_of_another_cluster_or_member_is_refused() {
        let body = |cluster_id: u64, member_id: u64| {
            format!(
                r#"{{"header":{{"cluster_id":{cluster_id},"member_id":{member_id},"revision":3}},"hash":5,"compact_revision":-1,"hash_revision":3}}"#
            )
        };
        let member = HashedMember {
            cluster_id: ClusterId(0xab),
            member_id: 2,
        };
        let client = PeerClient::new(&portunus_rafthttp::Config::default());
        for (answer, expected) in [
            (http("X-Etcd-Cluster-ID: ab\r\n", &body(0xab, 2)), Ok(5)),
            // A member that omits the ids.
            (http("", &body(0, 0)), Ok(5)),
            (
                http("X-Etcd-Cluster-ID: ac\r\n", &body(0, 0)),
                Err("cluster ID mismatch"),
            ),
            (http("", &body(0xac, 2)), Err("cluster ID mismatch")),
            (http("", &body(0xab, 3)), Err("member 3 answered")),
        ] {
            let (url, served) = peer_that_answers(answer).await;
            let asked = Asked {
                client: client.clone(),
                urls: vec![url],
                timeout: Duration::from_secs(30),
            };
            let answered = asked.hash_kv(member, 3).await.unwrap();
            let hash = answered.map(|hash| hash.hash);
            assert_eq!(hash, expected.map_err(str::to_owned));
            let request = served.await.unwrap();
            assert!(request.contains("x-etcd-cluster-id: ab\r\n"), "{request}");
        }
    }

    /// Accepts one connection and refuses its request; returns its URL and the request.
    async fn peer_that_refuses() -> (String, tokio::task::JoinHandle<String>) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                connection.read_buf(&mut request).await.unwrap();
            }
            let body = format!("{CLUSTER_ID_MISMATCH}\n");
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 412 Precondition Failed\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            connection.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request).to_ascii_lowercase()
        });
        (url, served)
    }

    #[tokio::test]
    async fn lease_request_names_the_cluster_and_an_answer_of_another_cluster_is_ignored() {
        let client = PeerClient::new(&portunus_rafthttp::Config::default());
        for path in ["/leases ", "/leases/internal ", "/members/promote/7 "] {
            let (url, served) = peer_that_refuses().await;
            let asked = Asked {
                client: client.clone(),
                urls: vec![url],
                timeout: Duration::from_secs(30),
            };
            let asked = asked.within(ClusterId(0xab));
            // None of these errors is about the lease or the learner: the caller tries again.
            match path {
                "/leases " => {
                    let refused = asked.keep_alive(LeaseId(5)).await;
                    assert_eq!(refused, Err(EtcdError::NoLeader));
                }
                "/leases/internal " => {
                    let request = LeaseTimeToLiveRequest { id: 5, keys: false };
                    let refused = asked.time_to_live(request).await;
                    assert_eq!(refused, Err(EtcdError::NoLeader));
                }
                _ => assert_eq!(asked.promote(7).await, Err(EtcdError::Unhealthy)),
            }
            let request = served.await.unwrap();
            assert!(request.starts_with(&format!("post {path}")), "{request}");
            assert!(request.contains("x-etcd-cluster-id: ab\r\n"), "{request}");
        }
    }
}
