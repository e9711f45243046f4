//! The hub and the thread that lets watches catch up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portunus_mvcc::Reader;
use portunus_mvcc::watch::{Hub, Limits, SyncBudget};

/// Watches that lag are looked after at least this often.
const SYNC_INTERVAL_MAX: Duration = Duration::from_millis(100);

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
    pub fn run_catch_up(self: &Arc<Self>, reader: &Reader, stopping: impl Fn() -> bool) {
        while !stopping() {
            let plan = self.lock().sync_plan(SyncBudget::default());
            // Reading history may go to disk; the hub is free meanwhile.
            let batch = plan.read(reader);
            let (report, next_tick) = {
                let mut hub = self.lock();
                let report = hub.sync_commit(batch);
                hub.tick(self.now());
                (report, hub.next_tick())
            };
            if report.runnable > 0 {
                continue;
            }
            let until_tick = next_tick.map_or(SYNC_INTERVAL_MAX, |at| at.saturating_sub(self.now()));
            self.wait_for_bell(until_tick.clamp(Duration::from_millis(1), SYNC_INTERVAL_MAX));
        }
    }
}
