//! What waits for the driver's threads: proposals, compactions, calls to wake up.
//!
//! Taking a proposal costs one short lock and, only if the thread in question
//! sleeps, one wake. While the disk is busy with one batch, everything that
//! arrives gathers here and becomes the next.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    time::Instant,
};

use bytes::Bytes;
use portunus_proto::raftpb::{ConfChange, ConfState};

use super::{
    compaction::{Compacted, Keep},
    config::Config,
    errors::{CompactError, ProposeError},
};

/// What a membership change counts for in the queue, in bytes.
const CONF_CHANGE_BYTES: usize = 1024;

#[derive(Debug, Clone)]
pub(super) enum Proposal {
    Normal(Bytes),
    ConfChange(ConfChange),
}

impl Proposal {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Normal(data) => data.len(),
            Self::ConfChange(_) => CONF_CHANGE_BYTES,
        }
    }
}

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
    proposals: VecDeque<Proposal>,
    proposal_bytes: usize,
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
    /// and its commit.
    pub(super) fn propose(
        &self,
        proposal: Proposal,
        config: &Config,
        is_alone: bool,
    ) -> Result<(), ProposeError> {
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
        state.proposals.push_back(proposal);
        if is_alone {
            self.call_disk_locked(state);
        } else {
            self.call_clock_locked(state);
        }
        Ok(())
    }

    /// Takes proposals up to a size, at least one.
    pub(super) fn take_proposals(&self, bytes_max: usize) -> Vec<Proposal> {
        let mut state = self.lock();
        let mut bytes = 0;
        let mut count = 0;
        for proposal in &state.proposals {
            if count > 0 && bytes + proposal.bytes() > bytes_max {
                break;
            }
            bytes += proposal.bytes();
            count += 1;
        }
        state.proposal_bytes -= bytes;
        state.proposals.drain(..count).collect()
    }

    /// Gives back, in front, what could not be proposed.
    pub(super) fn put_back(&self, proposals: Vec<Proposal>) {
        let mut state = self.lock();
        for proposal in proposals.into_iter().rev() {
            state.proposal_bytes += proposal.bytes();
            state.proposals.push_front(proposal);
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
