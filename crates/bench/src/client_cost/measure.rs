//! Repeats a call for a time, and reads the CPU time of this process.

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use portunus_client::ClientError;
use serde::Deserialize;
use thiserror::Error;
use tokio::task::{JoinError, LocalSet};

use crate::usage::{self, UsageError};
use crate::window::{Window, WindowDurations};

/// The cost of some operations.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Cost {
    /// Completed operations.
    pub operations: u64,
    /// CPU time of the client, in microseconds.
    pub cpu_us: u64,
    /// Wall clock time, in microseconds.
    pub elapsed_us: u64,
}

impl Cost {
    /// Returns the operations per second.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts far below 2^52
    pub fn per_second(&self) -> f64 {
        self.operations as f64 * 1e6 / self.elapsed_us.max(1) as f64
    }

    /// Returns the CPU time per operation, in microseconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // counts far below 2^52
    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu_us as f64 / self.operations.max(1) as f64
    }
}

/// Why a measurement failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum MeasureError {
    /// A call of the stubs failed.
    #[error("a call of tonic's stubs failed")]
    Status(#[from] Box<tonic::Status>),
    /// A call of portunus-client failed.
    #[error("a call of portunus-client failed")]
    Client(#[from] ClientError),
    /// A call of the Kubernetes-etcd interface failed.
    #[error("a list of the Kubernetes-etcd interface failed")]
    Kubernetes(#[from] portunus_client::kubernetes::Error),
    /// A watch ended early.
    #[error("the watch ended after {received} events")]
    WatchEnded { received: u64 },
    /// A caller panicked.
    #[error("a caller ended early")]
    Caller(#[from] JoinError),
    /// CPU time cannot be read.
    #[error("the CPU time cannot be read")]
    Usage(#[from] UsageError),
    /// The Go program failed.
    #[error("the Go program failed: {reason}")]
    Go { reason: String },
}

impl From<tonic::Status> for MeasureError {
    fn from(status: tonic::Status) -> MeasureError {
        MeasureError::Status(Box::new(status))
    }
}

/// Repeats a call from several callers, all on this thread.
pub async fn repeat<F, Fut>(
    durations: WindowDurations,
    callers: usize,
    call: F,
) -> Result<Cost, MeasureError>
where
    F: Fn() -> Fut + 'static,
    Fut: Future<Output = Result<(), MeasureError>>,
{
    let window = Rc::new(Window::default());
    let call = Rc::new(call);
    let set = LocalSet::new();
    let running: Vec<_> = (0..callers)
        .map(|_| {
            let (window, call) = (Rc::clone(&window), Rc::clone(&call));
            set.spawn_local(async move {
                let mut operations = 0;
                while !window.is_over() {
                    call().await?;
                    operations += u64::from(window.is_measuring());
                }
                Ok::<u64, MeasureError>(operations)
            })
        })
        .collect();
    set.run_until(async move {
        let used = window.run(durations, &[]).await?;
        let mut operations = 0;
        for caller in running {
            operations += caller.await??;
        }
        Ok(Cost {
            operations,
            cpu_us: micros(used.client_cpu),
            elapsed_us: micros(used.elapsed),
        })
    })
    .await
}

/// Runs something once that returns its number of operations.
pub async fn once(
    run: impl Future<Output = Result<u64, MeasureError>>,
) -> Result<Cost, MeasureError> {
    let own = std::process::id();
    let (before, started) = (usage::cpu_time(own)?, Instant::now());
    let operations = run.await?;
    let elapsed_us = micros(started.elapsed());
    let cpu_us = micros(usage::cpu_time(own)?.saturating_sub(before));
    Ok(Cost {
        operations,
        cpu_us,
        elapsed_us,
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATIONS: WindowDurations = WindowDurations {
        warm_up: Duration::from_millis(1),
        measured: Duration::from_millis(20),
    };

    #[tokio::test]
    async fn calls_of_all_callers_within_the_window_are_counted() {
        let cost = repeat(DURATIONS, 3, || async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        });
        let cost = cost.await.unwrap();
        assert!(cost.operations > 0);
        assert!(cost.elapsed_us >= 20_000);
        assert!(cost.per_second() > 0.0);
    }

    #[tokio::test]
    async fn failed_call_fails_the_measurement() {
        let cost = repeat(DURATIONS, 2, || async {
            Err(MeasureError::WatchEnded { received: 7 })
        });
        assert!(matches!(
            cost.await,
            Err(MeasureError::WatchEnded { received: 7 })
        ));
    }
}
