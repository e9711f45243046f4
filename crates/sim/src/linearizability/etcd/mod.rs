//! An etcd store as a [`Model`]: requests, answers, and what one copy does.
//!
//! Answers carry revisions, so a history says much about its own order: a write that was
//! answered names its place among all writes. [`Etcd`] uses that: what answers say about a
//! revision decides which unanswered request can have made it (see `evidence`).
//!
//! Compaction and the end of a lease by time are not modelled: the first changes no answer
//! at the newest revision, the second is left out by leases that live longer than the run.

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
    /// For checking `history`, which began when the store was `start`.
    #[must_use]
    pub fn for_history(start: Store, history: &[Operation<Request, Answer>]) -> Etcd {
        let evidence = Some(Evidence::of(&start, history));
        Etcd { start, evidence }
    }

    /// Draws no conclusions from the answers of others: the same verdicts, far slower.
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
                // Most candidates are refused here, before anything is copied.
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
