//! One simulated member: the shipped engine, log, state machine, store, watch hub and lessor.
//!
//! ```text
//!  world ── messages, ticks, requests ──▶ raft.rs ── committed ──▶ apply.rs ── answers, events ──▶ world
//!                                           │ batches                │ effects
//!                                           ▼                        ▼
//!                                        Wal on SimDisk        replica.rs: StateMachine, Hub
//! ```
//! As the server's threads do, it feeds the engine, writes its batches and carries out its effects.
//! The world around it decides when a batch is written, when it counts as written, when an entry
//! is applied and when the store commits.

mod apply;
mod gates;
mod history;
mod raft;
mod replica;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use portunus_consensus::bootstrap::{
    self, BackendPosition, Boot, Identity, InitialMember, RestartError,
};
use portunus_consensus::core::{Core, CoreConfig};
use portunus_consensus::engine::{Batch, Engine};
use portunus_mvcc::backend::{Backend, BackendError, Bucket, Change, MemoryBackend, meta};
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::{Entry, EntryType, Message, SnapshotMetadata};
use portunus_statemachine::wrap;
use portunus_wal::{LogDir, Wal, WalOptions, valid_snapshots};

use super::disk::SimDisk;
use super::invariants::Invariants;
use super::oracle::Oracle;
use super::planted::PlantedBug;
use super::scenario::Scenario;
use super::shadow::Shadow;
use super::violation::Violation;
pub(super) use apply::Next;
pub(super) use gates::{Features, REQUIRED, Start};
pub(super) use replica::{Position, Replica, members_of};
pub(super) use requests::{Proposal, Reply, Streams};

use replica::Opened;

/// How a member joined the cluster.
pub(super) enum Origin {
    Founder { name: String },
    Joiner { identity: Identity },
}

/// The file of a snapshot: a copy of a backend.
#[derive(Clone)]
pub(super) struct SnapshotFile {
    pub(super) position: Position,
    pub(super) backend: MemoryBackend,
}

/// A member: its durable state, and its process if it runs.
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) origin: Origin,
    pub(super) disk: SimDisk,
    /// The committed content of the store.
    backend: MemoryBackend,
    /// The position of `backend`.
    pub(super) durable: Position,
    /// Received snapshots that are not installed yet.
    incoming: BTreeMap<u64, SnapshotFile>,
    shadow: Shadow,
    pub(super) running: Option<Running>,
    /// The number of starts; events for an earlier one are ignored.
    pub(super) incarnation: u64,
    pub(super) tick_interval: u64,
    /// The speed of the lessor's clock, per thousand.
    pub(super) clock_rate: u64,
    /// The member was removed from the cluster and shut down, or has lost its disk.
    pub(super) is_shut_down: bool,
    pub(super) has_lost_disk: bool,
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
    /// A snapshot that is being installed.
    pub(super) installing: Option<SnapshotMetadata>,
    pub(super) replica: Replica,
    /// The backend of the store; the same as the member's, unless a planted bug replaced that.
    backend: MemoryBackend,
    seen_commit: u64,
    requests: requests::Requests,
    pub(super) outbox: Vec<Message>,
    /// Answers to requests of clients.
    pub(super) replies: Vec<(u64, Reply)>,
    pub(super) streams: Streams,
    /// For a planted bug: the newest feature values of all committed entries, applied or not.
    newest_features: BTreeMap<String, bool>,
    /// For a planted bug: entries up to this index are not applied.
    skip_to: u64,
}

/// State shared by all members of a run.
pub(super) struct Surroundings<'a> {
    pub(super) now: u64,
    pub(super) scenario: &'a Scenario,
    pub(super) founders: &'a [InitialMember],
    pub(super) bug: Option<PlantedBug>,
    pub(super) invariants: &'a mut Invariants,
    pub(super) oracle: &'a mut Oracle,
    pub(super) features: &'a Features,
}

impl Surroundings<'_> {
    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }
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
    pub(super) fn new(id: u64, origin: Origin, start: Start) -> Self {
        Self {
            id,
            origin,
            disk: SimDisk::default(),
            backend: MemoryBackend::new(),
            durable: Position::default(),
            incoming: BTreeMap::new(),
            shadow: Shadow::default(),
            running: None,
            incarnation: 0,
            tick_interval: super::scenario::TICK,
            clock_rate: 1000,
            is_shut_down: false,
            has_lost_disk: false,
            start,
            is_version_too_low: false,
        }
    }

    /// The time on the lessor's clock.
    fn now_ms(&self, now: u64) -> u64 {
        now * self.clock_rate / 1000
    }

    fn dir(&self) -> LogDir {
        LogDir::on(Arc::new(self.disk.clone()), Path::new(DIR))
    }

    /// Loses the log and the backend.
    pub(super) fn lose_disk(&mut self) {
        self.disk = SimDisk::default();
        self.backend = MemoryBackend::new();
        self.durable = Position::default();
        self.incoming.clear();
        self.shadow = Shadow::default();
        self.running = None;
    }

    /// Starts the member as the server does: installs a received snapshot that is in the log,
    /// then restarts from log and backend, or starts for the first time. The caller ignores
    /// errors that a power loss causes.
    pub(super) fn start(&mut self, around: &mut Surroundings<'_>) -> Result<(), Violation> {
        let id = self.id;
        self.incarnation += 1;
        if around.has(PlantedBug::NeverSyncs) {
            self.disk.ignore_syncs();
        }
        self.install_pending();
        self.plant_in_backend(around.bug)?;
        let opened = Opened::from(id, &self.backend)?;
        let options = WalOptions {
            segment_bytes: around.scenario.segment_bytes,
        };
        let position = BackendPosition {
            applied_index: opened.index,
            conf_state: opened.conf_state().cloned(),
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
        self.plant_in_boot(&mut boot, around.bug, position.applied_index);
        let Boot { wal, initial, .. } = boot;
        let checked = self.shadow.check(&initial);
        checked.map_err(|what| Violation::LostSynced { id, what })?;
        let base_term = Some(initial.base_term);
        around.invariants.in_log(id, &initial.entries, base_term)?;

        let snapshot_index = initial.base_index;
        let last_wrapped = last_wrapped(&initial.entries);
        let config = CoreConfig {
            pre_vote: around.scenario.pre_vote,
            message_bytes_max: around.scenario.message_bytes_max,
            inflight_messages_max: around.scenario.inflight_messages_max,
            committed_bytes_max: around.scenario.committed_bytes_max,
            seed: (around.scenario.seed ^ id).wrapping_mul(31) + self.incarnation,
            ..CoreConfig::new(id)
        };
        let core = Core::new(&config, initial).map_err(|source| Violation::Core { id, source })?;
        let version = self.start.version;
        let own = &around.features.own;
        let replica = Replica::new(id, version, own, around.scenario, opened, last_wrapped);
        around.invariants.opened(id, &replica)?;
        let mut running = Running {
            engine: Engine::new(core, snapshot_index, true),
            wal,
            taken_early: None,
            in_flight: None,
            to_apply: VecDeque::new(),
            installing: None,
            replica,
            backend: self.backend.clone(),
            seen_commit: snapshot_index,
            requests: requests::Requests::new(self.incarnation),
            outbox: Vec::new(),
            replies: Vec::new(),
            streams: Streams::default(),
            newest_features: BTreeMap::new(),
            skip_to: 0,
        };
        if around.has(PlantedBug::SkipsEntryAtRestart) && position.applied_index > 0 {
            running.skip_to = position.applied_index + 1;
        }
        running.turn(&self.shadow, around)?;
        self.durable = running.replica.position();
        self.running = Some(running);
        Ok(())
    }

    fn plant_in_boot(&self, boot: &mut Boot, bug: Option<PlantedBug>, applied_index: u64) {
        match bug {
            Some(PlantedBug::ForgetsVote) => boot.initial.hard_state.vote = 0,
            Some(PlantedBug::CutsWholeRecord) if boot.initial.last_index() > applied_index => {
                boot.initial.entries.pop();
                let last = boot.initial.last_index();
                let commit = &mut boot.initial.hard_state.commit;
                *commit = last.min(*commit);
            }
            _ => {}
        }
    }

    /// Plants bugs of the store's recovery.
    fn plant_in_backend(&mut self, bug: Option<PlantedBug>) -> Result<(), Violation> {
        let id = self.id;
        let mut entries = Vec::new();
        let bucket = match bug {
            Some(PlantedBug::LosesNewestTombstone) => Bucket::Key,
            Some(PlantedBug::LosesLeaseRecord) => Bucket::Lease,
            _ => return Ok(()),
        };
        let failed = |error: BackendError| Violation::Open {
            id,
            why: error.to_string(),
        };
        let snapshot = self.backend.snapshot().map_err(failed)?;
        let each = &mut |key: &[u8], _: &[u8]| {
            entries.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        };
        snapshot.scan(bucket, b"", each).map_err(failed)?;
        let newest = entries.pop();
        // A tombstone's key has a mark after the revision.
        let is_lost = |key: &Vec<u8>| bucket == Bucket::Lease || key.len() > 17;
        if let Some(key) = newest.filter(is_lost) {
            let key = key.into();
            let change = Change::Delete { bucket, key };
            self.backend.commit(&[change]).map_err(failed)?;
        }
        Ok(())
    }

    /// Installs a snapshot that is in the log and was not installed before a crash.
    fn install_pending(&mut self) {
        let snapshots = valid_snapshots(self.dir()).unwrap_or_default();
        let newest = snapshots
            .iter()
            .rev()
            .find(|snapshot| self.incoming.contains_key(&snapshot.index));
        if let Some(file) = newest.and_then(|snapshot| self.incoming.get(&snapshot.index))
            && file.position.index > self.durable.index
        {
            self.backend = file.backend.clone();
            self.durable = file.position.clone();
        }
        self.incoming.clear();
    }

    /// Commits what the store has applied to its backend.
    pub(super) fn commit_backend(&mut self, bug: Option<PlantedBug>) -> Result<(), Violation> {
        let id = self.id;
        let Some(running) = &self.running else {
            return Ok(());
        };
        let before = running.backend.copy();
        let store = running.replica.machine.store();
        store.commit().map_err(|error| Violation::Open {
            id,
            why: error.to_string(),
        })?;
        self.durable = running.replica.position();
        self.backend = match bug {
            Some(PlantedBug::PositionBeforeContent) => mixed(id, &before, &running.backend)?,
            Some(PlantedBug::ContentBeforePosition) => mixed(id, &running.backend, &before)?,
            _ => running.backend.clone(),
        };
        Ok(())
    }

    /// Whether the state machine has requested to shorten the log, and the backend has the index.
    pub(super) fn must_shorten_log(&self) -> bool {
        let running = self.running.as_ref();
        let request = running.and_then(|it| it.replica.shorten_log.as_ref());
        request.is_some_and(|request| request.index <= self.durable.index)
    }

    /// Proposes a request of the member's own.
    pub(super) fn propose_own(
        &mut self,
        request: InternalRaftRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running.propose_own(None, request);
        running.turn(&self.shadow, around)
    }

    /// Returns a snapshot of the newest state, as the server sends it.
    pub(super) fn snapshot_file(&mut self, bug: Option<PlantedBug>) -> Option<SnapshotFile> {
        let position = self.running.as_ref()?.replica.position();
        if bug != Some(PlantedBug::SnapshotAheadOfContent) {
            // Taking a snapshot commits what was applied before.
            self.commit_backend(bug).ok()?;
        }
        let backend = self.running.as_ref()?.backend.copy();
        let file = SnapshotFile { position, backend };
        plant_in_snapshot(&file, bug);
        Some(file)
    }

    /// Stores a received snapshot until raft decides about it.
    pub(super) fn receive_snapshot(&mut self, file: SnapshotFile, bug: Option<PlantedBug>) {
        let Some(running) = &self.running else {
            return;
        };
        let index = file.position.index;
        if index <= running.replica.applied_index() {
            return;
        }
        if bug == Some(PlantedBug::SecondSnapshotReplacesFirst) && running.installing.is_some() {
            self.incoming.clear();
        }
        self.incoming.insert(index, file);
    }
}

/// Returns the index of the last wrapped entry; 0 if there is none.
fn last_wrapped(entries: &[Entry]) -> u64 {
    let wrapped = entries
        .iter()
        .filter(|entry| entry.r#type() == EntryType::EntryNormal && wrap::is_wrapped(&entry.data));
    wrapped.map(|entry| entry.index).max().unwrap_or(0)
}

/// For planted bugs: returns a backend with the content of one and the position of another, as a
/// commit leaves it that is not atomic.
fn mixed(
    id: u64,
    content: &MemoryBackend,
    position: &MemoryBackend,
) -> Result<MemoryBackend, Violation> {
    let failed = |error: BackendError| Violation::Open {
        id,
        why: error.to_string(),
    };
    let snapshot = position.snapshot().map_err(failed)?;
    let mut changes = Vec::new();
    for key in [meta::CONSISTENT_INDEX, meta::TERM] {
        let value = snapshot.get(Bucket::Meta, key.as_bytes()).map_err(failed)?;
        changes.extend(value.map(|value| Change::Put {
            bucket: Bucket::Meta,
            key: key.as_bytes().into(),
            value,
        }));
    }
    let mixture = content.copy();
    mixture.commit(&changes).map_err(failed)?;
    Ok(mixture)
}

/// Plants bugs of the content of a snapshot.
fn plant_in_snapshot(file: &SnapshotFile, bug: Option<PlantedBug>) {
    let bucket = match bug {
        Some(PlantedBug::SnapshotWithoutFeatures) => Bucket::Cluster,
        Some(PlantedBug::SnapshotWithoutLeases) => Bucket::Lease,
        Some(PlantedBug::SnapshotWithoutUsers) => Bucket::AuthUsers,
        _ => return,
    };
    let Ok(snapshot) = file.backend.snapshot() else {
        return;
    };
    let mut changes = Vec::new();
    let each = &mut |key: &[u8], _: &[u8]| {
        let key = bytes::Bytes::copy_from_slice(key);
        let is_lost = bucket != Bucket::Cluster || key.starts_with(b"clusterParams");
        changes.extend(is_lost.then_some(Change::Delete { bucket, key }));
        std::ops::ControlFlow::Continue(())
    };
    // A bug that is not planted is reported as undetected.
    let _ = snapshot.scan(bucket, b"", each);
    let _ = file.backend.commit(&changes);
}
