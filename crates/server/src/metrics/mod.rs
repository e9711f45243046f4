//! What is counted, under etcd's names.

mod client_requests;
mod cluster_gates;
mod disk;
mod rpc;

pub use client_requests::{ClientRequests, Kind};
pub use cluster_gates::ClusterGateMetrics;
pub use disk::{DiskMetrics, MeasuredLog};
pub use rpc::{RpcMetrics, Running};

use std::sync::Arc;

use portunus_gates::Sample;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use thiserror::Error;

use crate::member::Member;

/// Every series this member writes itself. The ones derived from state are read when asked.
pub struct Metrics {
    registry: Registry,
    /// Proposals that wait for their entry.
    pub proposals_pending: IntGauge,
    /// Proposals that were not answered in time.
    pub proposals_failed: IntCounter,
    /// Batches that took long to apply.
    pub slow_applies: IntCounter,
    /// Puts, on their own.
    pub puts: IntCounter,
    /// Deletes, on their own.
    pub deletes: IntCounter,
    /// Transactions.
    pub txns: IntCounter,
    /// Ranges.
    pub ranges: IntCounter,
    /// Events told to watchers.
    pub events: IntCounter,
    /// Leases granted.
    pub leases_granted: IntCounter,
    /// Leases revoked.
    pub leases_revoked: IntCounter,
    /// Leases renewed.
    pub leases_renewed: IntCounter,
    /// Leases that expired.
    pub leases_expired: IntCounter,
    /// 1 while compaction work is left.
    pub compaction_pending: IntGauge,
    /// Health checks that passed.
    pub health_success: IntCounter,
    /// Health checks that failed.
    pub health_failures: IntCounter,
    /// Leaders seen.
    pub leader_changes: IntCounter,
    /// Requests by type and client version.
    pub client_requests: ClientRequests,
    /// Requests by method and outcome.
    pub rpcs: RpcMetrics,
    /// How long the disk takes.
    pub disk: DiskMetrics,
    /// Reads that found no index in time.
    pub read_indexes_failed: IntCounter,
    /// Checks of `/livez` and `/readyz`.
    pub health_checks: IntCounterVec,
    /// What they said last: 1 for well.
    pub health_check: IntGaugeVec,
    /// Learners this member has promoted.
    pub learner_promotions: IntCounter,
    /// Learners it has not, by reason.
    pub learner_refusals: IntCounterVec,
    /// 1 while the leader's snapshot is installed.
    pub snapshots_installing: IntGauge,
    /// Cluster features.
    pub cluster_gates: ClusterGateMetrics,
    gauges: Gauges,
}

/// Gauges that are set from state when somebody asks.
struct Gauges {
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

/// A metric that could not be registered: two have one name.
#[derive(Debug, Error)]
#[error("the metrics of this program clash")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// All series at zero.
    pub fn new(extensive: bool) -> Result<Metrics, MetricsError> {
        let registry = Registry::new();
        let r = &registry;
        r.register(Box::new(ProcessCollector::for_self()))?;
        Ok(Metrics {
            proposals_pending: gauge(
                r,
                "etcd_server_proposals_pending",
                "Proposals that wait to be applied.",
            )?,
            proposals_failed: counter(
                r,
                "etcd_server_proposals_failed_total",
                "Proposals that failed.",
            )?,
            slow_applies: counter(r, "etcd_server_slow_apply_total", "Applies that took long.")?,
            puts: counter(r, "etcd_mvcc_put_total", "Puts applied.")?,
            deletes: counter(r, "etcd_mvcc_delete_total", "Deletes applied.")?,
            txns: counter(r, "etcd_mvcc_txn_total", "Transactions applied.")?,
            ranges: counter(r, "etcd_mvcc_range_total", "Ranges answered.")?,
            events: counter(
                r,
                "etcd_debugging_mvcc_events_total",
                "Events told to watchers.",
            )?,
            leases_granted: counter(r, "etcd_debugging_lease_granted_total", "Leases granted.")?,
            leases_revoked: counter(r, "etcd_debugging_lease_revoked_total", "Leases revoked.")?,
            leases_renewed: counter(r, "etcd_debugging_lease_renewed_total", "Leases renewed.")?,
            leases_expired: counter(
                r,
                "etcd_debugging_server_lease_expired_total",
                "Leases expired.",
            )?,
            compaction_pending: gauge(
                r,
                "portunus_compaction_pending",
                "1 while compaction work is left.",
            )?,
            health_success: counter(
                r,
                "etcd_server_health_success",
                "Health checks that passed.",
            )?,
            health_failures: counter(
                r,
                "etcd_server_health_failures",
                "Health checks that failed.",
            )?,
            leader_changes: counter(r, "etcd_server_leader_changes_seen_total", "Leaders seen.")?,
            client_requests: ClientRequests::register(r)?,
            rpcs: RpcMetrics::register(r, extensive)?,
            disk: DiskMetrics::register(r)?,
            read_indexes_failed: counter(
                r,
                "etcd_server_read_indexes_failed_total",
                "Linearizable reads that found no index.",
            )?,
            health_checks: counters(
                r,
                "etcd_server_healthchecks_total",
                "Health checks by outcome.",
                &["type", "name", "status"],
            )?,
            health_check: gauges(
                r,
                "etcd_server_healthcheck",
                "1 if the check was well the last time.",
                &["type", "name"],
            )?,
            learner_promotions: counter(
                r,
                "etcd_server_learner_promote_successes",
                "Learners promoted while this member led.",
            )?,
            learner_refusals: counters(
                r,
                "etcd_server_learner_promote_failures",
                "Learners not promoted while this member led.",
                &["Reason"],
            )?,
            cluster_gates: ClusterGateMetrics::new(r)?,
            snapshots_installing: gauge(
                r,
                "etcd_server_snapshot_apply_in_progress_total",
                "1 while the leader's snapshot is installed.",
            )?,
            gauges: Gauges {
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
            },
            registry,
        })
    }

    /// Where parts of the member register what they count themselves.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The text Prometheus reads.
    pub fn render(&self, member: &Arc<Member>) -> Result<Vec<u8>, MetricsError> {
        self.gauges.read(member);
        self.cluster_gates.read(member);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

impl Gauges {
    fn read(&self, member: &Arc<Member>) {
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
            .list(portunus_proto::etcdserverpb::AlarmType::None)
        {
            let kind = portunus_proto::etcdserverpb::AlarmType::try_from(alarm.alarm);
            let kind = kind.map_or("NONE", |kind| kind.as_str_name());
            let id = format!("{:x}", alarm.member_id);
            self.alarms.with_label_values(&[id.as_str(), kind]).set(1);
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

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
    let metric = IntCounter::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, MetricsError> {
    let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: Vec<f64>,
) -> Result<Histogram, MetricsError> {
    let metric = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
    let metric = IntGauge::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, MetricsError> {
    let metric = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
