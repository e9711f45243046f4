//! Metrics of the disk: durations of the log and the backend, measured from outside.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portunus_consensus::LogWriter;
use portunus_mvcc::backend::{Backend, BackendError, Bucket, Change, Sizes, Snapshot, Visit};
use portunus_proto::raftpb::{Entry, HardState};
use portunus_proto::walpb;
use portunus_wal::{ReleaseError, WriteError};
use prometheus::{Histogram, IntCounter, IntGauge, Registry, exponential_buckets};

use super::{MetricsError, counter, gauge, histogram};

/// The metrics of the disk.
#[derive(Clone)]
pub struct DiskMetrics {
    wal_fsync_seconds: Histogram,
    wal_bytes: IntCounter,
    wal_write_seconds: Histogram,
    backend_commit_seconds: Histogram,
    defrag_seconds: Histogram,
    defrags_inflight: IntGauge,
    open_reads: IntGauge,
    /// Time to write the backend to a file, for a backup or a peer.
    pub snapshot_seconds: Histogram,
    /// Time to make the leader's snapshot durable.
    pub received_fsync_seconds: Histogram,
    /// Time to store the leader's snapshot, from the first byte on.
    pub received_seconds: Histogram,
}

impl DiskMetrics {
    pub(super) fn register(registry: &Registry) -> Result<DiskMetrics, MetricsError> {
        let buckets = || exponential_buckets(0.001, 2.0, 14);
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
            wal_write_seconds: histogram(
                registry,
                "etcd_disk_wal_write_duration_seconds",
                "Time to add a batch to the log, before it is made durable.",
                buckets()?,
            )?,
            defrag_seconds: histogram(
                registry,
                "etcd_disk_backend_defrag_duration_seconds",
                "Time to defragment the backend.",
                exponential_buckets(0.1, 2.0, 13)?,
            )?,
            defrags_inflight: gauge(
                registry,
                "etcd_disk_defrag_inflight",
                "1 while the backend is defragmented.",
            )?,
            open_reads: gauge(
                registry,
                "etcd_mvcc_db_open_read_transactions",
                "Views of the backend that somebody reads from.",
            )?,
            snapshot_seconds: histogram(
                registry,
                "etcd_disk_backend_snapshot_duration_seconds",
                "Time to send the whole backend to a client or a peer.",
                exponential_buckets(0.01, 2.0, 17)?,
            )?,
            received_fsync_seconds: histogram(
                registry,
                "etcd_snap_db_fsync_duration_seconds",
                "Time to make a snapshot of the leader durable.",
                buckets()?,
            )?,
            received_seconds: histogram(
                registry,
                "etcd_snap_db_save_total_duration_seconds",
                "Time to store a snapshot of the leader.",
                exponential_buckets(0.1, 2.0, 10)?,
            )?,
        })
    }

    /// Wraps a log to measure it.
    pub fn measure_log<L: LogWriter>(&self, log: L) -> MeasuredLog<L> {
        MeasuredLog {
            log,
            metrics: self.clone(),
        }
    }

    /// Wraps a backend to measure it.
    pub fn measure_backend(&self, backend: impl Backend + 'static) -> Arc<dyn Backend> {
        Arc::new(MeasuredBackend {
            backend,
            metrics: self.clone(),
        })
    }
}

/// A log that is measured; see [`DiskMetrics::measure_log`].
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
        let started = Instant::now();
        let appended = self.log.append(hard_state, entries);
        self.metrics
            .wal_write_seconds
            .observe(started.elapsed().as_secs_f64());
        appended
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
        let snapshot = self.backend.snapshot()?;
        let open = OpenRead(self.metrics.open_reads.clone());
        open.0.inc();
        Ok(Box::new(MeasuredSnapshot {
            snapshot,
            _open: open,
        }))
    }

    fn sizes(&self) -> Sizes {
        self.backend.sizes()
    }

    fn defragment(&self) -> Result<(), BackendError> {
        let started = Instant::now();
        self.metrics.defrags_inflight.inc();
        let done = self.backend.defragment();
        self.metrics.defrags_inflight.dec();
        self.metrics
            .defrag_seconds
            .observe(started.elapsed().as_secs_f64());
        done
    }
}

/// Counts a view for as long as it is open.
struct OpenRead(IntGauge);

impl Drop for OpenRead {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct MeasuredSnapshot {
    snapshot: Box<dyn Snapshot>,
    _open: OpenRead,
}

impl Snapshot for MeasuredSnapshot {
    fn get(&self, bucket: Bucket, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        self.snapshot.get(bucket, key)
    }

    fn scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BackendError> {
        self.snapshot.scan(bucket, from, visit)
    }
}
