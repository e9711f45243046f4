//! The queue of applied changes and the thread that commits them to the backend.
//!
//! ```text
//!   apply thread ──submit──▶ queue ──every interval, or when full──▶ commit
//!                              ▲                                       │
//!                              └── waits only at the pending limits ◀──┘
//! ```
//!
//! One submission is one log entry (or one slice of compaction work); a commit
//! holds whole submissions only, together with the index and term of the newest
//! entry in it. So after a crash the log is replayed from the next entry.
//!
//! The lock is held to push or to take a vector, never during a commit. A
//! failed commit is not retried: the queue is poisoned, [`OnFault`] is called
//! once, and every later call returns the fault.

use std::{
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Backend, Bucket, Change, meta};
use crate::{
    config::{Commits, Config},
    error::StoreFault,
    store::EntryId,
};

/// Called once, on the write-behind thread, when the store is poisoned.
pub(crate) type OnFault = Box<dyn FnOnce(&StoreFault) + Send>;

/// Number of a submission; a flush waits until it is committed.
pub(crate) type Position = u64;

/// The queue, shared by the apply thread, the write-behind thread and threads that flush.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Wakes the write-behind thread after a submission, a flush request or the close.
    work: Condvar,
    /// Wakes threads that wait for a commit or for room.
    progress: Condvar,
    /// Main revision up to which the backend holds everything.
    committed_revision: AtomicI64,
    limits: Limits,
    /// The backend if callers commit instead of a thread; see [`Commits::OnCall`].
    on_call: Option<Arc<dyn Backend>>,
}

struct Limits {
    commit_interval: Duration,
    commit_records: usize,
    pending_records_max: usize,
    pending_bytes_max: usize,
}

#[derive(Default)]
struct State {
    changes: Vec<Change>,
    queued_bytes: usize,
    newest: Option<Newest>,
    oldest_since: Option<Instant>,
    submitted: Position,
    committed: Position,
    flush_to: Position,
    closed: bool,
    fault: Option<StoreFault>,
}

/// The entry and revision that a commit brings the backend to.
#[derive(Clone, Copy)]
struct Newest {
    entry: Option<EntryId>,
    revision: i64,
}

/// Ends the write-behind thread when dropped, without flushing, as in a crash.
/// A clean shutdown flushes first.
pub(crate) struct WriteBehind {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl WriteBehind {
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        config: &Config,
        committed_revision: i64,
        on_fault: OnFault,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            committed_revision: AtomicI64::new(committed_revision),
            limits: Limits {
                commit_interval: config.commit_interval,
                commit_records: config.commit_records.max(1),
                pending_records_max: config.pending_records_max.max(1),
                pending_bytes_max: config.pending_bytes_max.max(1),
            },
            on_call: (config.commits == Commits::OnCall).then(|| Arc::clone(&backend)),
        });
        if queue.on_call.is_some() {
            return Ok(Self {
                queue,
                thread: None,
            });
        }
        let commit_queue = Arc::clone(&queue);
        let thread = thread::Builder::new()
            .name("write-behind".into())
            .spawn(move || commit_queue.run(&*backend, on_fault))?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.work.notify_all();
        self.queue.progress.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported or ended the process.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Queues the changes of one entry. Waits only while a pending limit is reached.
    pub(crate) fn submit(
        &self,
        changes: &mut Vec<Change>,
        entry: Option<EntryId>,
        revision: i64,
    ) -> Result<Position, StoreFault> {
        let queued_bytes: usize = changes.iter().map(Change::queued_bytes).sum();
        let mut state = self.lock();
        while state.changes.len() >= self.limits.pending_records_max
            || state.queued_bytes >= self.limits.pending_bytes_max
        {
            state.check_open()?;
            state = self.wait_for_commit(state)?;
        }
        state.check_open()?;
        let was_empty = state.submitted == state.committed;
        state.changes.append(changes);
        state.queued_bytes += queued_bytes;
        state.newest = Some(Newest { entry, revision });
        state.submitted += 1;
        if state.oldest_since.is_none() {
            state.oldest_since = Some(Instant::now());
        }
        // Otherwise the thread wakes at the end of the current interval.
        if was_empty || state.changes.len() >= self.limits.commit_records {
            self.work.notify_one();
        }
        Ok(state.submitted)
    }

    /// The position of the next submission. For the apply thread only.
    pub(crate) fn next_position(&self) -> Position {
        self.lock().submitted + 1
    }

    /// Waits until all earlier submissions are committed.
    pub(crate) fn flush(&self) -> Result<(), StoreFault> {
        let mut state = self.lock();
        let target = state.submitted;
        state.flush_to = state.flush_to.max(target);
        while state.committed < target {
            state.check_open()?;
            state = self.wait_for_commit(state)?;
        }
        Ok(())
    }

    /// Waits until the thread has made progress, or commits on this thread.
    fn wait_for_commit<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, StoreFault> {
        if self.on_call.is_some() {
            drop(state);
            self.commit()?;
            return Ok(self.lock());
        }
        self.work.notify_one();
        Ok(wait(&self.progress, state))
    }

    /// Commits everything that is queued, on this thread. Does nothing if a thread commits.
    pub(crate) fn commit(&self) -> Result<(), StoreFault> {
        let Some(backend) = &self.on_call else {
            return Ok(());
        };
        let mut state = self.lock();
        state.check_open()?;
        let Some(newest) = state.newest.take() else {
            return Ok(());
        };
        let (changes, newest, position) = state.take_batch(newest);
        drop(state);
        self.commit_batch(&**backend, changes, newest, position)
    }

    /// Requests a commit without waiting for it.
    pub(crate) fn request_flush(&self) {
        let mut state = self.lock();
        state.flush_to = state.submitted;
        self.work.notify_one();
    }

    pub(crate) fn is_committed(&self, position: Position) -> Result<bool, StoreFault> {
        let state = self.lock();
        if state.committed >= position {
            return Ok(true);
        }
        state.check_open().map(|()| false)
    }

    /// Main revision up to which the backend holds everything.
    pub(crate) fn committed_revision(&self) -> i64 {
        self.committed_revision.load(Ordering::Acquire)
    }

    fn run(&self, backend: &dyn Backend, on_fault: OnFault) {
        while let Some((changes, newest, position)) = self.take() {
            if let Err(fault) = self.commit_batch(backend, changes, newest, position) {
                on_fault(&fault);
                return;
            }
        }
    }

    fn commit_batch(
        &self,
        backend: &dyn Backend,
        mut changes: Vec<Change>,
        newest: Newest,
        position: Position,
    ) -> Result<(), StoreFault> {
        changes.extend(newest.entry.into_iter().flat_map(applied_marks));
        let result = backend.commit(&changes);
        let mut state = self.lock();
        match result {
            Ok(()) => {
                self.committed_revision
                    .store(newest.revision, Ordering::Release);
                state.committed = position;
                self.progress.notify_all();
                Ok(())
            }
            Err(error) => {
                let fault = StoreFault::CommitFailed(Arc::new(error));
                state.fault = Some(fault.clone());
                self.progress.notify_all();
                Err(fault)
            }
        }
    }

    /// Waits for a batch that is due. `None` after the queue was closed.
    fn take(&self) -> Option<(Vec<Change>, Newest, Position)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let Some(since) = state.oldest_since else {
                state = wait(&self.work, state);
                continue;
            };
            let waited = since.elapsed();
            let due = state.flush_to > state.committed
                || state.changes.len() >= self.limits.commit_records
                || state.queued_bytes >= self.limits.pending_bytes_max
                || waited >= self.limits.commit_interval;
            match state.newest.take_if(|_| due) {
                Some(newest) => {
                    let batch = state.take_batch(newest);
                    drop(state);
                    // The batch no longer counts as queued, so submitters may continue.
                    self.progress.notify_all();
                    return Some(batch);
                }
                None => {
                    let rest = self.limits.commit_interval.saturating_sub(waited);
                    state = self
                        .work
                        .wait_timeout(state, rest)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes all queued changes, up to the newest submission.
    fn take_batch(&mut self, newest: Newest) -> (Vec<Change>, Newest, Position) {
        self.oldest_since = None;
        self.queued_bytes = 0;
        (std::mem::take(&mut self.changes), newest, self.submitted)
    }

    fn check_open(&self) -> Result<(), StoreFault> {
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None if self.closed => Err(StoreFault::Closed),
            None => Ok(()),
        }
    }
}

fn wait<'a>(condvar: &Condvar, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

fn applied_marks(entry: EntryId) -> [Change; 2] {
    let mark = |key: &'static str, number: u64| Change::Put {
        bucket: Bucket::Meta,
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::copy_from_slice(&number.to_be_bytes()),
    };
    [
        mark(meta::CONSISTENT_INDEX, entry.index),
        mark(meta::TERM, entry.term.0),
    ]
}
