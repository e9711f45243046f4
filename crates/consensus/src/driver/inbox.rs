//! What waits for the driver's threads: proposals, compactions, calls to wake up.
//!
//! Taking a proposal costs one short lock and, only if the thread in question
//! sleeps, one wake. While the disk is busy with one batch, everything that
//! arrives gathers here and becomes the next.

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

/// Proposals in the order in which they came, by number.
pub(super) type Proposals = BTreeMap<u64, Proposal>;

pub(super) struct CompactionRequest {
    pub(super) index: u64,
    pub(super) conf_state: ConfState,
    pub(super) keep: Keep,
    pub(super) reply: SyncSender<Result<Compacted, CompactError>>,
}

/// How far the driver is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Running,
    /// Takes nothing new, finishes what it has.
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
    /// Somebody called since the thread last woke. Further calls cost nothing.
    disk_called: bool,
    clock_called: bool,
}

#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    disk: Condvar,
    clock: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a proposal and calls a thread to take it: the disk thread if this
    /// member is alone, as then nothing but the disk stands between a proposal
    /// and its commit. Returns the proposal's number, which is not 0.
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
        // A proposal larger than the limit may go if it is alone.
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
            self.call_clock_locked(state);
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

    /// Gives back what could not be proposed, to its old place. What was withdrawn meanwhile
    /// is dropped.
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
        // After the end nobody would take it, and the caller would wait forever.
        if state.phase != Phase::Ended {
            state.compactions.push_front(request);
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Moves on to a later phase and tells everybody. False if it was there or
    /// beyond already.
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
                // Whoever waits for a compaction hears that it will not come.
                state.compactions.clear();
                state.proposals.clear();
                state.proposal_bytes = 0;
            }
            state.disk_called = true;
            state.clock_called = true;
            drop(state);
            self.disk.notify_all();
            self.clock.notify_all();
        }
        is_later
    }

    pub(super) fn call_disk(&self) {
        self.call_disk_locked(self.lock());
    }

    pub(super) fn call_clock(&self) {
        self.call_clock_locked(self.lock());
    }

    fn call_disk_locked(&self, mut state: MutexGuard<'_, State>) {
        let called_before = std::mem::replace(&mut state.disk_called, true);
        drop(state);
        if !called_before {
            self.disk.notify_one();
        }
    }

    fn call_clock_locked(&self, mut state: MutexGuard<'_, State>) {
        let called_before = std::mem::replace(&mut state.clock_called, true);
        drop(state);
        if !called_before {
            self.clock.notify_one();
        }
    }

    /// The disk thread sleeps until called.
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

    /// The clock thread sleeps until called or until the next tick is due.
    pub(super) fn wait_for_clock_call(&self, deadline: Instant) -> Phase {
        let mut state = self.lock();
        while !state.clock_called {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .clock
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.clock_called = false;
        state.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Leadership;

    /// The engine takes proposals before it knows whether raft does. One that its proposer
    /// gives up in between must not come back to the queue.
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
            term: 5,
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
