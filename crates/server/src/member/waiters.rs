//! Requests that wait for their entry to be applied, by request id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use portunus_proto::EtcdError;
use tokio::sync::oneshot;

use crate::apply::Response;

/// What the apply thread answers.
pub type Answer = Result<Response, EtcdError>;

/// Enough that the threads of a machine seldom meet.
const SHARDS: usize = 32;

/// Waiting requests. Registered by services, answered by the apply thread; each lock is
/// held for one insertion or removal.
pub struct Waiters {
    shards: [Mutex<HashMap<u64, oneshot::Sender<Answer>>>; SHARDS],
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Waiters {
    /// Registers before proposing; dropping the guard forgets the request.
    pub fn register(&self, id: u64) -> Waiting<'_> {
        let (sender, receiver) = oneshot::channel();
        self.shard(id).insert(id, sender);
        Waiting {
            waiters: self,
            id,
            receiver,
        }
    }

    /// Whether somebody here waits for this request.
    pub fn is_waiting(&self, id: u64) -> bool {
        self.shard(id).contains_key(&id)
    }

    /// Answers a request, if somebody here waits for it.
    pub fn answer(&self, id: u64, answer: Answer) {
        if let Some(sender) = self.shard(id).remove(&id) {
            // The client may have gone away meanwhile.
            let _ = sender.send(answer);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        lock(&self.shards[(id % SHARDS as u64) as usize])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registered request.
pub struct Waiting<'a> {
    waiters: &'a Waiters,
    id: u64,
    receiver: oneshot::Receiver<Answer>,
}

impl Waiting<'_> {
    /// Waits for the answer.
    pub async fn answer(mut self) -> Answer {
        (&mut self.receiver)
            .await
            .unwrap_or(Err(EtcdError::Stopped))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.shard(self.id).remove(&self.id);
    }
}
