//! The queues of the driver's threads: proposals, compactions, wake-ups.
//!
//! Queuing a proposal costs one short lock and, only if the thread in question sleeps, one
//! wake-up. While the disk writes one batch, arriving proposals are queued here and become the
//! next.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    time::Instant,
};

use portunus_proto::raftpb::ConfState;

use super::{
    compaction::{Compacted, Keep},
    config::Config,
    errors::{CompactError, ProposeError},
    proposal::Proposal,
};

/// Proposals in the order of their arrival, by number.
pub(super) type Proposals = BTreeMap<u64, Proposal>;

pub(super) struct CompactionRequest {
    pub(super) index: u64,
    pub(super) conf_state: ConfState,
    pub(super) keep: Keep,
    pub(super) reply: SyncSender<Result<Compacted, CompactError>>,
}

/// The phase in the life of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Running,
    /// Accepts no new work, finishes what it has.
    Draining,
    /// Writes nothing any more.
    Ended,
}

#[derive(Default)]
struct State {
    phase: Phase,
    proposals: Proposals,
    proposal_bytes: usize,
    last_proposal: u64,
    compactions: VecDeque<CompactionRequest>,
    /// The thread was called since it last woke. Further calls cost nothing.
    disk_called: bool,
    turn_called: bool,
}

#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    disk: Condvar,
    turn: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a proposal and wakes a thread to take it: the disk thread if this member is the
    /// sole voter, as then only the disk delays the commit; otherwise the turn thread, so that
    /// entries go to the peers while the disk is still writing. Returns the proposal's number,
    /// which is not 0.
    pub(super) fn propose(
        &self,
        proposal: Proposal,
        config: &Config,
        is_alone: bool,
    ) -> Result<u64, ProposeError> {
        let bytes = proposal.bytes();
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(ProposeError::Stopped);
        }
        let entries = state.proposals.len();
        // A proposal larger than the limit is accepted if it is the only one.
        let too_large = state.proposal_bytes.saturating_add(bytes)
            > config.proposal_queue_bytes_max
            && entries > 0;
        if too_large || entries >= config.proposal_queue_entries_max {
            return Err(ProposeError::Overloaded {
                entries,
                bytes: state.proposal_bytes,
            });
        }
        state.proposal_bytes += bytes;
        state.last_proposal += 1;
        let number = state.last_proposal;
        state.proposals.insert(number, proposal);
        if is_alone {
            self.call_disk_locked(state);
        } else {
            self.call_turn_locked(state);
        }
        Ok(number)
    }

    /// Takes proposals up to a size, at least one.
    pub(super) fn take_proposals(&self, bytes_max: usize) -> Proposals {
        let mut state = self.lock();
        let mut bytes = 0;
        let mut first_left = None;
        for (number, proposal) in &state.proposals {
            if bytes > 0 && bytes + proposal.bytes() > bytes_max {
                first_left = Some(*number);
                break;
            }
            bytes += proposal.bytes();
        }
        state.proposal_bytes -= bytes;
        let left = first_left.map(|number| state.proposals.split_off(&number));
        mem::replace(&mut state.proposals, left.unwrap_or_default())
    }

    /// Returns proposals that could not be proposed to their old place. Those withdrawn
    /// meanwhile are dropped.
    pub(super) fn put_back(&self, proposals: impl IntoIterator<Item = (u64, Proposal)>) {
        let mut state = self.lock();
        if state.phase == Phase::Ended {
            return;
        }
        for (number, proposal) in proposals {
            // Under the lock: a ticket that withdraws it later finds it in the queue.
            if proposal.undo() {
                state.proposal_bytes += proposal.bytes();
                state.proposals.insert(number, proposal);
            }
        }
    }

    /// Removes a proposal that was withdrawn, unless it is being taken.
    pub(super) fn remove_proposal(&self, number: u64) {
        let mut state = self.lock();
        if let Some(proposal) = state.proposals.remove(&number) {
            state.proposal_bytes -= proposal.bytes();
        }
    }

    pub(super) fn request_compaction(
        &self,
        request: CompactionRequest,
    ) -> Result<(), CompactError> {
        let mut state = self.lock();
        if state.phase != Phase::Running {
            return Err(CompactError::Stopped);
        }
        state.compactions.push_back(request);
        self.call_disk_locked(state);
        Ok(())
    }

    pub(super) fn take_compaction(&self) -> Option<CompactionRequest> {
        self.lock().compactions.pop_front()
    }

    pub(super) fn put_back_compaction(&self, request: CompactionRequest) {
        let mut state = self.lock();
        // After the end no thread would take it, and the caller would wait forever.
        if state.phase != Phase::Ended {
            state.compactions.push_front(request);
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Advances to a later phase and wakes both threads. False if the phase was reached before.
    pub(super) fn advance(&self, phase: Phase) -> bool {
        let mut state = self.lock();
        let is_later = match phase {
            Phase::Running => false,
            Phase::Draining => state.phase == Phase::Running,
            Phase::Ended => state.phase != Phase::Ended,
        };
        if is_later {
            state.phase = phase;
            if phase == Phase::Ended {
                // Dropping the requests ends their callers' waits.
                state.compactions.clear();
                state.proposals.clear();
                state.proposal_bytes = 0;
            }
            state.disk_called = true;
            state.turn_called = true;
            drop(state);
            self.disk.notify_all();
            self.turn.notify_all();
        }
        is_later
    }

    pub(super) fn call_disk(&self) {
        self.call_disk_locked(self.lock());
    }

    pub(super) fn call_turn(&self) {
        self.call_turn_locked(self.lock());
    }

    fn call_disk_locked(&self, mut state: MutexGuard<'_, State>) {
        let called_before = std::mem::replace(&mut state.disk_called, true);
        drop(state);
        if !called_before {
            self.disk.notify_one();
        }
    }

    fn call_turn_locked(&self, mut state: MutexGuard<'_, State>) {
        let called_before = std::mem::replace(&mut state.turn_called, true);
        drop(state);
        if !called_before {
            self.turn.notify_one();
        }
    }

    /// Blocks the disk thread until it is called.
    pub(super) fn wait_for_disk_call(&self) -> Phase {
        let mut state = self.lock();
        while !state.disk_called {
            state = self
                .disk
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.disk_called = false;
        state.phase
    }

    /// Blocks the turn thread until it is called or the next tick is due.
    pub(super) fn wait_for_turn_call(&self, deadline: Instant) -> Phase {
        let mut state = self.lock();
        while !state.turn_called {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .turn
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.turn_called = false;
        state.phase
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::Term;

    use super::*;
    use crate::core::Leadership;

    /// The engine takes proposals before raft accepts them. One that its proposer withdraws in
    /// between must not return to the queue.
    #[test]
    fn proposal_withdrawn_while_it_is_taken_is_not_put_back() {
        let inbox = Inbox::default();
        let config = Config::default();
        let numbers: Vec<u64> = (0..3)
            .map(|_| {
                let proposal = Proposal::normal(vec![7; 10].into());
                inbox.propose(proposal, &config, false).unwrap()
            })
            .collect();
        let taken = inbox.take_proposals(usize::MAX);
        let leadership = Leadership {
            term: Term(5),
            ..Leadership::default()
        };
        assert!(taken.values().all(|proposal| proposal.begin(leadership)));
        assert!(!taken[&numbers[1]].progress().withdraw(), "maybe proposed");
        inbox.remove_proposal(numbers[1]);
        inbox.put_back(taken);
        let left = inbox.take_proposals(usize::MAX);
        assert_eq!(
            left.keys().copied().collect::<Vec<_>>(),
            [numbers[0], numbers[2]]
        );
        assert_eq!(inbox.lock().proposal_bytes, 0);
        assert!(left.values().all(|left| left.progress().term().is_none()));
    }
}
