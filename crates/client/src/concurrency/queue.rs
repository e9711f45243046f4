//! The queue of keys that locks and elections share.
//!
//! A [`Place`] is a key in the queue. The first one in the queue, by create revision, holds it.

mod late;

use bytes::Bytes;
use portunus_proto::etcdserverpb::{ResponseHeader, TxnResponse, response_op};
use portunus_proto::mvccpb::KeyValue;
use portunus_proto::mvccpb::event::EventType;
use tokio::runtime::Handle;

use super::ConcurrencyError;
use super::session::{Session, Turn, until_answered};
use crate::connection::Client;
use crate::error::ClientError;
use crate::request::{Compare, Delete, Put, Range, Txn, Watch};

/// A key in a queue. Dropping it removes the key in the background.
#[derive(Debug)]
pub(super) struct Place {
    session: Session,
    prefix: Bytes,
    key: Bytes,
    /// The create revision of the key; 0 while it is unknown.
    revision: i64,
    /// Whether a request to queue the key was not answered: it may arrive after the key was deleted.
    has_late_request: bool,
    state: State,
    /// Held until the key is deleted; `None` afterwards.
    turn: Option<Turn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No request was sent.
    Fresh,
    /// The key may exist.
    Queued,
    /// The key is deleted.
    Removed,
}

/// The state of the queue when a key was added.
pub(super) struct Queued {
    pub(super) header: ResponseHeader,
    /// The pair of this session that was in the queue before, such as after a request without an
    /// answer.
    pub(super) existing: Option<KeyValue>,
    /// The first pair of the queue.
    pub(super) first: Option<KeyValue>,
}

impl Queued {
    /// Returns whether a place is the first one.
    pub(super) fn is_first(&self, place: &Place) -> bool {
        let first = self.first.as_ref();
        first.is_none_or(|kv| kv.create_revision == place.revision)
    }
}

/// Returns the prefix of all keys of a queue, as clientv3 forms it.
pub(super) fn prefix_of(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Returns the key of a session in a queue, as clientv3 forms it.
pub(super) fn key_of(prefix: &[u8], lease: i64) -> Bytes {
    [prefix, format!("{lease:x}").as_bytes()].concat().into()
}

impl Place {
    /// Waits for the turn of the task among those of its session.
    pub(super) async fn take(session: &Session, prefix: &Bytes) -> Place {
        let key = key_of(prefix, session.lease());
        let turn = session.turn(&key).await;
        Place::new(session, prefix, key, turn)
    }

    /// Returns `None` if another task of the session is in the queue.
    pub(super) fn try_take(session: &Session, prefix: &Bytes) -> Option<Place> {
        let key = key_of(prefix, session.lease());
        let turn = session.try_turn(&key)?;
        Some(Place::new(session, prefix, key, turn))
    }

    fn new(session: &Session, prefix: &Bytes, key: Bytes, turn: Turn) -> Place {
        Place {
            session: session.clone(),
            prefix: prefix.clone(),
            key,
            revision: 0,
            has_late_request: false,
            state: State::Fresh,
            turn: Some(turn),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn key(&self) -> &Bytes {
        &self.key
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the condition that the key is in the queue since its revision.
    pub(super) fn is_queued(&self) -> Compare {
        Compare::create_revision(&self.key).equals(self.revision)
    }

    /// Adds the key to the queue, or finds it there.
    pub(super) async fn enqueue(&mut self, value: Bytes) -> Result<Queued, ClientError> {
        let first = || Range::prefix(&self.prefix).first_created();
        let txn = Txn::new()
            .when(Compare::is_missing(&self.key))
            .then(Put::new(&self.key, value).lease(self.session.lease()))
            .then(first())
            .otherwise(Range::key(&self.key))
            .otherwise(first());
        self.state = State::Queued;
        // Until the only attempt is answered.
        self.has_late_request = true;
        let client = self.session.client();
        let mut attempts = 0;
        let queued = until_answered(|| {
            attempts += 1;
            client.txn(txn.clone())
        });
        let answer = queued.await?;
        self.has_late_request = attempts > 1;
        let header = answer.header.unwrap_or_default();
        let existing = match answer.succeeded {
            true => None,
            false => first_pair(&answer, 0),
        };
        let existing_revision = existing.as_ref().map(|kv| kv.create_revision);
        self.revision = existing_revision.unwrap_or(header.revision);
        Ok(Queued {
            header,
            existing,
            first: first_pair(&answer, 1),
        })
    }

    /// Waits until every key that was queued before is deleted, and returns the header of a read that
    /// found the own key after that.
    ///
    /// # Errors
    /// If the own key was deleted meanwhile.
    pub(super) async fn wait_until_first(&self) -> Result<ResponseHeader, ConcurrencyError> {
        let client = self.session.client();
        let earlier = Range::prefix(&self.prefix)
            .last_created()
            .create_revisions(0, self.revision - 1);
        loop {
            let read = until_answered(|| client.range(earlier.clone())).await?;
            let Some(kv) = read.kvs.first() else {
                break;
            };
            let revision = read.header.map_or(0, |header| header.revision);
            wait_for_deletion(client, &kv.key, revision).await?;
        }
        let own = Range::key(&self.key);
        let read = until_answered(|| client.range(own.clone())).await?;
        let is_own = |kv: &KeyValue| kv.create_revision == self.revision;
        if !read.kvs.first().is_some_and(is_own) {
            return Err(ConcurrencyError::key_deleted(&self.key));
        }
        Ok(read.header.unwrap_or_default())
    }

    /// Deletes the key. Returns the header, and whether the key was in the queue until now.
    pub(super) async fn remove(&mut self) -> Result<(ResponseHeader, bool), ConcurrencyError> {
        let (header, was_queued) = delete(&self.session, &self.key, self.revision).await?;
        self.state = State::Removed;
        self.turn = None;
        if self.has_late_request {
            tokio::spawn(late::delete_late(&self.session, &self.key, header.revision));
        }
        Ok((header, was_queued))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.state != State::Queued || self.session.loss().is_some() {
            return;
        }
        // Without a runtime the key stays until the lease ends.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (session, key, revision) = (self.session.clone(), self.key.clone(), self.revision);
        let (turn, has_late_request) = (self.turn.take(), self.has_late_request);
        runtime.spawn(async move {
            let deleted = delete(&session, &key, revision).await;
            drop(turn);
            // A failure is not repeated: the key is deleted with the lease.
            if let (Ok((header, _)), true) = (deleted, has_late_request) {
                let late = late::delete_late(&session, &key, header.revision);
                drop(session);
                late.await;
            }
        });
    }
}

/// Deletes a key of a queue if it has this create revision; 0 for any. Returns the header, and
/// whether the key had that revision until now.
async fn delete(
    session: &Session,
    key: &Bytes,
    revision: i64,
) -> Result<(ResponseHeader, bool), ConcurrencyError> {
    let mut txn = Txn::new().then(Delete::key(key));
    if revision > 0 {
        txn = txn.when(Compare::create_revision(key).equals(revision));
    }
    let mut attempts = 0;
    let deleted = until_answered(|| {
        attempts += 1;
        session.client().txn(txn.clone())
    });
    let answer = tokio::select! {
        biased;
        lost = session.lost() => return Err(ConcurrencyError::SessionLost(lost)),
        deleted = deleted => deleted?,
    };
    // The attempt before may have deleted it without an answer.
    let was_queued = answer.succeeded || attempts > 1;
    Ok((answer.header.unwrap_or_default(), was_queued))
}

/// Returns the first pair of the range that is the operation with this number.
fn first_pair(answer: &TxnResponse, operation: usize) -> Option<KeyValue> {
    let response = answer.responses.get(operation)?.response.as_ref()?;
    match response {
        response_op::Response::ResponseRange(range) => range.kvs.first().cloned(),
        _ => None,
    }
}

/// Waits until a key that existed at a revision is deleted. Returns early if the history was
/// compacted meanwhile; the caller reads again.
async fn wait_for_deletion(client: &Client, key: &[u8], revision: i64) -> Result<(), ClientError> {
    let mut watcher = client.watch(Watch::key(key).from_revision(revision).without_puts());
    while let Some(response) = watcher.next().await? {
        let mut events = response.events.iter();
        let is_deleted = events.any(|event| event.r#type() == EventType::Delete);
        if is_deleted || response.compact_revision > 0 {
            return Ok(());
        }
        if response.canceled {
            return Err(ClientError::Canceled {
                reason: response.cancel_reason,
            });
        }
    }
    Err(ClientError::StreamEnded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_clientv3() {
        let prefix = prefix_of(b"/locks/a");
        assert_eq!(prefix, &b"/locks/a/"[..]);
        assert_eq!(
            key_of(&prefix, 0x694d_91c5_5e0f_2a03),
            &b"/locks/a/694d91c55e0f2a03"[..]
        );
        assert_eq!(key_of(&prefix, 7), &b"/locks/a/7"[..]);
    }
}
