//! What a member was told about its cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use portunus_consensus::bootstrap::InitialMember;

use super::checks::Checks;
use super::{
    ConfigError, ListenUrl, Values, bad, boolean, duration, listen_urls, number, one_of, url, urls,
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
    pub(super) fn from_values(
        values: &Values,
        name: &str,
        checks: &mut Checks,
    ) -> Option<ClusterConfig> {
        let advertised = checks.ok(urls(values, "initial-advertise-peer-urls"));
        let initial_members = advertised
            .as_ref()
            .and_then(|urls| checks.ok(initial_members(values, name, urls)));
        let state = checks.ok(one_of(
            values,
            "initial-cluster-state",
            &["new", "existing"],
        ));
        let listen_peer_urls = checks.ok(listen_urls(values, "listen-peer-urls"));
        let strict_reconfig = checks.ok(boolean(values, "strict-reconfig-check"));
        let pre_vote = checks.ok(boolean(values, "pre-vote"));
        let leads_at_once_if_alone = checks.ok(boolean(values, "initial-election-tick-advance"));
        let raft_read_timeout = checks.ok(raft_timeout(values, "raft-read-timeout"));
        let raft_write_timeout = checks.ok(raft_timeout(values, "raft-write-timeout"));
        let force_new = checks.ok(boolean(values, "force-new-cluster"));
        let max_learners = checks.ok(number(values, "max-learners"));
        let corrupt_check_interval = checks.ok(duration(values, "corrupt-check-time"));
        let compact_hash_check_interval = checks.ok(duration(values, "compact-hash-check-time"));
        let downgrade_check_interval = checks.ok(duration(values, "downgrade-check-time"));
        Some(ClusterConfig {
            initial_members: initial_members?,
            is_existing: state? == "existing",
            token: values.get("initial-cluster-token").to_owned(),
            listen_peer_urls: listen_peer_urls?,
            advertise_peer_urls: advertised?,
            strict_reconfig: strict_reconfig?,
            pre_vote: pre_vote?,
            leads_at_once_if_alone: leads_at_once_if_alone?,
            raft_read_timeout: raft_read_timeout?,
            raft_write_timeout: raft_write_timeout?,
            force_new: force_new?,
            max_learners: max_learners?,
            corrupt_check_interval: corrupt_check_interval?,
            compact_hash_check_interval: compact_hash_check_interval?,
            downgrade_check_interval: downgrade_check_interval?,
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
