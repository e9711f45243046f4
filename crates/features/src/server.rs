//! Server features, which each member decides for itself at start.
//!
//! The names and stages are etcd's where etcd has the gate, so that its flags work here.

use portunus_gates::{feature, registry};

feature! {
    /// Lets the flags for compatibility versions be used.
    ///
    /// They always can be here; the gate is known because manifests name it.
    pub CompatibilityVersions {
        level: Server,
        owner: "gates",
        touches: Nothing,
        reversible: Free,
        inert: "the flags are always there",
        specs: [Spec::ga("0.0").on().locked()],
    }
}
feature! {
    /// Lets this member propose cluster features, which are decided through the replicated log.
    ///
    /// Off, this member publishes no proposal, and every cluster feature is off; it still obeys
    /// what the log decided. Turn it on or off by restarting members one by one, in any order.
    pub ClusterFeatureGate {
        level: Server,
        owner: "gates",
        touches: Log,
        reversible: Free,
        specs: [Spec::alpha("3.7"), Spec::beta("3.8").on()],
    }
}
feature! {
    /// Compares hashes of compacted data among members.
    pub CompactHashCheck {
        level: Server,
        owner: "mvcc",
        touches: Nothing,
        reversible: Free,
        specs: [Spec::alpha("3.6")],
    }
}
feature! {
    /// Answers lease renewals without waiting for the applied index when the lease is known.
    pub FastLeaseKeepAlive {
        level: Server,
        owner: "lease",
        touches: Memory,
        reversible: Free,
        specs: [Spec::beta("3.7").on()],
    }
}
feature! {
    /// Compares data with the other members before serving, and exits on a difference.
    pub InitialCorruptCheck {
        level: Server,
        owner: "mvcc",
        touches: Nothing,
        reversible: Free,
        specs: [Spec::alpha("3.6")],
    }
}
feature! {
    /// Lets lease revocations through when the server refuses other requests as too many.
    pub PriorityRequest {
        level: Server,
        owner: "server",
        touches: Memory,
        reversible: Free,
        specs: [Spec::alpha("3.7")],
    }
}
feature! {
    /// Dials peers from the first advertised address that is not a loopback one.
    pub SetMemberLocalAddr {
        level: Server,
        owner: "consensus",
        touches: Wire,
        reversible: Free,
        inert: "peers are dialled from whatever address the system chooses",
        specs: [Spec::alpha("3.6")],
    }
}
feature! {
    /// Reports not-serving to health checks while a defragmentation runs.
    pub StopGRPCServiceOnDefrag {
        level: Server,
        owner: "server",
        touches: Wire,
        reversible: Free,
        specs: [Spec::alpha("3.6")],
    }
}
feature! {
    /// Lets the compares of a write transaction read the shared buffer instead of a copy.
    pub TxnModeWriteWithSharedBuffer {
        level: Server,
        owner: "mvcc",
        touches: Memory,
        reversible: Free,
        inert: "transactions never copy the store here, so there is nothing to choose",
        specs: [Spec::beta("3.6").on()],
    }
}
feature! {
    /// Ends a watch, a snapshot or a watch of gates when its user loses the permission for it.
    ///
    /// Off, they are checked only when they begin, as in etcd.
    pub WatchPermissionRecheck {
        level: Server,
        owner: "auth",
        touches: Wire,
        reversible: Free,
        specs: [Spec::beta("3.5").on()],
    }
}

registry! {
    /// What `--feature-gates` sets.
    pub ServerFeatures: Server = [
        ClusterFeatureGate,
        CompactHashCheck,
        CompatibilityVersions,
        FastLeaseKeepAlive,
        InitialCorruptCheck,
        PriorityRequest,
        SetMemberLocalAddr,
        StopGRPCServiceOnDefrag,
        TxnModeWriteWithSharedBuffer,
        WatchPermissionRecheck,
    ]
}
