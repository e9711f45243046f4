//! Metrics of compactions: records removed, and durations.
//!
//! Written by the apply thread, which does the work in slices.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{Histogram, IntCounter, IntGauge, Registry, exponential_buckets};

use super::{MetricsError, counter, gauge, histogram};

/// The metrics of compactions.
pub struct CompactionMetrics {
    /// 1 while compaction work is left.
    pub pending: IntGauge,
    records: IntCounter,
    last_unix_seconds: IntGauge,
    slice_ms: Histogram,
    total_ms: Histogram,
}

impl CompactionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<CompactionMetrics, MetricsError> {
        Ok(CompactionMetrics {
            pending: gauge(
                registry,
                "portunus_compaction_pending",
                "1 while compaction work is left.",
            )?,
            records: counter(
                registry,
                "etcd_debugging_mvcc_db_compaction_keys_total",
                "Records that compactions removed.",
            )?,
            last_unix_seconds: gauge(
                registry,
                "etcd_debugging_mvcc_db_compaction_last",
                "When the last compaction ended, in seconds since 1970.",
            )?,
            slice_ms: histogram(
                registry,
                "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
                "How long a slice of compaction work held up applying.",
                exponential_buckets(1.0, 2.0, 13)?,
            )?,
            total_ms: histogram(
                registry,
                "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
                "How long compactions took, pauses between slices included.",
                exponential_buckets(100.0, 2.0, 14)?,
            )?,
        })
    }

    /// Records a finished slice of work.
    pub fn slice(&self, records_removed: u64, took: Duration) {
        self.records.inc_by(records_removed);
        self.slice_ms.observe(took.as_secs_f64() * 1000.0);
    }

    /// Records a finished compaction.
    pub fn finished(&self, took: Duration) {
        self.total_ms.observe(took.as_secs_f64() * 1000.0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
        self.last_unix_seconds.set(seconds);
    }
}
