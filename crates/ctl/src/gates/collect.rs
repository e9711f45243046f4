//! Asks every member for its status and its features.
//!
//! A member is reached through any endpoint, given by the user or advertised by the member,
//! because often only one kind works from the user's machine. All are asked at once, until every
//! member has answered; one that is down costs one dial timeout and no answer.

use std::collections::{BTreeMap, BTreeSet};

use portunus_client::{Client, ClientError, parse_endpoint};
use portunus_gates::MajorMinor;
use portunus_proto::etcdserverpb::{
    FeatureGateStatusRequest, FeatureGateStatusResponse, Member, MemberListRequest, StatusResponse,
};
use tokio::task::JoinSet;

use crate::globals::Globals;
use crate::outcome::Failure;

/// The replies of all members.
#[derive(Debug, Clone, Default)]
pub struct ClusterReport {
    /// The members of the cluster, each with its reply.
    pub members: Vec<MemberReport>,
    /// What the cluster decided, with every vote; absent if no member that answers knows cluster
    /// features.
    pub cluster: Option<FeatureGateStatusResponse>,
}

/// One member.
#[derive(Debug, Clone)]
pub struct MemberReport {
    /// As the cluster lists it.
    pub member: Member,
    /// Its replies, or why it did not answer.
    pub replies: Result<Replies, String>,
}

impl MemberReport {
    /// The version that must be able to read what the member writes; `None` if the member did
    /// not answer, or does not report it.
    pub fn min_compat(&self) -> Option<MajorMinor> {
        let server = self.replies.as_ref().ok()?.server.as_ref()?;
        server.min_compatibility_version.parse().ok()
    }
}

/// The replies of one member.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    /// Its status.
    pub status: StatusResponse,
    /// Its server features; absent if the server does not know the request.
    pub server: Option<FeatureGateStatusResponse>,
    /// The cluster features; absent if the server does not know the request.
    pub cluster: Option<FeatureGateStatusResponse>,
}

/// Asks all members. With `serializable` the answers need no quorum and may be old.
pub async fn collect(globals: &Globals, serializable: bool) -> Result<ClusterReport, Failure> {
    let request = MemberListRequest {
        linearizable: !serializable,
    };
    let members = globals.connect().await?.member_list(request).await?.members;
    let mut requests = JoinSet::new();
    for endpoint in distinct_endpoints(&globals.client.endpoints, &members) {
        let client = globals.client_of(&endpoint);
        requests.spawn(async move {
            let replies = match client {
                Ok(client) => request_replies(&client, serializable)
                    .await
                    .map_err(failure_text),
                Err(failure) => Err(failure.message.unwrap_or_default()),
            };
            (endpoint, replies)
        });
    }
    let (mut replies_of, mut error_at) = (BTreeMap::new(), BTreeMap::new());
    let is_complete = |replies_of: &BTreeMap<u64, Replies>| {
        members
            .iter()
            .all(|member| replies_of.contains_key(&member.id))
    };
    while !is_complete(&replies_of)
        && let Some(answer) = requests.join_next().await
    {
        // A task fails only if it panics, and a panic ends the process.
        let Ok((endpoint, replies)) = answer else {
            continue;
        };
        match replies {
            Ok(replies) => {
                let header = replies.status.header.as_ref();
                replies_of.insert(header.map_or(0, |header| header.member_id), replies);
            }
            Err(error) => {
                error_at.insert(endpoint, error);
            }
        }
    }
    let cluster = replies_of
        .values()
        .find_map(|replies| replies.cluster.clone());
    let members = members.into_iter().map(|member| MemberReport {
        replies: replies_of
            .remove(&member.id)
            .ok_or_else(|| missing_reply_reason(&member, &error_at)),
        member,
    });
    Ok(ClusterReport {
        members: members.collect(),
        cluster,
    })
}

/// Given and advertised endpoints, each once however it is written.
fn distinct_endpoints(given: &[String], members: &[Member]) -> Vec<String> {
    let advertised = members.iter().flat_map(|member| &member.client_urls);
    let mut seen = BTreeSet::new();
    let endpoints = given.iter().chain(advertised);
    endpoints
        .filter(|endpoint| {
            let parts = parse_endpoint(endpoint);
            seen.insert(parts.map_or_else(|_| endpoint.to_string(), |parts| parts.address))
        })
        .cloned()
        .collect()
}

fn missing_reply_reason(member: &Member, error_at: &BTreeMap<String, String>) -> String {
    let mut errors = member
        .client_urls
        .iter()
        .filter_map(|url| error_at.get(url));
    match errors.next() {
        Some(error) => error.clone(),
        None if member.name.is_empty() => "it has not started".to_owned(),
        None => "none of its endpoints leads to it".to_owned(),
    }
}

/// Returns the error of the last attempt, if there is one, instead of the timeout.
fn failure_text(error: ClientError) -> String {
    let failure = Failure::from(error);
    failure.note.or(failure.message).unwrap_or_default()
}

async fn request_replies(client: &Client, serializable: bool) -> Result<Replies, ClientError> {
    client.ready().await?;
    let request = |is_server_feature| FeatureGateStatusRequest {
        is_server_feature,
        all_known: true,
        serializable,
        ..FeatureGateStatusRequest::default()
    };
    Ok(Replies {
        status: client.status().await?,
        server: unless_unimplemented(client.feature_gate_status(request(true)).await)?,
        cluster: unless_unimplemented(client.feature_gate_status(request(false)).await)?,
    })
}

/// Returns `None` for a server that does not know the request.
fn unless_unimplemented<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_unimplemented() => Ok(None),
        Err(error) => Err(error),
    }
}
