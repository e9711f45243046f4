//! The core together with what is under way: writes, reads, effects.
//!
//! Whoever holds the lock on the engine may turn it: the clock thread, the disk
//! thread, a peer's connection, the apply thread. A turn feeds the core with
//! what waits and carries out what the core wants, until it wants nothing. That
//! saves the two thread changes per write that handing everything to one
//! consensus thread would cost.

use std::{collections::VecDeque, mem, sync::atomic::Ordering};

use bytes::Bytes;
use portunus_proto::raftpb::{Entry, HardState, Message, SnapshotMetadata};

use super::{
    errors::FatalError,
    inbox::Phase,
    member::Member,
    proposal::{Content, Proposal},
    reads::Answered,
};
use crate::core::{Core, Ready, Role};

/// Proposals that go to the disk in one write, in bytes. More wait for the next.
const WRITE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What an entry counts for besides its content: small ones have a limit too.
const ENTRY_BYTES: usize = 64;

/// One ready's share of a write.
struct Job {
    number: u64,
    snapshot: Option<SnapshotMetadata>,
    hard_state: Option<HardState>,
    entries: Vec<Entry>,
    /// To be sent once it is on disk.
    messages: Vec<Message>,
}

/// What goes to disk with one sync.
pub(super) struct Batch {
    jobs: VecDeque<Job>,
}

impl Batch {
    /// What to write to the log, in order; empty if nothing is to be written.
    pub(super) fn writes(&self) -> impl Iterator<Item = Write<'_>> {
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
}

/// What one ready adds to the log: the snapshot comes first.
pub(super) struct Write<'a> {
    pub(super) snapshot: Option<&'a SnapshotMetadata>,
    pub(super) hard_state: Option<&'a HardState>,
    pub(super) entries: &'a [Entry],
}

/// Permission to write something that is not a batch.
pub(super) struct IdleDisk {
    pub(super) unwritten_commit: Option<HardState>,
}

/// What a turn leaves to be done without the lock.
#[derive(Default)]
#[must_use]
pub(super) struct Effects {
    pub(super) answered: Vec<Answered>,
    pub(super) fatal: Option<FatalError>,
    pub(super) disk_has_work: bool,
}

pub(super) struct Engine {
    pub(super) core: Core,
    jobs: VecDeque<Job>,
    job_bytes: usize,
    /// The disk thread is writing; what it writes is not in `jobs` any more.
    pub(super) write_in_flight: bool,
    /// A commit index that is not in the log yet. It goes with the next write,
    /// as it is never worth one of its own.
    unwritten_commit: Option<HardState>,
    /// Index of the newest snapshot record in the log.
    pub(super) snapshot_index: u64,
    /// A membership change took effect, and its index is not applied yet.
    pub(super) conf_change_applying: bool,
    campaigned: bool,
}

impl Engine {
    pub(super) fn new(core: Core, snapshot_index: u64) -> Self {
        Self {
            // What was applied before a restart was committed, though the log may
            // not say so.
            unwritten_commit: Some(core.hard_state()),
            core,
            jobs: VecDeque::new(),
            job_bytes: 0,
            write_in_flight: false,
            snapshot_index,
            conf_change_applying: false,
            campaigned: false,
        }
    }

    /// Feeds the core and does what it wants, until it wants nothing.
    pub(super) fn turn(&mut self, member: &Member) -> Effects {
        let mut effects = Effects::default();
        loop {
            let applied = member.status.applied.load(Ordering::Acquire);
            if applied > self.core.applied_index() {
                if let Err(error) = self.core.applied(applied) {
                    effects.fatal = Some(error.into());
                    return effects;
                }
                self.conf_change_applying = false;
            }
            if member.config.leads_at_once_if_alone {
                self.campaign_if_alone();
            }
            self.take_proposals(member);
            let leader = self.core.current_leadership().leader;
            member
                .lock_reads()
                .begin(leader, |context| self.core.read_index(context).is_ok());

            let mut progressed = false;
            while let Some(ready) = self.core.ready() {
                progressed = true;
                self.carry_out(ready, member, &mut effects);
            }
            if !progressed {
                break;
            }
        }
        member.status.publish(&self.core);
        // As long as these wait for the state machine, it must tell at once.
        let eager = self.conf_change_applying || self.core.current_leadership().leader == 0;
        member.applied_is_urgent.store(eager, Ordering::Release);
        effects.disk_has_work = !self.jobs.is_empty() && !self.write_in_flight;
        effects
    }

    /// A sole voter need not wait for an election timeout. But an attempt looks
    /// at everything not applied yet, so not at every turn of a long replay.
    fn campaign_if_alone(&mut self) {
        let core = &mut self.core;
        if core.current_leadership().role == Role::Leader || !core.is_sole_voter() {
            return;
        }
        let has_caught_up = core.applied_index() == core.hard_state().commit;
        if has_caught_up || !mem::replace(&mut self.campaigned, true) {
            core.campaign_if_alone();
        }
    }

    fn take_proposals(&mut self, member: &Member) {
        // Without a leader they wait where they are.
        if self.core.current_leadership().leader == 0 || member.inbox.phase() == Phase::Ended {
            return;
        }
        let Some(room) = WRITE_BYTES_MAX
            .checked_sub(self.job_bytes)
            .filter(|room| *room > 0)
        else {
            return;
        };
        let leadership = self.core.current_leadership();
        let mut proposals = member.inbox.take_proposals(room);
        // From here on a proposal may be committed, or it is withdrawn and dropped.
        proposals.retain(|_, proposal| proposal.begin(leadership));
        while let Some((_, proposal)) = proposals.first_key_value() {
            let (count, result) = match &proposal.content {
                Content::ConfChange(change) => (1, self.core.propose_conf_change(change)),
                Content::Normal(_) => {
                    let run = proposals.values().map_while(Proposal::data);
                    let run: Vec<Bytes> = run.cloned().collect();
                    (run.len(), self.core.propose(run))
                }
            };
            if result.is_err() {
                // The leader is handing over; there will be another.
                member.inbox.put_back(proposals);
                return;
            }
            for _ in 0..count {
                proposals.pop_first();
            }
        }
    }

    fn carry_out(&mut self, ready: Ready, member: &Member, effects: &mut Effects) {
        member.status.publish(&self.core);
        if !ready.messages.is_empty() {
            member.hooks.peers.send(ready.messages);
        }
        for read in ready.reads {
            let answered = member.lock_reads().answer(read.context, read.index);
            effects.answered.extend(answered);
        }
        if let Some(leadership) = ready.leadership {
            let lost = member.lock_reads().leader_changed(leadership.leader);
            effects.answered.extend(lost);
            (member.hooks.on_leadership)(leadership);
        }
        let term = self.core.current_leadership().term;
        member.apply.push(ready.committed, term);

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
            // Nothing to write and nothing being written: it is on disk.
            self.finish([job].into(), member);
            return;
        }
        self.jobs.push_back(job);
    }

    fn finish(&mut self, mut jobs: VecDeque<Job>, member: &Member) {
        for snapshot in jobs.iter_mut().filter_map(|job| job.snapshot.take()) {
            // What was committed before it has been handed over, what comes after it is
            // not known to be committed before the call below.
            self.snapshot_index = snapshot.index;
            member.apply.push_snapshot(snapshot);
            member.status.publish_membership(&self.core);
        }
        if let Some(last) = jobs.back() {
            self.core.persisted(last.number);
        }
        let messages: Vec<_> = jobs.into_iter().flat_map(|job| job.messages).collect();
        if !messages.is_empty() {
            member.hooks.peers.send(messages);
        }
    }

    /// Everything that waits to be written.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        if self.jobs.is_empty() {
            return None;
        }
        self.write_in_flight = true;
        self.job_bytes = 0;
        Some(Batch {
            jobs: mem::take(&mut self.jobs),
        })
    }

    /// The batch is on disk.
    pub(super) fn finish_batch(&mut self, batch: Batch, member: &Member) {
        self.write_in_flight = false;
        self.finish(batch.jobs, member);
    }

    /// Claims the disk for something that is not a batch, and says which commit
    /// index is to be written first. Not while jobs wait: they come before it.
    pub(super) fn claim_idle_disk(&mut self) -> Option<IdleDisk> {
        if !self.jobs.is_empty() {
            return None;
        }
        self.write_in_flight = true;
        Some(IdleDisk {
            unwritten_commit: self.unwritten_commit.take(),
        })
    }
}
