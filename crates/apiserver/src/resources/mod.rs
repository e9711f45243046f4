//! The resources that the program serves. They use nothing but the public declarations of the
//! library.

mod api_versions;
mod core;
mod core_protobuf;
mod feature_gates;
mod olm;

use std::time::Duration;

use crate::{Api, CollectionPublisher, Definition, DefinitionError};
use portunus_client::Client;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The group of the resources about the server and its store.
const LIFECYCLE_GROUP: &str = "lifecycle.portunus.dev";

/// How long Events are kept by default.
pub const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// How long a start waits for the feature gates of the store.
const FEATURE_GATES_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why the resources of the program cannot be served; a test prevents it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResourcesError {
    /// A definition cannot be served.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A column has a path that cannot be evaluated.
    #[error("the columns of a resource are declared wrongly")]
    Columns(#[from] portunus_objects::table::JsonPathError),
    /// The features of OLM contradict each other.
    #[error("the features of OLM are declared wrongly: {0}")]
    Features(String),
}

/// The resources, with what the program publishes itself.
pub struct Resources {
    api_versions: CollectionPublisher,
    feature_gates: CollectionPublisher,
    event_ttl: Duration,
}

impl Resources {
    /// Creates the resources. Their versions continue those of an earlier process, because they
    /// begin with the time.
    pub fn new(now_unix_s: i64) -> Resources {
        let publisher = || CollectionPublisher::starting_at(now_unix_s);
        Resources {
            api_versions: publisher(),
            feature_gates: publisher(),
            event_ttl: EVENT_TTL,
        }
    }

    /// Sets how long Events are kept; zero for ever.
    #[must_use]
    pub fn with_event_ttl(mut self, ttl: Duration) -> Resources {
        self.event_ttl = ttl;
        self
    }

    /// Returns the definitions of all resources.
    pub fn definitions(&self) -> Result<Vec<Definition>, ResourcesError> {
        Ok(vec![
            core::namespaces()?,
            core::events(self.event_ttl)?,
            olm::olm_configs()?,
            olm::cluster_service_versions()?,
            feature_gates::definition(&self.feature_gates)?,
            api_versions::definition(&self.api_versions)?,
        ])
    }

    /// Publishes what the API server knows about its own APIs.
    pub fn publish_api_versions(&self, api: &Api) {
        self.api_versions.publish(api_versions::objects(api));
    }

    /// Follows the feature gates of the store until the runtime ends. Returns once they are known,
    /// or after a moment: the server also starts without its store.
    pub async fn follow_feature_gates(&self, store: Client) {
        let (first, is_known) = oneshot::channel();
        let objects = self.feature_gates.clone();
        tokio::spawn(feature_gates::follow(store, objects, first));
        let _ = timeout(FEATURE_GATES_WAIT_MAX, is_known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_declared_rightly() {
        let resources = Resources::new(1);
        let names: Vec<String> = resources
            .definitions()
            .unwrap()
            .iter()
            .map(Definition::full_name)
            .collect();
        assert_eq!(
            names,
            [
                "namespaces",
                "events",
                "olmconfigs.operators.coreos.com",
                "clusterserviceversions.operators.coreos.com",
                "featuregates.lifecycle.portunus.dev",
                "apiversions.lifecycle.portunus.dev",
            ]
        );
    }
}
