//! The cluster version: the leader asks all members for their versions, decides and proposes.
//!
//! It rises once every member supports it, and falls only for a downgrade that an operator
//! requested. A member that does not answer keeps the version from changing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portunus_gates::MajorMinor;
use portunus_gates::cluster::ClusterSpecs;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::ClusterVersionSetRequest;

use super::{Member, downgrade};
use portunus_statemachine::Response;
use portunus_statemachine::decision_cause::DecisionInputs;
use portunus_statemachine::membership::Membership;
use portunus_statemachine::params::to_message;

/// Time between two checks of all versions.
const MONITOR_INTERVAL: Duration = Duration::from_secs(4);
/// Time until the next check while nothing can be decided yet.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// The first cluster version while a member does not answer.
const LOWEST: MajorMinor = MajorMinor::literal("3.0");

/// The version the leader should propose, if it is a change. `versions` has every member's, or is
/// `None` if a member did not answer.
fn next_version(
    specs: &ClusterSpecs,
    membership: &Membership,
    versions: Option<&BTreeMap<u64, MajorMinor>>,
) -> Option<MajorMinor> {
    let Some(versions) = versions else {
        return membership.cluster_version.is_none().then_some(LOWEST);
    };
    let versions: Vec<Option<MajorMinor>> = versions.values().copied().map(Some).collect();
    let target = downgrade::target(&membership.downgrade);
    specs.next_cluster_version(membership.cluster_version, &versions, target)
}

/// Decides the cluster version and params while this member leads, until it stops.
pub async fn monitor(member: &Member) {
    let mut leadership = member.cluster.leadership.subscribe();
    let mut last = LastDecision::default();
    loop {
        let leads = leadership.borrow_and_update().leader == member.cluster.own_id();
        let pause = if leads {
            raise_or_lower(member, &mut last).await
        } else {
            MONITOR_INTERVAL
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = leadership.changed() => {}
            () = member.cluster.versions_changed() => {}
            () = member.process.stop.stopped() => return,
        }
    }
}

/// The inputs of the last decision that this member made as leader. Members may publish between a
/// decision and the place of its entry in the log, so more may be known where the entry is
/// applied.
#[derive(Default)]
struct LastDecision {
    index: u64,
    inputs: Arc<DecisionInputs>,
}

impl LastDecision {
    fn inputs<'a>(&'a self, membership: &'a Membership) -> &'a DecisionInputs {
        match membership.params_since() {
            Some(index) if index == self.index => &self.inputs,
            _ => &membership.decided_from,
        }
    }
}

async fn raise_or_lower(member: &Member, last: &mut LastDecision) -> Duration {
    // Founders decide no version before they have compared theirs.
    if !member.cluster.founding.is_over() {
        return FIRST_LOOK;
    }
    // A new leader may still be applying what was committed before it led, or installing a
    // snapshot; its membership and versions may be stale until then.
    if member.store.linearizable().await.is_err() {
        return FIRST_LOOK;
    }
    let versions = member.server_versions().await;
    let membership = member.cluster.membership_full();
    let gates = &member.cluster.gates;
    let next = next_version(gates.specs(), &membership, versions.as_ref());
    let next = next.filter(|next| is_heard(&membership, *next));
    let Some(version) = next.or(membership.cluster_version) else {
        return MONITOR_INTERVAL;
    };
    // A new cluster decides version and params at once, so the first version waits until every
    // member has published. A leader that proposes nothing makes no first decision.
    let is_new = membership
        .cluster_version
        .is_none_or(|known| known == LOWEST);
    let has_unpublished = membership.iter().any(|record| !record.has_published());
    if gates.proposes() && is_new && version > LOWEST && has_unpublished {
        return FIRST_LOOK;
    }
    // Version and params go in one entry, so that no member applies one without the other.
    let (params, is_changed) = gates.params_for(&membership, version);
    if next.is_some() || is_changed {
        let request = InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: format!("{version}.0"),
                // Without cluster features the entry is the one that etcd writes.
                decided_unix_seconds: params.as_ref().map_or(0, |_| unix_seconds()),
                decided_by: params.as_ref().map_or(0, |_| member.cluster.own_id()),
                cause: params.as_ref().map_or_else(String::new, |_| {
                    last.inputs(&membership).cause(&membership, version)
                }),
                cluster_params: params.as_ref().map(to_message),
            }),
            ..InternalRaftRequest::default()
        };
        tracing::debug!(%version, is_changed, "about to propose a decision");
        let proposed = propose_decision(member, request, version).await;
        if is_changed {
            let result = if proposed.is_ok() {
                "decided"
            } else {
                "failed"
            };
            let reconciles = &member.process.metrics.cluster_gates.reconciles;
            reconciles.with_label_values(&[result]).inc();
        }
        if let Err(error) = proposed {
            tracing::warn!(%error, %version, "the cluster version could not be set; it is tried again");
            return FIRST_LOOK;
        }
        if is_changed {
            *last = LastDecision {
                index: member
                    .cluster
                    .membership()
                    .params_since()
                    .unwrap_or_default(),
                inputs: Arc::new(DecisionInputs::at(version, &membership)),
            };
        }
    }
    MONITOR_INTERVAL
}

/// Proposes a decision, logs that, and waits until it is applied.
async fn propose_decision(
    member: &Member,
    request: InternalRaftRequest,
    version: MajorMinor,
) -> Result<Response, EtcdError> {
    let mut proposal = std::pin::pin!(member.proposals.propose(request));
    tokio::select! {
        biased;
        // The first poll hands the proposal to consensus.
        answer = &mut proposal => return answer,
        () = std::future::ready(()) => {}
    }
    tracing::debug!(%version, "a decision is proposed, not yet applied");
    proposal.await
}

/// Whether every proposal of cluster features in the log is for at least `version`, if that is a
/// raise. A member that was just restarted reports its version before the log has its proposal,
/// and the features of a version are decided together with it.
fn is_heard(membership: &Membership, version: MajorMinor) -> bool {
    let is_lower = membership
        .cluster_version
        .is_some_and(|current| version <= current);
    is_lower
        || membership.iter().all(|record| match &record.proposal {
            // An unreadable proposal is no reason to wait.
            Some(proposal) => proposal
                .version
                .parse()
                .map_or(true, |said: MajorMinor| said >= version),
            None => true,
        })
}

fn unix_seconds() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}

impl Member {
    /// The version each member behaves as; `None` if a member does not answer.
    pub async fn server_versions(&self) -> Option<BTreeMap<u64, MajorMinor>> {
        let membership = self.cluster.membership_full();
        let mut versions = BTreeMap::new();
        if membership.get(self.cluster.own_id()).is_some() {
            versions.insert(
                self.cluster.own_id(),
                self.process.config.version.emulation(),
            );
        }
        for (id, answer) in self.member_versions(&membership).await {
            versions.insert(id, answer?.server()?.major_minor());
        }
        // The membership may still be empty.
        (!versions.is_empty()).then_some(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_statemachine::membership::DowngradeRecord;

    fn version(text: &str) -> MajorMinor {
        text.parse().unwrap()
    }

    fn membership(current: Option<&str>, target: Option<&str>) -> Membership {
        let mut membership = Membership::default();
        membership.cluster_version = current.map(version);
        membership.downgrade = DowngradeRecord {
            target_version: target.map(|text| format!("{text}.0")).unwrap_or_default(),
            enabled: target.is_some(),
        };
        membership
    }

    #[test]
    fn the_version_follows_the_slowest_and_falls_only_when_told() {
        for (current, target, lowest, expected) in [
            (None, None, None, Some("3.0")),
            (None, None, Some("3.7"), Some("3.7")),
            (Some("3.6"), None, Some("3.8"), Some("3.8")),
            (Some("3.7"), None, None, None),
            (Some("3.7"), None, Some("3.7"), None),
            (Some("3.8"), None, Some("3.7"), None),
            (Some("3.8"), Some("3.7"), Some("3.8"), Some("3.7")),
            (Some("3.8"), Some("3.7"), None, None),
            // Already there, some members have arrived.
            (Some("3.7"), Some("3.7"), Some("3.7"), None),
            (Some("3.8"), Some("3.6"), Some("3.8"), None),
        ] {
            let versions = lowest.map(|lowest| BTreeMap::from([(1, version(lowest))]));
            let specs = portunus_features::OwnFeatures::declared()
                .unwrap()
                .cluster_specs();
            let membership = membership(current, target);
            let decided = next_version(&specs, &membership, versions.as_ref());
            assert_eq!(
                decided,
                expected.map(version),
                "{current:?} {target:?} {lowest:?}"
            );
        }
    }
}
