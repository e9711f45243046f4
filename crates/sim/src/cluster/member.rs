//! One simulated member: the core, its real log, and the simplest driver that follows the
//! rules of [`portunus_consensus::core`].
//!
//! It mirrors the driver of the server: readies become jobs, queued jobs become one batch, a
//! commit index alone waits for the next write, a snapshot is logged before it is installed.
//! `World` decides when a batch is written, when it counts as written and when an entry is
//! applied.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use portunus_consensus::Role;
use portunus_consensus::bootstrap::{
    self, BackendPosition, Boot, Identity, InitialMember, RestartError,
};
use portunus_consensus::core::{Core, CoreConfig, Ready};
use portunus_gates::cluster::ClusterParams;
use portunus_gates::cluster::ClusterSpecs;
use portunus_proto::raftpb::{
    ConfChange, Entry, EntryType, HardState, Message, MessageType, SnapshotMetadata,
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

struct Job {
    number: u64,
    snapshot: Option<SnapshotMetadata>,
    hard_state: Option<HardState>,
    entries: Vec<Entry>,
    /// The term of the entry before `entries`, if the log has it.
    previous_term: Option<u64>,
    messages: Vec<Message>,
}

enum ToApply {
    Entry(Entry),
    Snapshot(SnapshotMetadata),
}

/// A running member.
pub(super) struct Running {
    pub(super) core: Core,
    wal: Wal,
    jobs: VecDeque<Job>,
    /// Jobs that are written or being written, and not reported to the core yet.
    in_flight: Option<VecDeque<Job>>,
    unwritten_commit: Option<HardState>,
    snapshot_index: u64,
    to_apply: VecDeque<ToApply>,
    pub(super) image: Image,
    seen_commit: u64,
    conf_change_applying: bool,
    campaigned: bool,
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
            unwritten_commit: Some(core.hard_state()),
            core,
            wal,
            jobs: VecDeque::new(),
            in_flight: None,
            snapshot_index,
            to_apply: VecDeque::new(),
            image: self.backend.clone(),
            seen_commit: snapshot_index,
            conf_change_applying: false,
            campaigned: false,
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
        if running.in_flight.is_some() || running.jobs.is_empty() {
            return Ok(false);
        }
        let batch = mem::take(&mut running.jobs);
        let bug = around.bug;
        let write = |running: &mut Running, shadow: &mut Shadow, batch: &VecDeque<Job>| {
            running
                .write_batch(batch, shadow, bug)
                .map_err(|source| Violation::Write { id, source })
        };
        let durable: Vec<_> = batch
            .iter()
            .map(|job| (job.entries.clone(), job.previous_term))
            .collect();
        if bug == Some(PlantedBug::AcknowledgesBeforeWriting) {
            // Written only after the core and the peers were notified.
            let copy = batch.iter().map(Job::without_messages).collect();
            let messages = running.finish(batch);
            running.outbox.extend(messages);
            running.turn(&self.shadow, around)?;
            let result = write(running, &mut self.shadow, &copy);
            running.in_flight = Some(VecDeque::new());
            return result.map(|()| true);
        }
        write(running, &mut self.shadow, &batch)?;
        for (entries, previous_term) in &durable {
            around.invariants.in_log(id, entries, *previous_term)?;
        }
        running.in_flight = Some(batch);
        Ok(true)
    }

    /// Reports the written batch to the core.
    pub(super) fn finish_write(&mut self, around: &mut Surroundings<'_>) -> Result<(), Violation> {
        if let Some(running) = &mut self.running
            && let Some(batch) = running.in_flight.take()
        {
            let messages = running.finish(batch);
            running.send(messages, &self.shadow, around)?;
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
                    let raft = running.core.conf_state();
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
        if running.conf_change_applying || running.core.current_leadership().leader == 0 {
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
        let is_idle = running.jobs.is_empty() && running.in_flight.is_none();
        let is_applied = index <= running.core.applied_index();
        if !is_idle || !is_applied || index <= running.snapshot_index {
            return Ok(false);
        }
        let Some(term) = running.core.term_of(index) else {
            return Ok(false);
        };
        running.snapshot_index = index;
        let commit = running.unwritten_commit.take();
        let snapshot = walpb::Snapshot {
            index,
            term,
            conf_state: Some(upto.conf_state.clone()),
        };
        let written = running
            .wal
            .append(commit.as_ref(), &[])
            .and_then(|_| running.wal.save_snapshot(&snapshot));
        written.map_err(|source| Violation::Write { id, source })?;
        self.shadow
            .synced(running.wal.hard_state(), running.wal.last_index());
        if running.wal.release_to(index).is_err() {
            // Fails only by a power loss, which the next call detects.
            return Ok(true);
        }
        let keep = around.scenario.catch_up_entries;
        running.core.compact(index.saturating_sub(keep));
        Ok(true)
    }

    /// Calls the core, then processes its readies.
    pub(super) fn act<R>(
        &mut self,
        around: &mut Surroundings<'_>,
        act: impl FnOnce(&mut Core) -> R,
    ) -> Result<Option<R>, Violation> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        running.turn(&self.shadow, around)?;
        let result = act(&mut running.core);
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
            let commit = self.running.as_ref().map(|it| it.core.hard_state().commit);
            return around
                .invariants
                .answers(self.id, context, commit.unwrap_or(u64::MAX));
        }
        self.act(around, |core| core.read_index(context)).map(drop)
    }
}

impl Job {
    fn without_messages(&self) -> Job {
        Job {
            number: self.number,
            snapshot: self.snapshot.clone(),
            hard_state: self.hard_state,
            entries: self.entries.clone(),
            previous_term: self.previous_term,
            messages: Vec::new(),
        }
    }
}

impl Running {
    pub(super) fn is_leader(&self) -> bool {
        self.core.current_leadership().role == Role::Leader
    }

    pub(super) fn disk_has_work(&self) -> bool {
        !self.jobs.is_empty() && self.in_flight.is_none()
    }

    pub(super) fn has_to_apply(&self) -> bool {
        !self.to_apply.is_empty()
    }

    /// Reports applied entries to the core and processes its readies until there are none.
    fn turn(&mut self, shadow: &Shadow, around: &mut Surroundings<'_>) -> Result<(), Violation> {
        let id = self.core.id();
        loop {
            let applied = self.image.applied_index;
            if applied > self.core.applied_index() {
                self.core
                    .applied(applied)
                    .map_err(|source| Violation::Applied { id, source })?;
                self.conf_change_applying = false;
            }
            self.campaign_if_alone();
            let mut progressed = false;
            while let Some(ready) = self.core.ready() {
                progressed = true;
                self.process_ready(ready, shadow, around)?;
            }
            if !progressed {
                break;
            }
        }
        let state = self.core.hard_state();
        if state.commit > self.seen_commit {
            let known = self.seen_commit + 1..=state.commit;
            around
                .invariants
                .commits(id, known, state.term, |index| self.core.term_of(index))?;
            self.seen_commit = state.commit;
        }
        Ok(())
    }

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

    fn process_ready(
        &mut self,
        ready: Ready,
        shadow: &Shadow,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let id = self.core.id();
        if let Some(leadership) = ready.leadership
            && leadership.role == Role::Leader
        {
            let core = &self.core;
            // Compacted entries were committed and applied on this member.
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
        for read in &ready.reads {
            around.invariants.answers(id, read.context, read.index)?;
        }
        self.send(ready.messages, shadow, around)?;
        let newest = ready.committed.iter().rev().find_map(params_of);
        self.newest_params = newest.or(self.newest_params.take());
        self.to_apply
            .extend(ready.committed.into_iter().map(ToApply::Entry));

        let mut job = Job {
            number: ready.number,
            snapshot: ready.snapshot,
            hard_state: None,
            previous_term: ready
                .entries
                .first()
                .and_then(|first| self.core.term_of(first.index - 1)),
            entries: ready.entries,
            messages: ready.messages_after_persist,
        };
        if around.bug == Some(PlantedBug::SendsBeforePersisting) {
            let messages = mem::take(&mut job.messages);
            self.outbox.extend(messages);
        }
        if ready.hard_state.is_some() {
            self.unwritten_commit = ready.hard_state;
        }
        if ready.must_sync {
            job.hard_state = self.unwritten_commit.take();
        } else if self.jobs.is_empty() && self.in_flight.is_none() {
            let messages = self.finish([job].into());
            return self.send(messages, shadow, around);
        }
        self.jobs.push_back(job);
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

    /// Reports jobs as persisted. Returns the messages that may be sent now.
    fn finish(&mut self, mut jobs: VecDeque<Job>) -> Vec<Message> {
        for snapshot in jobs.iter_mut().filter_map(|job| job.snapshot.take()) {
            self.snapshot_index = snapshot.index;
            self.to_apply.push_back(ToApply::Snapshot(snapshot));
        }
        if let Some(last) = jobs.back() {
            self.core.persisted(last.number);
        }
        jobs.into_iter().flat_map(|job| job.messages).collect()
    }

    fn write_batch(
        &mut self,
        batch: &VecDeque<Job>,
        shadow: &mut Shadow,
        bug: Option<PlantedBug>,
    ) -> Result<(), WriteError> {
        let mut is_empty = true;
        for job in batch {
            if let Some(snapshot) = &job.snapshot {
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
            let mut hard_state = job.hard_state.as_ref();
            if bug == Some(PlantedBug::SkipsHardState) && job.entries.is_empty() {
                hard_state = None;
            }
            shadow.wrote_entries(&job.entries);
            self.wal.append(hard_state, &job.entries)?;
            is_empty &= hard_state.is_none() && job.entries.is_empty();
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
        let id = self.core.id();
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
                let changed = self.core.apply_conf_change(&change);
                conf_state =
                    changed.map_err(|source| Violation::ConfChange { id, index, source })?;
            }
            self.conf_change_applying = true;
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
