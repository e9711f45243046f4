//! The definition itself: every order is tried, nothing is remembered or concluded.

use super::super::Model;
use super::super::etcd::{Etcd, History, Store};

pub fn is_linearizable_by_trying_everything(start: &Store, history: &History) -> bool {
    let mut left: Vec<usize> = (0..history.len()).collect();
    goes_on(&Etcd::plain(start.clone()), start, history, &mut left)
}

fn goes_on(model: &Etcd, state: &Store, history: &History, left: &mut Vec<usize>) -> bool {
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
            if goes_on(model, &next, history, left) {
                return true;
            }
            left.insert(position, index);
        }
    }
    false
}
