//! Limits the hashes of the store that run at once.
//!
//! A hash reads all of the store: it takes a thread, a read transaction of the backend and a core
//! for as long as that lasts, and a request for it is a few bytes. So hashes beyond a limit are
//! refused. Clients and peers have limits of their own, so that requests of clients never keep
//! members from comparing their data.

use std::sync::Arc;

use portunus_mvcc::ReadError;
use prometheus::IntCounter;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Hashes that may run at once for clients, and as many for peers; more are refused.
pub const HASHES_MAX: usize = 16;

/// Why a hash was not computed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HashError {
    /// The limit is reached.
    #[error(
        "etcdserver: too many hashes are being computed, at most {HASHES_MAX} at once; try again later"
    )]
    TooMany,
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The thread ended without a hash.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

/// The hashes that run for one kind of caller.
#[derive(Debug)]
pub struct HashSlots {
    free: Arc<Semaphore>,
    refused: IntCounter,
}

impl HashSlots {
    /// Starts with no hash running; `refused` counts those beyond the limit.
    pub fn new(refused: IntCounter) -> HashSlots {
        HashSlots {
            free: Arc::new(Semaphore::new(HASHES_MAX)),
            refused,
        }
    }

    /// Computes a hash on a separate thread. Its slot is taken until the thread ends, also if
    /// the caller gives up earlier.
    pub async fn run<T: Send + 'static>(
        &self,
        hash: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, HashError> {
        let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() else {
            self.refused.inc();
            return Err(HashError::TooMany);
        };
        let hashed = tokio::task::spawn_blocking(move || {
            let hashed = hash();
            drop(slot);
            hashed
        });
        Ok(hashed.await??)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn hashes_beyond_the_limit_are_refused_until_one_ends() {
        let refused = IntCounter::new("refused", "Refused.").unwrap();
        let slots = Arc::new(HashSlots::new(refused.clone()));
        let mut running = Vec::new();
        for number in 0..HASHES_MAX {
            let (end, ended) = mpsc::channel::<()>();
            let (has_begun, begun) = tokio::sync::oneshot::channel();
            let slots = Arc::clone(&slots);
            let task = tokio::spawn(async move {
                let hash = slots.run(move || {
                    has_begun.send(()).unwrap();
                    let _ = ended.recv();
                    Ok(number)
                });
                hash.await
            });
            begun.await.unwrap();
            running.push((end, task));
        }
        let one_more = slots.run(|| Ok(0)).await;
        assert!(matches!(one_more, Err(HashError::TooMany)), "{one_more:?}");
        assert_eq!(refused.get(), 1);

        // The slot of an abandoned call stays taken until its thread ends.
        let (end_of_abandoned, task) = running.pop().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let one_more = slots.run(|| Ok(0)).await;
        assert!(matches!(one_more, Err(HashError::TooMany)), "{one_more:?}");

        let (end, task) = running.pop().unwrap();
        drop(end);
        assert_eq!(task.await.unwrap().unwrap(), HASHES_MAX - 2);
        assert_eq!(slots.run(|| Ok(7)).await.unwrap(), 7);
        drop((end_of_abandoned, running));
    }
}
