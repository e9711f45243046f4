//! Gauges that are read from the member's state at each scrape.

use std::sync::Arc;

use portunus_gates::Sample;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{IntGauge, IntGaugeVec, Registry};

use super::{MetricsError, gauge, gauges};
use crate::member::Member;

/// Gauges that are set from the member's state at each scrape.
pub(super) struct Gauges {
    has_leader: IntGauge,
    is_leader: IntGauge,
    is_learner: IntGauge,
    proposals_committed: IntGauge,
    proposals_applied: IntGauge,
    quota_bytes: IntGauge,
    total_bytes: IntGauge,
    in_use_bytes: IntGauge,
    current_revision: IntGauge,
    compact_revision: IntGauge,
    keys: IntGauge,
    known_peers: IntGaugeVec,
    open_files: IntGauge,
    open_files_max: IntGauge,
    watchers: IntGauge,
    watch_streams: IntGauge,
    slow_watchers: IntGauge,
    wal_syncs: IntGauge,
    id: IntGaugeVec,
    version: IntGaugeVec,
    cluster_version: IntGaugeVec,
    features: IntGaugeVec,
    alarms: IntGaugeVec,
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

    /// Sets every gauge from the member's present state.
    pub(super) fn read(&self, member: &Arc<Member>) {
        let int = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let raft = member.consensus.status();
        let own = member.identity.member_id;
        self.has_leader.set(i64::from(raft.leader != 0));
        self.is_leader.set(i64::from(raft.leader == own));
        self.is_learner.set(i64::from(raft.is_learner));
        self.proposals_committed.set(int(raft.commit));
        self.proposals_applied.set(int(member.applied.index()));
        self.quota_bytes
            .set(member.config.quota_bytes.map_or(0, int));
        let sizes = member.reader().sizes();
        self.total_bytes.set(int(sizes.total_bytes));
        self.in_use_bytes.set(int(sizes.in_use_bytes));
        self.current_revision.set(member.reader().revision());
        self.compact_revision
            .set(member.reader().compact_revision());
        self.keys.set(int(member.reader().key_count()));
        self.known_peers.reset();
        for record in member.membership.load().iter() {
            let ids = [format!("{own:x}"), format!("{:x}", record.id)];
            self.known_peers.with_label_values(&ids).set(1);
        }
        self.read_open_files();
        let hub = member.watches.lock().stats();
        self.watchers.set(int(hub.watchers as u64));
        self.watch_streams.set(int(hub.streams as u64));
        self.slow_watchers
            .set(int((hub.slow + hub.catching_up) as u64));
        self.wal_syncs.set(int(raft.wal_syncs));
        self.id
            .with_label_values(&[format!("{own:x}").as_str()])
            .set(1);
        let version = portunus_features::version::version_text(&member.config.version);
        self.version.with_label_values(&[version.as_str()]).set(1);
        self.cluster_version.reset();
        if let Some(version) = member.membership.load().cluster_version {
            self.cluster_version
                .with_label_values(&[version.to_string().as_str()])
                .set(1);
        }
        self.features.reset();
        for sample in member.gates.samples(portunus_gates::SERVER_FEATURE_ENABLED) {
            self.set_feature(&sample);
        }
        self.alarms.reset();
        for alarm in member
            .alarms
            .load()
            .list(portunus_proto::etcdserverpb::AlarmType::None as i32)
        {
            let kind = portunus_proto::etcdserverpb::AlarmType::try_from(alarm.alarm);
            let kind = kind.map_or("NONE", |kind| kind.as_str_name());
            let id = format!("{:x}", alarm.member_id);
            self.alarms.with_label_values(&[id.as_str(), kind]).set(1);
        }
    }

    /// Copies open files from the process collector to etcd's additional names.
    fn read_open_files(&self) {
        for family in ProcessCollector::for_self().collect() {
            let gauge = match family.name() {
                "process_open_fds" => &self.open_files,
                "process_max_fds" => &self.open_files_max,
                _ => continue,
            };
            let value = family
                .get_metric()
                .first()
                .map(|it| it.get_gauge().get_value());
            gauge.set(value.unwrap_or(0.0) as i64);
        }
    }

    fn set_feature(&self, sample: &Sample) {
        let values: Vec<&str> = sample
            .labels
            .iter()
            .map(|(_, value)| value.as_str())
            .collect();
        self.features
            .with_label_values(&values)
            .set(i64::from(sample.value));
    }
}
