//! Keeps a lease alive while the caller polls for renewals.
//!
//! One stream per lease. A broken stream is opened again on the next endpoint until the lease
//! must have expired. There is no background task.

use std::time::Duration;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::lease_client::LeaseClient;
use portunus_proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::connection::{Client, RetryPolicy};
use crate::error::ClientError;

/// Renewals per TTL, as in etcd's Go client.
const RENEWALS_PER_TTL: u32 = 3;
/// Pause before a stream is opened again whose token was refused.
const REOPEN_PAUSE: Duration = Duration::from_millis(500);
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
}

impl Client {
    /// Renews a lease once.
    ///
    /// # Errors
    /// The server's error; `LeaseNotFound` if the lease has expired or was revoked.
    pub async fn keep_alive_once(&self, id: i64) -> Result<LeaseKeepAliveResponse, ClientError> {
        let response = self
            .call(RetryPolicy::Repeatable, |channel| {
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
    /// Waits until the next renewal is due and returns its response; `None` when the lease has
    /// expired or was revoked.
    ///
    /// # Errors
    /// The server's error, except `Unavailable`: then it retries until the lease must have
    /// expired.
    pub async fn next(&mut self) -> Result<Option<LeaseKeepAliveResponse>, ClientError> {
        sleep_until(self.next_renewal).await;
        loop {
            let Ok(renewed) = timeout_at(self.expires, self.renew()).await else {
                return Ok(None);
            };
            match renewed {
                Ok(response) if response.ttl <= 0 => return Ok(None),
                Ok(response) => {
                    let ttl = Duration::from_secs(response.ttl.unsigned_abs());
                    let now = Instant::now();
                    self.expires = now + ttl;
                    self.next_renewal = now + ttl / RENEWALS_PER_TTL;
                    return Ok(Some(response));
                }
                Err(error) if error.is_unavailable() => {
                    if let Some(stream) = self.stream.take() {
                        self.client.disconnect(stream.generation, &error);
                    }
                }
                // The next stream gets a new token.
                Err(error) if self.client.session().may_recover_from(&error) => {
                    self.stream = None;
                    sleep(REOPEN_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn renew(&mut self) -> Result<LeaseKeepAliveResponse, ClientError> {
        let request = LeaseKeepAliveRequest { id: self.id };
        let stream = match &mut self.stream {
            Some(stream) => {
                if stream.requests.send(request).await.is_err() {
                    return Err(ClientError::StreamEnded);
                }
                stream
            }
            None => self.stream.insert(open(&self.client, request).await?),
        };
        let response = stream.responses.message().await?;
        response.ok_or(ClientError::StreamEnded)
    }
}

/// Opens a stream with the first renewal, because a server sends no headers before its first
/// response.
async fn open(client: &Client, first: LeaseKeepAliveRequest) -> Result<RenewalStream, ClientError> {
    let (requests, outgoing) = mpsc::channel(1);
    client.renew_token_for_stream().await?;
    let (channel, generation) = client.pick_connection().await;
    // Cannot fail: the queue is empty and its receiver is in this function.
    let _ = requests.send(first).await;
    let request = client.request_with_leader(ReceiverStream::new(outgoing));
    let responses = LeaseClient::new(channel).lease_keep_alive(request).await;
    match responses {
        Ok(responses) => Ok(RenewalStream {
            requests,
            responses: responses.into_inner(),
            generation,
        }),
        Err(status) => {
            let error = ClientError::from(status);
            client.disconnect(generation, &error);
            Err(error)
        }
    }
}
