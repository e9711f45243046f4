//! One running member: its handles together, and what takes several of them.
//!
//! ```text
//!  grpc, http ──▶ Member: leases, reconfigure, downgrade, versions, corruption
//!                   │  │
//!                   │  └──▶ Proposals ──▶ consensus ──▶ apply thread
//!                   └─────▶ StoreAccess, ClusterState, Peers
//! ```
//! Operations that clients or peers request, and the background tasks, are here. Below this module
//! nothing knows [`Member`]: the apply thread and the connections to peers take the handles they
//! use.

pub mod attributes;
pub mod auto_compaction;
pub mod corruption;
pub mod downgrade;
pub mod first_election;
pub mod founding;
mod hand_over;
pub mod held_peers;
pub mod leases;
pub mod log_snapshots;
mod login;
pub mod reconfigure;
pub mod settings;
pub mod versions;

use std::sync::Arc;

use portunus_consensus::Handle;

use crate::handles::{Auth, ClusterState, Leases, Process, StoreAccess, Watches};
use crate::peers::Peers;
use crate::proposals::Proposals;

/// The handles of a member.
pub struct Member {
    /// Configuration, server gates, metrics and the end of the process.
    pub process: Arc<Process>,
    /// Reads of the store.
    pub store: Arc<StoreAccess>,
    /// Members, versions, alarms and cluster gates, as applied.
    pub cluster: Arc<ClusterState>,
    /// Users, roles and tokens.
    pub auth: Arc<Auth>,
    /// Raft: its status and the requests to it that are no proposals.
    pub consensus: Handle,
    /// Proposals and their answers.
    pub proposals: Arc<Proposals>,
    /// Leases and their clock.
    pub leases: Arc<Leases>,
    /// Watches.
    pub watches: Arc<Watches>,
    /// The connections to the other members.
    pub peers: Arc<Peers>,
}

impl Member {
    /// Whether this member leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.consensus.status().leader == self.cluster.own_id()
    }
}
