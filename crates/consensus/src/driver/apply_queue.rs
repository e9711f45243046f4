//! Committed entries on their way to the state machine.
//!
//! The driver puts entries in and never waits here while it holds its lock; the
//! apply thread takes whole batches. What piles up behind a slow apply is
//! joined into few large batches. The bound is kept by the disk thread, which
//! writes nothing more while the queue is over its limit.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use portunus_proto::raftpb::{Entry, SnapshotMetadata};
use thiserror::Error;

/// Entries in one batch, except that what raft commits at once stays together.
const BATCH_ENTRIES_MAX: usize = 4096;

/// What is to be applied, in order: a snapshot, or entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The state machine is to be replaced by the leader's, which has come before this
    /// message. It stands alone in its batch, and is in the log.
    pub snapshot: Option<SnapshotMetadata>,
    /// Normal entries and membership changes. An empty normal entry is a new
    /// leader's first: nothing to apply.
    pub entries: Vec<Entry>,
    /// This member's term when they were handed over.
    pub term: u64,
}

/// Nothing to apply within the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecvTimeoutError {
    /// Not yet.
    #[error("nothing was committed in time")]
    Timeout,
    /// And there never will be.
    #[error("this member's consensus has stopped")]
    Closed,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Committed>,
    entries: usize,
    closed: bool,
    /// The apply thread sleeps; wakes cost a system call, so only then.
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

    pub(super) fn push(&self, entries: Vec<Entry>, term: u64) {
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
            term: snapshot.term,
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

    /// Waits until fewer than `entries_max` wait, the queue is closed, or
    /// nobody reads it.
    pub(super) fn wait_for_room(&self, entries_max: usize) {
        let mut queue = self.lock();
        while queue.entries >= entries_max && !queue.closed && !queue.receiver_gone {
            queue = self
                .emptied
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is in the queue can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Lets whoever waits for room go on, without closing.
    pub(super) fn stop_waiting(&self) {
        self.lock().receiver_gone = true;
        self.emptied.notify_all();
    }
}

/// The apply thread's end: entries to be applied, in order.
pub struct CommittedReceiver {
    queue: Arc<ApplyQueue>,
}

impl CommittedReceiver {
    /// Waits for the next batch. `None` when the driver has stopped and
    /// everything was taken.
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

    /// Waits for the next batch, but not forever.
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

    /// The next batch, if there is one.
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
