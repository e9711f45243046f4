//! The hub and the thread that lets watches catch up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portunus_mvcc::ReadError;
use portunus_mvcc::watch::{Compacted, History, Hub, Limits, RevisionEvents, SyncBudget};
use portunus_proto::EtcdError;
use portunus_proto::mvccpb::KeyValue;

use super::Member;

/// Watches that lag are looked after at least this often.
const SYNC_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// A watch that is this close to the newest revision catches up under the hub's lock, or
/// constant writes would keep it from ever arriving.
const LAST_STRETCH: SyncBudget = SyncBudget {
    watchers_max: 128,
    revisions_max: 64,
};

/// The store's past, for watches. What cannot be read ends the member.
pub struct StoreHistory<'a>(pub &'a Member);

impl History for StoreHistory<'_> {
    fn revision(&self) -> i64 {
        self.0.reader().revision()
    }

    fn compact_revision(&self) -> i64 {
        self.0.reader().compact_revision().max(0)
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, Compacted> {
        match self.0.reader().events_since(from, revisions_max) {
            Ok(events) => Ok(events),
            Err(ReadError::Refused(EtcdError::Compacted)) => Err(Compacted {
                compact_revision: self.compact_revision(),
            }),
            Err(fault) => {
                self.0.stop.fatal(&fault);
                Ok(Vec::new())
            }
        }
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Option<KeyValue> {
        let key = Bytes::copy_from_slice(key);
        self.0
            .reader()
            .version_before(&key, mod_revision)
            .unwrap_or_else(|fault| {
                self.0.stop.fatal(&fault);
                None
            })
    }
}

/// The hub behind its lock, with a bell for the catch-up thread.
pub struct Watches {
    hub: Mutex<Hub>,
    /// Whether the catch-up thread has something to do.
    bell: Mutex<bool>,
    rung: Condvar,
    started: Instant,
}

impl Watches {
    /// A hub that starts at the store's revision.
    pub fn new(revision: i64, limits: Limits) -> Watches {
        Watches {
            hub: Mutex::new(Hub::new(revision, limits)),
            bell: Mutex::new(false),
            rung: Condvar::new(),
            started: Instant::now(),
        }
    }

    /// The hub itself. Nothing slow happens under this lock.
    pub fn lock(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time on the hub's clock.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Wakes the catch-up thread.
    pub fn ring(&self) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rung.notify_one();
    }

    fn wait_for_bell(&self, longest: Duration) {
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        if !*bell {
            bell = self
                .rung
                .wait_timeout(bell, longest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *bell = false;
    }

    /// Lets lagging watches catch up and sends progress notices, until told to stop.
    pub fn run_catch_up(&self, history: &StoreHistory<'_>) {
        while !history.0.stop.is_stopping() {
            let plan = self.lock().sync_plan(SyncBudget::default());
            // Reading history may go to disk; the hub is free meanwhile.
            let batch = plan.read(history);
            let (report, next_tick) = {
                let mut hub = self.lock();
                let mut report = hub.sync_commit(batch);
                if report.runnable > 0 {
                    report = hub.sync_step(history, LAST_STRETCH);
                }
                hub.tick(self.now());
                (report, hub.next_tick())
            };
            if report.runnable > 0 {
                continue;
            }
            let until_tick =
                next_tick.map_or(SYNC_INTERVAL_MAX, |at| at.saturating_sub(self.now()));
            self.wait_for_bell(until_tick.clamp(Duration::from_millis(1), SYNC_INTERVAL_MAX));
        }
    }
}
