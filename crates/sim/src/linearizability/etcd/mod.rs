//! An etcd store as a [`Model`]: requests, answers and the store.
//!
//! Answers contain revisions, which restrict the possible orders: the revision of an answered
//! write is its position among all writes. [`Etcd`] uses them to restrict which unanswered
//! request can have made a revision (see `evidence`).
//!
//! Compaction and lease expiry are not modelled: compaction changes no answer at the newest
//! revision, and the leases of a run have a TTL longer than the run.

mod evidence;
mod request;
mod store;

use super::{Model, Operation};
use evidence::Evidence;

pub use request::{
    Answer, Condition, Entry, Key, Keys, Op, OpAnswer, Refusal, Request, Txn, Value,
};
pub use store::Store;

/// A history of an etcd store.
pub type History = Vec<Operation<Request, Answer>>;

/// The model of an etcd store, for one history.
#[derive(Debug, Clone)]
pub struct Etcd {
    start: Store,
    evidence: Option<Evidence>,
}

impl Etcd {
    /// The model for a `history` that began with the store `start`.
    #[must_use]
    pub fn for_history(start: Store, history: &[Operation<Request, Answer>]) -> Etcd {
        let evidence = Some(Evidence::of(&start, history));
        Etcd { start, evidence }
    }

    /// A model without evidence from other answers: the same verdicts, but much slower.
    #[cfg(test)]
    pub(super) fn plain(start: Store) -> Etcd {
        let evidence = None;
        Etcd { start, evidence }
    }
}

impl Model for Etcd {
    type State = Store;
    type Input = Request;
    type Output = Answer;
    type Kind = Request;

    fn start(&self) -> Store {
        self.start.clone()
    }

    fn step(&self, state: &Store, input: &Request, output: Option<&Answer>) -> Option<Store> {
        match output {
            Some(answer) => {
                let revision = answer.revision();
                // Rejects most candidates before the store is cloned.
                if revision.is_some_and(|of| of < state.revision || of > state.revision + 1) {
                    return None;
                }
                let mut next = state.clone();
                (next.apply(input) == *answer).then_some(next)
            }
            None => {
                let evidence = self.evidence.as_ref();
                if evidence.is_some_and(|evidence| !evidence.is_worth_trying(state, input)) {
                    return None;
                }
                let mut next = state.clone();
                let _ = next.apply(input);
                let fits = evidence.is_none_or(|evidence| evidence.allows(state, &next, input));
                (next != *state && fits).then_some(next)
            }
        }
    }

    fn kind(&self, input: &Request) -> Request {
        let evidence = self.evidence.as_ref();
        evidence.map_or_else(|| input.clone(), |evidence| evidence.kind_of(input))
    }

    fn expected(&self, state: &Store, input: &Request) -> String {
        format!("{:?}", state.clone().apply(input))
    }
}
