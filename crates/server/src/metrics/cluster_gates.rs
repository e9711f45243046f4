//! Metrics of cluster features. Features have no series while no member proposes and nothing was
//! decided.

use portunus_gates::{CLUSTER_FEATURE_ENABLED, VERSION_INFO, feature_samples, version_sample};
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::{MetricsError, counters, gauges};
use crate::member::Member;
use portunus_statemachine::params::members;

/// The metrics of cluster features and versions.
pub struct ClusterGateMetrics {
    /// Decisions this member has tried to make as leader, by result.
    pub reconciles: IntCounterVec,
    enabled: IntGaugeVec,
    proposals: IntGaugeVec,
    versions: IntGaugeVec,
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

    /// Sets all series again, so that no series of an old stage or member is left.
    pub(super) fn read(&self, member: &Member) {
        self.enabled.reset();
        self.proposals.reset();
        self.versions.reset();
        let version = version_sample("portunus", &member.config.version);
        let labels: Vec<&str> = version
            .labels
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        self.versions.with_label_values(&labels).set(1);
        let gates = &member.cluster_gates;
        let membership = member.membership.load();
        let is_in_use = gates.is_in_use(&membership);
        let Some(cluster_version) = membership.cluster_version.filter(|_| is_in_use) else {
            return;
        };
        let decision = gates.decide(&membership, cluster_version);
        let in_force = gates.in_force(&membership);
        let statuses = gates
            .specs()
            .statuses(in_force, &decision, &members(&membership));
        for sample in feature_samples(CLUSTER_FEATURE_ENABLED, &statuses) {
            let labels: Vec<&str> = sample
                .labels
                .iter()
                .map(|(_, text)| text.as_str())
                .collect();
            self.enabled
                .with_label_values(&labels)
                .set(i64::from(sample.value));
        }
        for record in membership.iter() {
            let flags = record.proposal.iter().flat_map(|proposal| &proposal.flags);
            for (name, value) in flags {
                let id = format!("{:x}", record.id);
                self.proposals
                    .with_label_values(&[id.as_str(), name.as_str()])
                    .set(i64::from(*value));
            }
        }
    }
}
