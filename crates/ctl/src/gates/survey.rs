//! Asks every member for its status and its features.
//!
//! A member is reached through any endpoint, given by the user or advertised by the member,
//! because often only one kind works from the user's machine. All are asked at once, until every
//! member has answered; one that is down costs one dial timeout and no answer.

use std::collections::{BTreeMap, BTreeSet};

use portunus_client::{Client, ClientError, check_endpoint};
use portunus_gates::MajorMinor;
use portunus_proto::etcdserverpb::{
    FeatureGateStatusRequest, FeatureGateStatusResponse, Member, MemberListRequest, StatusResponse,
};
use tokio::task::JoinSet;

use crate::globals::Globals;
use crate::outcome::Failure;

/// The replies of all members.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The members of the cluster, each with its reply.
    pub members: Vec<Surveyed>,
    /// What the cluster decided, with every vote; absent if no member that answers knows cluster
    /// features.
    pub cluster: Option<FeatureGateStatusResponse>,
}

/// One member.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// As the cluster lists it.
    pub member: Member,
    /// Its replies, or why it did not answer.
    pub said: Result<Words, String>,
}

impl Surveyed {
    /// The version that must be able to read what the member writes; `None` if the member did
    /// not answer, or does not report it.
    pub fn min_compat(&self) -> Option<MajorMinor> {
        let server = self.said.as_ref().ok()?.server.as_ref()?;
        server.min_compatibility_version.parse().ok()
    }
}

/// The replies of one member.
#[derive(Debug, Clone, Default)]
pub struct Words {
    /// Its status.
    pub status: StatusResponse,
    /// Its server features; absent if the server does not know the request.
    pub server: Option<FeatureGateStatusResponse>,
    /// The cluster features; absent if the server does not know the request.
    pub cluster: Option<FeatureGateStatusResponse>,
}

/// Asks all members. With `serializable` the answers need no quorum and may be old.
pub async fn survey(globals: &Globals, serializable: bool) -> Result<Survey, Failure> {
    let request = MemberListRequest {
        linearizable: !serializable,
    };
    let members = globals.connect()?.member_list(request).await?.members;
    let mut asked = JoinSet::new();
    for endpoint in distinct_endpoints(&globals.client.endpoints, &members) {
        let client = globals.connect_to(&endpoint);
        asked.spawn(async move {
            let words = match client {
                Ok(client) => ask(&client, serializable).await.map_err(why),
                Err(failure) => Err(failure.message.unwrap_or_default()),
            };
            (endpoint, words)
        });
    }
    let (mut words_of, mut silence_at) = (BTreeMap::new(), BTreeMap::new());
    let is_complete = |words_of: &BTreeMap<u64, Words>| {
        members
            .iter()
            .all(|member| words_of.contains_key(&member.id))
    };
    while !is_complete(&words_of)
        && let Some(answer) = asked.join_next().await
    {
        // A task fails only if it panics, and a panic ends the process.
        let Ok((endpoint, words)) = answer else {
            continue;
        };
        match words {
            Ok(words) => {
                let header = words.status.header.as_ref();
                words_of.insert(header.map_or(0, |header| header.member_id), words);
            }
            Err(error) => {
                silence_at.insert(endpoint, error);
            }
        }
    }
    let cluster = words_of.values().find_map(|words| words.cluster.clone());
    let members = members.into_iter().map(|member| Surveyed {
        said: words_of
            .remove(&member.id)
            .ok_or_else(|| why_silent(&member, &silence_at)),
        member,
    });
    Ok(Survey {
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
            let uri = check_endpoint(endpoint);
            seen.insert(uri.unwrap_or_else(|_| endpoint.to_string()))
        })
        .cloned()
        .collect()
}

fn why_silent(member: &Member, silence_at: &BTreeMap<String, String>) -> String {
    let mut errors = member
        .client_urls
        .iter()
        .filter_map(|url| silence_at.get(url));
    match errors.next() {
        Some(error) => error.clone(),
        None if member.name.is_empty() => "it has not started".to_owned(),
        None => "none of its endpoints leads to it".to_owned(),
    }
}

/// Returns the error of the last attempt, if there is one, instead of the timeout.
fn why(error: ClientError) -> String {
    let failure = Failure::from(error);
    failure.note.or(failure.message).unwrap_or_default()
}

async fn ask(client: &Client, serializable: bool) -> Result<Words, ClientError> {
    client.ready().await?;
    let question = |is_server_feature| FeatureGateStatusRequest {
        is_server_feature,
        all_known: true,
        serializable,
        ..FeatureGateStatusRequest::default()
    };
    Ok(Words {
        status: client.status().await?,
        server: known(client.feature_gate_status(question(true)).await)?,
        cluster: known(client.feature_gate_status(question(false)).await)?,
    })
}

/// Returns `None` for a server that does not know the request.
fn known<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_unimplemented() => Ok(None),
        Err(error) => Err(error),
    }
}
