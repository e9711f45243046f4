//! Keeps the memory map still while it is read.
//!
//! LMDB may move its map only when no transaction of the process is open, and
//! leaves it to the process to know. Snapshots pass this gate; growing the map
//! closes it and waits until the last one has left. Only the write-behind thread
//! ever waits for that.

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
    /// Waits while the gate is closed, then counts one more inside.
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

    /// Runs something while nobody is inside.
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
        // Counting cannot panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
