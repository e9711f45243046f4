//! A brute-force check: tries every order, without a cache and without evidence.

use super::super::Model;
use super::super::etcd::{Etcd, History, Store};

pub fn is_linearizable_by_brute_force(start: &Store, history: &History) -> bool {
    let mut left: Vec<usize> = (0..history.len()).collect();
    can_complete(&Etcd::plain(start.clone()), start, history, &mut left)
}

fn can_complete(model: &Etcd, state: &Store, history: &History, left: &mut Vec<usize>) -> bool {
    let deadline = left
        .iter()
        .filter_map(|index| history[*index].answered_at())
        .min();
    let Some(deadline) = deadline else {
        return true;
    };
    for position in 0..left.len() {
        let operation = &history[left[position]];
        if operation.called_at > deadline {
            continue;
        }
        let stepped = model.step(state, &operation.input, operation.output());
        if let Some(next) = stepped {
            let index = left.remove(position);
            if can_complete(model, &next, history, left) {
                return true;
            }
            left.insert(position, index);
        }
    }
    false
}
