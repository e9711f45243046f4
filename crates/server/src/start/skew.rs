//! How far a member may be ahead of its cluster: one minor. A member that is further ahead does
//! not start; the error names the version to start with instead.

use std::time::Duration;

use portunus_gates::MajorMinor;
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_rafthttp::PeerClient;
use thiserror::Error;

use crate::peers::ask::{Asked, ask_each};
use portunus_statemachine::v2_request::read as read_request;

/// Longest wait for one member's version.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// etcd's cluster version before the members have agreed on one.
const UNDECIDED: MajorMinor = MajorMinor::literal("3.0");

/// A member too far ahead of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the cluster version is {cluster}, and version {emulation} is more than one minor above it: start this member with --emulated-version={next}, and with {emulation} once the cluster version is {next}",
    next = cluster.plus_minors(1)
)]
pub struct SkewTooLarge {
    /// The cluster version.
    pub cluster: MajorMinor,
    /// The version that this member would emulate.
    pub emulation: MajorMinor,
}

/// Refuses a version more than one minor above a cluster version that is decided.
pub fn check(cluster: Option<MajorMinor>, emulation: MajorMinor) -> Result<(), SkewTooLarge> {
    match cluster {
        Some(cluster) if cluster > UNDECIDED && emulation > cluster.plus_minors(1) => {
            Err(SkewTooLarge { cluster, emulation })
        }
        _ => Ok(()),
    }
}

/// The newest cluster version in entries that may not be applied yet.
pub fn newest_in_log<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Option<MajorMinor> {
    let normal = entries
        .into_iter()
        .filter(|entry| entry.r#type() == EntryType::EntryNormal && !entry.data.is_empty());
    let requests = normal.filter_map(|entry| read_request(entry.index, entry.data.clone()).ok());
    let versions = requests.filter_map(|request| request.cluster_version_set?.ver.parse().ok());
    versions.max()
}

/// The newest cluster version that peers report.
pub async fn newest_of_peers(client: &PeerClient, peers: Vec<Vec<String>>) -> Option<MajorMinor> {
    let cluster_version =
        |peer: Asked| async move { peer.versions().await?.etcdcluster.parse().ok() };
    let answers = ask_each(client, peers, ANSWER_TIME_MAX, cluster_version).await;
    answers.into_iter().flatten().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_may_be_one_minor_ahead() {
        let version = |text: &str| text.parse::<MajorMinor>().unwrap();
        for (cluster, emulation, is_refused) in [
            ("", "3.8", false),
            ("3.0", "3.8", false),
            ("3.7", "3.8", false),
            ("3.8", "3.8", false),
            ("3.6", "3.8", true),
            ("3.5", "3.7", true),
        ] {
            let checked = check(cluster.parse().ok(), version(emulation));
            assert_eq!(checked.is_err(), is_refused, "{cluster} {emulation}");
        }
        let refused = check(Some(version("3.6")), version("3.8")).unwrap_err();
        assert!(refused.to_string().contains("--emulated-version=3.7"));
    }
}
