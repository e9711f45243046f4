//! The election of one leader among several candidates.

use bytes::Bytes;
use portunus_proto::etcdserverpb::{ResponseHeader, TxnResponse};
use portunus_proto::mvccpb::KeyValue;

use super::queue::{Place, prefix_of};
use super::{ConcurrencyError, Observer, Session};
use crate::connection::Client;
use crate::error::ClientError;
use crate::request::{Compare, Put, Range, Txn};

/// An election with a name. Candidates of the same name, in Go or in Rust, take part in the same one.
#[derive(Debug, Clone)]
pub struct Election {
    session: Session,
    prefix: Bytes,
}

/// A leadership that is held until [`Self::resign`], or until its session is lost.
///
/// Dropping it resigns, too, but in the background and without a report.
#[derive(Debug)]
#[must_use = "a leadership ends when it is dropped"]
pub struct Leadership {
    place: Place,
    header: ResponseHeader,
}

/// What a leader has proclaimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The header of the response, with the revision at which the proposal held.
    pub header: ResponseHeader,
    /// The pair of the leader: its value is the proposal, its create revision the fencing revision.
    pub kv: KeyValue,
}

impl Election {
    /// Creates an election with this name. The keys of candidates begin with the name and a slash.
    #[must_use]
    pub fn new(session: &Session, name: impl AsRef<[u8]>) -> Self {
        Self {
            session: session.clone(),
            prefix: prefix_of(name.as_ref()),
        }
    }

    /// Waits until this candidate is the leader, with `value` as its proposal. A caller with a time
    /// limit drops the future, which withdraws the candidate.
    ///
    /// # Errors
    /// If the session is lost or the key is deleted meanwhile, or the server refuses.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership, ConcurrencyError> {
        let value = value.into();
        let elected = async {
            let mut place = Place::take(&self.session, &self.prefix).await;
            let queued = place.enqueue(value.clone()).await?;
            if queued.existing.is_some_and(|kv| kv.value != value) {
                proclaim(&place, value).await?;
            }
            place.wait_until_first().await?;
            let header = queued.header;
            Ok(Leadership { place, header })
        };
        self.session.unless_lost(elected).await
    }

    /// Returns the proposal of the leader; `None` if there is no leader.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn leader(&self) -> Result<Option<Proposal>, ClientError> {
        leader_of(self.session.client(), &self.prefix).await
    }

    /// Follows the proposals of leaders, beginning with the current one.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::of_prefix(self.session.client(), self.prefix.clone())
    }
}

/// Returns the first pair of a queue.
pub(super) async fn leader_of(
    client: &Client,
    prefix: &[u8],
) -> Result<Option<Proposal>, ClientError> {
    let read = client.range(Range::prefix(prefix).first_created()).await?;
    let header = read.header.unwrap_or_default();
    let first = read.kvs.into_iter().next();
    Ok(first.map(|kv| Proposal { header, kv }))
}

/// Replaces the value of a candidate that is in the queue.
async fn proclaim(place: &Place, value: Bytes) -> Result<TxnResponse, ConcurrencyError> {
    let put = Put::new(place.key(), value).lease(place.session().lease());
    let txn = Txn::new().when(place.is_queued()).then(put);
    let answer = place.session().client().txn(txn).await?;
    match answer.succeeded {
        true => Ok(answer),
        false => Err(ConcurrencyError::key_deleted(place.key())),
    }
}

impl Leadership {
    /// Returns the key that stands for the leader.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// Returns the fencing revision: the create revision of the key, larger than that of every leader
    /// before.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.place.revision()
    }

    /// Returns the header of the response that made this a candidate, or of the last proclamation.
    #[must_use]
    pub fn header(&self) -> &ResponseHeader {
        &self.header
    }

    /// Returns the condition that this is the leader, for transactions: a write that contains it
    /// happens only during this leadership.
    pub fn is_leader(&self) -> Compare {
        self.place.is_queued()
    }

    /// Returns the session, to wait for its [loss](Session::lost).
    #[must_use]
    pub fn session(&self) -> &Session {
        self.place.session()
    }

    /// Replaces the proposal without another election.
    ///
    /// # Errors
    /// [`ConcurrencyError::KeyDeleted`] if this is not the leader any longer; the server's error; or a
    /// timeout, after which the proposal may have been replaced.
    pub async fn proclaim(&mut self, value: impl Into<Bytes>) -> Result<(), ConcurrencyError> {
        let session = self.place.session();
        let answer = session.unless_lost(proclaim(&self.place, value.into()));
        self.header = answer.await?.header.unwrap_or_default();
        Ok(())
    }

    /// Ends the leadership, so that the next candidate is elected.
    ///
    /// # Errors
    /// If the session is lost, or the server refuses. A leadership that was lost before is no error.
    pub async fn resign(mut self) -> Result<ResponseHeader, ConcurrencyError> {
        let (header, _) = self.place.remove().await?;
        Ok(header)
    }
}
