//! Carries out the effects of an entry outside of the state machine.

use std::collections::BTreeSet;
use std::sync::Arc;

use portunus_features::WatchPermissionRecheck;
use portunus_proto::Term;
use portunus_proto::raftpb::{ConfChange, ConfState};
use portunus_statemachine::Effect;
use portunus_statemachine::membership::{PlannedChange, hex};

use super::{ApplyThread, ApplyThreadError};

impl ApplyThread {
    pub(super) fn carry_out(&mut self, index: u64, effect: Effect) -> Result<(), ApplyThreadError> {
        let outputs = &self.outputs;
        match effect {
            Effect::TermBegan { term } => self.start_lease_clocks(term),
            Effect::MembershipChanged => self.publish_membership(),
            Effect::ConfigureRaft { change, expected } => {
                self.configure_raft(index, &change, expected)?;
            }
            Effect::MemberChanged(change) => {
                outputs.peers.follow(&change);
                if change == PlannedChange::Remove(outputs.cluster.own_id().0) {
                    outputs.process.stop_as_removed();
                }
            }
            Effect::MemberStarted { id } => outputs.peers.replication_hold().started_anew(id),
            Effect::RepublishProposal => outputs.cluster.gates.republish_proposal(),
            Effect::ParamsDecided => self.publish_params(),
            Effect::AlarmsChanged => {
                let alarms = self.machine.alarms().clone();
                outputs.cluster.publish_alarms(alarms);
            }
            Effect::AuthChanged => {
                outputs.auth.publish(self.machine.auth().clone());
                self.cancel_unpermitted_watches();
            }
            Effect::TokenAssigned { username, token } => {
                outputs.auth.assign_token(token, &username);
            }
            Effect::UserTokensInvalidated { username } => {
                outputs.auth.invalidate_tokens(&username);
            }
            Effect::QuotaExceeded => outputs.proposals.raise_no_space_alarm(),
            Effect::CompactionBegan {
                revision,
                is_physical,
            } => {
                self.compactions.began(revision, is_physical);
                self.outputs.process.metrics.compaction.pending.set(1);
                tracing::info!(revision, is_physical, "compaction begins");
            }
        }
        Ok(())
    }

    /// Publishes the members, versions and params, and wakes the task that decides about them.
    pub(super) fn publish_membership(&self) {
        let membership = self.machine.membership();
        // Before any message is sent because of the change.
        self.outputs.peers.replication_hold().review(membership);
        let cluster = &self.outputs.cluster;
        cluster.publish_membership(membership.clone());
    }

    /// Cancels the watches whose user may not read their range any more, before any later event
    /// reaches them.
    pub(super) fn cancel_unpermitted_watches(&self) {
        let outputs = &self.outputs;
        if outputs.process.gates.enabled(WatchPermissionRecheck) {
            outputs.watches.cancel_unpermitted(self.machine.auth());
        }
    }

    /// Starts the clocks of all leases if this member leads the term whose first entry was
    /// applied, for that term only.
    fn start_lease_clocks(&self, term: Term) {
        let outputs = &self.outputs;
        if outputs.consensus.led_term() == Some(term) {
            let extend_ms = outputs.process.config.election_timeout.as_millis();
            let extend_ms = u64::try_from(extend_ms).unwrap_or(u64::MAX);
            let now_ms = outputs.leases.now_ms();
            outputs.leases.lock().promote(term, now_ms, extend_ms);
        }
    }

    /// Publishes the values of cluster features.
    pub(super) fn publish_params(&self) {
        let since = self.machine.membership().params_since();
        let gates = &self.outputs.cluster.gates;
        gates.publish_view(Arc::clone(self.machine.view()), since);
    }

    fn configure_raft(
        &self,
        index: u64,
        change: &ConfChange,
        expected: Option<ConfState>,
    ) -> Result<(), ApplyThreadError> {
        let raft = self
            .outputs
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
