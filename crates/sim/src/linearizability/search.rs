//! The search for an order: the algorithm of Wing and Gong, with Lowe's cache of tried states.
//!
//! Calls and answers are in one list, ordered by time. Every call before the first answer may
//! be the next one to take effect. A call that is consistent with the state is removed from
//! the list together with its answer, and the search restarts at the front. When it reaches an
//! answer whose call was not removed, the last choice was wrong and is undone. A set of
//! operations together with the resulting state is tried only once.
//!
//! Three rules shorten the search. An answered request that does not change the state can be
//! taken as soon as it is consistent, so that choice has no alternatives. A request without
//! an answer has no end in the list: the search ends when every answered request is placed.
//! Of several unanswered requests of one kind, the one sent first is taken first.

use std::collections::{HashMap, HashSet};

use super::{Model, Operation, Violation};

/// The result of [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict<S> {
    /// An order exists. Unanswered requests that are not in it did not take effect.
    Linearizable {
        /// The order, as indexes into the history.
        order: Vec<usize>,
        /// The final state.
        end: S,
    },
    /// No order exists.
    Violated(Violation<S>),
    /// The search reached its limit.
    Undecided {
        /// The number of steps.
        steps: u64,
    },
}

/// Searches for an order of `history` that explains every answer, in at most `steps_max`
/// steps. A step tries one request in one state.
pub fn check<M: Model>(
    model: &M,
    history: &[Operation<M::Input, M::Output>],
    steps_max: u64,
) -> Verdict<M::State> {
    let mut search = Search::new(model, history);
    let mut at = search.events.first();
    for _ in 0..steps_max {
        if search.answers_missing == 0 {
            return Verdict::Linearizable {
                order: search.order(),
                end: search.state,
            };
        }
        let next = match search.events.call_at(at) {
            Some(operation) => search.try_call(operation, at),
            None => None,
        };
        at = match next.or_else(|| search.undo()) {
            Some(next) => next,
            None => return Verdict::Violated(search.violation()),
        };
    }
    Verdict::Undecided { steps: steps_max }
}

struct Search<'h, M: Model> {
    model: &'h M,
    history: &'h [Operation<M::Input, M::Output>],
    events: Events,
    /// The choices made so far.
    taken: Vec<Choice<M::State>>,
    taken_set: OperationSet,
    state: M::State,
    tried: HashSet<(OperationSet, M::State)>,
    answers_missing: usize,
    /// For each unanswered request, the previous one of its kind.
    to_take_before: Vec<Option<usize>>,
    /// The longest order found so far and the state after it.
    longest: (Vec<usize>, M::State),
}

struct Choice<S> {
    operation: usize,
    state_before: S,
    /// The choice has no alternatives.
    is_forced: bool,
}

impl<'h, M: Model> Search<'h, M> {
    fn new(model: &'h M, history: &'h [Operation<M::Input, M::Output>]) -> Self {
        let state = model.start();
        Search {
            model,
            history,
            events: Events::of(history),
            taken: Vec::new(),
            taken_set: OperationSet::for_operations(history.len()),
            longest: (Vec::new(), state.clone()),
            state,
            tried: HashSet::new(),
            to_take_before: earlier_of_kind(model, history),
            answers_missing: history.iter().filter(|op| op.output().is_some()).count(),
        }
    }

    fn order(&self) -> Vec<usize> {
        self.taken.iter().map(|choice| choice.operation).collect()
    }

    /// Takes an operation if it is consistent. Returns the next event to try, or `None` if the
    /// last choice must be undone.
    fn try_call(&mut self, operation: usize, at: usize) -> Option<usize> {
        let tried = &self.history[operation];
        if let Some(earlier) = self.to_take_before[operation]
            && !self.taken_set.contains(earlier)
        {
            return Some(self.events.after(at));
        }
        let stepped = self.model.step(&self.state, &tried.input, tried.output());
        let Some(state) = stepped else {
            return Some(self.events.after(at));
        };
        let is_answered = tried.output().is_some();
        let is_forced = is_answered && state == self.state;
        self.taken_set.insert(operation);
        if !self.tried.insert((self.taken_set.clone(), state.clone())) {
            self.taken_set.remove(operation);
            // A forced choice that failed before has no alternative.
            return (!is_forced).then(|| self.events.after(at));
        }
        self.taken.push(Choice {
            operation,
            state_before: std::mem::replace(&mut self.state, state),
            is_forced,
        });
        self.events.take_out(operation);
        self.answers_missing -= usize::from(is_answered);
        Some(self.events.first())
    }

    /// Undoes the last choice with alternatives. Returns the next event to try.
    fn undo(&mut self) -> Option<usize> {
        if self.taken.len() > self.longest.0.len() {
            self.longest = (self.order(), self.state.clone());
        }
        loop {
            let choice = self.taken.pop()?;
            self.events.put_back(choice.operation);
            self.taken_set.remove(choice.operation);
            self.state = choice.state_before;
            let is_answered = self.history[choice.operation].output().is_some();
            self.answers_missing += usize::from(is_answered);
            if !choice.is_forced {
                return Some(self.events.after(self.events.call_of(choice.operation)));
            }
        }
    }

    fn violation(self) -> Violation<M::State> {
        let (order, state) = self.longest;
        let placed: HashSet<usize> = order.iter().copied().collect();
        // Candidates are the calls before the first unplaced answer.
        let unplaced = || (0..self.history.len()).filter(|index| !placed.contains(index));
        let deadline = unplaced()
            .filter_map(|index| self.history[index].answered_at())
            .min()
            .unwrap_or(u64::MAX);
        let candidates = unplaced()
            .filter(|index| self.history[*index].called_at <= deadline)
            .collect();
        Violation {
            order,
            state,
            candidates,
        }
    }
}

fn earlier_of_kind<M: Model>(
    model: &M,
    history: &[Operation<M::Input, M::Output>],
) -> Vec<Option<usize>> {
    let mut unanswered: Vec<usize> = (0..history.len())
        .filter(|index| history[*index].output().is_none())
        .collect();
    unanswered.sort_by_key(|index| history[*index].called_at);
    let mut earlier = vec![None; history.len()];
    let mut newest_of_kind = HashMap::new();
    for index in unanswered {
        let kind = model.kind(&history[index].input);
        earlier[index] = newest_of_kind.insert(kind, index);
    }
    earlier
}

/// Calls and answers ordered by time, in a linked list. Operations are removed from it and put
/// back in reverse order. Position 0 is the head; the last event points back to it.
struct Events {
    next: Vec<usize>,
    previous: Vec<usize>,
    /// The operation, if the event is a call.
    call: Vec<Option<usize>>,
    /// The positions of each operation's call and answer.
    places: Vec<(usize, Option<usize>)>,
}

impl Events {
    fn of<I, O>(history: &[Operation<I, O>]) -> Events {
        // At equal times calls come first, so that the two overlap.
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in history.iter().enumerate() {
            times.push((operation.called_at, false, index));
            if let Some(at) = operation.answered_at() {
                times.push((at, true, index));
            }
        }
        times.sort_unstable();
        let mut events = Events {
            next: (1..=times.len()).chain([0]).collect(),
            previous: [times.len()].into_iter().chain(0..times.len()).collect(),
            call: vec![None],
            places: vec![(0, None); history.len()],
        };
        for (position, (_, is_answer, operation)) in times.into_iter().enumerate() {
            let place = position + 1;
            events.call.push((!is_answer).then_some(operation));
            if is_answer {
                events.places[operation].1 = Some(place);
            } else {
                events.places[operation].0 = place;
            }
        }
        events
    }

    fn first(&self) -> usize {
        self.next[0]
    }

    fn after(&self, place: usize) -> usize {
        self.next[place]
    }

    fn call_at(&self, place: usize) -> Option<usize> {
        self.call[place]
    }

    fn call_of(&self, operation: usize) -> usize {
        self.places[operation].0
    }

    fn take_out(&mut self, operation: usize) {
        let (call, answer) = self.places[operation];
        for place in [Some(call), answer].into_iter().flatten() {
            let (previous, next) = (self.previous[place], self.next[place]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    fn put_back(&mut self, operation: usize) {
        let (call, answer) = self.places[operation];
        for place in [answer, Some(call)].into_iter().flatten() {
            let (previous, next) = (self.previous[place], self.next[place]);
            self.next[previous] = place;
            self.previous[next] = place;
        }
    }
}

/// A set of operations, by index.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OperationSet(Vec<u64>);

impl OperationSet {
    fn for_operations(count: usize) -> Self {
        OperationSet(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, operation: usize) {
        self.0[operation / 64] |= 1 << (operation % 64);
    }

    fn contains(&self, operation: usize) -> bool {
        self.0[operation / 64] & (1 << (operation % 64)) != 0
    }

    fn remove(&mut self, operation: usize) {
        self.0[operation / 64] &= !(1 << (operation % 64));
    }
}
