//! What all members decide together.

use portunus_gates::{feature, registry};

feature! {
    /// Tells the other members how long each lease still lives, every few minutes.
    ///
    /// Without it a change of leader starts every lease anew.
    pub LeaseCheckpoint {
        level: Cluster,
        owner: "lease",
        touches: Log,
        reversible: Free,
        specs: [Spec::alpha("3.7")],
    }
}
feature! {
    /// Stores the remaining life of leases with them, so that it survives restarts.
    pub LeaseCheckpointPersist {
        level: Cluster,
        owner: "lease",
        touches: Backend,
        reversible: Free,
        inert: "from cluster version 3.6 on the remaining life is always stored, as in etcd",
        specs: [Spec::alpha("3.7")],
        depends_on: [LeaseCheckpoint],
    }
}

registry! {
    /// What `--cluster-feature-gates` proposes.
    pub ClusterFeatures: Cluster = [LeaseCheckpoint, LeaseCheckpointPersist]
}
