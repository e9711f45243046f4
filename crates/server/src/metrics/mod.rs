//! Metrics, under etcd's names.

mod client_requests;
mod client_skew;
mod cluster_gates;
mod compaction;
mod disk;
mod gauges;
mod limits;
mod operations;
mod rpc;
mod slow_requests;

pub use client_requests::{ClientRequests, Kind};
pub use client_skew::ClientSkew;
pub use cluster_gates::ClusterGateMetrics;
pub use compaction::CompactionMetrics;
pub use disk::{DiskMetrics, MeasuredLog};
pub use limits::{ConnectionMetrics, LimitMetrics};
pub use operations::{Operation, OperationMetrics};
pub use rpc::{RpcMetrics, Running};

use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use thiserror::Error;

pub(crate) use gauges::Gauges;

/// Every series this member writes itself. Those derived from state are read at each scrape.
pub struct Metrics {
    registry: Registry,
    /// Proposals that wait for their entry.
    pub proposals_pending: IntGauge,
    /// Proposals that were not answered in time.
    pub proposals_failed: IntCounter,
    /// Batches that took long to apply.
    pub slow_applies: IntCounter,
    /// Puts outside of transactions.
    pub puts: IntCounter,
    /// Deletes outside of transactions.
    pub deletes: IntCounter,
    /// Transactions.
    pub txns: IntCounter,
    /// Ranges.
    pub ranges: IntCounter,
    /// Events sent to watchers.
    pub events: IntCounter,
    /// Leases granted.
    pub leases_granted: IntCounter,
    /// Leases revoked.
    pub leases_revoked: IntCounter,
    /// Leases renewed.
    pub leases_renewed: IntCounter,
    /// Leases that expired.
    pub leases_expired: IntCounter,
    /// The TTLs of granted leases.
    pub lease_ttl_seconds: Histogram,
    /// Bytes of keys and values put.
    pub put_bytes: IntGauge,
    /// The metrics of compactions.
    pub compaction: CompactionMetrics,
    /// Durations of requests.
    pub operations: OperationMetrics,
    /// Durations of hashing the whole store.
    pub hash_seconds: Histogram,
    /// Durations of hashing the keys at a revision.
    pub hash_revision_seconds: Histogram,
    /// Health checks that passed.
    pub health_success: IntCounter,
    /// Health checks that failed.
    pub health_failures: IntCounter,
    /// Leader changes that this member has seen.
    pub leader_changes: IntCounter,
    /// Requests by type and client version.
    pub client_requests: ClientRequests,
    /// Connections by the client's version.
    pub client_skew: ClientSkew,
    /// Requests by method and outcome.
    pub rpcs: RpcMetrics,
    /// Durations of disk operations.
    pub disk: DiskMetrics,
    /// Reads that found no index because the leader changed or the member stopped.
    pub read_indexes_failed: IntCounter,
    /// Reads that found no index in time.
    pub read_indexes_slow: IntCounter,
    /// Heartbeats this member sent too late while it led.
    pub heartbeat_failures: IntCounter,
    /// 1 for each member that runs with other settings than the leader.
    pub settings_mismatch: IntGaugeVec,
    /// Checks of `/livez` and `/readyz`.
    pub health_checks: IntCounterVec,
    /// The last result of each of these checks: 1 for success.
    pub health_check: IntGaugeVec,
    /// Learners this member has promoted.
    pub learner_promotions: IntCounter,
    /// Learners that this member has not promoted, by reason.
    pub learner_refusals: IntCounterVec,
    /// 1 while the leader's snapshot is installed.
    pub snapshots_installing: IntGauge,
    /// Snapshots that clients were refused because too many were being sent.
    pub snapshots_refused: IntCounter,
    /// Hashes that clients or peers were refused because too many were being computed.
    pub hashes_refused: IntCounter,
    /// TLS connections that were refused, by listener and reason.
    pub tls_refused: IntCounterVec,
    /// Refusals because of a limit.
    pub limits: LimitMetrics,
    /// The metrics of cluster features.
    pub cluster_gates: ClusterGateMetrics,
    pub(crate) gauges: Gauges,
}

/// A metric could not be registered: two have one name.
#[derive(Debug, Error)]
#[error("the metrics of this program clash")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// Creates all series at zero. Unary requests that take longer than `slow_after` are logged.
    pub fn new(extensive: bool, slow_after: Duration) -> Result<Metrics, MetricsError> {
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
            lease_ttl_seconds: histogram(
                r,
                "etcd_debugging_lease_ttl_total",
                "Seconds that granted leases shall live.",
                prometheus::exponential_buckets(1.0, 2.0, 24)?,
            )?,
            put_bytes: gauge(
                r,
                "etcd_debugging_mvcc_total_put_size_in_bytes",
                "Bytes of keys and values put since the start.",
            )?,
            compaction: CompactionMetrics::register(r)?,
            operations: OperationMetrics::register(r)?,
            hash_seconds: histogram(
                r,
                "etcd_mvcc_hash_duration_seconds",
                "Time to hash everything that is stored.",
                prometheus::exponential_buckets(0.01, 2.0, 15)?,
            )?,
            hash_revision_seconds: histogram(
                r,
                "etcd_mvcc_hash_rev_duration_seconds",
                "Time to hash the keys as of a revision.",
                prometheus::exponential_buckets(0.01, 2.0, 15)?,
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
            client_skew: ClientSkew::register(r)?,
            rpcs: RpcMetrics::register(r, extensive, slow_after)?,
            disk: DiskMetrics::register(r)?,
            read_indexes_failed: counter(
                r,
                "etcd_server_read_indexes_failed_total",
                "Linearizable reads that found no index, other than in time.",
            )?,
            read_indexes_slow: counter(
                r,
                "etcd_server_slow_read_indexes_total",
                "Linearizable reads that found no index in time.",
            )?,
            heartbeat_failures: counter(
                r,
                "etcd_server_heartbeat_send_failures_total",
                "Heartbeats sent too late, for lack of processor time or disk.",
            )?,
            settings_mismatch: gauges(
                r,
                "portunus_server_settings_mismatch",
                "1 for each member and flag that differs from the leader's, where apply depends on it.",
                &["member", "flag"],
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
            snapshots_refused: counter(
                r,
                "portunus_snapshots_refused_total",
                "Snapshots that clients were refused because too many were being sent.",
            )?,
            hashes_refused: counter(
                r,
                "portunus_hashes_refused_total",
                "Hashes that clients or peers were refused because too many were being computed.",
            )?,
            tls_refused: tls_refused(r)?,
            limits: LimitMetrics::register(r)?,
            gauges: Gauges::register(r)?,
            registry,
        })
    }

    /// The registry, for parts of the member that register metrics themselves.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Encodes all metrics in the text format of Prometheus, with the gauges as they were set.
    pub fn encode(&self) -> Result<Vec<u8>, MetricsError> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, MetricsError> {
    let metric = IntCounter::new(name, help)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Every series exists from the start, so that an alert sees the first refusal.
fn tls_refused(r: &Registry) -> Result<IntCounterVec, MetricsError> {
    let refused = counters(
        r,
        "portunus_tls_rejected_connections_total",
        "TLS connections that were refused, by listener and reason.",
        &["endpoint", "reason"],
    )?;
    for endpoint in ["client", "metrics", "peer"] {
        for reason in portunus_tls::AcceptError::KINDS {
            refused.with_label_values(&[endpoint, reason]);
        }
    }
    Ok(refused)
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
