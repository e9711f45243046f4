//! Opens the store of a backend: at the start of the member, and when a snapshot of the leader
//! has replaced the backend.

use std::path::Path;
use std::sync::Arc;

use portunus_mvcc::backend::{BackendError, Lmdb, LmdbConfig};
use portunus_mvcc::{OpenError, Restored, Store};
use thiserror::Error;

use super::stop::StopSwitch;
use crate::config::Config;
use crate::metrics::DiskMetrics;

/// Why a store could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenStoreError {
    /// The backend cannot be opened.
    #[error("the backend cannot be opened")]
    Backend(#[from] BackendError),
    /// The records of the backend cannot be read.
    #[error("the store cannot be opened")]
    Store(#[from] OpenError),
}

/// Opens the store of the backend at `path`. A later fault of the store ends the process.
pub fn open_store(
    path: &Path,
    config: &Config,
    metrics: &DiskMetrics,
    stop: &Arc<StopSwitch>,
) -> Result<(Store, Restored), OpenStoreError> {
    let backend = Lmdb::open(path, LmdbConfig::default())?;
    let backend = metrics.measure_backend(backend);
    Ok(Store::open(backend, store_config(config), hooks(stop))?)
}

fn store_config(config: &Config) -> portunus_mvcc::Config {
    portunus_mvcc::Config {
        commit_interval: config.backend_batch_interval,
        commit_records: config.backend_batch_limit,
        resident_value_bytes_max: usize::try_from(config.resident_value_bytes_max)
            .unwrap_or(usize::MAX),
        compaction_batch_limit: config.compaction_batch_limit,
        ..portunus_mvcc::Config::default()
    }
}

/// The hooks by which the store reports faults and its progress of opening.
fn hooks(stop: &Arc<StopSwitch>) -> portunus_mvcc::Hooks {
    let stop = Arc::clone(stop);
    portunus_mvcc::Hooks::default()
        .on_fault(move |fault| stop.fatal(fault))
        .on_progress(|progress| {
            if progress.records > 0 {
                tracing::info!(
                    records = progress.records,
                    revision = progress.revision,
                    "opening the store"
                );
            }
        })
}
