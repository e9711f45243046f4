//! The consensus side of a member: turns of the engine, writes to the log, messages.

use portunus_consensus::Role;
use portunus_consensus::core::Core;
use portunus_consensus::engine::{Batch, Effects, Engine};
use portunus_proto::LogIndex;
use portunus_proto::Term;
use portunus_proto::raftpb::{Message, MessageType};
use portunus_proto::walpb;
use portunus_wal::WriteError;

use super::super::planted::PlantedBug;
use super::super::shadow::Shadow;
use super::super::violation::Violation;
use super::{Member, Running, Surroundings, ToApply, WriteInFlight, gates};

impl Member {
    /// Writes the queued jobs. Returns true if there were any.
    pub(in super::super) fn write(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Violation> {
        let id = self.id;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        if running.in_flight.is_some() {
            return Ok(false);
        }
        let taken = running.taken_early.take();
        let Some(batch) = taken.or_else(|| running.engine.take_batch()) else {
            return Ok(false);
        };
        let bug = around.bug;
        let previous_terms = previous_terms(&batch, running.core());
        let write = |running: &mut Running, shadow: &mut Shadow, batch: &Batch| {
            running
                .write_batch(batch, shadow, bug)
                .map_err(|source| Violation::Write { id, source })
        };
        if around.has(PlantedBug::AcknowledgesBeforeWriting) {
            let effects = running.engine.finish_write(batch.clone());
            running.outbox.extend(effects.messages);
            let snapshots = effects.snapshots.into_iter();
            running.to_apply.extend(snapshots.map(ToApply::Snapshot));
            running.turn(&self.shadow, around)?;
            let result = write(running, &mut self.shadow, &batch);
            running.in_flight = Some(WriteInFlight::Reported);
            return result.map(|()| true);
        }
        write(running, &mut self.shadow, &batch)?;
        for (write, previous_term) in batch.writes().zip(previous_terms) {
            around.invariants.in_log(id, write.entries, previous_term)?;
        }
        running.in_flight = Some(WriteInFlight::Batch(batch));
        Ok(true)
    }

    /// Reports the written batch to the engine.
    pub(in super::super) fn finish_write(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        if let Some(running) = &mut self.running
            && let Some(in_flight) = running.in_flight.take()
        {
            if let WriteInFlight::Batch(batch) = in_flight {
                let effects = running.engine.finish_write(batch);
                running.carry_out(effects, &self.shadow, around)?;
            }
            running.turn(&self.shadow, around)?;
        }
        Ok(())
    }

    /// Compacts the log up to the durable applied index. Returns true if it did.
    pub(in super::super) fn compact_log(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Violation> {
        let id = self.id;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        let (index, conf_state) = match around.has(PlantedBug::CompactsTooFar) {
            true => {
                let position = running.replica.position();
                (position.index, position.conf_state)
            }
            false => (self.durable.index, self.durable.conf_state.clone()),
        };
        if running.in_flight.is_some() || running.taken_early.is_some() {
            return Ok(false);
        }
        let Ok(Some(write)) = running.engine.begin_compaction(index, &conf_state) else {
            return Ok(false);
        };
        let written = running
            .wal
            .append(write.hard_state.as_ref(), &[])
            .and_then(|_| running.wal.save_snapshot(&write.snapshot));
        written.map_err(|source| Violation::Write { id, source })?;
        self.shadow
            .synced(running.wal.hard_state(), running.wal.last_index());
        if running.wal.release_to(index).is_err() {
            // Fails only by a power loss, which the next call detects.
            return Ok(true);
        }
        let mut keep = around.scenario.catch_up_entries;
        if let Some(request) = &running.replica.shorten_log
            && request.index <= index
        {
            keep = if request.keeps_no_entries { 0 } else { keep };
            running.replica.shorten_log = None;
        }
        running.engine.finish_compaction(index.saturating_sub(keep));
        Ok(true)
    }

    /// Gives the engine an input and carries out the effects.
    pub(in super::super) fn act<R>(
        &mut self,
        around: &mut Surroundings<'_>,
        act: impl FnOnce(&mut Engine) -> R,
    ) -> Result<Option<R>, Violation> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        running.turn(&self.shadow, around)?;
        let result = act(&mut running.engine);
        running.turn(&self.shadow, around)?;
        Ok(Some(result))
    }
}

impl Running {
    pub(in super::super) fn core(&self) -> &Core {
        self.engine.core()
    }

    pub(in super::super) fn is_leader(&self) -> bool {
        self.core().current_leadership().role == Role::Leader
    }

    pub(in super::super) fn disk_has_work(&self) -> bool {
        self.taken_early.is_some() || self.engine.has_batch()
    }

    /// Feeds the engine and carries out its effects, until there are none.
    pub(super) fn turn(
        &mut self,
        shadow: &Shadow,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let id = self.core().id();
        loop {
            self.engine
                .applied(self.replica.applied_index())
                .map_err(|source| Violation::Applied { id, source })?;
            self.engine.campaign_if_alone();
            self.take_requests(around);
            let mut progressed = false;
            while let Some(effects) = self.engine.advance() {
                progressed = true;
                self.carry_out(effects, shadow, around)?;
            }
            if !progressed {
                break;
            }
        }
        let is_bug = around.has(PlantedBug::SendsBeforePersisting);
        if is_bug && self.engine.has_batch() {
            self.taken_early = self.engine.take_batch();
            let messages = self.taken_early.iter().flat_map(Batch::messages);
            self.outbox.extend(messages.cloned());
        }
        let state = self.core().hard_state();
        if state.commit > self.seen_commit {
            let known = self.seen_commit + 1..=state.commit;
            let core = self.engine.core();
            around
                .invariants
                .commits(id, known, state.term, |index| core.term_of(index))?;
            self.seen_commit = state.commit;
        }
        self.serve_reads();
        Ok(())
    }

    fn carry_out(
        &mut self,
        effects: Effects,
        shadow: &Shadow,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let core = self.engine.core();
        let id = core.id();
        if let Some(leadership) = effects.leadership {
            if leadership.role == Role::Leader {
                // Entries before the log were committed: they are applied here, or in a snapshot
                // that is being installed.
                let starts_after = (0..=core.hard_state().commit)
                    .rev()
                    .find(|index| core.term_of(*index).is_none())
                    .unwrap_or(0);
                let term_of = |index| core.term_of(index);
                let Term(term) = leadership.term;
                around.invariants.leads(id, term, term_of, starts_after)?;
            }
            // A follower may have led its term before, but never will again; a candidate may.
            let closed_term = match leadership.role {
                Role::Follower | Role::PreCandidate => leadership.term,
                Role::Candidate | Role::Leader => Term(leadership.term.0.saturating_sub(1)),
            };
            if !around.has(PlantedBug::RevokesAfterLosingLeadership) {
                self.replica.machine.lessor().lock().demote(closed_term);
            }
        }
        for read in &effects.reads {
            let LogIndex(index) = read.index;
            around.invariants.answers(id, read.context, index)?;
            self.confirm_read(read.context, index);
        }
        self.send(effects.messages, shadow, around)?;
        let newest = effects.committed.iter().rev().find_map(gates::decided_by);
        if let Some(newest) = newest {
            self.newest_features = newest;
        }
        let committed = effects.committed.into_iter().map(ToApply::Entry);
        let snapshots = effects.snapshots.into_iter().map(ToApply::Snapshot);
        self.to_apply.extend(committed.chain(snapshots));
        Ok(())
    }

    /// Sends messages; checks that the state they depend on is durable.
    fn send(
        &mut self,
        messages: Vec<Message>,
        shadow: &Shadow,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        for message in &messages {
            check_durable(message, shadow)?;
            let id = message.from;
            if message.r#type() == MessageType::MsgApp {
                let previous = Some(message.log_term);
                around.invariants.in_log(id, &message.entries, previous)?;
            }
            match message.r#type() {
                MessageType::MsgVote => {
                    around
                        .invariants
                        .votes(message.from, message.term, message.from)?;
                }
                MessageType::MsgVoteResp if !message.reject => {
                    around
                        .invariants
                        .votes(message.from, message.term, message.to)?;
                }
                _ => {}
            }
        }
        self.outbox.extend(messages);
        Ok(())
    }

    fn write_batch(
        &mut self,
        batch: &Batch,
        shadow: &mut Shadow,
        bug: Option<PlantedBug>,
    ) -> Result<(), WriteError> {
        let mut is_empty = true;
        for write in batch.writes() {
            if let Some(snapshot) = write.snapshot {
                self.wal.sync()?;
                shadow.synced(self.wal.hard_state(), self.wal.last_index());
                shadow.wrote_snapshot();
                self.wal.save_snapshot(&walpb::Snapshot {
                    index: snapshot.index,
                    term: snapshot.term,
                    conf_state: snapshot.conf_state.clone(),
                })?;
                shadow.synced(self.wal.hard_state(), self.wal.last_index());
            }
            let hard_state = match bug {
                Some(PlantedBug::SkipsHardState) if write.entries.is_empty() => None,
                Some(PlantedBug::AppendsBeforeTerm) if !write.entries.is_empty() => None,
                _ => write.hard_state,
            };
            shadow.wrote_entries(write.entries);
            self.wal.append(hard_state, write.entries)?;
            is_empty &= hard_state.is_none() && write.entries.is_empty();
        }
        if !is_empty {
            self.wal.sync()?;
        }
        shadow.synced(self.wal.hard_state(), self.wal.last_index());
        Ok(())
    }
}

/// For each write of a batch, the term of the entry before its first one when it entered the log;
/// `None` if it is not known. `core` has the log after the whole batch.
fn previous_terms(batch: &Batch, core: &Core) -> Vec<Option<u64>> {
    let writes: Vec<_> = batch.writes().collect();
    let term_at = |number: usize| {
        let index = writes[number].entries.first()?.index - 1;
        let entries = |range: std::ops::Range<usize>| {
            let written = writes[range].iter().flat_map(|write| write.entries);
            written.filter(|entry| entry.index == index)
        };
        match entries(0..number).last() {
            Some(entry) => Some(entry.term),
            None if entries(number + 1..writes.len()).next().is_some() => None,
            None => core.term_of(index),
        }
    };
    (0..writes.len()).map(term_at).collect()
}

fn check_durable(message: &Message, shadow: &Shadow) -> Result<(), Violation> {
    let durable = shadow.hard_state;
    let what = match message.r#type() {
        MessageType::MsgVote => Some(message.from),
        MessageType::MsgVoteResp if !message.reject => Some(message.to),
        _ => None,
    }
    .filter(|candidate| {
        durable.term < message.term || durable.term == message.term && durable.vote != *candidate
    })
    .map(|candidate| format!("vote for {candidate:x} in term {}", message.term))
    .or_else(|| {
        let is_unwritten = message.r#type() == MessageType::MsgAppResp
            && !message.reject
            && message.term == durable.term
            && message.index > shadow.last_index;
        is_unwritten.then(|| format!("entry {}", message.index))
    });
    match what {
        Some(what) => Err(Violation::SentBeforeDurable {
            id: message.from,
            what,
        }),
        None => Ok(()),
    }
}
