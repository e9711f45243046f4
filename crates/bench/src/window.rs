//! The stretch of time that counts.
//!
//! Clients run before and after it, so that neither connecting nor stopping is measured.
//! A request counts if it began and ended inside.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Status;

use crate::usage::{self, UsageError};

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// After a failure a client waits, or a dead server would be measured as a fast one.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(20);

/// How long to warm up and to measure.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Runs, but does not count.
    pub warm_up: Duration,
    /// Counts.
    pub measured: Duration,
}

/// Whether it counts now. Shared by all clients.
#[derive(Debug)]
pub struct Window {
    phase: AtomicU8,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            phase: AtomicU8::new(WARMING_UP),
        }
    }
}

/// What the window cost.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// By the wall clock.
    pub elapsed: Duration,
    /// CPU time of the server.
    pub server_cpu: Duration,
    /// CPU time of this process, which competes for the same cores.
    pub client_cpu: Duration,
}

/// What one or all clients saw inside the window.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of each request that succeeded.
    pub latencies_us: Vec<u32>,
    /// Requests that failed, at any time.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<String>,
}

impl Seen {
    /// Counts a failed request.
    pub fn failed(&mut self, status: &Status) {
        self.failures += 1;
        self.first_failure
            .get_or_insert_with(|| format!("{:?}: {}", status.code(), status.message()));
    }

    /// Adds what another client saw.
    pub fn merge(&mut self, other: Seen) {
        self.latencies_us.extend(other.latencies_us);
        self.failures += other.failures;
        if self.first_failure.is_none() {
            self.first_failure = other.first_failure;
        }
    }
}

/// Microseconds, as they are kept.
#[must_use]
pub fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl Window {
    /// True while requests count.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURING
    }

    /// True when clients are to stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Opens and closes the window, and reads the meters at both ends.
    pub async fn pass(&self, pace: Pace, server_process_id: u32) -> Result<Spent, UsageError> {
        let measured = self.pass_phases(pace, server_process_id).await;
        // Also after an error, or clients would run for ever.
        self.phase.store(OVER, Ordering::Relaxed);
        measured
    }

    async fn pass_phases(&self, pace: Pace, server_process_id: u32) -> Result<Spent, UsageError> {
        let own_process_id = std::process::id();
        tokio::time::sleep(pace.warm_up).await;
        let server_before = usage::cpu_time(server_process_id)?;
        let client_before = usage::cpu_time(own_process_id)?;
        let started = Instant::now();
        self.phase.store(MEASURING, Ordering::Relaxed);
        tokio::time::sleep(pace.measured).await;
        self.phase.store(OVER, Ordering::Relaxed);
        Ok(Spent {
            elapsed: started.elapsed(),
            server_cpu: usage::cpu_time(server_process_id)?.saturating_sub(server_before),
            client_cpu: usage::cpu_time(own_process_id)?.saturating_sub(client_before),
        })
    }
}

/// A client that has one request under way at a time.
pub trait Requester: Send + 'static {
    /// Sends one and waits for its answer.
    fn request(&mut self) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Lets every client send one request after the other until the window is over.
pub async fn closed_loop<R: Requester>(
    clients: Vec<R>,
    pace: Pace,
    server_process_id: u32,
) -> Result<(Seen, Spent), UsageError> {
    let window = Arc::new(Window::default());
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(request_until_over(client, Arc::clone(&window)));
    }
    let spent = window.pass(pace, server_process_id).await;
    let mut all = Seen::default();
    for seen in tasks.join_all().await {
        all.merge(seen);
    }
    Ok((all, spent?))
}

async fn request_until_over<R: Requester>(mut client: R, window: Arc<Window>) -> Seen {
    let mut seen = Seen::default();
    while !window.is_over() {
        let began_inside = window.is_measuring();
        let started = Instant::now();
        match client.request().await {
            Ok(()) if began_inside && window.is_measuring() => {
                seen.latencies_us.push(micros(started.elapsed()));
            }
            Ok(()) => {}
            Err(status) => {
                seen.failed(&status);
                tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sleeper {
        fails: bool,
    }

    impl Requester for Sleeper {
        async fn request(&mut self) -> Result<(), Status> {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.fails {
                return Err(Status::unavailable("asleep"));
            }
            Ok(())
        }
    }

    const PACE: Pace = Pace {
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(100),
    };

    #[tokio::test]
    async fn every_client_counts_and_none_counts_more_than_the_window_holds() {
        let clients = (0..4).map(|_| Sleeper { fails: false }).collect();
        let (seen, spent) = closed_loop(clients, PACE, std::process::id())
            .await
            .unwrap();
        assert!(spent.elapsed >= PACE.measured);
        assert!(seen.latencies_us.len() >= 4, "{}", seen.latencies_us.len());
        assert!(seen.latencies_us.iter().all(|us| *us >= 1000));
        let sum_us: u64 = seen.latencies_us.iter().map(|us| u64::from(*us)).sum();
        assert!(u128::from(sum_us) <= 4 * spent.elapsed.as_micros());
        assert_eq!(seen.failures, 0);
    }

    #[tokio::test]
    async fn failures_are_counted_apart_and_the_first_is_kept() {
        let clients = vec![Sleeper { fails: true }];
        let (seen, _) = closed_loop(clients, PACE, std::process::id())
            .await
            .unwrap();
        assert!(seen.latencies_us.is_empty());
        assert!(seen.failures > 0);
        assert_eq!(seen.first_failure.as_deref(), Some("Unavailable: asleep"));
    }

    #[tokio::test]
    async fn a_server_that_is_gone_ends_the_run() {
        // No process has this id: it is above the kernel's largest.
        let gone = u32::MAX;
        let clients = vec![Sleeper { fails: false }];
        assert!(closed_loop(clients, PACE, gone).await.is_err());
    }
}
