//! The apply thread: the only place where state changes.
//!
//! For each committed entry, in log order: decode, guard, change, end the entry, tell
//! watchers, answer the waiter. What an entry does depends only on the entry and the
//! state before it; never on a clock, a flag or who waits. (Exceptions that etcd has, too: the
//! minimum life of a lease comes from the election timeout, and the number of learners and
//! the quota from flags. Members compare the first two when they start.)

pub mod alarms;
pub(crate) mod clean_up;
mod entry;
mod gated;
mod install;
mod request;
#[cfg(feature = "test-features")]
mod tag;
mod v2_request;

pub use request::LEASE_COST_BYTES;

use std::sync::Arc;
use std::time::{Duration, Instant};

use portunus_consensus::CommittedReceiver;
use portunus_consensus::RecvTimeoutError;
use portunus_mvcc::{
    ApplyError, CompactionStep, Event, EventKind, RevisionEvents, Store, StoreFault,
};
use portunus_proto::etcdserverpb::{
    AlarmResponse, CompactionResponse, DeleteRangeResponse, LeaseGrantResponse,
    LeaseRevokeResponse, PutResponse, TxnResponse,
};
use portunus_proto::raftpb;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::error_chain::chain;
use crate::member::Member;
use crate::member::cluster_gates::View;
use crate::member::membership::{Membership, MembershipError};
use crate::member::waiters::Answers;
use crate::member::watches::StoreHistory;
use alarms::Alarms;
use gated::GatedEntries;

pub(crate) use v2_request::read as read_request;

/// What an applied request answers. Headers hold only the revision.
#[derive(Debug)]
pub enum Response {
    /// To a put.
    Put(PutResponse),
    /// To a delete.
    DeleteRange(DeleteRangeResponse),
    /// To a transaction.
    Txn(TxnResponse),
    /// To a compaction, with its end if somebody wants to wait for it.
    Compaction(CompactionResponse, Option<CompactionDone>),
    /// To a grant.
    LeaseGrant(LeaseGrantResponse),
    /// To a revocation.
    LeaseRevoke(LeaseRevokeResponse),
    /// To a question about alarms, or a change of one.
    Alarm(AlarmResponse),
    /// To a change of membership.
    Members,
    /// Nothing but "done".
    Done,
}

/// Resolves when a compaction has removed what it must, on disk as well.
pub type CompactionDone = oneshot::Receiver<()>;

/// Everything the apply thread owns.
pub struct Applier {
    member: Arc<Member>,
    store: Store,
    committed: CommittedReceiver,
    answers: Answers,
    membership: Membership,
    alarms: Alarms,
    conf_state: raftpb::ConfState,
    /// The cluster's features for the entry being applied: what entries before it decided.
    view: Arc<View>,
    /// Whether one of them is on.
    has_feature: bool,
    gated: GatedEntries,
    /// Whether compaction work may be left.
    is_compacting: bool,
    /// When the present one began, for the metrics.
    compaction_began: Instant,
    /// Who waits for a compaction to be finished, by its revision.
    compactions: Vec<(i64, oneshot::Sender<()>)>,
    /// Where the log was last compacted to.
    snapshot_index: u64,
    snapshots: std::sync::mpsc::Sender<SnapshotOrder>,
}

/// What the store and the log hold when the member starts.
pub struct Found {
    /// Members, versions and cluster features.
    pub membership: Membership,
    /// Alarms in force.
    pub alarms: Alarms,
    /// Raft's configuration.
    pub conf_state: raftpb::ConfState,
    /// The last wrapped entry of the log; 0 if there is none.
    pub last_wrapped: u64,
}

/// "The log up to here may be forgotten once the backend has it."
#[derive(Debug, Clone)]
pub struct SnapshotOrder {
    /// Up to where.
    pub index: u64,
    /// The configuration there.
    pub conf_state: raftpb::ConfState,
    /// Nobody may be sent an entry up to there any more.
    pub keeps_nothing: bool,
}

/// What goes wrong so badly that the member stops.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ApplyFaultError {
    /// The store cannot go on.
    #[error("entry {index} of the log could not be applied")]
    Store { index: u64, source: ApplyError },
    /// Membership records are damaged.
    #[error("entry {index} of the log could not be applied")]
    Membership { index: u64, source: MembershipError },
    /// An entry that is no request.
    #[error(
        "entry {index} of the log cannot be decoded: the log is damaged or from a newer version"
    )]
    Decode {
        index: u64,
        source: prost::DecodeError,
    },
    /// A wrapped request that does not open.
    #[error(
        "entry {index} of the log cannot be opened: the log is damaged or from a newer version"
    )]
    Unwrap {
        index: u64,
        source: crate::member::wrap::UnwrapError,
    },
    /// An entry this version does not know.
    #[error(
        "entry {index} of the log asks for {what}, which this version does not support: use the version that wrote it"
    )]
    Unsupported { index: u64, what: &'static str },
    /// The cluster is ahead of this binary.
    #[error(
        "the cluster version {cluster} is above the version this member behaves as, {own}: raise --emulated-version or start a newer binary"
    )]
    ClusterVersionTooHigh { cluster: String, own: String },
    /// Members that must not run together.
    #[error("entry {index} of the log brings a member that does not fit")]
    MixedVersions {
        index: u64,
        source: portunus_gates::cluster::MixedVersions,
    },
    /// A change of membership that raft refuses.
    #[error("entry {index} of the log changes membership in a way raft refuses")]
    ConfChange {
        index: u64,
        source: portunus_consensus::core::ConfChangeError,
    },
    /// Watchers would miss a revision.
    #[error("revision {revision} could not be told to watchers: revisions have a gap")]
    Publish { revision: i64 },
    /// A snapshot of the leader.
    #[error("the leader's snapshot of index {index} could not be put in place")]
    Install { index: u64, source: std::io::Error },
    /// Its backend.
    #[error("the leader's snapshot of index {index} could not be opened")]
    InstalledBackend {
        index: u64,
        source: portunus_mvcc::backend::BackendError,
    },
    /// Its records.
    #[error("the leader's snapshot of index {index} could not be opened")]
    InstalledStore {
        index: u64,
        source: portunus_mvcc::OpenError,
    },
    /// Its leases.
    #[error("the leader's snapshot of index {index} holds a lease that cannot be read")]
    InstalledLease {
        index: u64,
        source: portunus_mvcc::lease::RecordError,
    },
    /// Data that this version must not serve. It is refused when it is received, so this is
    /// a second look.
    #[error(
        "authentication is enabled in the leader's snapshot of index {index}, and this version cannot enforce it: disable it with `etcdctl auth disable` and start again, or remove this member"
    )]
    InstalledAuth { index: u64 },
    /// Compaction work failed.
    #[error("compaction could not go on")]
    Compaction { source: ApplyError },
}

impl Applier {
    /// Takes over the store.
    pub fn new(
        member: Arc<Member>,
        store: Store,
        committed: CommittedReceiver,
        found: Found,
        snapshots: std::sync::mpsc::Sender<SnapshotOrder>,
    ) -> Applier {
        let Found {
            membership,
            alarms,
            conf_state,
            last_wrapped,
        } = found;
        let view = member.cluster_gates.view(membership.params.as_ref());
        let gated = GatedEntries::found(&membership, last_wrapped);
        let snapshot_index = store.applied().map_or(0, |applied| applied.index);
        let mut applier = Applier {
            answers: Answers::new(Arc::clone(&member.waiters)),
            member,
            store,
            committed,
            membership,
            alarms,
            conf_state,
            view,
            has_feature: false,
            gated,
            // An earlier process may have left some.
            is_compacting: true,
            compaction_began: Instant::now(),
            compactions: Vec::new(),
            snapshot_index,
            snapshots,
        };
        applier.review_gated();
        applier.member.peers.strangers().review(&applier.membership);
        applier
    }

    /// Applies until the log ends or something is fatally wrong. Closes the store.
    pub fn run(mut self) {
        let member = Arc::clone(&self.member);
        if let Err(fault) = self.run_until_closed() {
            member.stop.fatal(&fault);
            return;
        }
        if let Err(fault) = self.store.close() {
            member.stop.fatal(&fault);
        }
    }

    fn run_until_closed(&mut self) -> Result<(), ApplyFaultError> {
        let pause = self.member.config.compaction_sleep;
        let mut next_step: Option<Instant> = Some(Instant::now());
        loop {
            let wait = match next_step {
                // Long enough not to matter, short enough to be no bug if a wake-up is lost.
                None => Duration::from_secs(3600),
                Some(at) => at.saturating_duration_since(Instant::now()),
            };
            match self.committed.recv_timeout(wait) {
                Ok(batch) => {
                    if let Some(snapshot) = &batch.snapshot {
                        self.install(snapshot)?;
                        self.answers.fail_proposed_before(snapshot.term);
                        self.answers.hand_out();
                    }
                    self.apply_batch(batch.entries)?;
                    if next_step.is_none() && self.is_compacting {
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

    fn apply_batch(&mut self, entries: Vec<raftpb::Entry>) -> Result<(), ApplyFaultError> {
        let started = Instant::now();
        let mut last = None;
        let count = entries.len();
        for entry in entries {
            let position = (entry.index, entry.term);
            let begins_term = entry.term > self.member.applied.term();
            self.apply_entry(entry)?;
            if begins_term {
                self.answers.fail_proposed_before(position.1);
            }
            last = Some(position);
            // Readers may wait for an index in the middle of a batch.
            self.member.applied.advance(position.0, position.1);
        }
        if let Some((index, _)) = last {
            // Before anybody is answered: raft refuses a second change of membership until
            // it knows that the first is applied.
            self.member.consensus.applied(index);
            self.forget_gated_if_unwelcome();
            self.order_snapshot(index);
        }
        self.answers.hand_out();
        let took = started.elapsed();
        if took > self.member.config.warning_apply_duration {
            self.member.metrics.slow_applies.inc();
            tracing::warn!(
                entries = count,
                took_ms = took.as_millis() as u64,
                "applying took long"
            );
        }
        Ok(())
    }

    fn order_snapshot(&mut self, index: u64) {
        let forget_to = self.gated.take_forget_order();
        let is_due = index.saturating_sub(self.snapshot_index) > self.member.config.snapshot_count;
        if !is_due && forget_to.is_none() {
            return;
        }
        self.snapshot_index = index;
        let order = SnapshotOrder {
            index,
            conf_state: self.conf_state.clone(),
            keeps_nothing: forget_to.is_some(),
        };
        // The thread ends only with the member; then the log is not needed shorter.
        let _ = self.snapshots.send(order);
    }

    /// One slice of compaction work; true if there is more.
    fn compaction_step(&mut self) -> Result<bool, ApplyFaultError> {
        let started = Instant::now();
        let step = self
            .store
            .compaction_step()
            .map_err(|source| ApplyFaultError::Compaction { source })?;
        let metrics = &self.member.metrics.compaction;
        if let CompactionStep::Working | CompactionStep::Finished { .. } = step {
            metrics.slice(self.store.take_compacted_records(), started.elapsed());
        }
        match step {
            CompactionStep::Idle => {
                self.is_compacting = false;
                metrics.pending.set(0);
                return Ok(false);
            }
            CompactionStep::Waiting | CompactionStep::Working => {}
            CompactionStep::Hash(job) => {
                let member = Arc::clone(&self.member);
                let spawned = std::thread::Builder::new()
                    .name("compaction-hash".to_owned())
                    .spawn(move || match job.run() {
                        Ok(_) => {}
                        Err(error) if error.is_damage() => member.stop.fatal(&error),
                        Err(error) => tracing::warn!(
                            reason = chain(&error),
                            "the hash of a compaction could not be computed"
                        ),
                    });
                if let Err(error) = spawned {
                    tracing::warn!(%error, "no thread for the hash of a compaction; it will not be known");
                }
            }
            CompactionStep::Finished { revision } => {
                metrics.finished(self.compaction_began.elapsed());
                // The next of the queue, if there is one, begins now.
                self.compaction_began = Instant::now();
                tracing::info!(revision, "compaction finished");
                let done: Vec<_> = self
                    .compactions
                    .extract_if(.., |(at, _)| *at <= revision)
                    .collect();
                if !done.is_empty() {
                    let reader = self.member.reader().clone();
                    let stop = Arc::clone(&self.member.stop);
                    // Flushing waits for the disk; applying does not.
                    let spawned = std::thread::Builder::new()
                        .name("compaction-flush".to_owned())
                        .spawn(move || {
                            match reader.flush() {
                                Ok(()) => {}
                                // A snapshot of the leader has replaced the store. Those who
                                // wait ask again.
                                Err(StoreFault::Closed) => return,
                                Err(fault) => return stop.fatal(&fault),
                            }
                            for (_, waiter) in done {
                                // The client may have gone away meanwhile.
                                let _ = waiter.send(());
                            }
                        });
                    if let Err(error) = spawned {
                        // Those who wait are told that the server stopped, and ask again.
                        tracing::warn!(%error, "no thread to wait for the end of a compaction");
                    }
                }
            }
        }
        Ok(true)
    }

    /// Tells watchers, after the change is visible.
    fn publish(&mut self, events: &Arc<RevisionEvents>) -> Result<(), ApplyFaultError> {
        let history = StoreHistory::of(&self.member);
        // Only where the old value has left memory.
        for event in events
            .events
            .iter()
            .filter(|event| event.known_prev().is_none())
        {
            // Reported by the history. Watches that want it read it on their own.
            let _ = event.look_up_prev(&history);
        }
        let lagging = {
            let mut hub = self.member.watches.lock();
            hub.publish(events).map_err(|_| ApplyFaultError::Publish {
                revision: events.revision,
            })?;
            let stats = hub.stats();
            stats.catching_up > 0
        };
        let metrics = &self.member.metrics;
        metrics.events.inc_by(events.events.len() as u64);
        let puts = events
            .events
            .iter()
            .filter(|event| event.kind() == EventKind::Put);
        let bytes = |event: &Event| event.kv().key.len() + event.kv().value.len();
        metrics.put_bytes.add(puts.map(bytes).sum::<usize>() as i64);
        if lagging {
            self.member.watches.ring();
        }
        Ok(())
    }
}
