//! The applied index, and the tasks that wait for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portunus_proto::{LogIndex, Term};
use tokio::sync::oneshot;

/// The applied index and its term. Only the apply thread advances it, after every entry, at the
/// cost of two stores unless a waiter is due.
pub struct Applied {
    index: AtomicU64,
    term: AtomicU64,
    /// The lowest index that a waiter wants.
    lowest_wanted: AtomicU64,
    wanted: Mutex<Wanted>,
}

/// Waiters, by the wanted index and a unique number.
#[derive(Default)]
struct Wanted {
    waiters: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    last_number: u64,
}

/// Removes a waiter that gives up.
struct GiveUp<'a> {
    applied: &'a Applied,
    key: (u64, u64),
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let mut wanted = self.applied.lock();
        if wanted.waiters.remove(&self.key).is_some() {
            self.applied.publish_lowest(&wanted);
        }
    }
}

impl Applied {
    /// Starts at the backend's applied index.
    pub fn new(index: LogIndex, term: Term) -> Applied {
        Applied {
            index: AtomicU64::new(index.0),
            term: AtomicU64::new(term.0),
            lowest_wanted: AtomicU64::new(u64::MAX),
            wanted: Mutex::default(),
        }
    }

    /// Publishes that every entry up to `index` is applied and visible.
    pub fn advance(&self, LogIndex(index): LogIndex, term: Term) {
        self.term.store(term.0, Ordering::Release);
        // In one order with `wait_for`, which stores the wanted index and then loads this one.
        self.index.store(index, Ordering::SeqCst);
        if self.lowest_wanted.load(Ordering::SeqCst) > index {
            return;
        }
        let mut wanted = self.lock();
        let later = wanted.waiters.split_off(&(index + 1, 0));
        let reached = std::mem::replace(&mut wanted.waiters, later);
        self.publish_lowest(&wanted);
        drop(wanted);
        for waiter in reached.into_values() {
            // The waiter may have given up.
            let _ = waiter.send(());
        }
    }

    /// The newest applied index.
    pub fn index(&self) -> LogIndex {
        LogIndex(self.index.load(Ordering::SeqCst))
    }

    /// The term of the newest applied entry.
    pub fn term(&self) -> Term {
        Term(self.term.load(Ordering::Acquire))
    }

    /// Waits until `index` is applied.
    pub async fn wait_for(&self, index: LogIndex) {
        if self.index() >= index {
            return;
        }
        let (sender, reached) = oneshot::channel();
        let key = {
            let mut wanted = self.lock();
            wanted.last_number += 1;
            let key = (index.0, wanted.last_number);
            wanted.waiters.insert(key, sender);
            self.publish_lowest(&wanted);
            key
        };
        let give_up = GiveUp { applied: self, key };
        if self.index() >= index {
            // The index was applied between the two checks.
            return;
        }
        // The sender is dropped only after it has sent.
        let _ = reached.await;
        // `advance` has removed the waiter already.
        std::mem::forget(give_up);
    }

    fn publish_lowest(&self, wanted: &Wanted) {
        let lowest = wanted.waiters.keys().next().map(|(index, _)| *index);
        let lowest = lowest.unwrap_or(u64::MAX);
        self.lowest_wanted.store(lowest, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn waiter_is_woken_at_its_index_and_not_before() {
        let applied = Applied::new(LogIndex(4), Term(1));
        applied.wait_for(LogIndex(4)).await;
        let mut sixth = std::pin::pin!(applied.wait_for(LogIndex(6)));
        let short = Duration::from_millis(20);
        assert!(tokio::time::timeout(short, &mut sixth).await.is_err());
        applied.advance(LogIndex(5), Term(1));
        assert!(tokio::time::timeout(short, &mut sixth).await.is_err());
        applied.advance(LogIndex(6), Term(2));
        sixth.await;
        assert_eq!((applied.index(), applied.term()), (LogIndex(6), Term(2)));
    }

    #[tokio::test]
    async fn dropped_waiter_leaves_no_state() {
        let applied = Applied::new(LogIndex(4), Term(1));
        let short = Duration::from_millis(1);
        let mut patient = std::pin::pin!(applied.wait_for(LogIndex(9)));
        assert!(tokio::time::timeout(short, &mut patient).await.is_err());
        for _ in 0..100 {
            let wait = applied.wait_for(LogIndex(7));
            assert!(tokio::time::timeout(short, wait).await.is_err());
        }
        assert_eq!(applied.lock().waiters.len(), 1);
        assert_eq!(applied.lowest_wanted.load(Ordering::SeqCst), 9);
        applied.advance(LogIndex(9), Term(1));
        patient.await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_waiter_is_woken_while_the_index_advances() {
        const ENTRIES: u64 = 20_000;
        let applied = Arc::new(Applied::new(LogIndex(0), Term(1)));
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let applied = Arc::clone(&applied);
                tokio::spawn(async move {
                    while applied.index().0 < ENTRIES {
                        applied
                            .wait_for(LogIndex((applied.index().0 + 1).min(ENTRIES)))
                            .await;
                    }
                })
            })
            .collect();
        let mover = Arc::clone(&applied);
        let moving = std::thread::spawn(move || {
            for index in 1..=ENTRIES {
                mover.advance(LogIndex(index), Term(1));
            }
        });
        for reader in readers {
            let ended = tokio::time::timeout(Duration::from_secs(30), reader).await;
            ended.expect("a waiter was forgotten").unwrap();
        }
        moving.join().unwrap();
    }
}
