//! Checks whether one order of all requests explains every answer.
//!
//! The clients of a store record a history: for each request the time it was sent, and the
//! time and content of its answer, if one was received. The store is linearizable on that
//! history if each request can be assigned a time between its call and its answer, so that a
//! single [`Model`] that executes them at those times gives the same answers.
//!
//! ```text
//!   client 1   ├── put a ──┤        ├──── get a: 2 ────┤
//!   client 2        ├─────── put a ───────┤
//!                    put 1      put 2     get 2          one order that explains it
//! ```
//!
//! [`check`] searches for such an order; [`etcd`] is the model of an etcd store. This module
//! is pure.

pub mod etcd;
mod explain;
mod search;

use std::fmt::Debug;
use std::hash::Hash;

pub use explain::Violation;
pub use search::{Verdict, check};

/// The sequential behaviour of a store.
pub trait Model {
    /// The state on which later answers depend.
    type State: Clone + Eq + Hash + Debug;
    /// A request.
    type Input: Debug;
    /// An answer.
    type Output: Debug;
    /// The class of interchangeable requests; see [`Model::kind`].
    type Kind: Eq + Hash;

    /// Returns the state before the first request.
    fn start(&self) -> Self::State;

    /// Returns the state after `input` if its answer in `state` may be `output`, else `None`.
    ///
    /// Without an answer (`output` is `None`) any answer is possible; a result of `None` then
    /// means that the request need not take effect in `state`.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;

    /// Returns the kind of a request. Unanswered requests of one kind are interchangeable: an
    /// order with one of them is also valid with another one that was sent before it.
    fn kind(&self, input: &Self::Input) -> Self::Kind;

    /// Describes the answer that the model expects.
    fn expected(&self, state: &Self::State, input: &Self::Input) -> String;
}

/// One request of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation<I, O> {
    /// The client, for reports.
    pub client: usize,
    /// The request.
    pub input: I,
    /// When it was sent, on a clock that all clients share.
    pub called_at: u64,
    /// The outcome.
    pub outcome: Outcome<O>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<O> {
    /// The request was answered.
    Answered {
        /// The answer.
        output: O,
        /// When it was received.
        at: u64,
    },
    /// No answer: the request took effect at any time after its call, or never.
    Unknown,
}

impl<I, O> Operation<I, O> {
    /// Returns the answer, if one was received.
    #[must_use]
    pub fn output(&self) -> Option<&O> {
        match &self.outcome {
            Outcome::Answered { output, .. } => Some(output),
            Outcome::Unknown => None,
        }
    }

    /// Returns when the answer was received.
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
