//! Carries out the effects of an entry outside of the state machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use portunus_proto::raftpb::{ConfChange, ConfState};
use portunus_statemachine::Effect;
use portunus_statemachine::membership::{PlannedChange, hex};

use super::{ApplyThread, ApplyThreadError};

impl ApplyThread {
    pub(super) fn carry_out(&mut self, index: u64, effect: Effect) -> Result<(), ApplyThreadError> {
        let member = &self.member;
        match effect {
            Effect::TermBegan { term } => member.start_lease_clocks(term),
            Effect::MembershipChanged => self.publish_membership(),
            Effect::ConfigureRaft { change, expected } => {
                self.configure_raft(index, &change, expected)?;
            }
            Effect::MemberChanged(change) => {
                member.peers.follow(&change);
                if change == PlannedChange::Remove(member.identity.member_id) {
                    member.stop_as_removed();
                }
            }
            Effect::MemberStarted { id } => member.peers.replication_hold().started_anew(id),
            Effect::RepublishProposal => member.cluster_gates.republish_proposal(),
            Effect::ParamsDecided => self.publish_params(),
            Effect::AlarmsChanged => member.alarms.store(Arc::new(self.machine.alarms().clone())),
            Effect::QuotaExceeded => member.raise_no_space_alarm(),
            Effect::CompactionBegan {
                revision,
                is_physical,
            } => {
                self.compactions.began(revision, is_physical);
                member.metrics.compaction.pending.set(1);
                tracing::info!(revision, is_physical, "compaction begins");
            }
        }
        Ok(())
    }

    /// Publishes the members, versions and params, and wakes the task that decides about them.
    pub(super) fn publish_membership(&self) {
        let (member, membership) = (&self.member, self.machine.membership());
        // Before any message is sent because of the change.
        member.peers.replication_hold().review(membership);
        member.membership.store(Arc::new(membership.clone()));
        member.versions_changed.notify_one();
    }

    /// Publishes the values of cluster features.
    pub(super) fn publish_params(&self) {
        let since = self.machine.membership().params_since();
        let gates = &self.member.cluster_gates;
        gates.publish_view(Arc::clone(self.machine.view()), since);
    }

    fn configure_raft(
        &self,
        index: u64,
        change: &ConfChange,
        expected: Option<ConfState>,
    ) -> Result<(), ApplyThreadError> {
        let raft = self
            .member
            .consensus
            .apply_conf_change(change)
            .map_err(|source| ApplyThreadError::ConfChange { index, source })?;
        let (raft, stored) = (described(&raft), expected.as_ref().map(described));
        match stored {
            Some(stored) if stored != raft => Err(ApplyThreadError::ConfState {
                index,
                raft,
                stored,
            }),
            _ => Ok(()),
        }
    }
}

/// Formats a configuration, with the members in order.
fn described(state: &ConfState) -> String {
    let listed = |ids: &[u64]| {
        let sorted: BTreeSet<u64> = ids.iter().copied().collect();
        let ids: Vec<String> = sorted.into_iter().map(hex).collect();
        ids.join(",")
    };
    let (voters, learners) = (listed(&state.voters), listed(&state.learners));
    format!("voters [{voters}] and learners [{learners}]")
}
