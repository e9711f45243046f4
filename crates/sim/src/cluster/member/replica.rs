//! The state of a running member: the shipped state machine over its store, and the watch hub.
//!
//! The store commits to a backend in memory when the simulator calls it, so a crash loses what was
//! applied since the last commit, as with the write-behind thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use portunus_features::OwnFeatures;
use portunus_gates::MajorMinor;
use portunus_mvcc::backend::MemoryBackend;
use portunus_mvcc::watch::{Hub, Limits};
use portunus_mvcc::{Commits, CompactionStep, Config, EntryId, Hooks, KvHash, Store};
use portunus_proto::Term;
use portunus_proto::raftpb::{ConfState, Entry};
use portunus_statemachine::{
    Applied, EntryError, Local, Settings, SnapshotRequest, State, StateMachine,
};

use super::super::planted::PlantedBug;
use super::super::scenario::Scenario;
use super::super::violation::Violation;

/// The minimum TTL of a lease: one and a half election timeouts of ten ticks, rounded up.
pub(in super::super) const LEASE_TTL_S_MIN: i64 = 2;
const MAX_LEARNERS: usize = 2;
/// Bytes of values in memory; more are read from the backend.
const RESIDENT_BYTES_MAX: usize = 400;

/// A position of the state machine with what the simulator reads there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in super::super) struct Position {
    pub(in super::super) index: u64,
    pub(in super::super) term: u64,
    pub(in super::super) conf_state: ConfState,
    pub(in super::super) removed: BTreeSet<u64>,
    pub(in super::super) cluster_version: Option<MajorMinor>,
}

impl Position {
    /// Returns the voters and learners.
    pub(in super::super) fn members(&self) -> impl Iterator<Item = u64> {
        members_of(&self.conf_state)
    }
}

pub(in super::super) fn members_of(conf_state: &ConfState) -> impl Iterator<Item = u64> {
    conf_state
        .voters
        .iter()
        .chain(&conf_state.learners)
        .copied()
}

/// The state that a store was opened with.
pub(in super::super) struct Opened {
    store: Store,
    state: State,
    pub(in super::super) index: u64,
}

impl Opened {
    /// Opens the store of a backend, as the server does at its start and after an install.
    pub(in super::super) fn from(id: u64, backend: &MemoryBackend) -> Result<Self, Violation> {
        let config = Config {
            commits: Commits::OnCall,
            resident_value_bytes_max: RESIDENT_BYTES_MAX,
            compaction_batch_limit: 8,
            ..Config::default()
        };
        let opened = Store::open(Arc::new(backend.clone()), config, Hooks::default());
        let (store, restored) = opened.map_err(|error| Violation::Open {
            id,
            why: error.to_string(),
        })?;
        let state = State::load(&store, LEASE_TTL_S_MIN).map_err(|error| Violation::Open {
            id,
            why: error.to_string(),
        })?;
        Ok(Self {
            store,
            state,
            index: restored.applied.map_or(0, |applied| applied.index),
        })
    }

    pub(in super::super) fn conf_state(&self) -> Option<&ConfState> {
        self.state.conf_state.as_ref()
    }
}

/// The state machine and the watch hub of a running member.
pub(in super::super) struct Replica {
    pub(in super::super) machine: StateMachine,
    pub(in super::super) hub: Hub,
    pub(in super::super) compaction_work: bool,
    /// The newest request of the state machine to shorten the log.
    pub(in super::super) shorten_log: Option<SnapshotRequest>,
}

impl Replica {
    pub(in super::super) fn new(
        id: u64,
        version: MajorMinor,
        own: &OwnFeatures,
        scenario: &Scenario,
        opened: Opened,
        last_wrapped: u64,
    ) -> Self {
        let settings = Settings {
            member_id: id,
            version,
            max_learners: MAX_LEARNERS,
            lease_ttl_s_min: LEASE_TTL_S_MIN,
            quota_bytes: None,
            snapshot_count: scenario.snapshot_count,
        };
        let revision = opened.store.revision();
        let limits = Limits {
            responses_max: scenario.watch_responses_max,
            catch_up_bytes_max: 200,
            ..Limits::default()
        };
        Self {
            machine: StateMachine::new(settings, own, opened.store, opened.state, last_wrapped),
            hub: Hub::new(revision, limits),
            // An earlier process may have left work.
            compaction_work: true,
            shorten_log: None,
        }
    }

    pub(in super::super) fn applied_index(&self) -> u64 {
        self.machine.applied().map_or(0, |applied| applied.index)
    }

    pub(in super::super) fn applied_term(&self) -> Term {
        self.machine
            .applied()
            .map_or(Term(0), |applied| applied.term)
    }

    pub(in super::super) fn is_removed(&self, id: u64) -> bool {
        self.machine.membership().is_removed(id)
    }

    pub(in super::super) fn position(&self) -> Position {
        let membership = self.machine.membership();
        Position {
            index: self.applied_index(),
            term: self.applied_term().0,
            conf_state: self.machine.conf_state().clone(),
            removed: membership.removed().collect(),
            cluster_version: membership.cluster_version,
        }
    }

    /// Applies an entry.
    pub(in super::super) fn apply(
        &mut self,
        entry: Entry,
        now_ms: u64,
        is_waiting: &dyn Fn(u64) -> bool,
    ) -> Result<Applied, EntryError> {
        let index = entry.index;
        let applied = self.machine.apply(entry, &Local { now_ms, is_waiting })?;
        // Every member of a simulated cluster knows cluster features.
        let request = self.machine.end_batch(index, &|_| true);
        self.shorten_log = request.or(self.shorten_log.take());
        Ok(applied)
    }

    /// Replaces the state by a snapshot of the leader. The hub follows, and users and roles are
    /// those of the snapshot, unless a planted bug prevents it.
    pub(in super::super) fn install(
        &mut self,
        opened: Opened,
        conf_state: Option<&ConfState>,
        at: EntryId,
        bug: Option<PlantedBug>,
    ) {
        let Opened {
            store, mut state, ..
        } = opened;
        state.conf_state = state.conf_state.or_else(|| conf_state.cloned());
        if bug == Some(PlantedBug::InstallKeepsOldUsers) {
            state.auth = self.machine.auth().clone();
        }
        let position = store.applied().unwrap_or(at);
        let revision = store.revision();
        drop(self.machine.install(store, state, position));
        if bug != Some(PlantedBug::WatchesMissInstalls) {
            self.hub.restore(revision);
        }
        self.compaction_work = true;
        self.shorten_log = None;
    }

    /// Does one slice of compaction work. Returns the hash of a compaction, if it was computed.
    pub(in super::super) fn compaction_step(
        &mut self,
        id: u64,
    ) -> Result<Option<KvHash>, Violation> {
        if !self.compaction_work {
            return Ok(None);
        }
        let failed = |why: String| Violation::Open { id, why };
        let step = self.machine.compaction_step();
        match step.map_err(|error| failed(error.to_string()))? {
            CompactionStep::Idle => self.compaction_work = false,
            CompactionStep::Waiting | CompactionStep::Working => {}
            CompactionStep::Finished { .. } => {}
            CompactionStep::Hash(job) => {
                let hash = job.run().map_err(|error| failed(error.to_string()))?;
                return Ok(Some(hash));
            }
        }
        Ok(None)
    }
}
