//! Metrics of cluster features. Features have no series while no member proposes and nothing was
//! decided.

use portunus_gates::{CLUSTER_FEATURE_ENABLED, VERSION_INFO};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::{MetricsError, counters, gauges};

/// The metrics of cluster features and versions.
pub struct ClusterGateMetrics {
    /// Decisions this member has tried to make as leader, by result.
    pub reconciles: IntCounterVec,
    pub(crate) enabled: IntGaugeVec,
    pub(crate) proposals: IntGaugeVec,
    pub(crate) versions: IntGaugeVec,
}

impl ClusterGateMetrics {
    pub(super) fn new(registry: &Registry) -> Result<ClusterGateMetrics, MetricsError> {
        Ok(ClusterGateMetrics {
            reconciles: counters(
                registry,
                "etcd_cluster_params_reconcile_total",
                "Decisions about cluster features made while this member led, by result.",
                &["result"],
            )?,
            enabled: gauges(
                registry,
                CLUSTER_FEATURE_ENABLED,
                "1 if the cluster feature is on.",
                &["name", "stage"],
            )?,
            proposals: gauges(
                registry,
                "etcd_cluster_feature_proposal",
                "What a member's flags say about a cluster feature: 1 on, 0 off.",
                &["member", "name"],
            )?,
            versions: gauges(
                registry,
                VERSION_INFO,
                "1, labelled with the versions of this process.",
                &["component", "binary", "emulation", "min_compat"],
            )?,
        })
    }
}
