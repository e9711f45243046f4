//! Chooses the endpoint of a call: the ready ones in turn.
//!
//! ```text
//!           dialled              first bytes of the server
//!   Idle ─────────────▶ Dialling ─────────────────────────▶ Ready
//!    ▲                     │ refused, or silent for the        │
//!    │ retry time reached  ▼ dial timeout                      │ broken or closed
//!    └───────────────── Waiting ◀──────────────────────────────┘
//! ```
//!
//! The first call dials all endpoints at once, as in etcd's Go client. An endpoint is ready once
//! its server has sent bytes: HTTP/2 servers begin with their settings. So a server that accepts
//! connections and never answers, or that refuses the client's certificate, is never ready, and delays no call while another endpoint is
//! ready. Tasks run on the caller's runtime, one per endpoint being dialled, for the dial timeout
//! at most.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::preface::{Preface, PrefaceConnector};
use crate::tls::Tls;

/// Pause before an endpoint that failed once is dialled again; doubled with each failure.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause between two attempts at one endpoint.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The connections of a client, one per endpoint.
#[derive(Debug)]
pub(crate) struct Balancer {
    targets: Vec<Target>,
    dial_timeout: Duration,
    state: Mutex<State>,
    /// Notified whenever an endpoint becomes ready or fails.
    changed: Notify,
}

/// An endpoint and its transport settings.
#[derive(Debug)]
pub(crate) struct Target {
    /// The endpoint as given, for messages.
    pub(crate) name: String,
    /// The host, which the certificate of the server must name.
    pub(crate) host: String,
    /// Address and transport settings.
    pub(crate) endpoint: Endpoint,
    /// The TLS settings; `None` for a connection without TLS.
    pub(crate) tls: Option<Tls>,
}

/// A ready connection. `generation` distinguishes it from its successors at the same endpoint.
#[derive(Debug, Clone)]
pub(crate) struct ReadyConnection {
    pub(crate) channel: Channel,
    pub(crate) generation: u64,
}

#[derive(Debug)]
struct State {
    connections: Vec<Connection>,
    /// The index at which the next search for a ready connection begins.
    next: usize,
    generation: u64,
    /// The error of the last endpoint that failed.
    last_failure: Option<String>,
}

#[derive(Debug, Default)]
struct Connection {
    phase: Phase,
    /// Failures since the endpoint was last ready.
    failures: u32,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Dialling,
    Ready {
        picked: ReadyConnection,
        preface: Preface,
    },
    Waiting {
        until: Instant,
    },
}

impl Balancer {
    /// A balancer with idle endpoints. `targets` is not empty.
    pub(crate) fn new(targets: Vec<Target>, dial_timeout: Duration) -> Arc<Balancer> {
        let state = State {
            connections: targets.iter().map(|_| Connection::default()).collect(),
            next: 0,
            generation: 0,
            last_failure: None,
        };
        Arc::new(Balancer {
            targets,
            dial_timeout,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    /// Returns the next ready connection; waits until there is one.
    pub(crate) async fn pick(self: &Arc<Self>) -> ReadyConnection {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the state is read, so that no change in between is missed.
            changed.as_mut().enable();
            let retry_at = {
                let mut state = self.state();
                self.dial_due(&mut state);
                if let Some(picked) = state.next_ready() {
                    return picked;
                }
                state.earliest_retry()
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until_some(retry_at) => {}
            }
        }
    }

    /// Discards a failed connection. Ignored if the endpoint has a newer one.
    pub(crate) fn discard(&self, generation: u64, why: String) {
        let mut state = self.state();
        let broken = state.connections.iter_mut().find(|connection| {
            matches!(&connection.phase, Phase::Ready { picked, .. } if picked.generation == generation)
        });
        if let Some(connection) = broken {
            connection.fail();
            state.last_failure = Some(why);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns the error of the last endpoint that failed.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.state().last_failure.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts dialling every endpoint that is idle or whose pause is over.
    fn dial_due(self: &Arc<Self>, state: &mut State) {
        let now = Instant::now();
        for (number, connection) in state.connections.iter_mut().enumerate() {
            if connection.is_due(now) {
                connection.phase = Phase::Dialling;
                tokio::spawn(Arc::clone(self).dial(number));
            }
        }
    }

    async fn dial(self: Arc<Self>, number: usize) {
        let target = &self.targets[number];
        let preface = Preface::default();
        let tls = target.tls.as_ref().map(|tls| tls.connector().clone());
        let connector = PrefaceConnector::new(preface.clone(), tls, &target.host);
        let connected = timeout(self.dial_timeout, async {
            let channel = target.endpoint.connect_with_connector(connector).await?;
            preface.received().await;
            Ok::<_, tonic::transport::Error>(channel)
        });
        let outcome = connected.await;
        let mut state = self.state();
        state.generation += 1;
        let generation = state.generation;
        let connection = &mut state.connections[number];
        match outcome {
            Ok(Ok(channel)) if !preface.is_closed() => {
                connection.failures = 0;
                connection.phase = Phase::Ready {
                    picked: ReadyConnection {
                        channel,
                        generation,
                    },
                    preface,
                };
            }
            failed => {
                connection.fail();
                let why = match failed {
                    Ok(Ok(_)) => preface.end().to_owned(),
                    Ok(Err(error)) => innermost_cause(&error),
                    Err(_) => format!("no answer within {:?}", self.dial_timeout),
                };
                state.last_failure = Some(format!("cannot connect to {}: {why}", target.name));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

impl State {
    fn next_ready(&mut self) -> Option<ReadyConnection> {
        let count = self.connections.len();
        let order = (0..count).map(|offset| (self.next + offset) % count);
        for number in order {
            if let Phase::Ready { picked, .. } = &self.connections[number].phase {
                self.next = number + 1;
                return Some(picked.clone());
            }
        }
        None
    }

    fn earliest_retry(&self) -> Option<Instant> {
        let retries = self.connections.iter().filter_map(|it| match it.phase {
            Phase::Waiting { until } => Some(until),
            _ => None,
        });
        retries.min()
    }
}

impl Connection {
    /// Returns whether to dial now. A ready connection that is closed counts as idle.
    fn is_due(&self, now: Instant) -> bool {
        match &self.phase {
            Phase::Idle => true,
            Phase::Dialling => false,
            Phase::Ready { preface, .. } => preface.is_closed(),
            Phase::Waiting { until } => *until <= now,
        }
    }

    fn fail(&mut self) {
        let doublings = self.failures.min(5);
        self.failures = self.failures.saturating_add(1);
        let pause = (RETRY_PAUSE_MIN * (1 << doublings)).min(RETRY_PAUSE_MAX);
        self.phase = Phase::Waiting {
            until: Instant::now() + pause,
        };
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns the innermost cause of an error, such as the one of the operating system.
fn innermost_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
