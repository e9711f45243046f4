//! The cluster version and params: the leader asks all members for their versions and proposes what
//! [`portunus_statemachine::decision`] decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portunus_gates::MajorMinor;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::ClusterVersionSetRequest;

use super::Member;
use portunus_statemachine::Response;
use portunus_statemachine::decision::{NextDecision, next_decision};
use portunus_statemachine::decision_cause::DecisionInputs;
use portunus_statemachine::membership::Membership;
use portunus_statemachine::params::to_message;

/// Time between two checks of all versions.
const MONITOR_INTERVAL: Duration = Duration::from_secs(4);
/// Time until the next check while nothing can be decided yet.
const FIRST_LOOK: Duration = Duration::from_millis(50);

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
    let decision = next_decision(
        gates.specs(),
        &membership,
        versions.as_ref(),
        gates.proposes(),
    );
    let (version, params, is_changed) = match decision {
        NextDecision::Unchanged => return MONITOR_INTERVAL,
        NextDecision::Wait => return FIRST_LOOK,
        NextDecision::Propose {
            version,
            params,
            changes_params,
        } => (version, params, changes_params),
    };
    let request = InternalRaftRequest {
        cluster_version_set: Some(ClusterVersionSetRequest {
            ver: format!("{version}.0"),
            // Without cluster features the entry is the one that etcd writes.
            decided_unix_seconds: params.as_ref().map_or(0, |_| unix_seconds()),
            decided_by: params.as_ref().map_or(0, |_| member.cluster.own_id().0),
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
        if membership.get(self.cluster.own_id().0).is_some() {
            versions.insert(
                self.cluster.own_id().0,
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
