//! The state machine of the simulated members: a digest of all applied entries.
//!
//! Members that have applied the same entries in the same order have the same digest. A
//! snapshot is a copy of the state. Membership changes are accepted or refused as in a server:
//! by the state at their index, so equally on all members.

use std::collections::BTreeSet;
use std::sync::Arc;

use portunus_gates::cluster::{ClusterParams, ClusterSpecs};
use portunus_proto::raftpb::{ConfChange, ConfChangeType, ConfState, Entry};

use super::gates::{Gates, effect};

/// A state and its index in the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Image {
    pub(super) applied_index: u64,
    pub(super) applied_term: u64,
    pub(super) state: u64,
    pub(super) conf_state: ConfState,
    pub(super) removed: BTreeSet<u64>,
    pub(super) gates: Arc<Gates>,
}

impl Image {
    /// Returns the change to pass to raft: with member 0 if it is refused.
    pub(super) fn resolve_conf_change(&self, change: &ConfChange) -> ConfChange {
        let ConfState {
            voters, learners, ..
        } = &self.conf_state;
        let id = change.node_id;
        let sound = match change.r#type() {
            ConfChangeType::ConfChangeAddNode => {
                !voters.contains(&id) && !self.removed.contains(&id)
            }
            ConfChangeType::ConfChangeAddLearnerNode => {
                !voters.contains(&id) && !learners.contains(&id) && !self.removed.contains(&id)
            }
            ConfChangeType::ConfChangeRemoveNode => {
                // Neither of two voters is removed: a leader that removes itself may be the
                // only one to know the commit, and the other one needs its vote.
                learners.contains(&id) || voters.contains(&id) && voters.len() > 2
            }
            ConfChangeType::ConfChangeUpdateNode => false,
        };
        ConfChange {
            node_id: if sound { id } else { 0 },
            ..change.clone()
        }
    }

    /// Applies the next entry; `conf_state` is the one after it. The effect of a client's entry
    /// depends on the features bound to it, or on `instead` for a planted bug.
    pub(super) fn apply(
        &mut self,
        entry: &Entry,
        conf_state: ConfState,
        specs: &ClusterSpecs,
        instead: Option<&ClusterParams>,
    ) {
        let gone = |id: &&u64| !conf_state.voters.contains(id) && !conf_state.learners.contains(id);
        let before = self
            .conf_state
            .voters
            .iter()
            .chain(&self.conf_state.learners);
        self.removed.extend(before.filter(gone));
        self.conf_state = conf_state;
        self.applied_index = entry.index;
        self.applied_term = entry.term;
        self.state = digest(self.state, entry);
        if !Gates::apply(&mut self.gates, specs, entry) {
            let bound = self.gates.params.as_ref();
            self.state ^= effect(specs, instead.or(bound)).rotate_left(32);
        }
        Gates::keep_members(&mut self.gates, &self.conf_state);
    }

    /// Returns the voters and learners.
    pub(super) fn members(&self) -> impl Iterator<Item = u64> {
        let ConfState {
            voters, learners, ..
        } = &self.conf_state;
        voters.iter().chain(learners).copied()
    }
}

/// Returns the digest after one more entry.
pub(super) fn digest(before: u64, entry: &Entry) -> u64 {
    let mut mixed = before ^ 0xcbf2_9ce4_8422_2325;
    let mut mix = |number: u64| {
        mixed = (mixed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 29;
    };
    mix(entry.index);
    mix(entry.term);
    mix(u64::from(entry.r#type.unsigned_abs()));
    mix(entry.data.len() as u64);
    for chunk in entry.data.chunks(8) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        mix(u64::from_le_bytes(padded));
    }
    mixed
}
