//! What a member was told about its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use portunus_consensus::bootstrap::InitialMember;

use super::{
    ConfigError, ListenUrl, Values, bad, boolean, duration, listen_url, number, one_of, url, urls,
};

/// Below this, connections between peers would be given up although all is well.
const RAFT_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Settings about the other members.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The members a new cluster starts with, or that this member will find.
    pub initial_members: Vec<InitialMember>,
    /// The cluster is there already, and this member was added to it.
    pub is_existing: bool,
    /// Tells clusters apart that start alike.
    pub token: String,
    /// Where peers connect.
    pub listen_peer_urls: Vec<ListenUrl>,
    /// Peer URLs as others see them.
    pub advertise_peer_urls: Vec<String>,
    /// Refuse changes of membership that would cost the quorum.
    pub strict_reconfig: bool,
    /// Ask whether an election could be won before disturbing the others.
    pub pre_vote: bool,
    /// A lone member need not wait for an election timeout.
    pub leads_at_once_if_alone: bool,
    /// Silence after which a connection from a peer is given up.
    pub raft_read_timeout: Duration,
    /// Time after which a peer that takes nothing is given up.
    pub raft_write_timeout: Duration,
    /// Make a cluster of one of what is here.
    pub force_new: bool,
    /// Learners a cluster may have.
    pub max_learners: usize,
    /// Between two comparisons of all members' data; zero: none.
    pub corrupt_check_interval: Duration,
    /// Between two comparisons of what was hashed at compactions.
    pub compact_hash_check_interval: Duration,
    /// Between two looks for the end of a downgrade.
    pub downgrade_check_interval: Duration,
}

impl ClusterConfig {
    pub(super) fn from_values(values: &Values, name: &str) -> Result<ClusterConfig, ConfigError> {
        let advertise_peer_urls = urls(values, "initial-advertise-peer-urls")?;
        let initial_members = initial_members(values, name, &advertise_peer_urls)?;
        let state = one_of(values, "initial-cluster-state", &["new", "existing"])?;
        Ok(ClusterConfig {
            initial_members,
            is_existing: state == "existing",
            token: values.get("initial-cluster-token").to_owned(),
            listen_peer_urls: urls(values, "listen-peer-urls")?
                .iter()
                .map(|url| listen_url(url))
                .collect::<Result<_, _>>()?,
            advertise_peer_urls,
            strict_reconfig: boolean(values, "strict-reconfig-check")?,
            pre_vote: boolean(values, "pre-vote")?,
            leads_at_once_if_alone: boolean(values, "initial-election-tick-advance")?,
            raft_read_timeout: raft_timeout(values, "raft-read-timeout")?,
            raft_write_timeout: raft_timeout(values, "raft-write-timeout")?,
            force_new: boolean(values, "force-new-cluster")?,
            max_learners: number(values, "max-learners")?,
            corrupt_check_interval: duration(values, "corrupt-check-time")?,
            compact_hash_check_interval: duration(values, "compact-hash-check-time")?,
            downgrade_check_interval: duration(values, "downgrade-check-time")?,
        })
    }
}

fn raft_timeout(values: &Values, flag: &'static str) -> Result<Duration, ConfigError> {
    match duration(values, flag)? {
        timeout if timeout >= RAFT_TIMEOUT_MIN => Ok(timeout),
        _ => Err(bad(values, flag, "a duration of at least 100ms")),
    }
}

/// `NAME=URL,NAME=URL`; a name may come more than once. Without the flag: this member alone.
fn initial_members(
    values: &Values,
    name: &str,
    advertised: &[String],
) -> Result<Vec<InitialMember>, ConfigError> {
    const FLAG: &str = "initial-cluster";
    let mut by_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let pairs = values.get(FLAG).split(',').map(str::trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let Some((member, text)) = pair.split_once('=') else {
            return Err(bad(values, FLAG, "NAME=URL,NAME=URL"));
        };
        let urls = by_name.entry(member.to_owned()).or_default();
        urls.push(url(FLAG, text)?);
    }
    if by_name.is_empty() {
        by_name.insert(name.to_owned(), advertised.to_vec());
    }
    let Some(own) = by_name.get(name) else {
        return Err(ConfigError::NotInCluster {
            name: name.to_owned(),
        });
    };
    if sorted(own) != sorted(advertised) {
        return Err(ConfigError::PeerUrlsDiffer {
            name: name.to_owned(),
        });
    }
    let mut all: Vec<&String> = by_name.values().flatten().collect();
    all.sort();
    if let Some(twice) = all.array_windows().find(|[first, second]| first == second) {
        return Err(ConfigError::DuplicatePeerUrl {
            url: twice[0].clone(),
        });
    }
    let members = by_name.into_iter();
    Ok(members
        .map(|(name, peer_urls)| InitialMember { name, peer_urls })
        .collect())
}

fn sorted(urls: &[String]) -> Vec<&String> {
    let mut urls: Vec<&String> = urls.iter().collect();
    urls.sort();
    urls
}
