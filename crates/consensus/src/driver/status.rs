//! The status of a member, readable at any time without a lock.
//!
//! The driver publishes after every turn; readers load. Each value was true at some moment, but
//! two values may be of different moments.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use portunus_gates::cluster::MemberId;
use portunus_proto::{LogIndex, Term};

use crate::core::{Core, Role};

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The id of the member.
    pub id: MemberId,
    /// The leader it knows, or [`MemberId::NONE`].
    pub leader: MemberId,
    /// Its term.
    pub term: Term,
    /// The last index it knows to be committed.
    pub commit: u64,
    /// The last index reported as applied.
    pub applied: u64,
    /// The last index in its log.
    pub last_index: u64,
    /// Its role.
    pub role: Role,
    /// Whether it is a learner, which does not vote.
    pub is_learner: bool,
    /// Syncs of the log since the start.
    pub wal_syncs: u64,
    /// Entries written to the log since the start.
    pub wal_entries: u64,
}

pub(super) struct StatusCell {
    id: MemberId,
    started: Instant,
    /// The time of the last tick, in milliseconds since the start.
    ticked_ms: AtomicU64,
    leader: AtomicU64,
    term: AtomicU64,
    commit: AtomicU64,
    pub(super) applied: AtomicU64,
    last_index: AtomicU64,
    role: AtomicU8,
    is_learner: AtomicBool,
    /// The term this member leads; 0 for none.
    led_term: AtomicU64,
    /// Whether a read may use `commit` as it is.
    can_read_alone: AtomicBool,
    pub(super) wal_syncs: AtomicU64,
    pub(super) wal_entries: AtomicU64,
}

impl StatusCell {
    pub(super) fn new(id: MemberId, applied: LogIndex) -> Self {
        Self {
            id,
            started: Instant::now(),
            ticked_ms: AtomicU64::default(),
            leader: AtomicU64::default(),
            term: AtomicU64::default(),
            commit: AtomicU64::default(),
            applied: applied.0.into(),
            last_index: AtomicU64::default(),
            role: AtomicU8::default(),
            is_learner: AtomicBool::default(),
            led_term: AtomicU64::default(),
            can_read_alone: AtomicBool::default(),
            wal_syncs: AtomicU64::default(),
            wal_entries: AtomicU64::default(),
        }
    }

    pub(super) fn ticked(&self) {
        self.ticked_ms
            .store(self.since_start_ms(), Ordering::Release);
    }

    pub(super) fn since_last_tick(&self) -> Duration {
        let ticked_ms = self.ticked_ms.load(Ordering::Acquire);
        Duration::from_millis(self.since_start_ms().saturating_sub(ticked_ms))
    }

    fn since_start_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Publishes the core's state, before its effects are carried out: a reader that sees an
    /// effect of a commit must find it published.
    pub(super) fn publish(&self, core: &Core) {
        let leadership = core.current_leadership();
        if !core.can_read_alone() {
            self.can_read_alone.store(false, Ordering::SeqCst);
        }
        let led_term = match leadership.role {
            Role::Leader => leadership.term,
            _ => Term(0),
        };
        self.led_term.store(led_term.0, Ordering::SeqCst);
        self.leader.store(leadership.leader.0, Ordering::Release);
        self.term.store(leadership.term.0, Ordering::Release);
        self.role.store(leadership.role as u8, Ordering::Release);
        self.last_index.store(core.last_index(), Ordering::Release);
        self.commit
            .store(core.hard_state().commit, Ordering::SeqCst);
        if core.can_read_alone() {
            self.can_read_alone.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn publish_membership(&self, core: &Core) {
        let is_learner = core.conf_state().learners.contains(&self.id.0);
        self.is_learner.store(is_learner, Ordering::Release);
    }

    /// Returns the commit index, if a linearizable read that starts now may use it.
    pub(super) fn lone_read_index(&self) -> Option<LogIndex> {
        // In this order: what was committed when the flag was set is enough, and the index only
        // grows.
        self.can_read_alone
            .load(Ordering::SeqCst)
            .then(|| LogIndex(self.commit.load(Ordering::SeqCst)))
    }

    /// Returns the term this member leads, as one value.
    pub(super) fn led_term(&self) -> Option<Term> {
        match self.led_term.load(Ordering::SeqCst) {
            0 => None,
            term => Some(Term(term)),
        }
    }

    /// Whether this member is the sole voter of its cluster, and its leader.
    pub(super) fn is_alone(&self) -> bool {
        self.can_read_alone.load(Ordering::Relaxed)
    }

    pub(super) fn load(&self) -> Status {
        Status {
            id: self.id,
            leader: MemberId(self.leader.load(Ordering::Acquire)),
            term: Term(self.term.load(Ordering::Acquire)),
            commit: self.commit.load(Ordering::Acquire),
            applied: self.applied.load(Ordering::Acquire),
            last_index: self.last_index.load(Ordering::Acquire),
            role: match self.role.load(Ordering::Acquire) {
                role if role == Role::Leader as u8 => Role::Leader,
                role if role == Role::Candidate as u8 => Role::Candidate,
                role if role == Role::PreCandidate as u8 => Role::PreCandidate,
                _ => Role::Follower,
            },
            is_learner: self.is_learner.load(Ordering::Acquire),
            wal_syncs: self.wal_syncs.load(Ordering::Acquire),
            wal_entries: self.wal_entries.load(Ordering::Acquire),
        }
    }
}
