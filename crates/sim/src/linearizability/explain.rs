//! Why a history has no order: where the longest attempt got stuck.

use std::fmt::Write as _;

use super::{Model, Operation};

/// Requests shown from before the place where it got stuck.
const CONTEXT_OPERATIONS: usize = 8;

/// The longest order that explains a part of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation<S> {
    /// Indexes into the history, in the order in which they took effect.
    pub order: Vec<usize>,
    /// The state they lead to.
    pub state: S,
    /// Those of which one would have to be next; none can be.
    pub candidates: Vec<usize>,
}

impl<S> Violation<S> {
    /// The operations around the place where no order goes on, for people.
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
            "{} of {} requests can be put in an order, not more.\n",
            self.order.len(),
            history.len()
        );
        let shown = self.order.len().saturating_sub(CONTEXT_OPERATIONS);
        let mut say = |line: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        };
        if shown < self.order.len() {
            say("The last of them:".to_owned());
        }
        for index in &self.order[shown..] {
            say(show(*index, &history[*index]));
        }
        say(format!("lead to the state\n    {:?}", self.state));
        say("One of these would have to be next, and none can be:".to_owned());
        let (answered, silent): (Vec<usize>, Vec<usize>) = self
            .candidates
            .iter()
            .partition(|index| history[**index].output().is_some());
        for index in answered {
            let operation = &history[index];
            say(show(index, operation));
            let expected = model.expected(&self.state, &operation.input);
            say(format!("        expected here: {expected}"));
        }
        if !silent.is_empty() {
            say(format!(
                "nor does one of {} unanswered requests help",
                silent.len()
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
