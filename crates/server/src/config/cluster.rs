//! The settings about a member's cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use portunus_consensus::bootstrap::InitialMember;

use super::checks::Checks;
use super::{
    ConfigError, ListenUrl, Values, bad, boolean, duration, listen_urls, number, one_of, url, urls,
};

/// Shortest timeout; below it, healthy connections between peers would be closed.
const RAFT_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Settings about the other members.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The members of `--initial-cluster`: founders, or present members of an existing cluster.
    pub initial_members: Vec<InitialMember>,
    /// Whether this member joins an existing cluster.
    pub is_existing: bool,
    /// Distinguishes clusters with the same initial members.
    pub token: String,
    /// The URLs to listen at for peers.
    pub listen_peer_urls: Vec<ListenUrl>,
    /// The peer URLs of this member, as others reach them.
    pub advertise_peer_urls: Vec<String>,
    /// Refuse membership changes that would lose the quorum.
    pub strict_reconfig: bool,
    /// Run a pre-vote before an election.
    pub pre_vote: bool,
    /// Shorten the first election timeout; a lone member does not wait for it at all.
    pub leads_at_once_if_alone: bool,
    /// Time without data after which a connection from a peer is closed.
    pub raft_read_timeout: Duration,
    /// Time after which a connection is closed whose peer accepts no data.
    pub raft_write_timeout: Duration,
    /// Make a cluster of one from the existing data.
    pub force_new: bool,
    /// The number of learners a cluster may have.
    pub max_learners: usize,
    /// Time between two comparisons of all members' data; zero: none.
    pub corrupt_check_interval: Duration,
    /// Time between two comparisons of the hashes of compactions.
    pub compact_hash_check_interval: Duration,
    /// Time between two checks for the end of a downgrade.
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

/// Parses `NAME=URL,NAME=URL`; a name may repeat. Without the flag: this member alone.
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
