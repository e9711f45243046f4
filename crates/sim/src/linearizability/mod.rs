//! Was there one order of all requests that explains every answer?
//!
//! Whoever runs clients against a store records a history: for each request when it was
//! sent, and when and how it was answered, or that no answer came. The store is
//! linearizable on that history if each request can be given one moment between its
//! sending and its answer, so that a single copy of the [`Model`], asked at those moments,
//! gives the same answers.
//!
//! ```text
//!   client 1   ├── put a ──┤        ├──── get a: 2 ────┤
//!   client 2        ├─────── put a ───────┤
//!                    put 1      put 2     get 2          one order that explains it
//! ```
//!
//! [`check`] searches for such an order; [`etcd`] is the model of an etcd store. Everything
//! here is pure: a history in, a verdict out.

pub mod etcd;
mod explain;
mod search;

use std::fmt::Debug;
use std::hash::Hash;

pub use explain::Violation;
pub use search::{Verdict, check};

/// What one copy of the store does.
pub trait Model {
    /// Everything that later answers depend on.
    type State: Clone + Eq + Hash + Debug;
    /// A request.
    type Input: Debug;
    /// An answer.
    type Output: Debug;
    /// What requests are grouped by; see [`Model::kind`].
    type Kind: Eq + Hash;

    /// The state before the first request.
    fn start(&self) -> Self::State;

    /// The state after `input` if it may be answered with `output` in `state`, else `None`.
    ///
    /// Where no answer came (`output` is `None`) every answer would do; `None` then means
    /// that there is nothing to gain from the request taking effect in `state`.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;

    /// Unanswered requests of one kind are interchangeable: whatever one of them explains,
    /// another that was sent before it explains too.
    fn kind(&self, input: &Self::Input) -> Self::Kind;

    /// What the answer would have to be, in words.
    fn expected(&self, state: &Self::State, input: &Self::Input) -> String;
}

/// One request of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation<I, O> {
    /// Who asked; for people.
    pub client: usize,
    /// What was asked.
    pub input: I,
    /// When it was sent, on any clock that all clients share.
    pub called_at: u64,
    /// What came of it.
    pub outcome: Outcome<O>,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<O> {
    /// An answer.
    Answered {
        /// What it said.
        output: O,
        /// When it came.
        at: u64,
    },
    /// No answer: it took effect at any moment since, or never.
    Unknown,
}

impl<I, O> Operation<I, O> {
    /// The answer, if one came.
    #[must_use]
    pub fn output(&self) -> Option<&O> {
        match &self.outcome {
            Outcome::Answered { output, .. } => Some(output),
            Outcome::Unknown => None,
        }
    }

    /// When the answer came, if one did.
    #[must_use]
    pub fn answered_at(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Answered { at, .. } => Some(at),
            Outcome::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests;
