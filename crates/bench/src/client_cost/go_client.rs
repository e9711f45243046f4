//! The calls of etcd's Go client, in a process of its own.

use std::path::Path;
use std::process::{Command, Output};

use super::measure::{Cost, MeasureError};
use super::work::{VALUE_BYTES, Work};
use crate::window::WindowDurations;

/// The name of the program for `scripts/go-program`.
pub const NAME: &str = "clientv3";

/// Runs the program.
pub async fn run(
    program: &Path,
    endpoint: &str,
    work: Work,
    events: u64,
    durations: WindowDurations,
) -> Result<Cost, MeasureError> {
    let mut command = Command::new(program);
    command
        .args(["-endpoint", endpoint, "-work", work.name()])
        .args(["-prefix", work.prefix()])
        .args(["-value-bytes", &VALUE_BYTES.to_string()])
        .args(["-events", &events.to_string()])
        .args(["-clients", &work.callers().to_string()])
        .args(["-warm-up", &go_duration(durations.warm_up)])
        .args(["-measured", &go_duration(durations.measured)]);
    let failed = |reason: String| MeasureError::Go { reason };
    let output = tokio::task::spawn_blocking(move || command.output()).await?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    parse(&output).map_err(failed)
}

fn go_duration(duration: std::time::Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn parse(output: &Output) -> Result<Cost, String> {
    match output.status.success() {
        true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
        false => Err(last_line(&output.stderr)),
    }
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}
