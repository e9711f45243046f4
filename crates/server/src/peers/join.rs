//! Finds an existing cluster and checks that this member can join it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use portunus_consensus::bootstrap::{Identity, InitialMember};
use portunus_gates::MajorMinor;
use portunus_gates::cluster::MemberId;
use portunus_proto::ClusterId;
use portunus_rafthttp::PeerClient;
use thiserror::Error;

use super::ask::{Asked, ask_each};
use crate::config::{ClusterConfig, Config};
use portunus_statemachine::membership::MemberRecord;

/// The longest wait for one peer's response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest wait for a peer that may not run yet.
const LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// The oldest cluster version, the same in every version of etcd.
const OLDEST: MajorMinor = MajorMinor::literal("3.0");

/// An existing cluster.
#[derive(Debug)]
pub struct Found {
    /// The ids of this member and of the cluster.
    pub identity: Identity,
    /// All members of the cluster.
    pub members: Vec<MemberRecord>,
}

/// Why a cluster cannot be joined.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum JoinError {
    /// No listed member responds.
    #[error(
        "no member of the cluster answers at {}: check --initial-cluster, and that they run", urls.join(", ")
    )]
    Nobody { urls: Vec<String> },
    /// `--initial-cluster` lists no other member.
    #[error(
        "--initial-cluster-state=existing needs the other members in --initial-cluster: use what `member add` printed"
    )]
    NobodyNamed,
    /// `--initial-cluster` has another number of members than the cluster.
    #[error(
        "--initial-cluster lists {listed} members, but the cluster has {found}: list exactly those that `member list` shows"
    )]
    Count { listed: usize, found: usize },
    /// A listed member is not in the cluster.
    #[error(
        "the cluster has no member at {}, which --initial-cluster has for {name}: use the URLs that `member list` shows, or add the member first", urls.join(", ")
    )]
    Unknown { name: String, urls: Vec<String> },
    /// The cluster version of a member is incompatible.
    #[error(
        "member {member} has version {theirs}, and this one can only join members from {lowest} to {highest}: see `downgrade` and --emulated-version"
    )]
    Version {
        member: String,
        theirs: String,
        lowest: String,
        highest: String,
    },
    /// The cluster has this member's attributes, but its data directory is empty.
    #[error(
        "member {name} has already been bootstrapped, but its data directory is empty: without its log it could vote twice and acknowledged writes could be lost; run `member remove {id:x}` and `member add {name}`, then start it with --initial-cluster-state=existing and the --initial-cluster that `member add` printed"
    )]
    Bootstrapped { name: String, id: u64 },
}

fn other_urls(config: &ClusterConfig, own_name: &str) -> Vec<String> {
    let others = config
        .initial_members
        .iter()
        .filter(|member| member.name != own_name);
    let mut urls: Vec<String> = others.flat_map(|member| member.peer_urls.clone()).collect();
    urls.sort();
    urls
}

async fn ask_members(
    client: &PeerClient,
    urls: &[String],
    timeout: Duration,
) -> Option<(ClusterId, Vec<MemberRecord>)> {
    Asked {
        client: client.clone(),
        urls: urls.to_vec(),
        timeout,
    }
    .members()
    .await
}

/// Fails if the cluster lists this member, which has an empty log, as started: its term and
/// votes are lost. Every peer is queried, because one of them may be behind.
pub async fn refuse_started(
    config: &Config,
    client: &PeerClient,
    own_id: u64,
) -> Result<(), JoinError> {
    let others = config.cluster.initial_members.iter();
    let others = others.filter(|member| member.name != config.name);
    let urls = others.map(|member| member.peer_urls.clone()).collect();
    let members = |peer: Asked| async move { peer.members().await };
    let answers = ask_each(client, urls, LOOK_TIME_MAX, members).await;
    let known = answers.iter().flatten().flat_map(|(_, members)| members);
    match has_started(known, own_id) {
        true => Err(JoinError::Bootstrapped {
            name: config.name.clone(),
            id: own_id,
        }),
        false => Ok(()),
    }
}

fn has_started<'a>(records: impl IntoIterator<Item = &'a MemberRecord>, id: u64) -> bool {
    let mut records = records.into_iter();
    records.any(|record| record.id == id && record.has_published())
}

/// Finds the cluster that this member was added to.
pub async fn find(config: &Config, client: &PeerClient) -> Result<Found, JoinError> {
    let urls = other_urls(&config.cluster, &config.name);
    if urls.is_empty() {
        return Err(JoinError::NobodyNamed);
    }
    let found = ask_members(client, &urls, ANSWER_TIME_MAX).await;
    let Some((cluster_id, members)) = found else {
        return Err(JoinError::Nobody { urls });
    };
    let listed = &config.cluster.initial_members;
    if listed.len() != members.len() {
        return Err(JoinError::Count {
            listed: listed.len(),
            found: members.len(),
        });
    }
    let mut own_id = None;
    for member in listed {
        let Some(known) = members.iter().find(|known| is_same(known, member)) else {
            return Err(JoinError::Unknown {
                name: member.name.clone(),
                urls: member.peer_urls.clone(),
            });
        };
        if member.name == config.name {
            own_id = Some(known.id);
        }
    }
    let Some(member_id) = own_id else {
        return Err(JoinError::Unknown {
            name: config.name.clone(),
            urls: config.cluster.advertise_peer_urls.clone(),
        });
    };
    refuse_started(config, client, member_id).await?;
    check_versions(config, client, &members, member_id).await?;
    Ok(Found {
        identity: Identity {
            member_id: MemberId(member_id),
            cluster_id,
        },
        members,
    })
}

fn is_same(known: &MemberRecord, listed: &InitialMember) -> bool {
    let sorted = |urls: &[String]| {
        let mut urls = urls.to_vec();
        urls.sort();
        urls
    };
    let known = sorted(known.peer_urls.as_deref().unwrap_or_default());
    let listed = sorted(&listed.peer_urls);
    known == listed || addresses(&known).is_some_and(|known| Some(known) == addresses(&listed))
}

/// Resolves URLs; `None` if one does not resolve.
fn addresses(urls: &[String]) -> Option<Vec<SocketAddr>> {
    let mut all = Vec::new();
    for url in urls {
        let authority = url.strip_prefix("http://")?;
        all.extend(authority.to_socket_addrs().ok()?);
    }
    all.sort();
    all.dedup();
    Some(all)
}

async fn check_versions(
    config: &Config,
    client: &PeerClient,
    members: &[MemberRecord],
    own_id: u64,
) -> Result<(), JoinError> {
    let own = config.version.emulation();
    let (mut lowest, mut highest) = (own.minus_minors(1), own);
    let others: Vec<&MemberRecord> = members.iter().filter(|it| it.id != own_id).collect();
    let asked = |member: &MemberRecord| {
        let urls = member.peer_urls.clone().unwrap_or_default();
        (member.name.clone(), urls)
    };
    for (_, urls) in others.iter().map(|member| asked(member)) {
        let asked = Asked {
            client: client.clone(),
            urls,
            timeout: ANSWER_TIME_MAX,
        };
        if asked.downgrade_enabled().await == Some(true) {
            // During a downgrade by one version, a joining member has the lower version
            // already.
            lowest = own.plus_minors(1);
            highest = lowest;
            break;
        }
    }
    let mut anybody = false;
    for (name, urls) in others.iter().map(|member| asked(member)) {
        let asked = Asked {
            client: client.clone(),
            urls,
            timeout: ANSWER_TIME_MAX,
        };
        let Some(versions) = asked.versions().await else {
            continue;
        };
        // A cluster without a decided version takes any version; founders compare theirs.
        let theirs = versions.etcdcluster.parse::<MajorMinor>();
        let Some(theirs) = theirs.ok().filter(|theirs| *theirs > OLDEST) else {
            anybody = true;
            continue;
        };
        if theirs < lowest || theirs > highest {
            return Err(JoinError::Version {
                member: name,
                theirs: theirs.to_string(),
                lowest: lowest.to_string(),
                highest: highest.to_string(),
            });
        }
        anybody = true;
    }
    if !anybody {
        let urls = others.iter().filter_map(|member| member.peer_urls.clone());
        return Err(JoinError::Nobody {
            urls: urls.flatten().collect(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_counts_as_started_once_a_record_has_its_attributes() {
        let record = |id, name: &str, client_url: &str| MemberRecord {
            id,
            peer_urls: Some(vec!["http://127.0.0.1:1".to_owned()]),
            is_learner: false,
            name: name.to_owned(),
            client_urls: match client_url {
                "" => Vec::new(),
                url => vec![url.to_owned()],
            },
            proposal: None,
        };
        let added = record(7, "", "");
        let other = record(8, "m8", "http://127.0.0.1:2");
        for (own, expected) in [
            (record(7, "", ""), false),
            // Founders get their names from the first log entries.
            (record(7, "m7", ""), false),
            (record(7, "", "http://127.0.0.1:3"), true),
            (record(7, "m7", "http://127.0.0.1:3"), true),
        ] {
            // From a peer that is behind, and from one that is not.
            let records = [added.clone(), other.clone(), own.clone()];
            assert_eq!(has_started(&records, 7), expected, "{own:?}");
        }
        assert!(!has_started(&[], 7));
    }
}
