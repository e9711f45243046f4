//! The process: what is fixed at its start, what it counts, and how it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portunus_datadir::DataDir;
use portunus_features::ServerFeatures;
use portunus_gates::Gates;
use portunus_proto::EtcdError;
use tonic::Status;
use tonic_health::server::HealthReporter;

use super::stop::{StopReason, StopSwitch};
use crate::config::Config;
use crate::metrics::Metrics;

/// The configuration, server gates, metrics and data directory of the process, and its end.
pub struct Process {
    /// The checked configuration.
    pub config: Config,
    /// The server gates, fixed at start.
    pub gates: Gates<ServerFeatures>,
    /// When the process started.
    pub started: Instant,
    /// The metrics.
    pub metrics: Metrics,
    /// The gRPC health service. The empty name stands for all services and is serving from the
    /// start: clients cannot connect before the member is ready.
    pub health: HealthReporter,
    /// Ends the process.
    pub stop: Arc<StopSwitch>,
    /// The data directory.
    pub data_dir: DataDir,
}

impl Process {
    /// Longest wait for a proposal or a read index, as in etcd: five seconds and two election
    /// timeouts.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.config.election_timeout
    }

    /// Converts an error to the status that the emulated version sends.
    pub fn status(&self, error: EtcdError) -> Status {
        let emulation = self.config.version.emulation();
        let minor = u32::try_from(emulation.minor()).unwrap_or(u32::MAX);
        error.status((3, minor))
    }

    /// Stops a member that was removed from its cluster.
    pub fn stop_as_removed(&self) {
        self.stop.stop(StopReason::Requested(
            "this member was removed from the cluster; its data directory is of no use any more",
        ));
    }

    /// Waits for `time`; true if the process stops meanwhile.
    pub async fn stops_within(&self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => false,
            () = self.stop.stopped() => true,
        }
    }
}
