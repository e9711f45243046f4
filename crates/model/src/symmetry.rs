//! Symmetry reduction: states that differ only by a permutation of the founders are equal.
//!
//! Each founder gets a hash of its part of the state, and the founders are sorted by it.
//! Founders with equal hashes keep their order: some equal states stay distinct, but no two
//! different states become equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::replica::{Entry, PLACES, Replica};
use crate::state::State;

/// Returns the state with its founders sorted.
pub fn ordered(state: State, founders: usize) -> State {
    let hashes: Vec<u64> = (0..founders).map(|place| hash_of(&state, place)).collect();
    if hashes.is_sorted() {
        return state;
    }
    let mut order: [usize; PLACES] = std::array::from_fn(|place| place);
    order[..founders].sort_by_key(|place| hashes[*place]);
    // `order` maps a new place to the old one, `places` an old place to the new one.
    let mut places = [0; PLACES];
    for (to, from) in order.into_iter().enumerate() {
        places[from] = to;
    }
    moved(state, order, places)
}

fn hash_of(state: &State, place: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in state.log.iter().chain(&state.pending) {
        match entry {
            Entry::Publish {
                place: about,
                attributes,
            } if *about == place => attributes.hash(&mut hasher),
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
        Entry::Publish { place, attributes } => Entry::Publish {
            place: places[place],
            attributes,
        },
        Entry::Promote(place) => Entry::Promote(places[place]),
        Entry::Remove(place) => Entry::Remove(places[place]),
        // Founders are never added, and other entries name no place.
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
        remaining: state.remaining,
    }
}
