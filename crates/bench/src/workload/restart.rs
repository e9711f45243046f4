//! Filling a store, and the restart time of a member with that store.

use std::time::{Duration, Instant};

use super::{WorkloadError, sample_of};
use crate::client::{self, VALUE_BYTES};
use crate::report::Sample;
use crate::server::{Server, StopMode};
use crate::usage;
use crate::window::{ClientResults, WindowUsage, micros};

/// Fills the store, then waits without load, so that the memory of the writes is released.
pub(super) async fn load(
    server: &Server,
    keys: usize,
    settle: Duration,
) -> Result<Sample, WorkloadError> {
    let (process_id, own_process_id) = (server.process_id(), std::process::id());
    let server_before = usage::cpu_time(process_id)?;
    let client_before = usage::cpu_time(own_process_id)?;
    let written_before = usage::disk_written_bytes();
    let began = Instant::now();
    client::fill(&server.endpoint(), keys, VALUE_BYTES).await?;
    let elapsed = began.elapsed();
    let client_cpu = usage::cpu_time(own_process_id)?.saturating_sub(client_before);
    tokio::time::sleep(settle).await;
    let written = usage::disk_written_bytes().zip(written_before);
    let usage_in_window = WindowUsage {
        elapsed,
        // Includes deferred work.
        server_cpu: usage::cpu_time(process_id)?.saturating_sub(server_before),
        client_cpu,
        disk_written_bytes: written.map(|(after, before)| after.saturating_sub(before)),
    };
    let results = ClientResults {
        bulk_operations: keys as u64,
        ..ClientResults::default()
    };
    sample_of(&[server.process_id()], results, usage_in_window)
}

/// Stops the server and starts it again.
pub(super) async fn restart(
    server: &mut Server,
    stop_mode: StopMode,
) -> Result<Sample, WorkloadError> {
    let own_process_id = std::process::id();
    let client_before = usage::cpu_time(own_process_id)?;
    let written_before = usage::disk_written_bytes();
    let took = server.restart(stop_mode).await?;
    let written = usage::disk_written_bytes().zip(written_before);
    let usage_in_window = WindowUsage {
        elapsed: took,
        // A new process: its CPU time is that of the start.
        server_cpu: usage::cpu_time(server.process_id())?,
        client_cpu: usage::cpu_time(own_process_id)?.saturating_sub(client_before),
        disk_written_bytes: written.map(|(after, before)| after.saturating_sub(before)),
    };
    let results = ClientResults {
        latencies_us: vec![micros(took)],
        ..ClientResults::default()
    };
    sample_of(&[server.process_id()], results, usage_in_window)
}
