//! The engine of one member: the raft core, and the writes and effects that are under way.
//!
//! ```text
//!  inputs                          Engine                        effects
//!  tick, step, propose,   ┌───────────────────────┐   messages, answers to reads, leadership,
//!  read_index, applied ──▶│ Core ─▶ Ready ─▶ jobs │──▶ committed entries, snapshots to install
//!                         └──────────▲────────┬───┘
//!                          finish_write     take_batch
//!                                    └─ disk ◀┘
//! ```
//! The engine decides what is written together, what may be sent before it is written and what
//! only afterwards. The caller carries out the effects: the threads of [`crate::start`] with a
//! disk and a network, the simulator with simulated ones. Both call [`Engine::advance`] until it
//! returns nothing.
//!
//! Invariants:
//! - A vote or an acknowledgement leaves the engine only when what it depends on is written.
//! - Batches are written in the order in which they were taken, one at a time.
//! - A commit index alone causes no write; it goes with the next one.
//! - Nothing here reads a clock, starts a thread, or touches a file or a socket.

use std::{collections::VecDeque, mem};

use bytes::Bytes;
use portunus_gates::cluster::MemberId;
use portunus_proto::{
    raftpb::{ConfChange, ConfState, Entry, HardState, Message, SnapshotMetadata},
    walpb,
};
use thiserror::Error;

use crate::core::{
    AppliedBeyondCommit, ConfChangeError, Core, DroppedError, Leadership, ReadState, Ready, Role,
    StepError,
};

/// The bytes of proposals that go to the disk in one write. More wait for the next.
pub const WRITE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The bytes that an entry counts for besides its content, so that small ones have a limit, too.
const ENTRY_BYTES: usize = 64;

/// One ready's share of a write.
#[derive(Debug, Clone)]
struct Job {
    number: u64,
    snapshot: Option<SnapshotMetadata>,
    hard_state: Option<HardState>,
    entries: Vec<Entry>,
    /// Messages to send once the job is written.
    messages: Vec<Message>,
}

/// The jobs that go to disk with one sync.
#[derive(Debug, Clone)]
pub struct Batch {
    jobs: VecDeque<Job>,
}

impl Batch {
    /// Returns what to write to the log, in order; nothing if no write is needed.
    pub fn writes(&self) -> impl Iterator<Item = Write<'_>> {
        self.jobs
            .iter()
            .map(|job| Write {
                snapshot: job.snapshot.as_ref(),
                hard_state: job.hard_state.as_ref(),
                entries: &job.entries,
            })
            .filter(|write| {
                write.snapshot.is_some() || write.hard_state.is_some() || !write.entries.is_empty()
            })
    }

    /// Returns the messages that [`Engine::finish_write`] releases.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.jobs.iter().flat_map(|job| &job.messages)
    }
}

/// The records that one ready adds to the log. The snapshot comes first.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// A record of the snapshot that replaces the log up to its index.
    pub snapshot: Option<&'a SnapshotMetadata>,
    /// Term, vote and commit index.
    pub hard_state: Option<&'a HardState>,
    /// Entries; they may replace a suffix of the log.
    pub entries: &'a [Entry],
}

/// The work of the caller, in the order of the fields.
#[derive(Debug, Default)]
#[must_use]
pub struct Effects {
    /// Messages to send now.
    pub messages: Vec<Message>,
    /// Answers to [`Engine::read_index`].
    pub reads: Vec<ReadState>,
    /// The leadership, if it changed.
    pub leadership: Option<Leadership>,
    /// Entries to apply, in order.
    pub committed: Vec<Entry>,
    /// Snapshots of the leader to install, after the entries.
    pub snapshots: Vec<SnapshotMetadata>,
}

/// A write that shortens the log, in this order.
#[derive(Debug)]
pub struct CompactionWrite {
    /// The commit index, which has to be in the log before the snapshot.
    pub hard_state: Option<HardState>,
    /// The record of the snapshot.
    pub snapshot: walpb::Snapshot,
}

/// Why the log is not shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompactionRefused {
    /// The state machine does not have the index yet.
    #[error("index {index} is not applied yet: {applied_index} is")]
    NotApplied {
        /// The requested index.
        index: u64,
        /// The index that is applied.
        applied_index: u64,
    },
    /// The log on disk starts after the index.
    #[error("the log starts after index {index}")]
    AlreadyCompacted {
        /// The requested index.
        index: u64,
    },
}

/// The raft core of one member with its writes under way.
pub struct Engine {
    core: Core,
    /// Whether a sole voter becomes the leader without waiting for an election timeout.
    leads_at_once_if_alone: bool,
    jobs: VecDeque<Job>,
    job_bytes: usize,
    /// A batch or a compaction was taken and is not finished.
    write_in_flight: bool,
    /// A commit index that is not in the log yet.
    unwritten_commit: Option<HardState>,
    /// The index of the newest snapshot record in the log.
    snapshot_index: u64,
    /// A configuration change took effect, and its index is not applied yet.
    conf_change_applying: bool,
    campaigned: bool,
}

impl Engine {
    /// Takes over a core whose log starts after `snapshot_index`.
    pub fn new(core: Core, snapshot_index: u64, leads_at_once_if_alone: bool) -> Engine {
        Engine {
            // Entries that were applied before a restart were committed, though the log may
            // hold an older commit index.
            unwritten_commit: Some(core.hard_state()),
            core,
            leads_at_once_if_alone,
            jobs: VecDeque::new(),
            job_bytes: 0,
            write_in_flight: false,
            snapshot_index,
            conf_change_applying: false,
            campaigned: false,
        }
    }

    /// The raft core, to read its state.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Whether a batch can be taken.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        !self.jobs.is_empty() && !self.write_in_flight
    }

    /// Whether raft waits for the next applied index. Otherwise the caller may report it with
    /// its next input.
    #[must_use]
    pub fn applied_is_urgent(&self) -> bool {
        self.conf_change_applying || self.core.current_leadership().leader == MemberId::NONE
    }

    /// Reports that everything up to `index` is applied. Earlier indexes are ignored.
    ///
    /// # Errors
    /// If the index is not committed.
    pub fn applied(&mut self, index: u64) -> Result<(), AppliedBeyondCommit> {
        if index > self.core.applied_index() {
            self.core.applied(index)?;
            self.conf_change_applying = false;
        }
        Ok(())
    }

    /// Lets one tick pass.
    pub fn tick(&mut self) {
        self.core.tick();
    }

    /// Takes a message from a peer.
    ///
    /// # Errors
    /// If raft refuses it.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        self.core.step(message)
    }

    /// Returns how many bytes of proposals can be taken now; `None` without a leader or room.
    #[must_use]
    pub fn proposal_room(&self) -> Option<usize> {
        if self.core.current_leadership().leader == MemberId::NONE {
            return None;
        }
        let room = WRITE_BYTES_MAX.checked_sub(self.job_bytes);
        room.filter(|room| *room > 0)
    }

    /// Proposes entries.
    ///
    /// # Errors
    /// If raft takes none of them at the moment.
    pub fn propose(&mut self, data: Vec<Bytes>) -> Result<(), DroppedError> {
        self.core.propose(data)
    }

    /// Proposes a configuration change.
    ///
    /// # Errors
    /// If raft does not take it at the moment.
    pub fn propose_conf_change(&mut self, change: &ConfChange) -> Result<(), DroppedError> {
        self.core.propose_conf_change(change)
    }

    /// Requests an index at which a linearizable read may be served; see [`Effects::reads`].
    ///
    /// # Errors
    /// If raft does not take the request at the moment.
    pub fn read_index(&mut self, context: u64) -> Result<(), DroppedError> {
        self.core.read_index(context)
    }

    /// Makes a committed configuration change take effect. Returns the configuration after it.
    ///
    /// # Errors
    /// If the change is impossible; the configuration stays as it was.
    pub fn apply_conf_change(&mut self, change: &ConfChange) -> Result<ConfState, ConfChangeError> {
        let result = self.core.apply_conf_change(change);
        self.conf_change_applying = true;
        result
    }

    /// Hands leadership to another voter, if this member leads.
    pub fn transfer_leader(&mut self, to: u64) {
        self.core.transfer_leader(to);
    }

    /// Reports that a peer could not be reached.
    pub fn report_unreachable(&mut self, id: u64) {
        self.core.report_unreachable(id);
    }

    /// Reports whether a snapshot has arrived at a peer.
    pub fn report_snapshot(&mut self, id: u64, delivered: bool) {
        self.core.report_snapshot(id, delivered);
    }

    /// Campaigns if this member is the sole voter and is to lead at once. An attempt examines
    /// every entry that is not applied, so a long replay has one at its beginning and one at its
    /// end.
    pub fn campaign_if_alone(&mut self) {
        let core = &mut self.core;
        if !self.leads_at_once_if_alone
            || core.current_leadership().role == Role::Leader
            || !core.is_sole_voter()
        {
            return;
        }
        let has_caught_up = core.applied_index() == core.hard_state().commit;
        if has_caught_up || !mem::replace(&mut self.campaigned, true) {
            core.campaign_if_alone();
        }
    }

    /// Returns the next effects of the inputs so far; `None` if there are none.
    pub fn advance(&mut self) -> Option<Effects> {
        let ready = self.core.ready()?;
        Some(self.take(ready))
    }

    fn take(&mut self, ready: Ready) -> Effects {
        let mut effects = Effects {
            messages: ready.messages,
            reads: ready.reads,
            leadership: ready.leadership,
            committed: ready.committed,
            snapshots: Vec::new(),
        };
        let mut job = Job {
            number: ready.number,
            snapshot: ready.snapshot,
            hard_state: None,
            entries: ready.entries,
            messages: ready.messages_after_persist,
        };
        if ready.hard_state.is_some() {
            self.unwritten_commit = ready.hard_state;
        }
        if ready.must_sync {
            job.hard_state = self.unwritten_commit.take();
            let entry_bytes = |entry: &Entry| entry.data.len() + ENTRY_BYTES;
            self.job_bytes += job.entries.iter().map(entry_bytes).sum::<usize>();
        } else if self.jobs.is_empty() && !self.write_in_flight {
            // Nothing to write and nothing being written.
            self.finish([job].into(), &mut effects);
            return effects;
        }
        self.jobs.push_back(job);
        effects
    }

    fn finish(&mut self, mut jobs: VecDeque<Job>, effects: &mut Effects) {
        for snapshot in jobs.iter_mut().filter_map(|job| job.snapshot.take()) {
            // Entries before it have been handed over; entries after it are not committed, as
            // far as the core knows, before the call below.
            self.snapshot_index = snapshot.index;
            effects.snapshots.push(snapshot);
        }
        if let Some(last) = jobs.back() {
            self.core.persisted(last.number);
        }
        let messages = jobs.into_iter().flat_map(|job| job.messages);
        effects.messages.extend(messages);
    }

    /// Takes everything that waits to be written; `None` if there is nothing. The caller writes
    /// the batch, syncs the log once and calls [`Engine::finish_write`], before it takes the
    /// next one.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.jobs.is_empty() {
            return None;
        }
        self.write_in_flight = true;
        self.job_bytes = 0;
        Some(Batch {
            jobs: mem::take(&mut self.jobs),
        })
    }

    /// Reports that a batch is durable.
    pub fn finish_write(&mut self, batch: Batch) -> Effects {
        self.write_in_flight = false;
        let mut effects = Effects::default();
        self.finish(batch.jobs, &mut effects);
        effects
    }

    /// Takes the commit index that is not in the log, before the log is closed. The outer `None`
    /// means that a batch has to be written first.
    pub fn take_last_commit(&mut self) -> Option<Option<HardState>> {
        if !self.jobs.is_empty() {
            return None;
        }
        self.write_in_flight = true;
        Some(self.unwritten_commit.take())
    }

    /// Begins to shorten the log to `index`, whose configuration is `conf_state`. `Ok(None)`
    /// means that a batch has to be written first. The caller writes what is returned, removes
    /// old segments and calls [`Engine::finish_compaction`].
    ///
    /// # Errors
    /// If the log cannot be shortened to this index.
    pub fn begin_compaction(
        &mut self,
        index: u64,
        conf_state: &ConfState,
    ) -> Result<Option<CompactionWrite>, CompactionRefused> {
        let applied_index = self.core.applied_index();
        if index > applied_index {
            return Err(CompactionRefused::NotApplied {
                index,
                applied_index,
            });
        }
        let term = self.core.term_of(index);
        let Some(term) = term.filter(|_| index > self.snapshot_index) else {
            return Err(CompactionRefused::AlreadyCompacted { index });
        };
        let Some(hard_state) = self.take_last_commit() else {
            return Ok(None);
        };
        self.snapshot_index = index;
        let snapshot = walpb::Snapshot {
            index,
            term,
            conf_state: Some(conf_state.clone()),
        };
        Ok(Some(CompactionWrite {
            hard_state,
            snapshot,
        }))
    }

    /// Reports that the log is shortened on disk, and forgets entries in memory up to
    /// `forget_to`. Returns the index after which the log in memory starts.
    pub fn finish_compaction(&mut self, forget_to: u64) -> u64 {
        self.write_in_flight = false;
        self.core.compact(forget_to)
    }

    /// Forgets entries in memory up to `forget_to`, where the log on disk is short enough.
    pub fn forget_in_memory(&mut self, forget_to: u64) {
        self.core.compact(forget_to);
    }
}
