//! Gates and versions as metric samples, which the metrics endpoint renders. A sample list
//! is always complete, so writing it anew after a change leaves no stale series.

use serde::Serialize;

use crate::effective::EffectiveVersion;
use crate::gate::GateSet;
use crate::status::Status;

/// One gauge value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The metric's name.
    pub metric: &'static str,
    /// Label names with values, in the metric's order.
    pub labels: Vec<(&'static str, String)>,
    /// The gauge value, 0 or 1.
    pub value: u8,
}

/// The gauge of server gates under etcd's name.
pub const SERVER_FEATURE_ENABLED: &str = "etcd_server_feature_enabled";
/// The gauge of server gates under Kubernetes' name.
pub const KUBERNETES_FEATURE_ENABLED: &str = "kubernetes_feature_enabled";
/// The gauge of cluster gates.
pub const CLUSTER_FEATURE_ENABLED: &str = "etcd_cluster_feature_enabled";
/// The gauge of versions.
pub const VERSION_INFO: &str = "version_info";

impl GateSet {
    /// Returns one sample per feature that exists at these versions; a disabled feature is 0.
    pub fn samples(&self, metric: &'static str) -> Vec<Sample> {
        feature_samples(metric, &self.statuses())
    }
}

/// Returns one sample per status, labelled with name and stage (empty for GA).
pub fn feature_samples(metric: &'static str, statuses: &[Status]) -> Vec<Sample> {
    statuses
        .iter()
        .map(|status| Sample {
            metric,
            labels: vec![
                ("name", status.name.clone()),
                ("stage", status.stage.wire_text().to_owned()),
            ],
            value: u8::from(status.enabled),
        })
        .collect()
}

/// Returns the version sample of one component; its value is always 1.
pub fn version_sample(component: &str, version: &EffectiveVersion) -> Sample {
    Sample {
        metric: VERSION_INFO,
        labels: vec![
            ("component", component.to_owned()),
            ("binary", version.binary().to_string()),
            ("emulation", version.emulation().to_string()),
            ("min_compat", version.min_compat().to_string()),
        ],
        value: 1,
    }
}
