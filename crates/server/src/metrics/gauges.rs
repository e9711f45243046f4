//! Gauges that are set from the member's state at each scrape (`scrape.rs`).

use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::{MetricsError, gauge, gauges};

/// Gauges that are set from the member's state at each scrape.
pub(crate) struct Gauges {
    pub(crate) has_leader: IntGauge,
    pub(crate) is_leader: IntGauge,
    pub(crate) is_learner: IntGauge,
    pub(crate) proposals_committed: IntGauge,
    pub(crate) proposals_applied: IntGauge,
    pub(crate) quota_bytes: IntGauge,
    pub(crate) total_bytes: IntGauge,
    pub(crate) in_use_bytes: IntGauge,
    pub(crate) current_revision: IntGauge,
    pub(crate) compact_revision: IntGauge,
    pub(crate) keys: IntGauge,
    pub(crate) known_peers: IntGaugeVec,
    pub(crate) open_files: IntGauge,
    pub(crate) open_files_max: IntGauge,
    pub(crate) watchers: IntGauge,
    pub(crate) watch_streams: IntGauge,
    pub(crate) slow_watchers: IntGauge,
    pub(crate) watches_refused: IntGaugeVec,
    pub(crate) wal_syncs: IntGauge,
    pub(crate) id: IntGaugeVec,
    pub(crate) version: IntGaugeVec,
    pub(crate) cluster_version: IntGaugeVec,
    pub(crate) features: IntGaugeVec,
    pub(crate) alarms: IntGaugeVec,
}

impl Gauges {
    pub(super) fn register(r: &Registry) -> Result<Gauges, MetricsError> {
        Ok(Gauges {
            has_leader: gauge(r, "etcd_server_has_leader", "1 if a leader is known.")?,
            is_leader: gauge(r, "etcd_server_is_leader", "1 if this member leads.")?,
            is_learner: gauge(r, "etcd_server_is_learner", "1 if this member only learns.")?,
            proposals_committed: gauge(
                r,
                "etcd_server_proposals_committed_total",
                "Index of the last committed entry.",
            )?,
            proposals_applied: gauge(
                r,
                "etcd_server_proposals_applied_total",
                "Index of the last applied entry.",
            )?,
            quota_bytes: gauge(
                r,
                "etcd_server_quota_backend_bytes",
                "Size at which writes are refused.",
            )?,
            total_bytes: gauge(
                r,
                "etcd_mvcc_db_total_size_in_bytes",
                "Size of the backend, free space included.",
            )?,
            in_use_bytes: gauge(
                r,
                "etcd_mvcc_db_total_size_in_use_in_bytes",
                "Size of the backend that holds data.",
            )?,
            current_revision: gauge(
                r,
                "etcd_debugging_mvcc_current_revision",
                "Newest revision.",
            )?,
            compact_revision: gauge(
                r,
                "etcd_debugging_mvcc_compact_revision",
                "Revision the store is compacted to.",
            )?,
            keys: gauge(r, "etcd_debugging_mvcc_keys_total", "Keys that exist.")?,
            known_peers: gauges(
                r,
                "etcd_network_known_peers",
                "1 per member of the cluster, this one included.",
                &["Local", "Remote"],
            )?,
            watches_refused: gauges(
                r,
                "portunus_watches_refused_total",
                "Watches that were refused, by the flag of the limit.",
                &["limit"],
            )?,
            open_files: gauge(r, "os_fd_used", "Open file descriptors.")?,
            open_files_max: gauge(
                r,
                "os_fd_limit",
                "File descriptors that may be open at a time.",
            )?,
            watchers: gauge(r, "etcd_debugging_mvcc_watcher_total", "Watches.")?,
            watch_streams: gauge(
                r,
                "etcd_debugging_mvcc_watch_stream_total",
                "Watch streams.",
            )?,
            slow_watchers: gauge(
                r,
                "etcd_debugging_mvcc_slow_watcher_total",
                "Watches that lag.",
            )?,
            wal_syncs: gauge(
                r,
                "portunus_wal_syncs_total",
                "Syncs of the write-ahead log.",
            )?,
            id: gauges(
                r,
                "etcd_server_id",
                "1, labelled with the member's id.",
                &["server_id"],
            )?,
            version: gauges(
                r,
                "etcd_server_version",
                "1, labelled with the version.",
                &["server_version"],
            )?,
            cluster_version: gauges(
                r,
                "etcd_cluster_version",
                "1, labelled with the cluster version.",
                &["cluster_version"],
            )?,
            features: gauges(
                r,
                "etcd_server_feature_enabled",
                "1 if the feature is on.",
                &["name", "stage"],
            )?,
            alarms: gauges(
                r,
                "etcd_debugging_server_alarms",
                "1 per alarm in force.",
                &["server_id", "alarm_type"],
            )?,
        })
    }
}
