//! Keeps the memory map in place while it is read.
//!
//! LMDB's map may be resized only while no transaction of the process is open,
//! and LMDB does not check that. Snapshots enter this gate; growing the map
//! closes it and waits until the last snapshot has left. Only the thread that
//! commits waits for snapshots to leave.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: usize,
    closed: bool,
}

impl Gate {
    /// Waits while the gate is closed, then counts one more holder.
    pub(super) fn enter(&self) {
        let mut state = self.lock();
        while state.closed {
            state = self.wait(state);
        }
        state.inside += 1;
    }

    /// Undoes one [`Self::enter`].
    pub(super) fn leave(&self) {
        self.lock().inside -= 1;
        self.changed.notify_all();
    }

    /// Closes the gate, waits until no holder is left, and calls `run`.
    pub(super) fn while_empty<R>(&self, run: impl FnOnce() -> R) -> R {
        let mut state = self.lock();
        state.closed = true;
        while state.inside > 0 {
            state = self.wait(state);
        }
        drop(state);
        let result = run();
        self.lock().closed = false;
        self.changed.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
