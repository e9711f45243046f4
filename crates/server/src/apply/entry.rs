//! One entry of the log.

use std::sync::Arc;

use bytes::Bytes;
use portunus_mvcc::EntryId;
use portunus_proto::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use prost::Message;

use super::{Applier, ApplyFaultError, Response, v2_request};
use crate::member::membership::{PlannedChange, put_conf_state};
use crate::member::waiters::Answer;

/// What applying an entry came to.
pub(super) struct Outcome {
    /// Who may wait for it; 0 for nobody.
    pub request_id: u64,
    /// The answer.
    pub answer: Answer,
    /// What changed, for watchers.
    pub events: Option<Arc<portunus_mvcc::RevisionEvents>>,
}

impl Outcome {
    fn silent() -> Outcome {
        Outcome {
            request_id: 0,
            answer: Ok(Response::Done),
            events: None,
        }
    }
}

impl Applier {
    pub(super) fn apply_entry(&mut self, entry: Entry) -> Result<(), ApplyFaultError> {
        let index = entry.index;
        let is_applied = self
            .store
            .applied()
            .is_some_and(|applied| index <= applied.index);
        if is_applied {
            // Raft has to hear of membership again after a restart; nothing else is repeated.
            return self.replay_conf_change(&entry);
        }
        let store_fault = |source| ApplyFaultError::Store { index, source };
        let id = EntryId {
            index,
            term: entry.term,
        };
        self.store.begin(id).map_err(store_fault)?;
        let outcome = match entry.r#type() {
            EntryType::EntryNormal if entry.data.is_empty() => {
                self.first_of_term(entry.term);
                Outcome::silent()
            }
            EntryType::EntryNormal => self.apply_normal(index, entry.data)?,
            EntryType::EntryConfChange => self.apply_conf_change(index, entry.data)?,
            EntryType::EntryConfChangeV2 => {
                return Err(ApplyFaultError::Unsupported {
                    index,
                    what: "joint membership changes",
                });
            }
        };
        self.store.end().map_err(store_fault)?;
        if let Some(events) = &outcome.events {
            self.publish(events)?;
        }
        if outcome.request_id != 0 {
            self.answers.add(outcome.request_id, outcome.answer);
        }
        Ok(())
    }

    /// A leader's first entry: it starts the clocks of all leases, for that term only.
    fn first_of_term(&mut self, term: u64) {
        if self.member.consensus.led_term() == Some(term) {
            let extend = self.member.config.election_timeout;
            let extend_ms = u64::try_from(extend.as_millis()).unwrap_or(0);
            let leases = &self.member.leases;
            let now_ms = leases.now_ms();
            leases.lock().promote(term, now_ms, extend_ms);
        }
    }

    fn apply_normal(&mut self, index: u64, data: Bytes) -> Result<Outcome, ApplyFaultError> {
        let request = v2_request::read(index, data)?;
        let request_id = request
            .header
            .as_ref()
            .map_or(request.id, |header| header.id);
        match &request.wrapped {
            None => self.apply_request(index, request_id, request),
            Some(wrapped) => self.apply_wrapped(index, request_id, wrapped),
        }
    }

    fn apply_conf_change(&mut self, index: u64, data: Bytes) -> Result<Outcome, ApplyFaultError> {
        let change =
            ConfChange::decode(data).map_err(|source| ApplyFaultError::Decode { index, source })?;
        let fault = |source| ApplyFaultError::Membership { index, source };
        let max_learners = self.member.config.cluster.max_learners;
        let verdict = self
            .membership
            .judge(&change, max_learners)
            .map_err(fault)?;
        // Raft hears of a refused change, too, but as one that changes nothing.
        let for_raft = ConfChange {
            node_id: if verdict.is_ok() { change.node_id } else { 0 },
            ..change.clone()
        };
        let state = self
            .member
            .consensus
            .apply_conf_change(&for_raft)
            .map_err(|source| ApplyFaultError::ConfChange { index, source })?;
        put_conf_state(&mut self.store, &state).map_err(fault)?;
        self.conf_state = state;
        let answer = match verdict {
            Err(refusal) => {
                tracing::warn!(
                    %refusal,
                    change = change.r#type().as_str_name(),
                    member = %format_args!("{:x}", change.node_id),
                    "a change of membership was refused"
                );
                Err(refusal)
            }
            Ok(planned) => {
                if let PlannedChange::Remove(id) = &planned
                    && let Some(record) = self.membership.get(*id)
                    && record.proposal.is_none()
                {
                    self.member.cluster_gates.republish_proposal();
                }
                self.membership
                    .apply(&mut self.store, &planned)
                    .map_err(fault)?;
                self.show_membership();
                self.member.peers.follow(&planned);
                self.member.versions_changed.notify_one();
                self.say_change(&planned);
                Ok(Response::Members)
            }
        };
        Ok(Outcome {
            request_id: change.id,
            answer,
            events: None,
        })
    }

    /// One line per change of membership; and the end of this member if it is the one to go.
    fn say_change(&self, change: &PlannedChange) {
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
                if *id == self.member.identity.member_id {
                    self.member.stop_as_removed();
                }
            }
        }
    }

    fn replay_conf_change(&mut self, entry: &Entry) -> Result<(), ApplyFaultError> {
        if entry.r#type() != EntryType::EntryConfChange {
            return Ok(());
        }
        let index = entry.index;
        let mut change = ConfChange::decode(entry.data.clone())
            .map_err(|source| ApplyFaultError::Decode { index, source })?;
        // The store is ahead, so it knows what became of the change; a refused one must
        // not reach raft.
        let is_member = self.membership.get(change.node_id).is_some();
        let is_removal = change.r#type() == ConfChangeType::ConfChangeRemoveNode;
        if is_member == is_removal {
            change.node_id = 0;
        }
        self.member
            .consensus
            .apply_conf_change(&change)
            .map_err(|source| ApplyFaultError::ConfChange { index, source })?;
        Ok(())
    }
}
