//! A lock that programs on several machines share.

use bytes::Bytes;
use portunus_proto::etcdserverpb::ResponseHeader;

use super::queue::{Place, prefix_of};
use super::{ConcurrencyError, Session};
use crate::request::Compare;

/// A lock with a name. Programs that lock the same name, in Go or in Rust, exclude each other.
#[derive(Debug, Clone)]
pub struct Mutex {
    session: Session,
    prefix: Bytes,
}

/// A lock that is held until [`Self::unlock`], or until its session is lost.
///
/// Dropping it releases the lock, too, but in the background and without a report.
#[derive(Debug)]
#[must_use = "a lock is released when it is dropped"]
pub struct Lock {
    place: Place,
    header: ResponseHeader,
}

impl Mutex {
    /// Creates a mutex with this name. The keys of the lock begin with the name and a slash.
    #[must_use]
    pub fn new(session: &Session, name: impl AsRef<[u8]>) -> Self {
        Self {
            session: session.clone(),
            prefix: prefix_of(name.as_ref()),
        }
    }

    /// Waits until the lock is acquired, in the order in which holders have asked. A caller with a
    /// time limit drops the future, which leaves the queue.
    ///
    /// # Errors
    /// If the session is lost or the key is deleted meanwhile, or the server refuses.
    pub async fn lock(&self) -> Result<Lock, ConcurrencyError> {
        let acquired = async {
            let mut place = Place::take(&self.session, &self.prefix).await;
            let queued = place.enqueue(Bytes::new()).await?;
            let header = match queued.is_first(&place) {
                true => queued.header,
                false => place.wait_until_first().await?,
            };
            Ok(Lock { place, header })
        };
        self.session.unless_lost(acquired).await
    }

    /// Acquires the lock if it is free; returns `None` if it is not. Waits only for the answer of a
    /// member.
    ///
    /// # Errors
    /// If the session is lost meanwhile, or the server refuses.
    pub async fn try_lock(&self) -> Result<Option<Lock>, ConcurrencyError> {
        let acquired = async {
            let Some(mut place) = Place::try_take(&self.session, &self.prefix) else {
                return Ok(None);
            };
            let queued = place.enqueue(Bytes::new()).await?;
            if queued.is_first(&place) {
                let header = queued.header;
                return Ok(Some(Lock { place, header }));
            }
            place.remove().await?;
            Ok(None)
        };
        self.session.unless_lost(acquired).await
    }
}

impl Lock {
    /// Returns the key that stands for the holder.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// Returns the fencing revision: the create revision of the key, larger than that of every holder
    /// before.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.place.revision()
    }

    /// Returns the header of the response that proved that the lock is held.
    #[must_use]
    pub fn header(&self) -> &ResponseHeader {
        &self.header
    }

    /// Returns the condition that the lock is held, for transactions: a write that contains it happens
    /// only while this holder has the lock.
    pub fn is_held(&self) -> Compare {
        self.place.is_queued()
    }

    /// Returns the session, to wait for its [loss](Session::lost).
    #[must_use]
    pub fn session(&self) -> &Session {
        self.place.session()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// If the lock was lost before, or the server refuses.
    pub async fn unlock(mut self) -> Result<ResponseHeader, ConcurrencyError> {
        let (header, was_queued) = self.place.remove().await?;
        if !was_queued {
            return Err(ConcurrencyError::key_deleted(self.place.key()));
        }
        Ok(header)
    }
}
