//! The server's interface to its consensus.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use portunus_gates::cluster::MemberId;
use portunus_proto::{
    Term,
    raftpb::{ConfChange, ConfState, Message},
};

use super::{
    compaction::{Compacted, Keep},
    errors::{CompactError, FatalError, ProposeError},
    inbox::{CompactionRequest, Phase},
    member::Member,
    proposal::{Proposal, ProposalTicket},
    reads::{Answered, ReadIndexFuture},
    status::Status,
};
use crate::core::{ConfChangeError, StepError};

/// A handle to the consensus of a member. When the last clone is dropped, the threads stop at
/// once, as in a crash; [`Self::stop`] is the orderly way.
#[derive(Clone)]
pub struct Handle {
    member: Arc<Member>,
    owner: Arc<Owner>,
}

/// Held by handles only, so that it is dropped with the last handle.
struct Owner {
    member: Arc<Member>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.member.end();
    }
}

impl Handle {
    pub(super) fn new(member: Arc<Member>, threads: Vec<JoinHandle<()>>) -> Self {
        Self {
            owner: Arc::new(Owner {
                member: Arc::clone(&member),
                threads: Mutex::new(threads),
            }),
            member,
        }
    }

    /// Queues a proposal for the log, here or at the leader. Never blocks. It is committed when
    /// it is applied, or never: it may get lost with its leader. Without a leader it waits for
    /// one, but only as long as the ticket is kept.
    ///
    /// # Errors
    /// If it was not queued.
    pub fn submit(&self, proposal: Proposal) -> Result<ProposalTicket, ProposeError> {
        let member = &self.member;
        let progress = proposal.progress();
        let number = member
            .inbox
            .propose(proposal, &member.config, member.status.is_alone())?;
        Ok(ProposalTicket::new(member, number, progress))
    }

    /// Queues an entry without a waiter. Without a leader the entry stays queued until there is one.
    ///
    /// # Errors
    /// If it was not queued.
    pub fn propose(&self, data: Bytes) -> Result<(), ProposeError> {
        self.submit(Proposal::normal(data))
            .map(ProposalTicket::detach)
    }

    /// Like [`Self::propose`], for a membership change.
    ///
    /// # Errors
    /// If it was not queued.
    pub fn propose_conf_change(&self, change: ConfChange) -> Result<(), ProposeError> {
        self.submit(Proposal::conf_change(change))
            .map(ProposalTicket::detach)
    }

    /// Returns an index such that a read is linearizable once that index is applied. A sole
    /// voter has it at once.
    pub fn read_index(&self) -> ReadIndexFuture {
        if let Some(index) = self.member.status.lone_read_index() {
            return ReadIndexFuture::answered(Ok(index));
        }
        let (future, is_first) = self.member.lock_reads().join();
        if is_first {
            self.member.inbox.call_turn();
        }
        future
    }

    /// Returns the status of the member. Costs a few loads.
    #[must_use]
    pub fn status(&self) -> Status {
        self.member.status.load()
    }

    /// Returns the term this member leads, as far as it knows; `None` if it does not lead.
    #[must_use]
    pub fn led_term(&self) -> Option<Term> {
        self.member.status.led_term()
    }

    /// Advances the clock by up to `ticks`, until a leader is known, to bring an election
    /// forward.
    pub fn skip_ticks_without_leader(&self, ticks: usize) {
        self.member.with_engine(|engine| {
            for _ in 0..ticks {
                if engine.core().current_leadership().leader != MemberId::NONE {
                    break;
                }
                engine.tick();
            }
        });
    }

    /// Returns the time since the last tick, which is long if the machine or this process was
    /// paused.
    #[must_use]
    pub fn since_last_tick(&self) -> Duration {
        self.member.status.since_last_tick()
    }

    /// Fails every waiting read, and every later one, with `Stopped`.
    pub fn refuse_reads(&self) {
        let answered = self.member.lock_reads().stop();
        answered.into_iter().for_each(Answered::deliver);
    }

    /// Reports that all entries up to `index` are applied. Once per batch is enough.
    pub fn applied(&self, index: u64) {
        self.member.report_applied(index);
    }

    /// Makes a committed membership change take effect. The apply thread calls it for each such
    /// entry, before it reports the index as applied. A change that the state machine refuses
    /// is passed with `node_id` 0, which changes nothing. Returns the members after the change.
    ///
    /// # Errors
    /// If the change is impossible; the members stay as they were.
    pub fn apply_conf_change(&self, change: &ConfChange) -> Result<ConfState, ConfChangeError> {
        self.member.with_engine(|engine| {
            let result = engine.apply_conf_change(change);
            self.member.status.publish_membership(engine.core());
            result
        })
    }

    /// Records in the log that the backend holds everything up to `index` durably, and removes
    /// what is not needed any more. `conf_state` is that of `index`. Blocks for a sync; call it
    /// from a background thread.
    ///
    /// # Errors
    /// If `index` cannot be compacted. A failing disk is fatal as always.
    pub fn compact_log(
        &self,
        index: u64,
        conf_state: ConfState,
    ) -> Result<Compacted, CompactError> {
        self.shorten_log(index, conf_state, Keep::CatchUpEntries)
    }

    /// Compacts like [`Handle::compact_log`], and keeps no entries for members that are behind:
    /// they get a snapshot and never see an entry up to `index`.
    ///
    /// # Errors
    /// As [`Handle::compact_log`].
    pub fn forget_log(&self, index: u64, conf_state: ConfState) -> Result<Compacted, CompactError> {
        self.shorten_log(index, conf_state, Keep::Nothing)
    }

    fn shorten_log(
        &self,
        index: u64,
        conf_state: ConfState,
        keep: Keep,
    ) -> Result<Compacted, CompactError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.member.inbox.request_compaction(CompactionRequest {
            index,
            conf_state,
            keep,
            reply,
        })?;
        answer.recv().unwrap_or(Err(CompactError::Stopped))
    }

    /// Transfers leadership to another voter, if this member leads.
    pub fn transfer_leader(&self, to: u64) {
        self.member.with_engine(|engine| engine.transfer_leader(to));
    }

    /// Takes a message from a peer.
    ///
    /// # Errors
    /// If it was not taken.
    pub fn step(&self, message: Message) -> Result<(), StepError> {
        if self.member.inbox.phase() != Phase::Running {
            return Err(StepError::Stopped);
        }
        let stepped = self.member.with_engine(|engine| engine.step(message));
        if let Err(StepError::LogLost(lost)) = stepped {
            self.member.fail(FatalError::LogLost(lost));
        }
        stepped
    }

    /// Indexes of the snapshots given to [`Self::step`] that are still to be installed.
    #[must_use]
    pub fn pending_snapshots(&self) -> Vec<u64> {
        self.member.lock_engine().core().pending_snapshots()
    }

    /// Returns the last index that a member is known to have in its log; only the leader knows
    /// it.
    #[must_use]
    pub fn matched(&self, id: u64) -> Option<u64> {
        self.member.lock_engine().core().matched(id)
    }

    /// Reports that a peer is unreachable.
    pub fn report_unreachable(&self, id: u64) {
        self.member
            .with_engine(|engine| engine.report_unreachable(id));
    }

    /// Reports whether a snapshot was delivered to a peer.
    pub fn report_snapshot(&self, id: u64, delivered: bool) {
        self.member
            .with_engine(|engine| engine.report_snapshot(id, delivered));
    }

    /// Writes what was accepted, refuses new work, and waits for the threads. Entries committed
    /// by then can still be received.
    pub fn stop(&self) {
        self.member.inbox.advance(Phase::Draining);
        // The apply thread may be the caller; then it makes no room.
        self.member.apply.stop_waiting();
        let threads = std::mem::take(
            &mut *self
                .owner
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for thread in threads {
            if thread.thread().id() != thread::current().id() {
                // A panic was reported as fatal already.
                let _ = thread.join();
            }
        }
    }
}
