//! Opens the data directory and makes the handle of the process.

use std::sync::Arc;
use std::time::Instant;

use portunus_datadir::DataDir;
use portunus_features::ServerFeatures;
use portunus_gates::Gates;
use tonic_health::server::HealthReporter;

use super::StartError;
use crate::config::Config;
use crate::handles::Process;
use crate::handles::stop::StopSwitch;
use crate::metrics::Metrics;

/// Locks the data directory, creating it if necessary.
pub(super) fn open(
    config: Config,
    gates: Gates<ServerFeatures>,
    started: Instant,
) -> Result<Process, StartError> {
    let metrics = Metrics::new(
        config.metrics_extensive,
        config.warning_unary_request_duration,
    )?;
    let data_dir = DataDir::open(&config.data_dir)?;
    Ok(Process {
        config,
        gates,
        started,
        metrics,
        health: HealthReporter::new(),
        stop: Arc::new(StopSwitch::default()),
        data_dir,
    })
}
