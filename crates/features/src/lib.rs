//! The project's own feature gates: server features and cluster features.
//!
//! The server and `portctl gate plan` use the same declarations, so that a plan matches what
//! the server does. A new feature is declared here and read where it takes effect;
//! CONTRIBUTING.md describes the steps.

mod cluster;
mod server;
pub mod version;

use std::sync::Arc;

use portunus_gates::cluster::ClusterSpecs;
use portunus_gates::{Features, RegisterError};

pub use cluster::*;
pub use server::*;

use version::{CLUSTER_PARAMS_SINCE, CLUSTER_VERSION_UNDECIDED};

/// The owner of features that exist for tests only, in builds for tests only.
pub const TEST_FEATURE_OWNER: &str = "tests";

/// Both registries, each with the names of the other, so that the error for a feature set
/// with the wrong flag names the right one.
#[derive(Debug, Clone)]
pub struct OwnFeatures {
    /// The features of `--feature-gates`.
    pub server: Features<ServerFeatures>,
    /// The features of `--cluster-feature-gates`.
    pub cluster: Features<ClusterFeatures>,
}

impl OwnFeatures {
    /// Returns the declared features. The declarations are tested, so this fails in no released
    /// program.
    pub fn declared() -> Result<OwnFeatures, RegisterError> {
        let server = Features::<ServerFeatures>::declared()?;
        let cluster = Features::<ClusterFeatures>::declared_with(|builder| {
            builder.add_other_level(server.registry());
            Ok::<(), RegisterError>(())
        })?;
        let server = Features::<ServerFeatures>::declared_with(|builder| {
            builder.add_other_level(cluster.registry());
            Ok::<(), RegisterError>(())
        })?;
        Ok(OwnFeatures { server, cluster })
    }

    /// The cluster's features with the versions that bound the mechanism.
    pub fn cluster_specs(&self) -> ClusterSpecs {
        ClusterSpecs::new(
            Arc::clone(self.cluster.registry()),
            CLUSTER_PARAMS_SINCE,
            CLUSTER_VERSION_UNDECIDED,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_gates::{Declaration, FeatureSet};

    fn is_for_tests(declaration: &&Declaration) -> bool {
        declaration.owner == TEST_FEATURE_OWNER
    }

    #[test]
    fn released_registries_declare_no_test_feature() {
        let server = ServerFeatures::DECLARATIONS.iter();
        let released = server.chain(ReleasedClusterFeatures::DECLARATIONS);
        assert_eq!(released.filter(is_for_tests).count(), 0);
        // Features that only builds for tests have are owned by the tests.
        let all = ClusterFeatures::DECLARATIONS.iter();
        let kept: Vec<&str> = all
            .filter(|it| !is_for_tests(it))
            .map(|it| it.name)
            .collect();
        let released = ReleasedClusterFeatures::DECLARATIONS.iter();
        assert_eq!(kept, released.map(|it| it.name).collect::<Vec<_>>());
    }
}
