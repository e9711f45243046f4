//! The requests of clients at one member: proposals, linearizable reads, keep-alives, watches.
//!
//! A proposal is queued until the engine takes it and can be withdrawn until then, as in the
//! driver. A read asks for a read index and is answered by a reader that is taken once that index
//! is applied. A keep-alive is answered by the leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portunus_auth::{Caller, ROOT};
use portunus_consensus::Role;
use portunus_features::LeaseCheckpoint as CheckpointFeature;
use portunus_gates::cluster::MemberId;
use portunus_mvcc::lease::Renewal;
use portunus_mvcc::watch::{Response, ResponseReceiver, StreamId, StreamOptions, SyncBudget, Wake};
use portunus_mvcc::{ReadError, Reader};
use portunus_proto::etcdserverpb::{
    InternalRaftRequest, LeaseCheckpoint, LeaseCheckpointRequest, LeaseRevokeRequest, RangeRequest,
    RangeResponse, RequestHeader, WatchCreateRequest,
};
use portunus_proto::raftpb::ConfChange;
use portunus_proto::{EtcdError, LeaseId, Term};
use portunus_statemachine::Answer;
use prost::Message as _;

use super::super::planted::PlantedBug;
use super::super::scenario::TICK;
use super::history::PlantedHistory;
use super::{Member, Running, Surroundings};

/// Ticks after which an unanswered read index is requested again, as in the driver.
const READ_RETRY_TICKS: u64 = 5;
/// The most leases that are revoked at once.
const REVOKED_MAX: usize = 100;

/// The answer to a request.
pub(in super::super) enum Reply {
    /// The entry at this index was applied.
    Applied { index: u64, answer: Answer },
    /// The outcome is unknown: the leader of the proposal's term was replaced.
    Unknown,
    /// The answer to a read, and the applied index that it was given at.
    Read {
        index: u64,
        answer: Result<RangeResponse, EtcdError>,
    },
    /// The answer to a keep-alive: the TTL.
    Renewed(Result<i64, EtcdError>),
}

/// An entry to be proposed.
pub(in super::super) enum Proposal {
    Normal(Bytes),
    ConfChange(ConfChange),
}

struct Queued {
    /// The request of the client that waits for it.
    request: Option<u64>,
    proposal: Proposal,
    /// Only the leader of this term may propose it.
    leader_term: Option<Term>,
}

enum ReadState {
    Unasked,
    Asked { context: u64, since: u64 },
    Confirmed { index: u64 },
}

struct PendingRead {
    /// `None`: a keep-alive waits until it is known what was committed before it.
    range: Option<RangeRequest>,
    state: ReadState,
    user: Option<&'static str>,
    /// For a planted bug: the reader of the time of the request.
    early_reader: Option<Reader>,
}

struct PendingRenewal {
    lease: LeaseId,
    /// An unknown lease is looked up again after a read barrier: a leader that was replaced, or
    /// has not applied everything, does not know which leases exist.
    barrier: Barrier,
    clears_checkpoint: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Barrier {
    NotNeeded,
    Waiting,
    Passed,
}

/// The requests that wait at a member.
pub(super) struct Requests {
    queue: BTreeMap<u64, Queued>,
    next: u64,
    /// The requests whose entries are awaited, with the terms in which they were proposed.
    waiting: BTreeMap<u64, Option<Term>>,
    reads: BTreeMap<u64, PendingRead>,
    renewals: BTreeMap<u64, PendingRenewal>,
    next_context: u64,
}

impl Requests {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            queue: BTreeMap::new(),
            next: 0,
            waiting: BTreeMap::new(),
            reads: BTreeMap::new(),
            renewals: BTreeMap::new(),
            next_context: incarnation << 32,
        }
    }

    pub(super) fn is_waiting(&self, request: u64) -> bool {
        self.waiting.contains_key(&request)
    }

    /// Ends the wait of a request. False if it did not wait here.
    pub(super) fn take_waiting(&mut self, request: u64) -> bool {
        self.waiting.remove(&request).is_some()
    }

    /// Returns the requests that were proposed before `term` and still wait.
    pub(super) fn take_proposed_before(&mut self, term: Term) -> Vec<u64> {
        let is_lost = |proposed: &Option<Term>| proposed.is_some_and(|it| it < term);
        let lost = self
            .waiting
            .iter()
            .filter(|(_, proposed)| is_lost(proposed));
        let lost: Vec<u64> = lost.map(|(request, _)| *request).collect();
        for request in &lost {
            self.waiting.remove(request);
        }
        lost
    }

    fn enqueue(&mut self, request: Option<u64>, proposal: Proposal, leader_term: Option<Term>) {
        self.next += 1;
        self.queue.insert(
            self.next,
            Queued {
                request,
                proposal,
                leader_term,
            },
        );
    }
}

impl Member {
    /// Queues a proposal, as the server's handlers do.
    pub(in super::super) fn submit(
        &mut self,
        request: Option<u64>,
        proposal: Proposal,
        around: &mut Surroundings<'_>,
    ) -> Result<(), crate::cluster::Violation> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        if let Some(request) = request {
            running.requests.waiting.insert(request, None);
        }
        running.requests.enqueue(request, proposal, None);
        running.turn(&self.shadow, around)?;
        // A change of membership does not wait in the queue: the operator decided it for the
        // members of this moment, and decides again.
        let waits = |queued: &Queued| matches!(queued.proposal, Proposal::Normal(_));
        running.requests.queue.retain(|_, queued| waits(queued));
        Ok(())
    }

    /// Ends a request whose client has given up. True if it was not proposed and never will be.
    pub(in super::super) fn withdraw(&mut self, request: u64, bug: Option<PlantedBug>) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let requests = &mut running.requests;
        requests.waiting.remove(&request);
        requests.reads.remove(&request);
        requests.renewals.remove(&request);
        let queued = requests.queue.iter();
        let queued = queued
            .filter(|(_, it)| it.request == Some(request))
            .map(|(number, _)| *number)
            .next();
        let Some(number) = queued else {
            return false;
        };
        if bug != Some(PlantedBug::ProposesAfterTimeout) {
            requests.queue.remove(&number);
        }
        true
    }

    /// Begins a linearizable or serializable read.
    pub(in super::super) fn read(
        &mut self,
        request: u64,
        range: RangeRequest,
        user: Option<&'static str>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), crate::cluster::Violation> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let is_serializable = range.serializable;
        let reader = running.replica.machine.reader();
        let state = match is_serializable || around.has(PlantedBug::AnswersReadsAlone) {
            true => ReadState::Confirmed { index: 0 },
            false => ReadState::Unasked,
        };
        running.requests.reads.insert(
            request,
            PendingRead {
                range: Some(range),
                state,
                user: user.filter(|_| !around.has(PlantedBug::ReadsWithoutPermission)),
                early_reader: around
                    .has(PlantedBug::ReaderBeforeBarrier)
                    .then_some(reader),
            },
        );
        running.turn(&self.shadow, around)
    }

    /// Begins a keep-alive.
    pub(in super::super) fn renew(
        &mut self,
        request: u64,
        lease: LeaseId,
        around: &mut Surroundings<'_>,
    ) -> Result<(), crate::cluster::Violation> {
        let now_ms = self.now_ms(around.now);
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let renewal = PendingRenewal {
            lease,
            barrier: Barrier::NotNeeded,
            clears_checkpoint: false,
        };
        running.requests.renewals.insert(request, renewal);
        running.serve_renewals(now_ms, around);
        running.turn(&self.shadow, around)
    }

    /// Does the periodic work of a leader: revokes expired leases and checkpoints others.
    pub(in super::super) fn tend_leases(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), crate::cluster::Violation> {
        let now_ms = self.now_ms(around.now);
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running.serve_renewals(now_ms, around);
        running.revoke_expired(now_ms, around);
        running.turn(&self.shadow, around)
    }

    /// Syncs lagging watches and sends progress notices.
    pub(in super::super) fn sync_watches(&mut self, around: &Surroundings<'_>) {
        if let Some(running) = &mut self.running {
            let reader = running.replica.machine.reader();
            let history = PlantedHistory {
                reader: &reader,
                bug: around.bug,
            };
            let budget = SyncBudget {
                watchers_max: 2,
                revisions_max: 8,
            };
            let _ = running.replica.hub.sync_step(&history, budget);
            running.replica.hub.tick(Duration::from_millis(around.now));
        }
    }
}

impl Running {
    /// Passes queued proposals and reads to the engine.
    pub(super) fn take_requests(&mut self, around: &mut Surroundings<'_>) {
        self.take_proposals();
        let leader = self.engine.core().current_leadership().leader;
        if leader == MemberId::NONE {
            return;
        }
        let (id, now) = (self.engine.core().id(), around.now);
        for read in self.requests.reads.values_mut() {
            if let ReadState::Asked { since, .. } = read.state
                && since + READ_RETRY_TICKS * TICK <= now
            {
                read.state = ReadState::Unasked;
            }
            if !matches!(read.state, ReadState::Unasked) {
                continue;
            }
            self.requests.next_context += 1;
            let context = self.requests.next_context;
            around.invariants.begins_read(id, context);
            if self.engine.read_index(context).is_ok() {
                read.state = ReadState::Asked {
                    context,
                    since: now,
                };
            }
        }
    }

    fn take_proposals(&mut self) {
        if self.engine.proposal_room().is_none() {
            return;
        }
        let leadership = self.engine.core().current_leadership();
        let is_allowed = |queued: &Queued| {
            queued
                .leader_term
                .is_none_or(|term| leadership.role == Role::Leader && leadership.term == term)
        };
        self.requests.queue.retain(|_, queued| is_allowed(queued));
        while let Some((&number, queued)) = self.requests.queue.first_key_value() {
            let result = match &queued.proposal {
                Proposal::Normal(data) => self.engine.propose(vec![data.clone()]),
                Proposal::ConfChange(change) => self.engine.propose_conf_change(change),
            };
            if result.is_err() {
                // The leader is handing over; the next leader gets it.
                return;
            }
            if let Some(request) = queued.request
                && let Some(term) = self.requests.waiting.get_mut(&request)
            {
                *term = Some(leadership.term);
            }
            self.requests.queue.remove(&number);
        }
    }

    /// Records the read index of a read.
    pub(super) fn confirm_read(&mut self, context: u64, index: u64) {
        for read in self.requests.reads.values_mut() {
            if matches!(read.state, ReadState::Asked { context: asked, .. } if asked == context) {
                read.state = ReadState::Confirmed { index };
            }
        }
    }

    /// Answers reads whose index is applied.
    pub(super) fn serve_reads(&mut self) {
        let applied = self.replica.applied_index();
        let is_ready = |read: &PendingRead| matches!(read.state, ReadState::Confirmed { index } if index <= applied);
        let ready = self.requests.reads.iter();
        let ready: Vec<u64> = ready
            .filter(|(_, read)| is_ready(read))
            .map(|(request, _)| *request)
            .collect();
        for request in ready {
            let Some(read) = self.requests.reads.remove(&request) else {
                continue;
            };
            let Some(range) = read.range else {
                if let Some(renewal) = self.requests.renewals.get_mut(&request) {
                    renewal.barrier = Barrier::Passed;
                }
                continue;
            };
            // After the barrier: an installed snapshot replaces the store.
            let reader = read
                .early_reader
                .unwrap_or_else(|| self.replica.machine.reader());
            let auth = self.replica.machine.auth();
            let permitted = read.user.map_or(Ok(()), |user| {
                let caller = Caller::new(user, auth.revision());
                auth.check_range(&caller, &range.key, &range.range_end)
            });
            let answer = match reader.range(&range) {
                _ if permitted.is_err() => permitted.map(|()| RangeResponse::default()),
                Ok(response) => Ok(response),
                Err(ReadError::Refused(error)) => Err(error),
                // A store that was replaced; the client reads again.
                Err(_) => Err(EtcdError::Stopped),
            };
            let index = applied;
            self.replies.push((request, Reply::Read { index, answer }));
        }
    }

    /// Renews leases, as the leader does.
    fn serve_renewals(&mut self, now_ms: u64, around: &Surroundings<'_>) {
        let leadership = self.engine.core().current_leadership();
        let term = leadership.term;
        let lessor = self.replica.machine.lessor().clone();
        let (mut clears, mut barriers) = (Vec::new(), Vec::new());
        for (request, renewal) in &mut self.requests.renewals {
            let lease = renewal.lease;
            if leadership.role != Role::Leader {
                let answer = Err(EtcdError::NotPrimaryLessor);
                self.replies.push((*request, Reply::Renewed(answer)));
                continue;
            }
            let mut lessor = lessor.lock();
            let is_unknown = !lessor.exists(lease) && renewal.barrier != Barrier::Passed;
            if is_unknown && !around.has(PlantedBug::KeepAliveBeforeApply) {
                if renewal.barrier == Barrier::NotNeeded {
                    renewal.barrier = Barrier::Waiting;
                    barriers.push(*request);
                }
                continue;
            }
            let renewed =
                match around.has(PlantedBug::IgnoresRenewals) {
                    true => lessor.time_to_live(Some(term), lease, now_ms).map(|time| {
                        Renewal::Renewed {
                            ttl_s: time.granted_ttl_s,
                        }
                    }),
                    false => lessor.renew(term, lease, now_ms),
                };
            match renewed {
                Ok(Renewal::Renewed { ttl_s }) => {
                    self.replies.push((*request, Reply::Renewed(Ok(ttl_s))));
                }
                Ok(Renewal::ClearCheckpointFirst) => {
                    if !std::mem::replace(&mut renewal.clears_checkpoint, true) {
                        clears.push(lease);
                    }
                }
                Ok(Renewal::AwaitRevoke) => {}
                Err(error) => self.replies.push((*request, Reply::Renewed(Err(error)))),
            }
        }
        for (request, _) in &self.replies {
            self.requests.renewals.remove(request);
        }
        for request in barriers {
            let barrier = PendingRead {
                range: None,
                state: ReadState::Unasked,
                user: None,
                early_reader: None,
            };
            self.requests.reads.insert(request, barrier);
        }
        for id in clears {
            let checkpoint = LeaseCheckpoint {
                id: id.0,
                remaining_ttl: 0,
            };
            let checkpoints = vec![checkpoint];
            self.propose_own(
                None,
                InternalRaftRequest {
                    lease_checkpoint: Some(LeaseCheckpointRequest { checkpoints }),
                    ..InternalRaftRequest::default()
                },
            );
        }
    }

    fn revoke_expired(&mut self, now_ms: u64, around: &Surroundings<'_>) {
        let leadership = self.engine.core().current_leadership();
        let leads = leadership.role == Role::Leader;
        let lessor = self.replica.machine.lessor().clone();
        let mut lessor = lessor.lock();
        let (term, bound) = match around.has(PlantedBug::RevokesAfterLosingLeadership) {
            true => (lessor.primary_term().unwrap_or_default(), None),
            false if !leads => return,
            false => (leadership.term, Some(leadership.term)),
        };
        let due = lessor.due(term, now_ms, REVOKED_MAX);
        let is_on = self.replica.machine.view().enabled(CheckpointFeature);
        let checkpoints = match is_on {
            true => lessor.checkpoints_due(term, now_ms),
            false => Vec::new(),
        };
        drop(lessor);
        for id in due {
            self.propose_own(
                bound,
                InternalRaftRequest {
                    lease_revoke: Some(LeaseRevokeRequest { id: id.0 }),
                    ..InternalRaftRequest::default()
                },
            );
        }
        if !checkpoints.is_empty() {
            self.propose_own(
                bound,
                InternalRaftRequest {
                    lease_checkpoint: Some(LeaseCheckpointRequest { checkpoints }),
                    ..InternalRaftRequest::default()
                },
            );
        }
    }

    /// Proposes a request of the member's own.
    pub(super) fn propose_own(
        &mut self,
        leader_term: Option<Term>,
        mut request: InternalRaftRequest,
    ) {
        let username = match request.lease_revoke {
            Some(_) => ROOT.to_owned(),
            None => String::new(),
        };
        request.header = Some(RequestHeader {
            username,
            ..RequestHeader::default()
        });
        let proposal = Proposal::Normal(request.encode_to_vec().into());
        self.requests.enqueue(None, proposal, leader_term);
    }
}

/// The watch streams at a member, by watcher.
#[derive(Default)]
pub(in super::super) struct Streams {
    open: BTreeMap<u64, (StreamId, ResponseReceiver, Arc<Flag>)>,
}

/// Set when the queue of a stream is drained, so that the hub is to be run.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn readable(&self) {}

    fn drained(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// Opens a stream with one watch for a watcher.
    pub(in super::super) fn watch(&mut self, watcher: u64, request: WatchCreateRequest, now: u64) {
        self.stop_watching(watcher);
        let options = StreamOptions {
            now: Duration::from_millis(now),
            progress_interval: Duration::from_millis(10 * TICK),
            connection: None,
        };
        let flag = Arc::new(Flag::default());
        let hub = &mut self.replica.hub;
        let (id, outlet) = hub.open_stream(options, Arc::clone(&flag) as Arc<dyn Wake>);
        // The first answer of a new stream always has room.
        let _ = hub.create(id, request);
        self.streams.open.insert(watcher, (id, outlet, flag));
    }

    /// For a planted bug: watches start again some revisions before the newest one.
    pub(super) fn turn_watches_back(&mut self, now: u64) {
        let start_revision = (self.replica.hub.revision() - 20).max(1);
        let watchers: Vec<u64> = self.streams.open.keys().copied().collect();
        for watcher in watchers {
            let request = WatchCreateRequest {
                key: Bytes::from_static(&[0]),
                range_end: Bytes::from_static(&[0]),
                start_revision,
                ..WatchCreateRequest::default()
            };
            self.watch(watcher, request, now);
        }
    }

    /// Closes the stream of a watcher.
    pub(in super::super) fn stop_watching(&mut self, watcher: u64) {
        if let Some((id, ..)) = self.streams.open.remove(&watcher) {
            self.replica.hub.close_stream(id);
        }
    }

    /// Requests a progress notice.
    pub(in super::super) fn request_progress(&mut self, watcher: u64) {
        if let Some((id, ..)) = self.streams.open.get(&watcher) {
            // Without room there is no notice.
            let _ = self.replica.hub.request_progress(*id);
        }
    }

    /// Takes at most `responses_max` responses of a watcher's stream. `None` if it is closed.
    pub(in super::super) fn take_responses(
        &mut self,
        watcher: u64,
        responses_max: u64,
    ) -> Option<Vec<Response>> {
        let (_, outlet, _) = self.streams.open.get_mut(&watcher)?;
        let mut responses = Vec::new();
        for _ in 0..responses_max {
            let Some(response) = outlet.take() else {
                break;
            };
            responses.push(response);
        }
        Some(responses)
    }
}
