//! A proposal on its way to the engine, and its owner until then.
//!
//! ```text
//!   submit ──▶ queued ──(the engine takes it)──▶ proposed in a term
//!                │  ▲                                 │
//!                │  └──(the leader is handing over)───┘
//!                └──(its ticket is dropped)──▶ withdrawn: never proposed
//! ```
//! A request that was reported to its client as failed must not take effect when a leader
//! appears later. So a queued proposal belongs to the [`ProposalTicket`] of its proposer, and
//! one atomic decides between the engine and the ticket.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use portunus_proto::{Term, raftpb::ConfChange};

use super::member::Member;
use crate::core::{Leadership, Role};

/// The bytes that a membership change counts for in the queue.
const CONF_CHANGE_BYTES: usize = 1024;

/// Set once the proposal is withdrawn; the other bits are the term.
const WITHDRAWN: u64 = 1 << 63;

/// The progress of a proposal: queued, or proposed in a term.
#[derive(Debug, Clone, Default)]
pub struct ProposalProgress(Arc<AtomicU64>);

impl ProposalProgress {
    /// Creates the progress of a proposal that was proposed in this term.
    #[must_use]
    pub fn in_term(term: u64) -> Self {
        Self(Arc::new(term.into()))
    }

    /// Returns the term in which the engine proposed it; `None` while it is queued.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        let term = self.0.load(Ordering::Acquire) & !WITHDRAWN;
        (term > 0).then_some(Term(term))
    }

    /// Marks it as proposed. False if it was withdrawn before.
    fn begin(&self, term: Term) -> bool {
        self.0.fetch_or(term.0, Ordering::AcqRel) & WITHDRAWN == 0
    }

    /// Marks it as queued again. False if it was withdrawn meanwhile.
    fn undo(&self) -> bool {
        self.0.fetch_and(WITHDRAWN, Ordering::AcqRel) & WITHDRAWN == 0
    }

    /// Withdraws it. True if it was not proposed, and now never will be.
    pub(super) fn withdraw(&self) -> bool {
        self.0.fetch_or(WITHDRAWN, Ordering::AcqRel) == 0
    }
}

#[derive(Debug)]
pub(super) enum Content {
    Normal(Bytes),
    ConfChange(ConfChange),
}

/// An entry to be proposed.
#[derive(Debug)]
pub struct Proposal {
    pub(super) content: Content,
    progress: ProposalProgress,
    /// Only the leader of this term may propose it.
    leader_term: Option<Term>,
}

impl Proposal {
    /// Creates an entry with this content.
    #[must_use]
    pub fn normal(data: Bytes) -> Self {
        Self::new(Content::Normal(data))
    }

    /// Creates a membership change. While another one is not applied yet, an empty entry is
    /// committed in its place.
    #[must_use]
    pub fn conf_change(change: ConfChange) -> Self {
        Self::new(Content::ConfChange(change))
    }

    fn new(content: Content) -> Self {
        Self {
            content,
            progress: ProposalProgress::default(),
            leader_term: None,
        }
    }

    /// Binds it to a term: only this member as the leader of that term may propose it.
    #[must_use]
    pub fn only_as_leader_of(mut self, term: Term) -> Self {
        self.leader_term = Some(term);
        self
    }

    /// Returns a handle to its progress.
    #[must_use]
    pub fn progress(&self) -> ProposalProgress {
        self.progress.clone()
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            Content::Normal(data) => data.len(),
            Content::ConfChange(_) => CONF_CHANGE_BYTES,
        }
    }

    pub(super) fn data(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Normal(data) => Some(data),
            Content::ConfChange(_) => None,
        }
    }

    /// Marks it as proposed. False if it must not be proposed.
    pub(super) fn begin(&self, leadership: Leadership) -> bool {
        let is_allowed = self
            .leader_term
            .is_none_or(|term| leadership.role == Role::Leader && leadership.term == term);
        is_allowed && self.progress.begin(leadership.term)
    }

    /// Marks it as queued again. False if it was withdrawn meanwhile.
    pub(super) fn undo(&self) -> bool {
        self.progress.undo()
    }
}

/// Owns a queued proposal: dropping the ticket withdraws it, unless the engine has
/// proposed it already.
#[must_use = "dropping the ticket withdraws the proposal"]
pub struct ProposalTicket {
    member: Arc<Member>,
    number: u64,
    progress: ProposalProgress,
}

impl ProposalTicket {
    pub(super) fn new(member: &Arc<Member>, number: u64, progress: ProposalProgress) -> Self {
        Self {
            member: Arc::clone(member),
            number,
            progress,
        }
    }

    /// Detaches the proposal from the ticket: it waits for a leader without a limit.
    pub fn detach(mut self) {
        self.number = DETACHED;
    }

    /// Withdraws the proposal. True if it was not proposed and never will be; false if it was
    /// passed to raft, so that it may be committed.
    pub fn withdraw(mut self) -> bool {
        self.give_up()
    }

    fn give_up(&mut self) -> bool {
        let number = std::mem::replace(&mut self.number, DETACHED);
        let is_withdrawn = self.progress.withdraw();
        if is_withdrawn {
            self.member.inbox.remove_proposal(number);
        }
        is_withdrawn
    }
}

/// The number of a detached ticket, which no proposal has.
const DETACHED: u64 = 0;

impl Drop for ProposalTicket {
    fn drop(&mut self) {
        if self.number != DETACHED {
            self.give_up();
        }
    }
}
