//! The apply thread: feeds committed entries to the state machine and carries out the effects.
//!
//! ```text
//!  consensus ──committed──▶ StateMachine ──▶ effects ─▶ raft, peers, alarms, gates
//!                                        ├─▶ events ──▶ watch hub
//!                                        └─▶ answer ──▶ waiter
//! ```
//! What an entry does is decided by [`portunus_statemachine`]; this thread never changes state
//! in another way.

mod compaction;
mod effects;
mod install;

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use portunus_consensus::{CommittedReceiver, Handle, RecvTimeoutError};
use portunus_mvcc::{ApplyError, Event, EventKind, RevisionEvents};
use portunus_proto::raftpb::Entry;
use portunus_proto::{LogIndex, Term};
use portunus_statemachine::{
    EntryError, LoadError, Local, Operation, SnapshotRequest, StateMachine,
};
use thiserror::Error;

use crate::handles::open_store::OpenStoreError;
use crate::handles::{Auth, ClusterState, Leases, Process, StoreAccess, Watches};
use crate::peers::Peers;
use crate::proposals::Proposals;
use crate::proposals::waiters::Answers;
use compaction::Compactions;

/// The longest wait for entries. Long enough to cost nothing, short enough that a lost wake-up
/// does not stop the member for good.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Where the apply thread publishes what it applied.
pub struct Outputs {
    /// Metrics, the data directory for installations, the stop on a fault.
    pub process: Arc<Process>,
    /// The reader and the applied position.
    pub store: Arc<StoreAccess>,
    /// Members, versions, alarms and cluster gates.
    pub cluster: Arc<ClusterState>,
    /// Users, roles and tokens.
    pub auth: Arc<Auth>,
    /// Configuration changes and the applied index.
    pub consensus: Handle,
    /// Answers for waiting requests; the alarm about the quota.
    pub proposals: Arc<Proposals>,
    /// The clocks of leases.
    pub leases: Arc<Leases>,
    /// Events for watches.
    pub watches: Arc<Watches>,
    /// The peers to connect to, and those to hold entries back from.
    pub peers: Arc<Peers>,
}

/// The state that the apply thread owns.
pub struct ApplyThread {
    outputs: Outputs,
    machine: StateMachine,
    committed: CommittedReceiver,
    answers: Answers,
    compactions: Compactions,
    snapshots: Sender<SnapshotRequest>,
}

/// Why the apply thread stops the member.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ApplyThreadError {
    /// The state machine could not apply an entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Raft refused a change of membership.
    #[error("entry {index} of the log changes membership in a way raft refuses")]
    ConfChange {
        index: u64,
        source: portunus_consensus::core::ConfChangeError,
    },
    /// Raft and the state machine disagree on the members.
    #[error(
        "entry {index} of the log left raft with {raft} and the store with {stored}: this is a defect of this program; report it, and replace this member"
    )]
    ConfState {
        index: u64,
        raft: String,
        stored: String,
    },
    /// Watchers would miss a revision.
    #[error("revision {revision} could not be sent to watchers: revisions have a gap")]
    Publish { revision: i64 },
    /// The snapshot of the leader could not be renamed.
    #[error("the leader's snapshot of index {index} could not be put in place")]
    Install { index: u64, source: std::io::Error },
    /// The store of the snapshot cannot be opened.
    #[error("the leader's snapshot of index {index} could not be opened")]
    InstalledStore { index: u64, source: OpenStoreError },
    /// The state of the snapshot cannot be served.
    #[error("the leader's snapshot of index {index} cannot be served")]
    InstalledState { index: u64, source: LoadError },
    /// Compaction work failed.
    #[error("compaction could not go on")]
    Compaction { source: ApplyError },
}

impl ApplyThread {
    /// Takes over the state machine.
    pub fn new(
        outputs: Outputs,
        machine: StateMachine,
        committed: CommittedReceiver,
        snapshots: Sender<SnapshotRequest>,
    ) -> ApplyThread {
        let hold = outputs.peers.replication_hold();
        hold.review(machine.membership());
        ApplyThread {
            answers: Answers::new(Arc::clone(&outputs.proposals.waiters)),
            outputs,
            machine,
            committed,
            // An earlier process may have left work.
            compactions: Compactions::with_work(),
            snapshots,
        }
    }

    /// Applies entries until the log is closed or a fault stops the member. Closes the store.
    pub fn run(mut self) {
        let stop = Arc::clone(&self.outputs.process.stop);
        if let Err(fault) = self.run_until_closed() {
            stop.fatal(&fault);
            return;
        }
        if let Err(fault) = self.machine.close() {
            stop.fatal(&fault);
        }
    }

    fn run_until_closed(&mut self) -> Result<(), ApplyThreadError> {
        let pause = self.outputs.process.config.compaction_sleep;
        let mut next_step: Option<Instant> = Some(Instant::now());
        loop {
            let wait =
                next_step.map_or(WAIT_MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.committed.recv_timeout(wait) {
                Ok(batch) => {
                    if let Some(snapshot) = &batch.snapshot {
                        self.install(snapshot)?;
                        self.answers.fail_proposed_before(Term(snapshot.term));
                        self.answers.hand_out();
                    }
                    self.apply_batch(batch.entries)?;
                    if next_step.is_none() && self.compactions.has_work() {
                        next_step = Some(Instant::now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Closed) => return Ok(()),
            }
            if next_step.is_some_and(|at| at <= Instant::now()) {
                next_step = self.compaction_step()?.then(|| Instant::now() + pause);
            }
        }
    }

    fn apply_batch(&mut self, entries: Vec<Entry>) -> Result<(), ApplyThreadError> {
        let started = Instant::now();
        let mut last = None;
        let count = entries.len();
        for entry in entries {
            let (index, term) = (entry.index, Term(entry.term));
            assert!(
                last.is_none_or(|last: u64| index == last + 1),
                "consensus committed entry {index} after entry {last:?}: a member that skips entries diverges"
            );
            let begins_term = term > self.outputs.store.applied.term();
            self.apply_entry(entry)?;
            if begins_term {
                self.answers.fail_proposed_before(term);
            }
            last = Some(index);
            // Readers may wait for an index in the middle of a batch.
            self.outputs.store.applied.advance(LogIndex(index), term);
        }
        if let Some(index) = last {
            // Before clients are answered: raft refuses a second change of membership until it
            // knows that the first is applied.
            self.outputs.consensus.applied(index);
            self.end_batch(index);
        }
        self.answers.hand_out();
        let took = started.elapsed();
        if took > self.outputs.process.config.warning_apply_duration {
            self.outputs.process.metrics.slow_applies.inc();
            tracing::warn!(
                entries = count,
                took_ms = took.as_millis() as u64,
                "applying took long"
            );
        }
        Ok(())
    }

    fn apply_entry(&mut self, entry: Entry) -> Result<(), ApplyThreadError> {
        let started = Instant::now();
        let (index, waiters) = (entry.index, &self.outputs.proposals.waiters);
        let local = Local {
            now_ms: self.outputs.leases.now_ms(),
            is_waiting: &|request_id| waiters.is_waiting(request_id),
        };
        let applied = self.machine.apply(entry, &local)?;
        if let Some(operation) = applied.operation {
            self.count(operation, &applied.answer, started.elapsed());
        }
        for effect in applied.effects {
            self.carry_out(index, effect)?;
        }
        if let Some(events) = &applied.events {
            self.publish(events)?;
        }
        if applied.request_id != 0 {
            self.answers.add(applied.request_id, applied.answer);
        }
        Ok(())
    }

    fn count(&self, operation: Operation, answer: &portunus_statemachine::Answer, took: Duration) {
        use portunus_statemachine::Response;
        let metrics = &self.outputs.process.metrics;
        metrics.operations.applied(operation, answer.is_ok(), took);
        match answer {
            Ok(Response::Put(_)) => metrics.puts.inc(),
            Ok(Response::DeleteRange(_)) => metrics.deletes.inc(),
            Ok(Response::Txn(_)) => metrics.txns.inc(),
            Ok(Response::LeaseGrant(granted)) => {
                metrics.leases_granted.inc();
                metrics.lease_ttl_seconds.observe(granted.ttl as f64);
            }
            Ok(Response::LeaseRevoke(_)) => metrics.leases_revoked.inc(),
            Ok(_) | Err(_) => {}
        }
    }

    fn end_batch(&mut self, index: u64) {
        let hold = self.outputs.peers.replication_hold();
        let request = self.machine.end_batch(index, &|id| hold.knows_gates(id));
        if let Some(request) = request {
            // The receiving thread ends only with the member; then the log need not be shortened.
            let _ = self.snapshots.send(request);
        }
    }

    /// Sends events to watchers, after the change is visible to readers.
    fn publish(&mut self, events: &Arc<RevisionEvents>) -> Result<(), ApplyThreadError> {
        let history = self.outputs.store.history();
        // Only for events whose previous value has left memory.
        let unknown = events.events.iter().filter(|it| it.known_prev().is_none());
        for event in unknown {
            // The history reports a failure. Watches that need the value read it themselves.
            let _ = event.look_up_prev(&history);
        }
        let lagging = {
            let mut hub = self.outputs.watches.lock();
            hub.publish(events).map_err(|_| ApplyThreadError::Publish {
                revision: events.revision,
            })?;
            let stats = hub.stats();
            stats.catching_up > 0
        };
        let metrics = &self.outputs.process.metrics;
        metrics.events.inc_by(events.events.len() as u64);
        let puts = events
            .events
            .iter()
            .filter(|it| it.kind() == EventKind::Put);
        let bytes = |event: &Event| event.kv().key.len() + event.kv().value.len();
        metrics.put_bytes.add(puts.map(bytes).sum::<usize>() as i64);
        if lagging {
            self.outputs.watches.wake();
        }
        Ok(())
    }
}
