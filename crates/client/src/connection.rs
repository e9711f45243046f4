//! Calls: deadline, choice of endpoint, retries.
//!
//! Every unary method of [`Client`] uses [`Client::call`]; streams use [`Client::pick_connection`].
//! This module does not depend on the meaning of a call. The [balancer](crate::balancer)
//! chooses the endpoint.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use portunus_proto::EtcdError;
use portunus_proto::wire::metadata;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::balancer::{Balancer, Target};
use crate::calls::{Call, RetryPolicy};
use crate::endpoint::{EndpointParts, parse_endpoint};
use crate::error::{ClientError, ConnectError, RequireError};
use crate::options::Options;
use crate::preface;
use crate::tls::{self, Tls};
use crate::token::Identity;

/// The shortest keepalive interval, as in Go's gRPC library: a server disconnects clients that
/// ping more often than every five seconds.
const KEEPALIVE_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// First pause before a call is retried.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause between two retries.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Repetitions of a call whose token was refused or whose auth revision was old, as in etcd's Go
/// client; the deadline of the call ends them earlier.
const TOKEN_RENEWALS_MAX: u32 = 100;
/// The API version this client was written for; a label in the server's metrics.
const CLIENT_API_VERSION: &str = "3.8";

/// A client of one cluster. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Names of features that calls require.
    required: Arc<[MetadataValue<Ascii>]>,
    /// Whether a member without a leader refuses all calls.
    requires_leader: bool,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    balancer: Arc<Balancer>,
    identity: Identity,
}

impl Client {
    /// Checks the options. The first call opens the connections and requests the token, so that
    /// its deadline covers both.
    ///
    /// # Errors
    /// If an endpoint, a token or the CAs of the system are unusable or there is no endpoint.
    pub fn connect(options: Options) -> Result<Self, ConnectError> {
        if options.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        let parse = |text: &String| parse_endpoint(text);
        let parts = options.endpoints.iter().map(parse);
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let settings = tls::for_endpoints(&parts, options.tls.as_ref())?;
        let names = options.endpoints.iter();
        let targets = names
            .zip(parts.iter().zip(settings))
            .map(|(name, (parts, tls))| target(name, parts, tls, &options))
            .collect::<Result<_, _>>()?;
        let balancer = Balancer::new(targets, options.dial_timeout);
        let identity = Identity::new(options.credentials.clone())?;
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                balancer,
                identity,
            }),
            required: Arc::default(),
            requires_leader: false,
        })
    }

    /// Returns a client on the same connections that requires these cluster features, in
    /// addition to those of this one: the server refuses its calls with `FailedPrecondition`
    /// unless all are on. A server without feature gates ignores the names; call
    /// [`feature_gate_status`](Self::feature_gate_status) first, which fails there.
    ///
    /// # Errors
    /// If a name cannot be sent.
    pub fn requiring<'n>(
        &self,
        features: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, RequireError> {
        let mut required = self.required.to_vec();
        for name in features {
            let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic());
            let value = name.parse().ok();
            let value = value.filter(|_| is_visible && !name.is_empty());
            required.push(value.ok_or_else(|| RequireError::Name {
                name: name.to_owned(),
            })?);
        }
        Ok(Self {
            required: required.into(),
            ..self.clone()
        })
    }

    /// Returns a client on the same connections whose calls are refused by a member that has no leader,
    /// instead of waiting for one; as clientv3's `WithRequireLeader`. Watches and keepalives always
    /// require a leader.
    #[must_use]
    pub fn requiring_leader(&self) -> Self {
        Self {
            requires_leader: true,
            ..self.clone()
        }
    }

    /// Returns the endpoints as given.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.shared.options.endpoints
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.shared.identity
    }

    /// Runs one call with the command's deadline.
    pub(crate) async fn call<T, F, Fut>(&self, call: Call, send: F) -> Result<T, ClientError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let deadline = self
            .shared
            .options
            .command_timeout
            .map(|timeout| Instant::now() + timeout);
        let mut last_error = None;
        let attempts = self.attempts_with_token(call, send, &mut last_error);
        let outcome = match deadline {
            None => Ok(attempts.await),
            Some(deadline) => timeout_at(deadline, attempts).await,
        };
        outcome.unwrap_or_else(|_| Err(self.deadline_exceeded(last_error)))
    }

    /// Returns the error of an expired deadline with the cause that is known best.
    pub(crate) fn deadline_exceeded(
        &self,
        last_error: Option<Box<dyn Error + Send + Sync>>,
    ) -> ClientError {
        let unreachable = || self.shared.balancer.last_failure().map(Into::into);
        ClientError::DeadlineExceeded {
            last_attempt: last_error.or_else(unreachable),
        }
    }

    /// Runs a call with a token; repeats it with a new one when the server refuses the token. A
    /// refused call changed nothing, so the retry policy does not matter.
    async fn attempts_with_token<T, F, Fut>(
        &self,
        call: Call,
        send: F,
        last_error: &mut Option<Box<dyn Error + Send + Sync>>,
    ) -> Result<T, ClientError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.ensure_token(last_error).await?;
        let mut renewals = 0;
        loop {
            let token = self.identity().generation();
            let error = match self.attempts(call, &send, last_error).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let renewals_max = match error.etcd() {
                // A request can be refused with the same error because a name in it is empty.
                Some(EtcdError::UserEmpty) => 1,
                _ => TOKEN_RENEWALS_MAX,
            };
            if renewals >= renewals_max || !self.identity().may_recover_from(&error) {
                return Err(error);
            }
            renewals += 1;
            *last_error = Some(Box::new(error));
            self.renew_token(token, last_error).await?;
            sleep(RETRY_PAUSE_MIN).await;
        }
    }

    /// Runs a call until it succeeds or must not be repeated.
    pub(crate) async fn attempts<T, F, Fut>(
        &self,
        call: Call,
        send: &F,
        last_error: &mut Option<Box<dyn Error + Send + Sync>>,
    ) -> Result<T, ClientError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let (channel, generation) = self.pick_connection().await;
            let status = match send(channel).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            // A status with a source was created by this client: the connection broke.
            let is_broken = status.source().is_some();
            let was_sent = !preface::was_never_sent(&status);
            let error = ClientError::of_call(call, status);
            if is_broken {
                let why = error.to_string();
                self.shared.balancer.discard(generation, why);
            }
            let may_repeat = match &error {
                // The learner changed nothing, and the next endpoint may be a voter.
                ClientError::Etcd(EtcdError::NotSupportedForLearner) => self.endpoints().len() > 1,
                error => {
                    error.is_unavailable() && (call.retry == RetryPolicy::Repeatable || !was_sent)
                }
            };
            if !may_repeat {
                return Err(error);
            }
            *last_error = Some(Box::new(error));
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Waits until an endpoint is ready, for the dial timeout at most. Calls do not need it: it
    /// is for programs that skip an unreachable cluster instead of waiting for the deadline of
    /// a call.
    ///
    /// # Errors
    /// If none is ready by then.
    pub async fn ready(&self) -> Result<(), ClientError> {
        let balancer = &self.shared.balancer;
        let ready = timeout(self.shared.options.dial_timeout, balancer.pick()).await;
        ready.map(drop).map_err(|_| ClientError::DeadlineExceeded {
            last_attempt: balancer.last_failure().map(Into::into),
        })
    }

    /// Returns a connection to the next ready endpoint; waits until there is one.
    pub(crate) async fn pick_connection(&self) -> (Channel, u64) {
        let picked = self.shared.balancer.pick().await;
        (picked.channel, picked.generation)
    }

    /// Discards a connection whose stream failed.
    pub(crate) fn disconnect(&self, generation: u64, error: &ClientError) {
        let why = error.to_string();
        self.shared.balancer.discard(generation, why);
    }

    /// Returns a request with the headers of every call.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.request_without_token(message);
        if let Some(token) = self.identity().token() {
            request.metadata_mut().insert(metadata::TOKEN, token);
        }
        request
    }

    /// Returns a request with the headers of a call that is sent before there is a token.
    pub(crate) fn request_without_token<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(
            metadata::CLIENT_API_VERSION,
            MetadataValue::from_static(CLIENT_API_VERSION),
        );
        if self.requires_leader {
            require_leader(&mut request);
        }
        for feature in self.required.iter() {
            let headers = request.metadata_mut();
            headers.append(metadata::REQUIRE_FEATURE, feature.clone());
        }
        request
    }

    /// Returns a request that a member without a leader refuses instead of waiting.
    pub(crate) fn request_with_leader<T>(&self, message: T) -> Request<T> {
        let mut request = self.request(message);
        require_leader(&mut request);
        request
    }
}

fn require_leader<T>(request: &mut Request<T>) {
    let value = MetadataValue::from_static(metadata::HAS_LEADER_TRUE);
    request.metadata_mut().insert(metadata::HAS_LEADER, value);
}

fn target(
    name: &str,
    parts: &EndpointParts,
    tls: Option<Tls>,
    options: &Options,
) -> Result<Target, ConnectError> {
    let malformed = || {
        ConnectError::Endpoint(crate::EndpointError::Malformed {
            endpoint: name.to_owned(),
        })
    };
    // The connector does TLS; only the scheme of requests tells about it.
    let scheme = if tls.is_some() { "https" } else { "http" };
    let origin = format!("{scheme}://{}", parts.address);
    let origin = origin.parse().map_err(|_| malformed())?;
    let uri = format!("http://{}", parts.address);
    let endpoint = Endpoint::from_shared(uri).map_err(|_| malformed())?;
    let endpoint = endpoint.origin(origin);
    let endpoint =
        endpoint
            .user_agent(&options.user_agent)
            .map_err(|_| ConnectError::UserAgent {
                user_agent: options.user_agent.clone(),
            })?;
    let endpoint = endpoint
        .http2_keep_alive_interval(options.keepalive_time.max(KEEPALIVE_INTERVAL_MIN))
        .keep_alive_timeout(options.keepalive_timeout);
    Ok(Target {
        name: name.to_owned(),
        host: parts.host().to_owned(),
        endpoint,
        tls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_features_are_sent_with_every_request_in_separate_headers() {
        let client = Client::connect(Options::default()).unwrap();
        let both = client.requiring(["A"]).unwrap().requiring(["B"]).unwrap();
        let names = |client: &Client| -> Vec<String> {
            let request = client.request_with_leader(());
            let names = request.metadata().get_all(metadata::REQUIRE_FEATURE);
            let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
            names.collect()
        };
        assert_eq!(names(&both), ["A", "B"]);
        assert!(names(&client).is_empty());
    }

    #[test]
    fn leader_is_required_by_the_client_that_was_asked_to_and_its_clones() {
        let client = Client::connect(Options::default()).unwrap();
        let requires = |client: &Client| {
            let request = client.request(());
            request.metadata().get(metadata::HAS_LEADER).is_some()
        };
        assert!(!requires(&client));
        let requiring = client.requiring_leader().requiring(["A"]).unwrap();
        assert!(requires(&requiring));
        assert!(!requires(&client));
    }

    #[test]
    fn feature_name_that_cannot_be_sent_is_refused() {
        let client = Client::connect(Options::default()).unwrap();
        for name in ["", "a\nb", "\u{e4}"] {
            let refused = client.requiring([name]).unwrap_err();
            assert_eq!(
                refused,
                RequireError::Name {
                    name: name.to_owned()
                }
            );
        }
    }
}
