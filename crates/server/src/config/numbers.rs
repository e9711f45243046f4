//! Settings that are numbers and durations, with the meaning of zero.

use std::time::Duration;

use super::checks::Checks;
use super::{QUOTA_BYTES_DEFAULT, Values, duration, number};

const PROGRESS_NOTIFY_MIN: Duration = Duration::from_millis(100);

/// The numbers and durations among the fields of [`super::Config`].
pub(super) struct Numbers {
    pub snapshot_count: u64,
    pub snapshot_catchup_entries: u64,
    pub quota_bytes: Option<u64>,
    pub backend_batch_interval: Duration,
    pub backend_batch_limit: usize,
    pub max_txn_ops: usize,
    pub max_request_bytes: usize,
    pub max_concurrent_streams: u32,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    pub resident_value_bytes_max: u64,
    pub compaction_batch_limit: usize,
    pub compaction_sleep: Duration,
    pub watch_progress_interval: Duration,
    pub warning_apply_duration: Duration,
    pub warning_unary_request_duration: Duration,
}

impl Numbers {
    pub fn of(values: &Values, checks: &mut Checks) -> Option<Numbers> {
        let snapshot_count = checks.ok(number(values, "snapshot-count"));
        let snapshot_catchup_entries = checks.ok(number(values, "snapshot-catchup-entries"));
        let quota: Option<i64> = checks.ok(number(values, "quota-backend-bytes"));
        let backend_batch_limit = checks.ok(number(values, "backend-batch-limit"));
        let max_txn_ops = checks.ok(number(values, "max-txn-ops"));
        let max_request_bytes = checks.ok(number(values, "max-request-bytes"));
        let max_concurrent_streams = checks.ok(number(values, "max-concurrent-streams"));
        let resident_value_bytes_max = checks.ok(number(values, "resident-value-bytes"));
        let compaction_batch_limit = checks.ok(number(values, "compaction-batch-limit"));
        let mut time = |flag| checks.ok(duration(values, flag));
        let backend_batch_interval = time("backend-batch-interval");
        let keepalive_interval = time("grpc-keepalive-interval");
        let keepalive_timeout = time("grpc-keepalive-timeout");
        let compaction_sleep = time("compaction-sleep-interval");
        let watch_progress_interval = time("watch-progress-notify-interval");
        let warning_apply_duration = time("warning-apply-duration");
        let warning_unary_request_duration = time("warning-unary-request-duration");
        Some(Numbers {
            snapshot_count: snapshot_count?,
            snapshot_catchup_entries: snapshot_catchup_entries?,
            quota_bytes: match quota? {
                0 => u64::try_from(QUOTA_BYTES_DEFAULT).ok(),
                quota => u64::try_from(quota).ok(),
            },
            backend_batch_interval: or(backend_batch_interval?, 100),
            backend_batch_limit: match backend_batch_limit? {
                0 => 10_000,
                limit => limit,
            },
            max_txn_ops: max_txn_ops?,
            max_request_bytes: max_request_bytes?,
            max_concurrent_streams: max_concurrent_streams?,
            keepalive_interval: keepalive_interval?,
            keepalive_timeout: keepalive_timeout?,
            resident_value_bytes_max: resident_value_bytes_max?,
            compaction_batch_limit: match compaction_batch_limit? {
                0 => 1000,
                limit => limit,
            },
            compaction_sleep: or(compaction_sleep?, 10),
            watch_progress_interval: or(watch_progress_interval?, 600_000).max(PROGRESS_NOTIFY_MIN),
            warning_apply_duration: warning_apply_duration?,
            warning_unary_request_duration: warning_unary_request_duration?,
        })
    }
}

/// Returns `given`, or the default if that is zero.
fn or(given: Duration, default_ms: u64) -> Duration {
    if given.is_zero() {
        Duration::from_millis(default_ms)
    } else {
        given
    }
}
