//! The collections that the controller follows, and the paths of objects.

/// A followed collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collection {
    /// The configuration, an object named `cluster` or none.
    OlmConfigs,
    /// Installed operators and their copies.
    Csvs,
    /// The namespaces.
    Namespaces,
}

impl Collection {
    /// All followed collections.
    pub const ALL: [Collection; 3] = [
        Collection::OlmConfigs,
        Collection::Csvs,
        Collection::Namespaces,
    ];

    /// Returns the path of the collection in all namespaces.
    pub fn path(self) -> &'static str {
        match self {
            Collection::OlmConfigs => "/apis/operators.coreos.com/v2alpha1/olmconfigs",
            Collection::Csvs => "/apis/operators.coreos.com/v1alpha1/clusterserviceversions",
            Collection::Namespaces => "/api/v1/namespaces",
        }
    }
}

/// The status of the configuration.
pub const OLM_CONFIG_STATUS: &str = "/apis/operators.coreos.com/v2alpha1/olmconfigs/cluster/status";

/// Returns the path of the CSVs of a namespace.
pub fn csvs_of(namespace: &str) -> String {
    format!("/apis/operators.coreos.com/v1alpha1/namespaces/{namespace}/clusterserviceversions")
}

/// Returns the path of a CSV.
pub fn csv(namespace: &str, name: &str) -> String {
    format!("{}/{name}", csvs_of(namespace))
}

/// Returns the path of the events of a namespace.
pub fn events_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/events")
}
