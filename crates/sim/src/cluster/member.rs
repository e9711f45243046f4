//! One simulated member: the engine of the server ([`portunus_consensus::engine`]) over its real
//! log.
//!
//! As the server's threads do, it feeds the engine, writes its batches and carries out its
//! effects. The world around it decides when a batch is written, when it counts as written and
//! when an entry is applied.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use portunus_consensus::Role;
use portunus_consensus::bootstrap::{
    self, BackendPosition, Boot, Identity, InitialMember, RestartError,
};
use portunus_consensus::core::{Core, CoreConfig};
use portunus_consensus::engine::{Batch, Effects, Engine};
use portunus_gates::cluster::ClusterParams;
use portunus_gates::cluster::ClusterSpecs;
use portunus_proto::raftpb::{
    ConfChange, Entry, EntryType, Message, MessageType, SnapshotMetadata,
};
use portunus_proto::walpb;
use portunus_wal::{LogDir, Wal, WalOptions, WriteError, valid_snapshots};
use prost::Message as _;

use super::disk::SimDisk;
use super::gates::{Start, params_of, version_of};
use super::invariants::Invariants;
use super::planted::PlantedBug;
use super::scenario::Scenario;
use super::shadow::Shadow;
use super::state::Image;
use super::violation::Violation;

/// How a member joined the cluster.
pub(super) enum Origin {
    Founder { name: String },
    Joiner { identity: Identity },
}

/// A member: its durable state, and its process if it runs.
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) origin: Origin,
    pub(super) disk: SimDisk,
    /// The durable state of the state machine; written atomically.
    pub(super) backend: Image,
    /// Received snapshots that are not installed yet.
    pub(super) incoming: BTreeMap<u64, Image>,
    pub(super) shadow: Shadow,
    pub(super) running: Option<Running>,
    /// The number of starts; events for an earlier one are ignored.
    pub(super) incarnation: u64,
    pub(super) tick_interval: u64,
    /// The member was removed from the cluster and shut down.
    pub(super) is_shut_down: bool,
    /// The version and flags of its next start.
    pub(super) start: Start,
    /// The member stopped because the cluster version is above its own.
    pub(super) is_version_too_low: bool,
}

/// A write that was made and is not yet reported to the engine.
enum WriteInFlight {
    Batch(Batch),
    /// A planted bug has reported it before it was made.
    Reported,
}

enum ToApply {
    Entry(Entry),
    Snapshot(SnapshotMetadata),
}

/// A running member.
pub(super) struct Running {
    engine: Engine,
    wal: Wal,
    /// For a planted bug: a batch whose messages were sent before it is written.
    taken_early: Option<Batch>,
    in_flight: Option<WriteInFlight>,
    to_apply: VecDeque<ToApply>,
    pub(super) image: Image,
    seen_commit: u64,
    /// Unacknowledged proposals of this member's clients.
    pub(super) waiting: BTreeSet<u64>,
    pub(super) outbox: Vec<Message>,
    /// For a planted bug: the newest params of all committed entries, applied or not.
    newest_params: Option<ClusterParams>,
}

/// State shared by all members of a run.
pub(super) struct Surroundings<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) founders: &'a [InitialMember],
    pub(super) bug: Option<PlantedBug>,
    pub(super) invariants: &'a mut Invariants,
    pub(super) specs: &'a ClusterSpecs,
}

const TOKEN: &str = "simulated";
const DIR: &str = "/member/wal";

pub(super) fn founder(number: u64) -> InitialMember {
    InitialMember {
        name: format!("m{number}"),
        peer_urls: vec![format!("http://m{number}:2380")],
    }
}

pub(super) fn founder_id(founder: &InitialMember) -> u64 {
    bootstrap::member_id(&founder.peer_urls, TOKEN)
}

impl Member {
    pub(super) fn new(id: u64, origin: Origin) -> Self {
        Self {
            id,
            origin,
            disk: SimDisk::default(),
            backend: Image::default(),
            incoming: BTreeMap::new(),
            shadow: Shadow::default(),
            running: None,
            incarnation: 0,
            tick_interval: super::scenario::TICK,
            is_shut_down: false,
            start: Start::first(),
            is_version_too_low: false,
        }
    }

    fn dir(&self) -> LogDir {
        LogDir::on(Arc::new(self.disk.clone()), Path::new(DIR))
    }

    /// Starts the member as the server does: installs a received snapshot that is in the log,
    /// then restarts from log and backend, or starts for the first time. The caller ignores
    /// errors that a power loss causes.
    pub(super) fn start(&mut self, around: &mut Surroundings<'_>) -> Result<(), Violation> {
        let id = self.id;
        self.incarnation += 1;
        if around.bug == Some(PlantedBug::NeverSyncs) {
            self.disk.ignore_syncs();
        }
        self.install_pending();
        let options = WalOptions {
            segment_bytes: around.scenario.segment_bytes,
        };
        let position = BackendPosition {
            applied_index: self.backend.applied_index,
            conf_state: Some(self.backend.conf_state.clone()),
        };
        let mut boot = match bootstrap::restart(self.dir(), options, &position) {
            Ok(boot) => boot,
            Err(RestartError::NoLog { .. } | RestartError::Blank { .. })
                if position.applied_index == 0 =>
            {
                let first = match &self.origin {
                    Origin::Founder { name } => {
                        bootstrap::new_cluster(self.dir(), options, name, around.founders, TOKEN)
                    }
                    Origin::Joiner { identity } => bootstrap::join(self.dir(), options, *identity),
                };
                first.map_err(|source| Violation::FirstStart { id, source })?
            }
            Err(source) => return Err(Violation::Restart { id, source }),
        };
        self.plant_in_boot(&mut boot, around.bug);
        let Boot { wal, initial, .. } = boot;
        let checked = self.shadow.check(&initial);
        checked.map_err(|what| Violation::LostSynced { id, what })?;
        let base_term = Some(initial.base_term);
        around.invariants.in_log(id, &initial.entries, base_term)?;

        let snapshot_index = initial.base_index;
        let config = CoreConfig {
            pre_vote: around.scenario.pre_vote,
            message_bytes_max: around.scenario.message_bytes_max,
            inflight_messages_max: around.scenario.inflight_messages_max,
            committed_bytes_max: around.scenario.committed_bytes_max,
            seed: (around.scenario.seed ^ id).wrapping_mul(31) + self.incarnation,
            ..CoreConfig::new(id)
        };
        let core = Core::new(&config, initial).map_err(|source| Violation::Core { id, source })?;
        let mut running = Running {
            engine: Engine::new(core, snapshot_index, true),
            wal,
            taken_early: None,
            in_flight: None,
            to_apply: VecDeque::new(),
            image: self.backend.clone(),
            seen_commit: snapshot_index,
            waiting: BTreeSet::new(),
            outbox: Vec::new(),
            newest_params: None,
        };
        running.turn(&self.shadow, around)?;
        self.running = Some(running);
        Ok(())
    }

    fn plant_in_boot(&self, boot: &mut Boot, bug: Option<PlantedBug>) {
        match bug {
            Some(PlantedBug::ForgetsVote) => boot.initial.hard_state.vote = 0,
            Some(PlantedBug::CutsWholeRecord)
                if boot.initial.last_index() > self.backend.applied_index =>
            {
                boot.initial.entries.pop();
                let last = boot.initial.last_index();
                let commit = &mut boot.initial.hard_state.commit;
                *commit = last.min(*commit);
            }
            _ => {}
        }
    }

    /// Installs a snapshot that is in the log and was not installed before a crash.
    fn install_pending(&mut self) {
        let snapshots = valid_snapshots(self.dir()).unwrap_or_default();
        let newest = snapshots
            .iter()
            .rev()
            .find(|snapshot| self.incoming.contains_key(&snapshot.index));
        if let Some(image) = newest.and_then(|snapshot| self.incoming.get(&snapshot.index))
            && image.applied_index > self.backend.applied_index
        {
            self.backend = image.clone();
        }
        self.incoming.clear();
    }

    /// Makes the state of the state machine durable.
    pub(super) fn commit_backend(&mut self, bug: Option<PlantedBug>) {
        let Some(running) = &self.running else { return };
        if bug == Some(PlantedBug::PositionBeforeContent) {
            self.backend = Image {
                state: self.backend.state,
                ..running.image.clone()
            };
        } else {
            self.backend = running.image.clone();
        }
    }

    /// Writes the queued jobs. Returns true if there were any.
    pub(super) fn write(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Violation> {
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
        if bug == Some(PlantedBug::AcknowledgesBeforeWriting) {
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
    pub(super) fn finish_write(&mut self, around: &mut Surroundings<'_>) -> Result<(), Violation> {
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

    /// Applies the next entry or snapshot. Returns true if there was one.
    pub(super) fn apply_next(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Violation> {
        let id = self.id;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        if let Some(ToApply::Entry(entry)) = running.to_apply.front()
            && let Some(version) = version_of(entry)
            && version > self.start.version
        {
            // The server stops here, too; its operator restarts it with the required version.
            self.start.version = version;
            self.is_version_too_low = true;
            return Ok(false);
        }
        match running.to_apply.pop_front() {
            None => return Ok(false),
            Some(ToApply::Entry(entry)) => running.apply_entry(&entry, &self.shadow, around)?,
            Some(ToApply::Snapshot(snapshot)) => {
                let index = snapshot.index;
                if running.image.applied_index < index {
                    let image = self.incoming.remove(&index);
                    let mut image = image.ok_or(Violation::NoSnapshotToInstall { id, index })?;
                    if around.bug == Some(PlantedBug::SnapshotWithoutFeatures) {
                        Arc::make_mut(&mut image.gates).params = None;
                    }
                    if around.bug == Some(PlantedBug::AppliesBeforeInstalling) {
                        running.image.applied_index = index;
                        running.image.applied_term = snapshot.term;
                    } else {
                        running.image = image.clone();
                        self.backend = image;
                    }
                    self.incoming.retain(|received, _| *received > index);
                    around.invariants.applies(id, &running.image)?;
                    let raft = running.core().conf_state();
                    if raft != running.image.conf_state {
                        return Err(Violation::RaftMembersDiffer {
                            id,
                            index,
                            raft,
                            state_machine: running.image.conf_state.clone(),
                        });
                    }
                }
            }
        }
        if running.engine.applied_is_urgent() {
            running.turn(&self.shadow, around)?;
        }
        Ok(true)
    }

    /// Compacts the log up to the durable applied index. Returns true if it did.
    pub(super) fn compact(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Violation> {
        let id = self.id;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        let mut upto = &self.backend;
        if around.bug == Some(PlantedBug::CompactsTooFar) {
            upto = &running.image;
        }
        let index = upto.applied_index;
        if running.in_flight.is_some() || running.taken_early.is_some() {
            return Ok(false);
        }
        let Ok(Some(write)) = running.engine.begin_compaction(index, &upto.conf_state) else {
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
        let keep = around.scenario.catch_up_entries;
        running.engine.finish_compaction(index.saturating_sub(keep));
        Ok(true)
    }

    /// Gives the engine an input and carries out the effects.
    pub(super) fn act<R>(
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

    /// Starts a read at this member; a planted bug answers it directly.
    pub(super) fn read(
        &mut self,
        context: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        around.invariants.begins_read(context);
        if around.bug == Some(PlantedBug::AnswersReadsAlone) {
            let commit = self
                .running
                .as_ref()
                .map(|it| it.core().hard_state().commit);
            return around
                .invariants
                .answers(self.id, context, commit.unwrap_or(u64::MAX));
        }
        self.act(around, |engine| engine.read_index(context))
            .map(drop)
    }
}

impl Running {
    pub(super) fn core(&self) -> &Core {
        self.engine.core()
    }

    pub(super) fn is_leader(&self) -> bool {
        self.core().current_leadership().role == Role::Leader
    }

    pub(super) fn disk_has_work(&self) -> bool {
        self.taken_early.is_some() || self.engine.has_batch()
    }

    pub(super) fn has_to_apply(&self) -> bool {
        !self.to_apply.is_empty()
    }

    /// Feeds the engine and carries out its effects, until there are none.
    fn turn(&mut self, shadow: &Shadow, around: &mut Surroundings<'_>) -> Result<(), Violation> {
        let id = self.core().id();
        loop {
            self.engine
                .applied(self.image.applied_index)
                .map_err(|source| Violation::Applied { id, source })?;
            self.engine.campaign_if_alone();
            let mut progressed = false;
            while let Some(effects) = self.engine.advance() {
                progressed = true;
                self.carry_out(effects, shadow, around)?;
            }
            if !progressed {
                break;
            }
        }
        let is_bug = around.bug == Some(PlantedBug::SendsBeforePersisting);
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
        if let Some(leadership) = effects.leadership
            && leadership.role == Role::Leader
        {
            // Compacted entries were committed and applied here.
            let starts_after = (0..=core.applied_index())
                .rev()
                .find(|index| core.term_of(*index).is_none())
                .unwrap_or(0);
            around.invariants.leads(
                id,
                leadership.term,
                |index| core.term_of(index),
                starts_after,
            )?;
        }
        for read in &effects.reads {
            around.invariants.answers(id, read.context, read.index)?;
        }
        self.send(effects.messages, shadow, around)?;
        let newest = effects.committed.iter().rev().find_map(params_of);
        self.newest_params = newest.or(self.newest_params.take());
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
            let mut hard_state = write.hard_state;
            if bug == Some(PlantedBug::SkipsHardState) && write.entries.is_empty() {
                hard_state = None;
            }
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

    fn apply_entry(
        &mut self,
        entry: &Entry,
        shadow: &Shadow,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let id = self.core().id();
        let index = entry.index;
        if index != self.image.applied_index + 1 {
            return Err(Violation::AppliedWithGap {
                id,
                index,
                applied_index: self.image.applied_index,
            });
        }
        let mut conf_state = self.image.conf_state.clone();
        if entry.r#type() == EntryType::EntryConfChange {
            let change = ConfChange::decode(entry.data.clone()).unwrap_or_default();
            let change = self.image.resolve_conf_change(&change);
            let is_skipped =
                around.bug == Some(PlantedBug::SkipsConfChange) && (index ^ id).is_multiple_of(3);
            // The server's handle also runs a turn of the engine before and after.
            self.turn(shadow, around)?;
            if !is_skipped {
                let changed = self.engine.apply_conf_change(&change);
                conf_state =
                    changed.map_err(|source| Violation::ConfChange { id, index, source })?;
            }
            self.turn(shadow, around)?;
        }
        let mut instead = self.newest_params.as_ref();
        if around.bug != Some(PlantedBug::ReadsNewestFeatures) {
            instead = None;
        }
        self.image.apply(entry, conf_state, around.specs, instead);
        around.invariants.applies(id, &self.image)?;
        if let Some(proposal) = proposal_of(entry)
            && self.waiting.remove(&proposal)
        {
            around.invariants.acknowledges(proposal, index);
        }
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

/// Returns the proposal number at the start of an entry.
fn proposal_of(entry: &Entry) -> Option<u64> {
    if entry.r#type() != EntryType::EntryNormal {
        return None;
    }
    entry
        .data
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
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
