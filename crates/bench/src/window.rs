//! The stretch of time that counts.
//!
//! Clients run before and after it, so that neither connecting nor stopping is measured.
//! A request counts if it began and ended inside.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::usage::{self, UsageError};

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

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
    /// Told when it is over.
    ended: Notify,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            phase: AtomicU8::new(WARMING_UP),
            ended: Notify::new(),
        }
    }
}

/// What the window cost.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// By the wall clock.
    pub elapsed: Duration,
    /// CPU time of the server, or of all members.
    pub server_cpu: Duration,
    /// CPU time of this process, which competes for the same cores.
    pub client_cpu: Duration,
    /// What was written to the disk meanwhile, if there is one.
    pub disk_written_bytes: Option<u64>,
}

/// What one or all clients saw inside the window.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of each request that succeeded.
    pub latencies_us: Vec<u32>,
    /// Operations whose own latency is not known, because many were one request.
    pub bulk_operations: u64,
    /// Requests that failed, at any time.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<String>,
}

impl Seen {
    /// Counts a failed request.
    pub fn failed(&mut self, reason: impl Display) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| reason.to_string());
    }

    /// Adds what another client saw.
    pub fn merge(&mut self, other: Seen) {
        self.latencies_us.extend(other.latencies_us);
        self.bulk_operations += other.bulk_operations;
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

    /// Ends when clients are to stop.
    pub async fn until_over(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        // Before looking, or an end in between would be missed.
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// Opens and closes the window, and reads the meters at both ends.
    pub async fn pass(&self, pace: Pace, server_process_ids: &[u32]) -> Result<Spent, UsageError> {
        let measured = self.pass_phases(pace, server_process_ids).await;
        // Also after an error, or clients would run for ever.
        self.phase.store(OVER, Ordering::Relaxed);
        self.ended.notify_waiters();
        measured
    }

    async fn pass_phases(
        &self,
        pace: Pace,
        server_process_ids: &[u32],
    ) -> Result<Spent, UsageError> {
        let own_process_id = std::process::id();
        tokio::time::sleep(pace.warm_up).await;
        let server_before = usage::cpu_time_of_all(server_process_ids)?;
        let client_before = usage::cpu_time(own_process_id)?;
        let written_before = usage::disk_written_bytes();
        let started = Instant::now();
        self.phase.store(MEASURING, Ordering::Relaxed);
        tokio::time::sleep(pace.measured).await;
        self.phase.store(OVER, Ordering::Relaxed);
        let elapsed = started.elapsed();
        let written = usage::disk_written_bytes().zip(written_before);
        Ok(Spent {
            elapsed,
            server_cpu: usage::cpu_time_of_all(server_process_ids)?.saturating_sub(server_before),
            client_cpu: usage::cpu_time(own_process_id)?.saturating_sub(client_before),
            disk_written_bytes: written.map(|(after, before)| after.saturating_sub(before)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(50),
    };

    #[tokio::test]
    async fn the_window_opens_and_closes_and_tells_those_who_wait() {
        let window = Window::default();
        assert!(!window.is_measuring() && !window.is_over());
        let own = [std::process::id()];
        let (spent, ()) = tokio::join!(window.pass(PACE, &own), window.until_over());
        assert!(spent.unwrap().elapsed >= PACE.measured);
        assert!(window.is_over());
        // Whoever comes late does not wait either.
        window.until_over().await;
    }

    #[tokio::test]
    async fn a_server_that_is_gone_ends_the_window() {
        let window = Window::default();
        // No process has this id: it is above the kernel's largest.
        assert!(window.pass(PACE, &[u32::MAX]).await.is_err());
        assert!(window.is_over());
    }

    #[test]
    fn failures_are_counted_and_the_first_is_kept() {
        let mut seen = Seen::default();
        seen.failed("gone");
        seen.failed("still gone");
        let mut all = Seen::default();
        all.merge(seen);
        assert_eq!(all.failures, 2);
        assert_eq!(all.first_failure.as_deref(), Some("gone"));
    }
}
