//! Keeps a lease alive while the caller polls for renewals.
//!
//! One stream per lease. A broken stream is opened again on the next endpoint until the lease
//! must have expired. There is no background task. [`LeaseGuard`](crate::LeaseGuard) tells why a
//! lease was lost.

use std::time::Duration;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

/// Renewals per TTL, as in etcd's Go client.
const RENEWALS_PER_TTL: u32 = 3;
/// Pause before a stream is opened again that failed.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a stream is opened again whose token was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);
/// The time limit for the first renewal, while the TTL is unknown.
const FIRST_RENEWAL_WITHIN: Duration = Duration::from_secs(10);

/// A lease being kept alive; see [`Client::keep_alive`].
#[derive(Debug)]
pub struct KeepAlive {
    client: Client,
    id: i64,
    stream: Option<RenewalStream>,
    next_renewal: Instant,
    /// When the lease expires without another renewal.
    expires: Instant,
}

#[derive(Debug)]
struct RenewalStream {
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    responses: Streaming<LeaseKeepAliveResponse>,
    generation: u64,
    /// When the request was sent whose response is missing.
    unanswered_since: Option<Instant>,
}

/// The outcome of a renewal.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// The server renewed the lease.
    Renewed(LeaseKeepAliveResponse),
    /// The server does not know the lease.
    NotFound,
    /// No server renewed the lease before it expired.
    Expired,
}

impl Client {
    /// Renews a lease once.
    ///
    /// # Errors
    /// The server's error; `LeaseNotFound` if the lease has expired or was revoked.
    pub async fn keep_alive_once(&self, id: i64) -> Result<LeaseKeepAliveResponse, ClientError> {
        let response = self
            .call(calls::LEASE_KEEP_ALIVE, |channel| {
                let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
                let request = self.request(requests);
                async move {
                    let mut lease = LeaseClient::new(channel);
                    let mut stream = lease.lease_keep_alive(request).await?.into_inner();
                    let first = stream.message().await?;
                    Ok(tonic::Response::new(first))
                }
            })
            .await?
            .ok_or(ClientError::StreamEnded)?;
        if response.ttl <= 0 {
            return Err(ClientError::Etcd(EtcdError::LeaseNotFound));
        }
        Ok(response)
    }

    /// Keeps a lease alive; the caller polls [`KeepAlive::next`] for each renewal.
    #[must_use]
    pub fn keep_alive(&self, id: i64) -> KeepAlive {
        let now = Instant::now();
        KeepAlive {
            client: self.clone(),
            id,
            stream: None,
            next_renewal: now,
            expires: now + FIRST_RENEWAL_WITHIN,
        }
    }
}

impl KeepAlive {
    /// Returns the lease.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Returns when the lease expires without another renewal. The time is counted from when the
    /// last renewal was requested, so a server does not expire the lease before.
    #[must_use]
    pub fn expires(&self) -> Instant {
        self.expires
    }

    /// Waits until the next renewal is due and returns its response; `None` when the lease has
    /// expired or was revoked.
    ///
    /// # Errors
    /// The server's error, except `Unavailable`: then it retries until the lease must have
    /// expired.
    pub async fn next(&mut self) -> Result<Option<LeaseKeepAliveResponse>, ClientError> {
        Ok(match self.renewed().await? {
            Renewal::Renewed(response) => Some(response),
            Renewal::NotFound | Renewal::Expired => None,
        })
    }

    /// Notes that the lease was granted with this TTL, requested at this time.
    pub(crate) fn granted(&mut self, requested: Instant, ttl_s: i64) {
        let ttl = Duration::from_secs(ttl_s.max(0).unsigned_abs());
        self.expires = requested + ttl;
        self.next_renewal = requested + ttl / RENEWALS_PER_TTL;
    }

    /// Like [`Self::next`], with the reason why there is no renewal. Dropping the future loses no
    /// response.
    pub(crate) async fn renewed(&mut self) -> Result<Renewal, ClientError> {
        sleep_until(self.next_renewal).await;
        loop {
            let Ok(renewed) = timeout_at(self.expires, self.renew()).await else {
                return Ok(Renewal::Expired);
            };
            match renewed {
                Ok((_, response)) if response.ttl <= 0 => return Ok(Renewal::NotFound),
                Ok((requested, response)) => {
                    self.granted(requested, response.ttl);
                    return Ok(Renewal::Renewed(response));
                }
                Err(error) if error.is_unavailable() => {
                    if let Some(stream) = self.stream.take() {
                        self.client.disconnect(stream.generation, &error);
                    }
                    sleep(REOPEN_PAUSE).await;
                }
                // The next stream gets a new token.
                Err(error) if self.client.identity().may_recover_from(&error) => {
                    self.stream = None;
                    sleep(REFUSED_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Requests a renewal and returns the time of the request and the response.
    async fn renew(&mut self) -> Result<(Instant, LeaseKeepAliveResponse), ClientError> {
        let request = LeaseKeepAliveRequest { id: self.id };
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(open(&self.client, request).await?),
        };
        let requested = match stream.unanswered_since {
            Some(requested) => requested,
            None => {
                let now = Instant::now();
                if stream.requests.send(request).await.is_err() {
                    return Err(ClientError::StreamEnded);
                }
                *stream.unanswered_since.insert(now)
            }
        };
        let response = stream.responses.message().await?;
        stream.unanswered_since = None;
        Ok((requested, response.ok_or(ClientError::StreamEnded)?))
    }
}

/// Opens a stream with the first renewal, because a server sends no headers before its first
/// response.
async fn open(client: &Client, first: LeaseKeepAliveRequest) -> Result<RenewalStream, ClientError> {
    let (requests, outgoing) = mpsc::channel(1);
    client.renew_token_for_stream().await?;
    let (channel, generation) = client.pick_connection().await;
    let requested = Instant::now();
    // Cannot fail: the queue is empty and its receiver is in this function.
    let _ = requests.send(first).await;
    let request = client.request_with_leader(ReceiverStream::new(outgoing));
    let responses = LeaseClient::new(channel).lease_keep_alive(request).await;
    match responses {
        Ok(responses) => Ok(RenewalStream {
            requests,
            responses: responses.into_inner(),
            generation,
            unanswered_since: Some(requested),
        }),
        Err(status) => {
            let error = ClientError::from(status);
            client.disconnect(generation, &error);
            Err(error)
        }
    }
}
