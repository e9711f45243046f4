//! Changes of membership.

use bytes::Bytes;
use portunus_proto::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use prost::Message;

use super::StateMachine;
use crate::conf_state::{after_change, put_conf_state};
use crate::effect::{Applied, Effect, Response};
use crate::entry_error::EntryError;
use crate::membership::PlannedChange;

impl StateMachine {
    pub(super) fn apply_conf_change(
        &mut self,
        index: u64,
        data: Bytes,
    ) -> Result<Applied, EntryError> {
        let fault = |source| EntryError::Membership { index, source };
        let change = decode(index, data)?;
        let checked = self
            .membership
            .check_change(&change, self.settings.max_learners)
            .map_err(fault)?;
        let mut effects = Vec::new();
        let answer = match &checked {
            Ok(planned) => {
                if self.lacks_proposal(planned) {
                    effects.push(Effect::RepublishProposal);
                }
                self.membership
                    .make_change(&mut self.store, planned)
                    .map_err(fault)?;
                self.review_gated();
                effects.push(Effect::MembershipChanged);
                log_change(planned);
                Ok(Response::Members)
            }
            Err(refusal) => {
                tracing::warn!(
                    %refusal,
                    change = change.r#type().as_str_name(),
                    member = %format_args!("{:x}", change.node_id),
                    "membership change refused"
                );
                Err(*refusal)
            }
        };
        let request_id = change.id;
        // Raft has to apply a refused change, too, as one that changes nothing.
        let node_id = if checked.is_ok() { change.node_id } else { 0 };
        let change = ConfChange { node_id, ..change };
        self.conf_state = after_change(&self.conf_state, &change);
        put_conf_state(&mut self.store, &self.conf_state).map_err(fault)?;
        effects.push(Effect::ConfigureRaft {
            change,
            expected: Some(self.conf_state.clone()),
        });
        effects.extend(checked.ok().map(Effect::MemberChanged));
        Ok(Applied {
            request_id,
            answer,
            effects,
            ..Applied::without_request()
        })
    }

    /// Whether a change removes a member without a proposal. If that member did not know cluster
    /// features, its snapshots lacked the proposals of the others.
    fn lacks_proposal(&self, planned: &PlannedChange) -> bool {
        let PlannedChange::Remove(id) = planned else {
            return false;
        };
        let record = self.membership.get(*id);
        record.is_some_and(|record| record.proposal.is_none())
    }

    /// Returns the change of an entry that the store has applied before, for raft.
    pub(super) fn repeat_conf_change(&self, entry: &Entry) -> Result<Applied, EntryError> {
        let applied = Applied::without_request();
        if entry.r#type() != EntryType::EntryConfChange {
            return Ok(applied);
        }
        let mut change = decode(entry.index, entry.data.clone())?;
        // The store is ahead, so it shows whether the change was made; one that was refused must
        // not change raft's configuration.
        let is_member = self.membership.get(change.node_id).is_some();
        let is_removal = change.r#type() == ConfChangeType::ConfChangeRemoveNode;
        if is_member == is_removal {
            change.node_id = 0;
        }
        Ok(Applied {
            effects: vec![Effect::ConfigureRaft {
                change,
                expected: None,
            }],
            ..applied
        })
    }
}

fn decode(index: u64, data: Bytes) -> Result<ConfChange, EntryError> {
    ConfChange::decode(data).map_err(|source| EntryError::Decode { index, source })
}

fn log_change(change: &PlannedChange) {
    match change {
        PlannedChange::Add(record) => tracing::info!(
            member = %format_args!("{:x}", record.id),
            urls = record.peer_urls.as_deref().unwrap_or_default().join(","),
            is_learner = record.is_learner,
            "member added"
        ),
        PlannedChange::Promote(record) => tracing::info!(
            member = %format_args!("{:x}", record.id),
            "learner promoted"
        ),
        PlannedChange::Update(record) => tracing::info!(
            member = %format_args!("{:x}", record.id),
            urls = record.peer_urls.as_deref().unwrap_or_default().join(","),
            "member updated"
        ),
        PlannedChange::Remove(id) => {
            tracing::info!(member = %format_args!("{id:x}"), "member removed");
        }
    }
}
