//! Downgrades: when one may begin, when a member may be restarted with the target version, and
//! when it is complete. The states are those of [`DowngradeState`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use portunus_gates::cluster::DowngradeState;
use portunus_gates::{MajorMinor, Version};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::DowngradeInfoSetRequest;
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_rafthttp::PeerClient;
use thiserror::Error;

use super::Member;
use crate::peers::ask::{Asked, Versions, ask_each};
use portunus_statemachine::decision::downgrade_target;
use portunus_statemachine::membership::{MemberRecord, Membership, hex};
use portunus_statemachine::v2_request::read as read_request;

/// Longest wait for the cluster version to be lowered; below the usual timeout of clients.
const LOWERING_TIME_MAX: Duration = Duration::from_secs(4);
/// Time between two checks whether it is lowered.
const LOWERING_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for one member's version.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Why a downgrade was not enabled, or a member must not be restarted yet.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DowngradeError {
    /// One of etcd's errors.
    #[error("{}", .0.text())]
    Etcd(#[from] EtcdError),
    /// At least one member does not answer.
    #[error(
        "etcdserver: cannot enable downgrade to {target}: member {} does not answer; start or remove it, then enable the downgrade again", silent.join(", ")
    )]
    Silent {
        target: MajorMinor,
        silent: Vec<String>,
    },
    /// The cluster version was not lowered in time.
    #[error("etcdserver: {state}")]
    NotLowered { state: DowngradeState },
}

/// The cluster version is above the version that this member emulates.
#[derive(Debug, Clone, Error)]
#[error(
    "the cluster version is {cluster}, above {emulation}: start without --emulated-version, or with {cluster}; to go back, enable a downgrade while the cluster runs, or stop every member and use `portctl migrate`"
)]
pub struct ClusterVersionAbove {
    /// The cluster version.
    pub cluster: MajorMinor,
    /// The version that this member emulates.
    pub emulation: MajorMinor,
}

/// Refuses a cluster version above `emulation`, unless a downgrade to `emulation` is enabled:
/// then the cluster version is lowered before the member serves.
pub fn check_version(
    membership: &Membership,
    emulation: MajorMinor,
) -> Result<(), ClusterVersionAbove> {
    match membership.cluster_version {
        Some(cluster)
            if cluster > emulation
                && downgrade_target(&membership.downgrade) != Some(emulation) =>
        {
            Err(ClusterVersionAbove { cluster, emulation })
        }
        _ => Ok(()),
    }
}

/// Whether entries that are not applied yet enable a downgrade to `emulation`, or lower the
/// cluster version to it. They may not be committed; the member checks again before it serves.
pub fn is_in_log<'a>(entries: impl IntoIterator<Item = &'a Entry>, emulation: MajorMinor) -> bool {
    let parsed = |text: &str| text.parse::<MajorMinor>().ok();
    let mut entries = entries.into_iter();
    entries.any(|entry| {
        if entry.r#type() != EntryType::EntryNormal || entry.data.is_empty() {
            return false;
        }
        let Ok(request) = read_request(entry.index, entry.data.clone()) else {
            // Apply reports the error.
            return false;
        };
        let enables = request.downgrade_info_set.as_ref();
        let enables = enables.is_some_and(|set| set.enabled && parsed(&set.ver) == Some(emulation));
        let lowers = request.cluster_version_set.as_ref();
        let lowers = lowers.and_then(|set| parsed(&set.ver));
        enables || lowers.is_some_and(|version| version <= emulation)
    })
}

/// Whether a peer reports that the cluster is at `emulation` or being downgraded to it.
pub async fn is_known_to_peers(
    client: &PeerClient,
    peers: Vec<Vec<String>>,
    emulation: MajorMinor,
) -> bool {
    let lets_start = move |peer: Asked| async move {
        let cluster = peer.versions().await?.etcdcluster;
        let cluster = cluster.parse::<MajorMinor>().ok()?;
        if cluster <= emulation {
            return Some(true);
        }
        // The only possible target is one minor below.
        let is_one_above = cluster.minus_minors(1) == emulation;
        Some(is_one_above && peer.downgrade_enabled().await == Some(true))
    };
    let answers = ask_each(client, peers, ANSWER_TIME_MAX, lets_start).await;
    answers.contains(&Some(true))
}

/// Logs the progress of a downgrade, and ends it once every member runs the target.
pub async fn end_downgrades(member: &Member) {
    let interval = member.process.config.cluster.downgrade_check_interval;
    if interval.is_zero() {
        return;
    }
    let mut logged = DowngradeState::None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = member.process.stop.stopped() => return,
        }
        let is_enabled = downgrade_target(&member.cluster.membership().downgrade).is_some();
        let leads = member.leads();
        if !leads || !is_enabled {
            logged = DowngradeState::None;
            continue;
        }
        // A new leader may still be applying what was committed before it led.
        if member.store.linearizable().await.is_err() {
            continue;
        }
        let state = member.downgrade_state().await;
        if let DowngradeState::Complete { target } = state {
            tracing::info!(cluster_version = %target, "the cluster has been downgraded");
            if let Err(error) = member.set_downgrade(None).await {
                tracing::warn!(%error, "recording the end of the downgrade failed; retrying");
            }
        } else if state != logged {
            tracing::info!(state = state.text(), "downgrade: {state}");
            logged = state;
        }
    }
}

impl Member {
    /// Each other member's versions, by id; `None` for a member that does not answer.
    pub async fn member_versions(
        &self,
        membership: &Membership,
    ) -> BTreeMap<u64, Option<Versions>> {
        let others = membership.iter();
        let others: Vec<&MemberRecord> = others
            .filter(|record| record.id != self.cluster.own_id().0)
            .collect();
        let urls = others.iter().map(|it| it.peer_urls.clone());
        let urls = urls.map(Option::unwrap_or_default).collect();
        let versions = |peer: Asked| async move { peer.versions().await };
        let client = self.peers.client();
        let answers = ask_each(client, urls, ANSWER_TIME_MAX, versions).await;
        others.iter().map(|record| record.id).zip(answers).collect()
    }

    /// The state of the downgrade, by the versions of the members that answer.
    pub async fn downgrade_state(&self) -> DowngradeState {
        let membership = self.cluster.membership_full();
        let versions = self.member_versions(&membership).await;
        let members = membership.iter().map(|record| {
            let version = match record.id == self.cluster.own_id().0 {
                true => Some(self.process.config.version.emulation()),
                false => versions
                    .get(&record.id)
                    .and_then(|versions| versions.as_ref()?.server())
                    .map(|version| version.major_minor()),
            };
            (shown(record), version)
        });
        let members: Vec<_> = members.collect();
        // The membership after the members were asked.
        let membership = self.cluster.membership();
        let target = downgrade_target(&membership.downgrade);
        DowngradeState::new(membership.cluster_version, target, &members)
    }

    /// Checks a downgrade to `target` and returns the present cluster version.
    pub async fn validate_downgrade(&self, target: &str) -> Result<MajorMinor, EtcdError> {
        // Earlier decisions must be applied here.
        self.store.linearizable().await?;
        let membership = self.cluster.membership();
        let target = Version::parse(target)
            .map_err(|_| EtcdError::WrongDowngradeVersionFormat)?
            .major_minor();
        let current = membership
            .cluster_version
            .ok_or(EtcdError::ClusterVersionUnavailable)?;
        if target == current || target != current.minus_minors(1) {
            return Err(EtcdError::InvalidDowngradeTargetVersion);
        }
        if membership.downgrade.enabled {
            return Err(EtcdError::DowngradeInProcess);
        }
        Ok(current)
    }

    /// Enables a downgrade. Returns the version before it, once the cluster version is lowered
    /// and members may be restarted with the target.
    pub async fn enable_downgrade(&self, target: &str) -> Result<MajorMinor, DowngradeError> {
        let started = Instant::now();
        let current = self.validate_downgrade(target).await?;
        let target = current.minus_minors(1);
        let membership = self.cluster.membership_full();
        let versions = self.member_versions(&membership).await;
        let is_silent = |record: &&MemberRecord| matches!(versions.get(&record.id), Some(None));
        let silent: Vec<String> = membership.iter().filter(is_silent).map(shown).collect();
        if !silent.is_empty() {
            return Err(DowngradeError::Silent { target, silent });
        }
        self.set_downgrade(Some(target)).await?;
        tracing::info!(%target, cluster_version = %current, "downgrade requested");
        self.cluster.review_versions();
        loop {
            let membership = self.cluster.membership_full();
            let is_lowered = membership.cluster_version.is_some_and(|it| it <= target);
            let is_late = started.elapsed() >= LOWERING_TIME_MAX;
            // etcd members start with the target only once they have applied the lowered version.
            if is_lowered && (is_late || self.all_know(&membership, target).await) {
                return Ok(current);
            }
            if is_late {
                let state = self.downgrade_state().await;
                return Err(DowngradeError::NotLowered { state });
            }
            tokio::time::sleep(LOWERING_INTERVAL).await;
        }
    }

    /// Whether every other member has applied a cluster version of at most `version`.
    async fn all_know(&self, membership: &Membership, version: MajorMinor) -> bool {
        let versions = self.member_versions(membership).await;
        versions.values().all(|answer| {
            let cluster = answer
                .as_ref()
                .map(|it| it.etcdcluster.parse::<MajorMinor>());
            matches!(cluster, Some(Ok(cluster)) if cluster <= version)
        })
    }

    /// Enables a downgrade to `target`, or ends it for `None`.
    pub async fn set_downgrade(&self, target: Option<MajorMinor>) -> Result<(), EtcdError> {
        let request = InternalRaftRequest {
            downgrade_info_set: Some(DowngradeInfoSetRequest {
                enabled: target.is_some(),
                ver: target.map_or_else(String::new, |version| format!("{version}.0")),
            }),
            ..InternalRaftRequest::default()
        };
        self.proposals.propose(request).await.map(drop)
    }
}

fn shown(record: &MemberRecord) -> String {
    match record.name.as_str() {
        "" => hex(record.id),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use portunus_proto::membershippb::ClusterVersionSetRequest;
    use portunus_statemachine::membership::DowngradeRecord;
    use prost::Message;

    const OLD: MajorMinor = MajorMinor::literal("3.7");

    fn membership(cluster: &str, target: Option<&str>) -> Membership {
        let mut membership = Membership::default();
        membership.cluster_version = cluster.parse().ok();
        membership.downgrade = DowngradeRecord {
            target_version: target.map(|text| format!("{text}.0")).unwrap_or_default(),
            enabled: target.is_some(),
        };
        membership
    }

    #[test]
    fn version_above_is_refused_unless_a_downgrade_leads_to_the_own() {
        for (cluster, target, is_refused) in [
            ("", None, false),
            ("3.7", None, false),
            ("3.8", None, true),
            ("3.8", Some("3.7"), false),
            ("3.8", Some("3.6"), true),
        ] {
            let refused = check_version(&membership(cluster, target), OLD).is_err();
            assert_eq!(refused, is_refused, "{cluster} {target:?}");
        }
    }

    fn entry(request: InternalRaftRequest) -> Entry {
        Entry {
            data: request.encode_to_vec().into(),
            ..Entry::default()
        }
    }

    #[test]
    fn downgrade_is_found_in_the_log() {
        let version_set = |ver: &str| {
            entry(InternalRaftRequest {
                cluster_version_set: Some(ClusterVersionSetRequest {
                    ver: ver.to_owned(),
                    ..ClusterVersionSetRequest::default()
                }),
                ..InternalRaftRequest::default()
            })
        };
        let downgrade_set = |enabled, ver: &str| {
            entry(InternalRaftRequest {
                downgrade_info_set: Some(DowngradeInfoSetRequest {
                    enabled,
                    ver: ver.to_owned(),
                }),
                ..InternalRaftRequest::default()
            })
        };
        for (entries, expected) in [
            (vec![], false),
            (vec![Entry::default()], false),
            (vec![version_set("3.8.0")], false),
            (vec![version_set("3.8.0"), version_set("3.7.0")], true),
            (vec![downgrade_set(true, "3.7.0")], true),
            (vec![downgrade_set(true, "3.6.0")], false),
            (vec![downgrade_set(false, "")], false),
        ] {
            assert_eq!(is_in_log(&entries, OLD), expected, "{entries:?}");
        }
    }

    /// A peer with one answer to requests for its version and one to all others.
    fn peer(version: &'static str, is_downgrading: &'static str) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let mut question = [0; 1024];
                let read = connection.read(&mut question).unwrap();
                let body = match question[..read].starts_with(b"GET /version") {
                    true => format!(r#"{{"etcdserver":"3.8.0","etcdcluster":"{version}"}}"#),
                    false => is_downgrading.to_owned(),
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                connection.write_all(answer.as_bytes()).unwrap();
            }
        });
        vec![url]
    }

    #[tokio::test]
    async fn one_peer_that_reports_the_downgrade_is_enough() {
        let client = PeerClient::new(&portunus_rafthttp::Config::default());
        let silent = || vec!["http://127.0.0.1:1".to_owned()];
        for (peers, expected) in [
            (vec![], false),
            (vec![silent()], false),
            (vec![peer("3.8.0", "false")], false),
            (vec![peer("not_decided", "false")], false),
            (vec![silent(), peer("3.8.0", "true")], true),
            (vec![peer("3.9.0", "true")], false),
            (vec![peer("3.8.0", "false"), peer("3.7.0", "true")], true),
        ] {
            let shown = format!("{peers:?}");
            let known = is_known_to_peers(&client, peers, OLD).await;
            assert_eq!(known, expected, "{shown}");
        }
    }
}
