//! A session: a lease that a task keeps alive.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::LeaseRevokeRequest;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::ConcurrencyError;
use crate::connection::Client;
use crate::error::ClientError;
use crate::lease_guard::{LeaseGuard, LeaseLost};

/// The default TTL, as in clientv3.
const TTL_DEFAULT_S: i64 = 60;
/// The pause before a request is repeated that found no available member.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

/// The options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The TTL of the lease in seconds: how long locks outlive a holder that died. 60 by default.
    pub ttl_s: i64,
    /// A lease that exists, instead of a new one; 0 for a new one.
    pub lease: i64,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            ttl_s: TTL_DEFAULT_S,
            lease: 0,
        }
    }
}

impl SessionOptions {
    /// Options with this TTL in seconds.
    #[must_use]
    pub fn with_ttl(ttl_s: i64) -> Self {
        Self {
            ttl_s,
            ..Self::default()
        }
    }
}

/// A lease that is kept alive while the session or a clone of it exists, and that owns locks and
/// leaderships.
///
/// Its task runs on the tokio runtime of the caller. When the last clone is dropped, the renewals end
/// and the lease expires after its TTL; [`Self::close`] releases everything at once.
#[derive(Debug, Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    lease: i64,
    ttl_s: i64,
    /// Set once: by the task when the lease is lost, or by the caller that closes the session.
    lost: Arc<watch::Sender<Option<LeaseLost>>>,
    task: AbortHandle,
    /// The keys in queues; the tasks of a session take turns with them.
    turns: Mutex<BTreeMap<Bytes, Weak<tokio::sync::Mutex<()>>>>,
}

/// A session that is not kept alive by it.
#[derive(Debug, Clone)]
pub(super) struct WeakSession(Weak<Shared>);

impl WeakSession {
    /// Returns the session, unless it was dropped or is lost.
    pub(super) fn upgrade(&self) -> Option<Session> {
        let shared = self.0.upgrade()?;
        let session = Session { shared };
        session.loss().is_none().then_some(session)
    }
}

/// The exclusive use of a key among the tasks of a session.
pub(super) type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    /// Grants a lease, or adopts the one of the options, and keeps it alive. Needs a tokio runtime.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn start(client: &Client, options: SessionOptions) -> Result<Self, ClientError> {
        let guard = match options.lease {
            0 => client.lease(options.ttl_s).await?,
            lease => client.adopt_lease(lease).await?,
        };
        let (lease, ttl_s) = (guard.id(), guard.ttl_s());
        let lost = Arc::new(watch::Sender::new(None));
        let task = tokio::spawn(keep_alive(guard, Arc::clone(&lost)));
        Ok(Self {
            shared: Arc::new(Shared {
                client: client.clone(),
                lease,
                ttl_s,
                lost,
                task: task.abort_handle(),
                turns: Mutex::default(),
            }),
        })
    }

    /// Returns the lease.
    #[must_use]
    pub fn lease(&self) -> i64 {
        self.shared.lease
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns why the session is over, if it is.
    #[must_use]
    pub fn loss(&self) -> Option<LeaseLost> {
        self.shared.lost.borrow().clone()
    }

    /// Waits until the session is over and returns why. All locks of the session are lost then.
    pub async fn lost(&self) -> LeaseLost {
        let mut lost = self.shared.lost.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let found = lost.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|lost| lost.clone());
        found.unwrap_or(LeaseLost::Closed { id: self.lease() })
    }

    /// Ends the renewals and leaves the lease to expire, as clientv3's `Orphan`. The session counts as
    /// lost.
    pub fn orphan(&self) {
        self.end(LeaseLost::Closed { id: self.lease() });
    }

    /// Revokes the lease, which releases all locks of the session.
    ///
    /// # Errors
    /// The server's error, or a timeout; then the locks are released after the TTL.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.orphan();
        let request = LeaseRevokeRequest { id: self.lease() };
        let limit = Duration::from_secs(self.shared.ttl_s.max(1).unsigned_abs());
        match timeout(limit, self.client().lease_revoke(request)).await {
            Ok(Err(error)) if error.etcd() != Some(EtcdError::LeaseNotFound) => Err(error),
            // After the TTL, or without a lease, there is nothing to revoke.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn end(&self, why: LeaseLost) {
        self.shared.task.abort();
        set_once(&self.shared.lost, why);
    }

    /// Runs `work` unless the session is lost before it ends.
    pub(super) async fn unless_lost<T>(
        &self,
        work: impl Future<Output = Result<T, ConcurrencyError>>,
    ) -> Result<T, ConcurrencyError> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(ConcurrencyError::SessionLost(lost)),
            done = work => done,
        }
    }

    pub(super) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.shared))
    }

    /// Waits until no other task of this session uses a key.
    pub(super) async fn turn(&self, key: &Bytes) -> Turn {
        self.place(key).lock_owned().await
    }

    /// Returns `None` if another task of this session uses a key.
    pub(super) fn try_turn(&self, key: &Bytes) -> Option<Turn> {
        self.place(key).try_lock_owned().ok()
    }

    fn place(&self, key: &Bytes) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns();
        if let Some(place) = turns.get(key).and_then(Weak::upgrade) {
            return place;
        }
        turns.retain(|_, place| place.strong_count() > 0);
        let place = Arc::default();
        turns.insert(key.clone(), Arc::downgrade(&place));
        place
    }

    fn turns(&self) -> MutexGuard<'_, BTreeMap<Bytes, Weak<tokio::sync::Mutex<()>>>> {
        let turns = &self.shared.turns;
        turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the lease alive until it is lost.
async fn keep_alive(mut guard: LeaseGuard, lost: Arc<watch::Sender<Option<LeaseLost>>>) {
    let why = guard.lost().await;
    set_once(&lost, why);
}

fn set_once(lost: &watch::Sender<Option<LeaseLost>>, why: LeaseLost) {
    lost.send_if_modified(|lost| {
        let is_first = lost.is_none();
        if is_first {
            *lost = Some(why);
        }
        is_first
    });
}

/// Repeats a request that can be repeated without harm until a member answers it. The loss of the
/// session ends the wait of the caller.
pub(super) async fn until_answered<T, F>(mut request: impl FnMut() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    loop {
        match request().await {
            Err(error) if is_transient(&error) => sleep(REPEAT_PAUSE).await,
            answered => return answered,
        }
    }
}

fn is_transient(error: &ClientError) -> bool {
    error.is_unavailable() || matches!(error, ClientError::DeadlineExceeded { .. })
}
