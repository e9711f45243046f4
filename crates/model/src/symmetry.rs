//! Founders are alike, so states that differ only in which of them is which are one state.
//!
//! Each founder gets a number from what concerns it, and they are put in the order of their
//! numbers. Founders with one number stay as they are: that finds fewer equal states than
//! there are, never two that are not equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::replica::{Entry, PLACES, Replica};
use crate::state::State;

/// The state with its founders in order.
pub fn ordered(state: State, founders: usize) -> State {
    let numbers: Vec<u64> = (0..founders).map(|place| number(&state, place)).collect();
    if numbers.is_sorted() {
        return state;
    }
    let mut order: [usize; PLACES] = std::array::from_fn(|place| place);
    order[..founders].sort_by_key(|place| numbers[*place]);
    // `order` says who comes to a place, `places` where somebody comes to.
    let mut places = [0; PLACES];
    for (to, from) in order.into_iter().enumerate() {
        places[from] = to;
    }
    moved(state, order, places)
}

fn number(state: &State, place: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in state.log.iter().chain(&state.pending) {
        match entry {
            Entry::Publish { place: about, said } if *about == place => said.hash(&mut hasher),
            Entry::Promote(about) | Entry::Remove(about) if *about == place => 1.hash(&mut hasher),
            _ => 0.hash(&mut hasher),
        }
    }
    state.base.records[place].hash(&mut hasher);
    state.base.removed[place].hash(&mut hasher);
    if let Some(machine) = &state.machines[place] {
        (machine.config, machine.applied, machine.is_halted).hash(&mut hasher);
    }
    hasher.finish()
}

fn moved(state: State, order: [usize; PLACES], places: [usize; PLACES]) -> State {
    let entry = |entry: Entry| match entry {
        Entry::Publish { place, said } => Entry::Publish {
            place: places[place],
            said,
        },
        Entry::Promote(place) => Entry::Promote(places[place]),
        Entry::Remove(place) => Entry::Remove(places[place]),
        // Nobody adds a founder.
        other => other,
    };
    let replica = |replica: Replica| Replica {
        records: order.map(|from| replica.records[from]),
        removed: order.map(|from| replica.removed[from]),
        ..replica
    };
    let mut machines = state.machines;
    for machine in machines.iter_mut().flatten() {
        machine.replica = replica(std::mem::take(&mut machine.replica));
    }
    let mut pending: Vec<Entry> = state.pending.into_iter().map(entry).collect();
    pending.sort();
    State {
        base: replica(state.base),
        log: state.log.into_iter().map(entry).collect(),
        pending,
        machines: order.map(|from| machines[from].take()),
        left: state.left,
    }
}
