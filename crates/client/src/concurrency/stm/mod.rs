//! Optimistic transactions, as clientv3's software transactional memory: read and write keys in a
//! closure, which runs again if another client has changed what it has read.
//!
//! ```no_run
//! # async fn transfer(client: portunus_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use portunus_client::ClientError;
//! use portunus_client::concurrency::{StmOptions, stm};
//!
//! stm(&client, StmOptions::default(), |keys| async move {
//!     let from = keys.get("/accounts/a").await?.unwrap_or_default();
//!     keys.put("/accounts/b", from);
//!     keys.delete("/accounts/a");
//!     Ok::<_, ClientError>(())
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```
//!
//! | [`Isolation`] | reads | a commit fails if another client changed |
//! | --- | --- | --- |
//! | `SerializableSnapshot` | at the revision of the first read | a key that was read or written |
//! | `Serializable` | at the revision of the first read | a key that was read |
//! | `RepeatableReads` | each key once, possibly old | a key that was read |
//! | `ReadCommitted` | each key once, possibly old | nothing |

mod sets;
mod transaction;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::ResponseHeader;
use tokio::time::sleep;

use self::sets::Prefetched;
use self::transaction::Commit;
pub use self::transaction::Transaction;
use crate::connection::Client;
use crate::error::ClientError;

/// The default of the attempts.
const ATTEMPTS_MAX_DEFAULT: u32 = 100;
/// The pause after the first conflict; it doubles with each.
const CONFLICT_PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause after a conflict.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Which changes of other clients a transaction excludes; the levels are clientv3's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// All reads are of one revision, and no key that was read or written has changed since.
    #[default]
    SerializableSnapshot,
    /// All reads are of one revision, and no key that was read has changed since.
    Serializable,
    /// A key that was read has not changed until the commit.
    RepeatableReads,
    /// Reads are of committed values.
    ReadCommitted,
}

/// The options of an optimistic transaction.
#[derive(Debug, Clone)]
pub struct StmOptions {
    /// The isolation level.
    pub isolation: Isolation,
    /// How often the closure runs at most. 100 by default.
    pub attempts_max: u32,
    /// Keys to read together before the closure first runs.
    pub prefetch: Vec<Bytes>,
}

impl Default for StmOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            attempts_max: ATTEMPTS_MAX_DEFAULT,
            prefetch: Vec::new(),
        }
    }
}

impl StmOptions {
    /// Options with this isolation level.
    #[must_use]
    pub fn with_isolation(isolation: Isolation) -> Self {
        Self {
            isolation,
            ..Self::default()
        }
    }
}

/// A committed transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed<T> {
    /// What the closure returned.
    pub value: T,
    /// The header of the commit.
    pub header: ResponseHeader,
    /// How often the closure ran.
    pub attempts: u32,
}

/// Why a transaction was not committed. `E` is the error of the closure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StmError<E> {
    /// The closure failed; nothing was written.
    #[error("the transaction was aborted")]
    Aborted(#[source] E),
    /// Other clients changed the keys in every attempt; nothing was written.
    #[error("other clients changed the keys in each of {attempts} attempts; try again later")]
    Conflict {
        /// How often the closure ran.
        attempts: u32,
    },
    /// The commit failed. After a timeout or `Unavailable` it may have been applied.
    #[error("the commit failed")]
    Commit(#[source] ClientError),
}

/// Runs a transaction: the closure reads and writes keys, then everything is committed at once. If
/// another client has changed the keys meanwhile, the closure runs again, so it must have no other
/// effects.
///
/// # Errors
/// If the closure fails, if there are conflicts in all attempts, or if the commit fails.
pub async fn stm<T, E, F>(
    client: &Client,
    options: StmOptions,
    mut body: impl FnMut(Transaction) -> F,
) -> Result<Committed<T>, StmError<E>>
where
    F: Future<Output = Result<T, E>>,
    E: From<ClientError>,
{
    let isolation = options.isolation;
    let first = Transaction::new(client, isolation, Prefetched::default());
    let prefetched = first.prefetch(&options.prefetch).await;
    let mut prefetched = prefetched.map_err(|error| StmError::Aborted(error.into()))?;
    let mut pause = CONFLICT_PAUSE_MIN;
    for attempts in 1..=options.attempts_max {
        let transaction = Transaction::new(client, isolation, std::mem::take(&mut prefetched));
        let value = match body(transaction.clone()).await {
            Ok(value) => value,
            // The history that the reads need was compacted: read the newest values instead.
            Err(_) if transaction.failure() == Some(EtcdError::Compacted) => continue,
            Err(error) => return Err(StmError::Aborted(error)),
        };
        match transaction.commit().await.map_err(StmError::Commit)? {
            Commit::Done(header) => {
                return Ok(Committed {
                    value,
                    header,
                    attempts,
                });
            }
            Commit::Conflict(read) => prefetched = read,
        }
        sleep(pause).await;
        pause = (pause * 2).min(CONFLICT_PAUSE_MAX);
    }
    Err(StmError::Conflict {
        attempts: options.attempts_max,
    })
}
