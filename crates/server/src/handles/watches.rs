//! The watch hub and the thread that syncs lagging watches.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use portunus_auth::{AuthState, Caller};
use portunus_mvcc::Reader;
use portunus_mvcc::watch::{
    History, HistoryError, Hub, KeyRange, Limits, RangeEnd, RequestError, RevisionEvents, StreamId,
    SyncBudget,
};
use portunus_proto::etcdserverpb::WatchCreateRequest;
use portunus_proto::mvccpb::KeyValue;

use super::auth::Auth;
use super::stop::StopSwitch;
use crate::error_chain::chain;

/// Longest time between two syncs of lagging watches.
const SYNC_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// Budget for syncing a watch this close to the newest revision under the hub's lock, or constant
/// writes would keep it lagging.
const LAST_STRETCH: SyncBudget = SyncBudget {
    watchers_max: 128,
    revisions_max: 64,
};

/// The reason of a watch that is not permitted, as etcd's server formats its error.
const PERMISSION_DENIED: &str =
    "rpc error: code = PermissionDenied desc = etcdserver: permission denied";

/// The key of a create request; an empty one is the smallest key.
pub fn watch_key(request: &WatchCreateRequest) -> &[u8] {
    match request.key.as_ref() {
        [] => &[0],
        key => key,
    }
}

/// The store's history, for watches. A failed read is reported and ends the watch that needed it;
/// damage stops the member.
pub struct StoreHistory<'a> {
    reader: &'a ArcSwap<Reader>,
    stop: &'a StopSwitch,
}

impl<'a> StoreHistory<'a> {
    /// The history of the store that `reader` holds at the time of each read.
    pub fn new(reader: &'a ArcSwap<Reader>, stop: &'a StopSwitch) -> StoreHistory<'a> {
        StoreHistory { reader, stop }
    }

    fn report(&self, error: &HistoryError) {
        match error {
            HistoryError::Read(error) if error.is_damage() => self.stop.fatal(error),
            HistoryError::Read(error) => {
                let reason = chain(error);
                tracing::error!(reason, "reading history for a watch failed");
            }
            _ => {}
        }
    }
}

impl History for StoreHistory<'_> {
    fn revision(&self) -> i64 {
        self.reader.load().revision()
    }

    fn compact_revision(&self) -> i64 {
        History::compact_revision(&**self.reader.load())
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError> {
        History::events_since(&**self.reader.load(), from, revisions_max)
            .inspect_err(|error| self.report(error))
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError> {
        History::prev_kv(&**self.reader.load(), key, mod_revision)
            .inspect_err(|error| self.report(error))
    }
}

/// The hub behind its lock, and the wake-up of the catch-up thread.
pub struct Watches {
    hub: Mutex<Hub>,
    /// The users of the streams with watches that were created with authentication. Locked
    /// after the hub.
    users: Mutex<HashMap<StreamId, String>>,
    /// Whether the catch-up thread has work.
    has_work: Mutex<bool>,
    woken: Condvar,
    started: Instant,
}

impl Watches {
    /// Creates a hub that starts at the store's revision.
    pub fn new(revision: i64, limits: Limits) -> Watches {
        Watches {
            hub: Mutex::new(Hub::new(revision, limits)),
            users: Mutex::default(),
            has_work: Mutex::new(false),
            woken: Condvar::new(),
            started: Instant::now(),
        }
    }

    /// Locks the hub. Slow work must not run under this lock.
    pub fn lock(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a watch for a caller who was permitted to read the range, unless users and roles
    /// have changed since and do not permit it any more.
    pub fn create(
        &self,
        id: StreamId,
        request: &WatchCreateRequest,
        caller: &Caller,
        auth: &Auth,
    ) -> Result<(), RequestError> {
        let mut hub = self.lock();
        // With the hub locked: either this sees a changed permission, or the watch is there when
        // `cancel_unpermitted` looks for it.
        let state = auth.state();
        let user = caller.username();
        let is_permitted = || state.may_watch(user, watch_key(request), &request.range_end);
        // Like etcd, the hub refuses a negative revision whoever asks.
        if request.start_revision >= 0 && !is_permitted() {
            return hub.refuse(id, PERMISSION_DENIED);
        }
        if !caller.is_anonymous() {
            let user = user.to_owned();
            self.lock_users().insert(id, user);
        }
        hub.create(id, request.clone()).map(drop)
    }

    /// Cancels the watches whose user may not read their range any more. Events that were
    /// published before are sent first.
    pub fn cancel_unpermitted(&self, auth: &AuthState) {
        let mut hub = self.lock();
        let users = self.lock_users();
        let cancelled = hub.cancel_where(PERMISSION_DENIED, |watch| {
            let user = users.get(&watch.stream).map_or("", String::as_str);
            let (key, range_end) = match watch.range {
                KeyRange::Key(key) => (key, &[][..]),
                KeyRange::Range { start, end } => (
                    start,
                    match end {
                        RangeEnd::Before(end) => end.as_ref(),
                        RangeEnd::Unbounded => &[0][..],
                    },
                ),
            };
            !auth.may_watch(user, key, range_end)
        });
        if cancelled > 0 {
            tracing::info!(
                watches = cancelled,
                "watches canceled: their users may not read their ranges any more"
            );
        }
    }

    /// Closes a stream with all its watches.
    pub fn close_stream(&self, id: StreamId) {
        self.lock().close_stream(id);
        self.lock_users().remove(&id);
    }

    fn lock_users(&self) -> MutexGuard<'_, HashMap<StreamId, String>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time on the hub's clock.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Wakes the catch-up thread.
    pub fn wake(&self) {
        *self.has_work.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }

    fn wait_for_work(&self, longest: Duration) {
        let mut has_work = self.has_work.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_work {
            has_work = self
                .woken
                .wait_timeout(has_work, longest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *has_work = false;
    }

    /// Syncs lagging watches and sends progress notices, until the member stops.
    pub fn run_catch_up(&self, history: &StoreHistory<'_>) {
        while !history.stop.is_stopping() {
            let plan = self.lock().sync_plan(SyncBudget::default());
            // Reading history may go to disk, so the hub is not locked.
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
            self.wait_for_work(until_tick.clamp(Duration::from_millis(1), SYNC_INTERVAL_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portunus_mvcc::backend::{Backend, Change, MemoryBackend};
    use portunus_mvcc::revision::{RecordKey, Revision};
    use portunus_mvcc::{Config, EntryId, Hooks, Store};
    use portunus_proto::Term;
    use portunus_proto::etcdserverpb::PutRequest;

    use super::*;

    fn open(backend: &MemoryBackend) -> Store {
        let config = Config {
            resident_value_bytes_max: 1,
            ..Config::default()
        };
        let backend = Arc::new(backend.clone());
        Store::open(backend, config, Hooks::default()).unwrap().0
    }

    /// A store whose value at revision 2 is in the backend only.
    fn store() -> (MemoryBackend, Store) {
        let backend = MemoryBackend::new();
        let mut store = open(&backend);
        for index in 1..=2 {
            store
                .begin(EntryId {
                    index,
                    term: Term(1),
                })
                .unwrap();
            let request = PutRequest {
                key: "a".into(),
                value: "v".into(),
                ..PutRequest::default()
            };
            let _ = store.put(&request, &|_| true).unwrap();
            store.end().unwrap();
        }
        store.flush().unwrap();
        drop(store);
        let store = open(&backend);
        (backend, store)
    }

    #[test]
    fn failed_read_of_history_does_not_stop_the_member_and_damage_does() {
        let (backend, store) = store();
        let (reader, stop) = (ArcSwap::from_pointee(store.reader()), StopSwitch::default());
        let history = StoreHistory {
            reader: &reader,
            stop: &stop,
        };
        backend.fail_next_snapshot();
        let failed = history.events_since(2, 10);
        assert!(matches!(failed, Err(HistoryError::Read(_))), "{failed:?}");
        backend.fail_next_snapshot();
        let failed = history.prev_kv(b"a", 3);
        assert!(matches!(failed, Err(HistoryError::Read(_))), "{failed:?}");
        assert!(!stop.is_stopping());
        assert_eq!(history.events_since(2, 10).unwrap().len(), 2);

        let lost = RecordKey::put(Revision { main: 2, sub: 0 });
        backend.commit(&[Change::DeleteRecord(lost)]).unwrap();
        assert!(history.events_since(2, 10).is_err());
        assert!(stop.is_stopping());
    }
}
