//! The cluster as this member has applied it: members, versions, alarms, cluster gates, leader.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use portunus_consensus::bootstrap::Identity;
use portunus_gates::cluster::MemberId;
use portunus_statemachine::alarms::Alarms;
use portunus_statemachine::membership::Membership;
use tokio::sync::Notify;

use super::cluster_gates::ClusterGates;
use super::founding::Founding;
use super::leadership::Leaders;

/// The state of the cluster. Members and alarms are published by the apply thread, the leader by
/// consensus, the founding phase by the start of the member.
pub struct ClusterState {
    /// The ids of the member and its cluster.
    pub identity: Identity,
    membership: ArcSwap<Membership>,
    alarms: ArcSwap<Alarms>,
    /// The cluster features.
    pub gates: ClusterGates,
    /// Whether this member has compared its version with the other founders'.
    pub founding: Founding,
    /// The current leader.
    pub leadership: Arc<Leaders>,
    versions_changed: Notify,
}

impl ClusterState {
    /// Starts with the members and alarms of the store.
    pub fn new(
        identity: Identity,
        membership: Membership,
        alarms: Alarms,
        gates: ClusterGates,
        leadership: Arc<Leaders>,
    ) -> ClusterState {
        ClusterState {
            identity,
            membership: ArcSwap::from_pointee(membership),
            alarms: ArcSwap::from_pointee(alarms),
            founding: Founding::new(gates.proposes()),
            gates,
            leadership,
            versions_changed: Notify::new(),
        }
    }

    /// The id of this member.
    pub fn own_id(&self) -> MemberId {
        self.identity.member_id
    }

    /// Members and cluster version, for a short look.
    pub fn membership(&self) -> Guard<Arc<Membership>> {
        self.membership.load()
    }

    /// Members and cluster version, to keep across waits.
    pub fn membership_full(&self) -> Arc<Membership> {
        self.membership.load_full()
    }

    /// Publishes members and versions, and wakes the task that decides about them.
    pub fn publish_membership(&self, membership: Membership) {
        self.membership.store(Arc::new(membership));
        self.review_versions();
    }

    /// The alarms in force.
    pub fn alarms(&self) -> Guard<Arc<Alarms>> {
        self.alarms.load()
    }

    /// Publishes the alarms in force.
    pub fn publish_alarms(&self, alarms: Alarms) {
        self.alarms.store(Arc::new(alarms));
    }

    /// Wakes the task that decides the cluster version.
    pub fn review_versions(&self) {
        self.versions_changed.notify_one();
    }

    /// Returns when the cluster version may have to change.
    pub async fn versions_changed(&self) {
        self.versions_changed.notified().await;
    }
}
