//! Committed entries on their way to the state machine.
//!
//! The driver pushes entries and never waits here while it holds its lock; the apply thread
//! takes whole batches. Entries that accumulate behind a slow apply are joined into few large
//! batches. The disk thread enforces the bound: it writes nothing more while the queue is over
//! its limit.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use portunus_proto::Term;
use portunus_proto::raftpb::{Entry, SnapshotMetadata};
use thiserror::Error;

/// Entries in one batch, except that entries committed together stay together.
const BATCH_ENTRIES_MAX: usize = 4096;

/// A snapshot to install or entries to apply, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The state machine is to be replaced by this snapshot of the leader, which is received
    /// and recorded in the log. It is alone in its batch.
    pub snapshot: Option<SnapshotMetadata>,
    /// Normal entries and membership changes. An empty normal entry is a new
    /// leader's first: nothing to apply.
    pub entries: Vec<Entry>,
    /// This member's term when they were queued.
    pub term: Term,
}

/// Why there is no batch within the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecvTimeoutError {
    /// Nothing was committed yet.
    #[error("nothing was committed in time")]
    Timeout,
    /// The driver has stopped.
    #[error("this member's consensus has stopped")]
    Closed,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Committed>,
    entries: usize,
    closed: bool,
    /// The apply thread sleeps; a wake-up costs a system call, so only then.
    receiver_waits: bool,
    receiver_gone: bool,
}

pub(super) struct ApplyQueue {
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
}

impl ApplyQueue {
    pub(super) fn new() -> (Arc<Self>, CommittedReceiver) {
        let queue = Arc::new(Self {
            queue: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        });
        let receiver = CommittedReceiver {
            queue: Arc::clone(&queue),
        };
        (queue, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, entries: Vec<Entry>, term: Term) {
        if entries.is_empty() {
            return;
        }
        let mut queue = self.lock();
        queue.entries += entries.len();
        match queue.batches.back_mut() {
            Some(last)
                if last.snapshot.is_none()
                    && last.term == term
                    && last.entries.len() < BATCH_ENTRIES_MAX =>
            {
                last.entries.extend(entries);
            }
            _ => queue.batches.push_back(Committed {
                snapshot: None,
                entries,
                term,
            }),
        }
        self.wake(queue);
    }

    pub(super) fn push_snapshot(&self, snapshot: SnapshotMetadata) {
        let mut queue = self.lock();
        queue.batches.push_back(Committed {
            term: Term(snapshot.term),
            snapshot: Some(snapshot),
            entries: Vec::new(),
        });
        self.wake(queue);
    }

    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let wake = std::mem::take(&mut queue.receiver_waits);
        drop(queue);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Waits until fewer than `entries_max` wait, the queue is closed, or its receiver is
    /// dropped.
    pub(super) fn wait_for_room(&self, entries_max: usize) {
        let mut queue = self.lock();
        while queue.entries >= entries_max && !queue.closed && !queue.receiver_gone {
            queue = self
                .emptied
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the queue; its batches can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Ends all waits for room, without closing.
    pub(super) fn stop_waiting(&self) {
        self.lock().receiver_gone = true;
        self.emptied.notify_all();
    }
}

/// The apply thread's end of the queue.
pub struct CommittedReceiver {
    queue: Arc<ApplyQueue>,
}

impl CommittedReceiver {
    /// Waits for the next batch. `None` when the driver has stopped and all batches were taken.
    #[must_use]
    pub fn recv(&self) -> Option<Committed> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(batch) = self.take(&mut queue) {
                return Some(batch);
            }
            if queue.closed {
                return None;
            }
            queue.receiver_waits = true;
            queue = self
                .queue
                .filled
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next batch, at most `timeout`.
    ///
    /// # Errors
    /// If there was none.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Committed, RecvTimeoutError> {
        let deadline = Instant::now() + timeout;
        let mut queue = self.queue.lock();
        loop {
            if let Some(batch) = self.take(&mut queue) {
                return Ok(batch);
            }
            if queue.closed {
                return Err(RecvTimeoutError::Closed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            queue.receiver_waits = true;
            queue = self
                .queue
                .filled
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Returns the next batch, if there is one.
    #[must_use]
    pub fn try_recv(&self) -> Option<Committed> {
        self.take(&mut self.queue.lock())
    }

    fn take(&self, queue: &mut Queue) -> Option<Committed> {
        let batch = queue.batches.pop_front()?;
        queue.entries -= batch.entries.len();
        self.queue.emptied.notify_one();
        Some(batch)
    }
}

impl Drop for CommittedReceiver {
    fn drop(&mut self) {
        self.queue.stop_waiting();
    }
}
