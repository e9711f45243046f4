//! The state that the threads and handles of one member share.
//!
//! Locks, always taken in this order and never held while waiting for a disk:
//! 1. `engine`: raft itself.
//! 2. `inbox`, `reads`, the apply queue: each short, none inside another.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::{
    apply_queue::ApplyQueue,
    config::{Config, PeerSink},
    errors::FatalError,
    inbox::{Inbox, Phase},
    reads::{Answered, Reads},
    status::StatusCell,
    turn::AfterTurn,
};
use crate::{core::Leadership, engine::Engine};

type OnFatal = Box<dyn FnOnce(FatalError) + Send>;

pub(super) struct LockedHooks {
    pub(super) peers: Box<dyn PeerSink>,
    pub(super) on_leadership: Box<dyn Fn(Leadership) + Send + Sync>,
}

pub(super) struct Member {
    pub(super) config: Config,
    pub(super) hooks: LockedHooks,
    /// Taken by the thread that finds the first fatal error.
    pub(super) on_fatal: Mutex<Option<OnFatal>>,
    pub(super) engine: Mutex<Engine>,
    pub(super) inbox: Inbox,
    pub(super) reads: Mutex<Reads>,
    pub(super) apply: Arc<ApplyQueue>,
    pub(super) status: StatusCell,
    /// Whether the core waits for the next applied index; otherwise the next turn reports it.
    pub(super) applied_is_urgent: AtomicBool,
}

impl Member {
    pub(super) fn lock_engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with the engine, then turns it. All applied indexes are reported to the
    /// engine before `act` runs.
    pub(super) fn with_engine<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> R {
        let mut engine = self.lock_engine();
        let before = self.turn(&mut engine);
        let result = act(&mut engine);
        let after = self.turn(&mut engine);
        drop(engine);
        self.settle(before);
        self.settle(after);
        result
    }

    /// Does the work that a turn left. Without the lock.
    pub(super) fn settle(&self, after: AfterTurn) {
        after.answered.into_iter().for_each(Answered::deliver);
        if after.disk_has_work {
            self.inbox.call_disk();
        }
        if let Some(error) = after.fatal {
            self.fail(error);
        }
    }

    /// Stops the driver and reports the error, once.
    pub(super) fn fail(&self, error: FatalError) {
        self.end();
        let on_fatal = self
            .on_fatal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(on_fatal) = on_fatal {
            on_fatal(error);
        }
    }

    /// Ends the driver: nothing is written from now on, and all waits end.
    pub(super) fn end(&self) {
        self.inbox.advance(Phase::Ended);
        self.apply.close();
        let answered = self.lock_reads().stop();
        answered.into_iter().for_each(Answered::deliver);
    }

    pub(super) fn report_applied(&self, index: u64) {
        self.status.applied.fetch_max(index, Ordering::AcqRel);
        if self.applied_is_urgent.load(Ordering::Acquire) {
            self.with_engine(|_| ());
        }
    }
}

/// Fails the member if its driver thread panics.
pub(super) struct FailOnPanic(pub(super) Arc<Member>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(FatalError::Panicked);
        }
    }
}
