//! Connections by component and by how far its version is from this member's.
//!
//! Counted once per connection, by its first request, so requests cost nothing. Most clients of
//! etcd name only their gRPC library there; they have no series, so that a member whose clients
//! are etcd's shows the metrics that etcd shows.

use portunus_gates::{EffectiveVersion, component_of};
use prometheus::{IntCounterVec, Registry};

use super::{MetricsError, counters};

/// Components with etcd's version numbers. Other versions cannot be compared; they share a label,
/// so that clients cannot create any number of series.
const COMPONENTS: &[&str] = &["etcdctl", "portctl", "portunus-client"];
const OTHER: &str = "other";
const UNKNOWN: &str = "unknown";

/// The metric `portunus_server_client_version_skew_total`.
pub struct ClientSkew(IntCounterVec);

impl ClientSkew {
    pub(super) fn register(registry: &Registry) -> Result<ClientSkew, MetricsError> {
        Ok(ClientSkew(counters(
            registry,
            "portunus_server_client_version_skew_total",
            "Connections of clients that name their version, by component and verdict: same, \
             older, newer, outside of what is allowed, or unknown.",
            &["component", "verdict"],
        )?))
    }

    /// Counts a connection whose first request came with this user agent.
    pub fn count(&self, own: &EffectiveVersion, user_agent: &str) {
        let Some((name, version)) = component_of(user_agent) else {
            return;
        };
        let known = COMPONENTS.iter().find(|known| **known == name);
        let labels = match known {
            Some(known) => [known, own.skew_of(version).text()],
            None => [OTHER, UNKNOWN],
        };
        self.0.with_label_values(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_features::version::effective_version;

    #[test]
    fn client_skew_has_a_bounded_number_of_series() {
        let registry = Registry::new();
        let skew = ClientSkew::register(&registry).unwrap();
        for name in ["a", "b", "c"] {
            skew.count(&effective_version(), &format!("{name}/v3.8.0"));
        }
        assert_eq!(skew.0.with_label_values(&[OTHER, UNKNOWN]).get(), 3);
        let text = "portctl/v3.8.1 tonic/0.14";
        skew.count(&effective_version(), text);
        assert_eq!(skew.0.with_label_values(&["portctl", "same"]).get(), 1);
        // Two series, and none for libraries.
        skew.count(&effective_version(), "grpc-go/1.71.0");
        assert_eq!(registry.gather()[0].get_metric().len(), 2);
    }
}
