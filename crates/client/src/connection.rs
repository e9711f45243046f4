//! Calls: deadline, choice of endpoint, repetition.
//!
//! Every method of [`Client`] goes through [`Client::call`]; streams go through
//! [`Client::connected`]. Nothing here knows what a call means. Which endpoint is next is the
//! [balancer](crate::balancer)'s business.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use portunus_proto::EtcdError;
use portunus_proto::wire::{self, metadata};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::balancer::{Balancer, Target};
use crate::endpoint::check_endpoint;
use crate::error::{ClientError, ConnectError, RequireError};
use crate::preface;

/// gRPC's own floor. A server disconnects clients that ping more often than every five
/// seconds, so Go's library raises shorter intervals to this, and so do we.
const KEEPALIVE_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// First pause before a call is repeated.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause between two repetitions.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// What a request may be unless told otherwise; etcd's Go client has the same.
const REQUEST_BYTES_MAX_DEFAULT: usize = 2 * 1024 * 1024;
/// The API version this client was written for; a label in the server's metrics.
const CLIENT_API_VERSION: &str = "3.8";
/// What a program says it is unless it has a name of its own.
const USER_AGENT_DEFAULT: &str = "portunus-client/v3.8.0";

/// How to reach a cluster. `Default` has etcdctl's defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port` or `http://host:port`. All are connected to, and calls go to them in turn.
    pub endpoints: Vec<String>,
    /// Longest wait for one endpoint to accept.
    pub dial_timeout: Duration,
    /// Longest wait for one answer, connecting included; `None` waits for ever.
    pub command_timeout: Option<Duration>,
    /// Silence on an active connection after which it is probed.
    pub keepalive_time: Duration,
    /// Wait for the answer to a probe.
    pub keepalive_timeout: Duration,
    /// Largest request sent.
    pub request_bytes_max: usize,
    /// Largest response accepted.
    pub response_bytes_max: usize,
    /// Who calls, as `name/vX.Y.Z`; servers count clients whose version is far from theirs.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoints: vec!["127.0.0.1:2379".to_owned()],
            dial_timeout: Duration::from_secs(2),
            command_timeout: Some(Duration::from_secs(5)),
            keepalive_time: Duration::from_secs(2),
            keepalive_timeout: Duration::from_secs(6),
            request_bytes_max: REQUEST_BYTES_MAX_DEFAULT,
            response_bytes_max: wire::RESPONSE_BYTES_MAX,
            user_agent: USER_AGENT_DEFAULT.to_owned(),
        }
    }
}

/// Whether a call may be repeated on another endpoint. A call that certainly changed nothing, because
/// its connection was closed before it was sent or a learner refused it, always may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Reads and other calls that change nothing.
    Safe,
    /// The first try may have been applied although no answer came.
    Never,
}

/// A client of one cluster. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// Names of features without which calls are to be refused.
    required: Arc<[MetadataValue<Ascii>]>,
}

#[derive(Debug)]
struct Shared {
    options: Options,
    balancer: Arc<Balancer>,
}

impl Client {
    /// Checks the options. Connections are made by the first call, so that the call's deadline
    /// covers them.
    ///
    /// # Errors
    /// If an endpoint is unusable or there is none.
    pub fn connect(options: Options) -> Result<Self, ConnectError> {
        if options.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        let targets = options
            .endpoints
            .iter()
            .map(|text| target(text, &options))
            .collect::<Result<_, _>>()?;
        let balancer = Balancer::new(targets, options.dial_timeout);
        Ok(Self {
            shared: Arc::new(Shared { options, balancer }),
            required: Arc::default(),
        })
    }

    /// A client on the same connections whose calls are refused with `FailedPrecondition` unless
    /// all of these cluster features are on, in addition to what this one requires. A server
    /// that does not know feature gates ignores the names; ask
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
            shared: Arc::clone(&self.shared),
            required: required.into(),
        })
    }

    /// The endpoints, as given.
    #[must_use]
    pub fn endpoints(&self) -> &[String] {
        &self.shared.options.endpoints
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Runs one call with the command's deadline.
    pub(crate) async fn call<T, F, Fut>(&self, repeat: Repeat, call: F) -> Result<T, ClientError>
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
        let attempts = self.attempts(repeat, call, &mut last_error);
        let outcome = match deadline {
            None => Ok(attempts.await),
            Some(deadline) => timeout_at(deadline, attempts).await,
        };
        outcome.unwrap_or_else(|_| {
            let unreachable = || self.shared.balancer.last_failure().map(Into::into);
            Err(ClientError::DeadlineExceeded {
                last_attempt: last_error.or_else(unreachable),
            })
        })
    }

    async fn attempts<T, F, Fut>(
        &self,
        repeat: Repeat,
        call: F,
        last_error: &mut Option<Box<dyn Error + Send + Sync>>,
    ) -> Result<T, ClientError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            let (channel, generation) = self.connected().await;
            let status = match call(channel).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            // A status with a cause was made on this side: the connection broke.
            let is_broken = status.source().is_some();
            let was_sent = !preface::was_never_sent(&status);
            let error = ClientError::from(status);
            if is_broken {
                let why = error.to_string();
                self.shared.balancer.discard(generation, why);
            }
            let may_repeat = match &error {
                // The learner did nothing, and the next endpoint may be a voter.
                ClientError::Etcd(EtcdError::NotSupportedForLearner) => self.endpoints().len() > 1,
                error => error.is_unavailable() && (repeat == Repeat::Safe || !was_sent),
            };
            if !may_repeat {
                return Err(error);
            }
            *last_error = Some(Box::new(error));
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Waits until an endpoint is ready, for the dial timeout at most. Calls wait by themselves;
    /// this is for programs that would rather do without an endpoint than wait for a call's
    /// whole deadline.
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

    /// A connection to the next endpoint that is ready; waits until there is one.
    pub(crate) async fn connected(&self) -> (Channel, u64) {
        let picked = self.shared.balancer.pick().await;
        (picked.channel, picked.generation)
    }

    /// Gives up a connection whose stream failed, in favour of the next endpoint.
    pub(crate) fn disconnect(&self, generation: u64, error: &ClientError) {
        let why = error.to_string();
        self.shared.balancer.discard(generation, why);
    }

    /// A request with the headers every call carries.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(
            metadata::CLIENT_API_VERSION,
            MetadataValue::from_static(CLIENT_API_VERSION),
        );
        for feature in self.required.iter() {
            let headers = request.metadata_mut();
            headers.append(metadata::REQUIRE_FEATURE, feature.clone());
        }
        request
    }

    /// A request that a member without a leader refuses instead of letting it wait.
    pub(crate) fn request_with_leader<T>(&self, message: T) -> Request<T> {
        let mut request = self.request(message);
        request.metadata_mut().insert(
            metadata::HAS_LEADER,
            MetadataValue::from_static(metadata::HAS_LEADER_TRUE),
        );
        request
    }
}

fn target(text: &str, options: &Options) -> Result<Target, ConnectError> {
    let uri = check_endpoint(text)?;
    let endpoint = Endpoint::from_shared(uri).map_err(|_| {
        ConnectError::Endpoint(crate::EndpointError::Malformed {
            endpoint: text.to_owned(),
        })
    })?;
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
        name: text.to_owned(),
        endpoint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_features_go_with_every_request_each_under_its_own_header() {
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
    fn a_name_that_cannot_be_sent_is_refused() {
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
