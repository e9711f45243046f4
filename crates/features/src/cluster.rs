//! Cluster features, which all members decide together.

use portunus_gates::{feature, registry};

feature! {
    /// Replicates the remaining time of long leases to all members, once per checkpoint interval.
    ///
    /// Without it a new leader restarts every lease with its full time.
    pub LeaseCheckpoint {
        level: Cluster,
        owner: "lease",
        touches: Log,
        reversible: Free,
        specs: [Spec::alpha("3.7")],
    }
}
feature! {
    /// Stores the remaining time of leases in the backend, so that it survives restarts.
    pub LeaseCheckpointPersist {
        level: Cluster,
        owner: "lease",
        touches: Backend,
        reversible: Free,
        inert: "from cluster version 3.6 on the remaining time is always stored, as in etcd",
        specs: [Spec::alpha("3.7")],
        depends_on: [LeaseCheckpoint],
    }
}

feature! {
    /// Writes large requests to the log compressed.
    ///
    /// Every member that can vote must be able to read them; whether it is on does not
    /// matter for reading. So it may be turned off at any time.
    pub LogCompression {
        level: Cluster,
        owner: "consensus",
        touches: Log,
        reversible: Free,
        readable_since: FirstSpec,
        specs: [Spec::alpha("3.8")],
    }
}
#[cfg(feature = "test-features")]
feature! {
    /// For tests only: appends the log index to values of keys below `/apply-tag/`.
    ///
    /// It does to data what a real feature in apply might do, so that members who disagree
    /// are found out by their hashes.
    pub ApplyTag {
        level: Cluster,
        owner: "tests",
        touches: Backend,
        reversible: Free,
        stores: [("cluster", b"applyTag")],
        specs: [Spec::alpha("3.7")],
    }
}

/// A registry of all features that are released, and of test features before them.
macro_rules! cluster_registry {
    ($(#[$attribute:meta])* $name:ident, [$($test_feature:ident),*]) => {
        registry! {
            $(#[$attribute])*
            pub $name: Cluster = [
                $($test_feature,)*
                LeaseCheckpoint,
                LeaseCheckpointPersist,
                LogCompression,
            ]
        }
    };
}

cluster_registry! {
    /// The cluster features of a released program.
    ReleasedClusterFeatures, []
}

#[cfg(feature = "test-features")]
cluster_registry! {
    /// What `--cluster-feature-gates` proposes.
    ClusterFeatures, [ApplyTag]
}

/// What `--cluster-feature-gates` proposes.
#[cfg(not(feature = "test-features"))]
pub type ClusterFeatures = ReleasedClusterFeatures;
