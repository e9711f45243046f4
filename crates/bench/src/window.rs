//! The time window of a measurement.
//!
//! Clients run before and after it, so that neither connecting nor stopping is measured.
//! A request counts if it began and ended inside the window.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::usage::{self, UsageError};

const WARMING_UP: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// The durations of warm-up and measurement.
#[derive(Debug, Clone, Copy)]
pub struct WindowDurations {
    /// Time before the window, which does not count.
    pub warm_up: Duration,
    /// Length of the window.
    pub measured: Duration,
}

/// The state of the window, shared by all clients.
#[derive(Debug)]
pub struct Window {
    phase: AtomicU8,
    /// Notified when the window is over.
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

/// The resources used during the window.
#[derive(Debug, Clone, Copy)]
pub struct WindowUsage {
    /// Wall clock time.
    pub elapsed: Duration,
    /// CPU time of the server, or of all members.
    pub server_cpu: Duration,
    /// CPU time of this process, which competes for the same cores.
    pub client_cpu: Duration,
    /// Bytes written to the disk, if there is a block device.
    pub disk_written_bytes: Option<u64>,
}

/// The results of one or all clients in the window.
#[derive(Debug, Default)]
pub struct ClientResults {
    /// The latency of each successful request.
    pub latencies_us: Vec<u32>,
    /// Operations without a latency of their own, because many were one request.
    pub bulk_operations: u64,
    /// Failed requests, inside and outside the window.
    pub failures: u64,
    /// The error text of the first failure.
    pub first_failure: Option<String>,
}

impl ClientResults {
    /// Counts a failed request.
    pub fn failed(&mut self, reason: impl Display) {
        self.failures += 1;
        self.first_failure.get_or_insert_with(|| reason.to_string());
    }

    /// Adds the results of another client.
    pub fn merge(&mut self, other: ClientResults) {
        self.latencies_us.extend(other.latencies_us);
        self.bulk_operations += other.bulk_operations;
        self.failures += other.failures;
        if self.first_failure.is_none() {
            self.first_failure = other.first_failure;
        }
    }
}

/// Converts a duration to microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl Window {
    /// Returns whether requests count now.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURING
    }

    /// Returns whether clients must stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// Waits until clients must stop.
    pub async fn until_over(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        // Registered before the check, so that an end in between is not missed.
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// Opens and closes the window, and reads the usage at both ends.
    pub async fn run(
        &self,
        durations: WindowDurations,
        server_process_ids: &[u32],
    ) -> Result<WindowUsage, UsageError> {
        let measured = self.run_phases(durations, server_process_ids).await;
        // Also after an error; clients would not stop otherwise.
        self.phase.store(OVER, Ordering::Relaxed);
        self.ended.notify_waiters();
        measured
    }

    async fn run_phases(
        &self,
        durations: WindowDurations,
        server_process_ids: &[u32],
    ) -> Result<WindowUsage, UsageError> {
        let own_process_id = std::process::id();
        tokio::time::sleep(durations.warm_up).await;
        let server_before = usage::cpu_time_of_all(server_process_ids)?;
        let client_before = usage::cpu_time(own_process_id)?;
        let written_before = usage::disk_written_bytes();
        let started = Instant::now();
        self.phase.store(MEASURING, Ordering::Relaxed);
        tokio::time::sleep(durations.measured).await;
        self.phase.store(OVER, Ordering::Relaxed);
        let elapsed = started.elapsed();
        let written = usage::disk_written_bytes().zip(written_before);
        Ok(WindowUsage {
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

    const DURATIONS: WindowDurations = WindowDurations {
        warm_up: Duration::from_millis(10),
        measured: Duration::from_millis(50),
    };

    #[tokio::test]
    async fn window_opens_closes_and_notifies_waiting_clients() {
        let window = Window::default();
        assert!(!window.is_measuring() && !window.is_over());
        let own = [std::process::id()];
        let (usage_in_window, ()) = tokio::join!(window.run(DURATIONS, &own), window.until_over());
        assert!(usage_in_window.unwrap().elapsed >= DURATIONS.measured);
        assert!(window.is_over());
        // A later call returns at once.
        window.until_over().await;
    }

    #[tokio::test]
    async fn missing_server_process_ends_the_window() {
        let window = Window::default();
        // No process has this id, which is above the kernel's maximum.
        assert!(window.run(DURATIONS, &[u32::MAX]).await.is_err());
        assert!(window.is_over());
    }

    #[test]
    fn failures_are_counted_and_the_first_text_is_kept() {
        let mut results = ClientResults::default();
        results.failed("gone");
        results.failed("still gone");
        let mut all = ClientResults::default();
        all.merge(results);
        assert_eq!(all.failures, 2);
        assert_eq!(all.first_failure.as_deref(), Some("gone"));
    }
}
