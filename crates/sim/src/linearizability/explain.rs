//! Explains why a history is not linearizable: the longest partial order and its candidates.

use std::fmt::Write as _;

use super::{Model, Operation};

/// Requests shown before the end of the longest order.
const CONTEXT_OPERATIONS: usize = 8;

/// The longest order of requests that is consistent with their answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation<S> {
    /// Indexes into the history, in the order in which they took effect.
    pub order: Vec<usize>,
    /// The state after them.
    pub state: S,
    /// The requests of which one would have to be next, although none is consistent.
    pub candidates: Vec<usize>,
}

impl<S> Violation<S> {
    /// Formats the operations around the end of the longest order.
    #[must_use]
    pub fn explain<M: Model<State = S>>(
        &self,
        model: &M,
        history: &[Operation<M::Input, M::Output>],
    ) -> String
    where
        S: std::fmt::Debug,
    {
        let mut text = format!(
            "at most {} of {} requests can be ordered.\n",
            self.order.len(),
            history.len()
        );
        let shown = self.order.len().saturating_sub(CONTEXT_OPERATIONS);
        let mut add = |line: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        };
        if shown < self.order.len() {
            add("The last ones:".to_owned());
        }
        for index in &self.order[shown..] {
            add(show(*index, &history[*index]));
        }
        add(format!("lead to the state\n    {:?}", self.state));
        add("One of these would have to be next, and none can be:".to_owned());
        let (answered, unanswered): (Vec<usize>, Vec<usize>) = self
            .candidates
            .iter()
            .partition(|index| history[**index].output().is_some());
        for index in answered {
            let operation = &history[index];
            add(show(index, operation));
            let expected = model.expected(&self.state, &operation.input);
            add(format!("        expected here: {expected}"));
        }
        if !unanswered.is_empty() {
            add(format!(
                "and none of {} unanswered requests",
                unanswered.len()
            ));
        }
        text
    }
}

fn show<I: std::fmt::Debug, O: std::fmt::Debug>(
    index: usize,
    operation: &Operation<I, O>,
) -> String {
    let answered_at = operation
        .answered_at()
        .map_or("...".to_owned(), |at| at.to_string());
    let answer = operation
        .output()
        .map_or("no answer".to_owned(), |output| format!("{output:?}"));
    format!(
        "    #{index} client {} [{}, {answered_at}] {:?}\n        answered: {answer}",
        operation.client, operation.called_at, operation.input
    )
}
