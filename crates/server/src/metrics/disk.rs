//! How long the disk takes: the log and the backend, measured from outside.

use std::sync::Arc;
use std::time::Instant;

use portunus_consensus::LogWriter;
use portunus_mvcc::backend::{Backend, BackendError, Change, Sizes, Snapshot};
use portunus_proto::raftpb::{Entry, HardState};
use portunus_proto::walpb;
use portunus_wal::{ReleaseError, WriteError};
use prometheus::{Histogram, IntCounter, Registry};

use super::{MetricsError, counter, histogram};

/// What is measured of the disk.
#[derive(Clone)]
pub struct DiskMetrics {
    wal_fsync_seconds: Histogram,
    wal_bytes: IntCounter,
    backend_commit_seconds: Histogram,
}

impl DiskMetrics {
    pub(super) fn register(registry: &Registry) -> Result<DiskMetrics, MetricsError> {
        let buckets = || prometheus::exponential_buckets(0.001, 2.0, 14);
        Ok(DiskMetrics {
            wal_fsync_seconds: histogram(
                registry,
                "etcd_disk_wal_fsync_duration_seconds",
                "Time to make a batch of the log durable.",
                buckets()?,
            )?,
            wal_bytes: counter(
                registry,
                "etcd_disk_wal_write_bytes_total",
                "Bytes of entries written to the log.",
            )?,
            backend_commit_seconds: histogram(
                registry,
                "etcd_disk_backend_commit_duration_seconds",
                "Time to commit a batch to the backend.",
                buckets()?,
            )?,
        })
    }

    /// A log that is measured.
    pub fn measure_log<L: LogWriter>(&self, log: L) -> MeasuredLog<L> {
        MeasuredLog {
            log,
            metrics: self.clone(),
        }
    }

    /// A backend that is measured.
    pub fn measure_backend(&self, backend: impl Backend + 'static) -> Arc<dyn Backend> {
        Arc::new(MeasuredBackend {
            backend,
            metrics: self.clone(),
        })
    }
}

/// See [`DiskMetrics::measure_log`].
pub struct MeasuredLog<L> {
    log: L,
    metrics: DiskMetrics,
}

impl<L: LogWriter> LogWriter for MeasuredLog<L> {
    fn append(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[Entry],
    ) -> Result<(), WriteError> {
        let bytes: usize = entries.iter().map(|entry| entry.data.len()).sum();
        self.metrics.wal_bytes.inc_by(bytes as u64);
        self.log.append(hard_state, entries)
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        let started = Instant::now();
        let synced = self.log.sync();
        self.metrics
            .wal_fsync_seconds
            .observe(started.elapsed().as_secs_f64());
        synced
    }

    fn save_snapshot(&mut self, snapshot: &walpb::Snapshot) -> Result<(), WriteError> {
        self.log.save_snapshot(snapshot)
    }

    fn release_to(&mut self, index: u64) -> Result<usize, ReleaseError> {
        self.log.release_to(index)
    }
}

struct MeasuredBackend<B> {
    backend: B,
    metrics: DiskMetrics,
}

impl<B: Backend> Backend for MeasuredBackend<B> {
    fn commit(&self, changes: &[Change]) -> Result<(), BackendError> {
        let started = Instant::now();
        let committed = self.backend.commit(changes);
        self.metrics
            .backend_commit_seconds
            .observe(started.elapsed().as_secs_f64());
        committed
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, BackendError> {
        self.backend.snapshot()
    }

    fn sizes(&self) -> Sizes {
        self.backend.sizes()
    }

    fn defragment(&self) -> Result<(), BackendError> {
        self.backend.defragment()
    }
}
