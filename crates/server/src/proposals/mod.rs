//! Proposals: requests on their way into the log, and the answers of apply on their way back.
//!
//! ```text
//!  service, task ──▶ Proposals ──▶ consensus ──committed──▶ apply thread
//!        ▲                                                      │
//!        └───────────────────── Waiters ◀───────────────────────┘
//! ```
//! This module knows no service, no task and not the apply thread. It uses the handles, and the
//! connections to peers to choose the error of a proposal that timed out.

mod propose;
pub mod waiters;

use std::sync::Arc;
use std::time::Instant;

use portunus_consensus::{Handle, RequestIds};
use portunus_gates::cluster::MemberId;
use portunus_proto::EtcdError;

use crate::handles::{ClusterState, Process, StoreAccess};
use crate::peers::Peers;
pub use propose::APPLY_BACKLOG_MAX;
use waiters::Waiters;

/// Proposes requests and configuration changes.
pub struct Proposals {
    process: Arc<Process>,
    store: Arc<StoreAccess>,
    cluster: Arc<ClusterState>,
    peers: Arc<Peers>,
    consensus: Handle,
    request_ids: RequestIds,
    /// Requests that wait for their entry to be applied.
    pub waiters: Arc<Waiters>,
}

impl Proposals {
    /// Creates the proposer. `request_ids` must not repeat ids of an earlier process.
    pub fn new(
        process: Arc<Process>,
        store: Arc<StoreAccess>,
        cluster: Arc<ClusterState>,
        peers: Arc<Peers>,
        consensus: Handle,
        request_ids: RequestIds,
        serving_threads: usize,
    ) -> Proposals {
        Proposals {
            process,
            store,
            cluster,
            peers,
            consensus,
            request_ids,
            waiters: Arc::new(Waiters::new(serving_threads)),
        }
    }

    /// A new id for a request or a lease.
    pub fn next_request_id(&self) -> u64 {
        self.request_ids.next()
    }

    /// The error for a proposal that began at `started` and was not applied in time.
    fn why_late(&self, started: Instant) -> EtcdError {
        let elected = self.cluster.leadership.elected_at();
        let timeout = self.process.config.election_timeout;
        let lost = elected.and_then(|at| at.checked_sub(2 * timeout));
        if let (Some(lost), Some(elected)) = (lost, elected)
            && started > lost
            && started < elected
        {
            return EtcdError::TimeoutDueToLeaderFail;
        }
        let since = started.elapsed();
        let leader = self.consensus.status().leader;
        let is_connected = if leader == MemberId::NONE {
            true
        } else if leader == self.cluster.own_id() {
            let membership = self.cluster.membership();
            let voters = membership.iter().filter(|member| !member.is_learner);
            let voters: Vec<u64> = voters.map(|member| member.id).collect();
            let quorum = voters.len() / 2 + 1;
            self.peers.active_for(voters, since) >= quorum
        } else {
            self.peers.active_for([leader.0], since) == 1
        };
        match is_connected {
            true => EtcdError::Timeout,
            false => EtcdError::TimeoutDueToConnectionLost,
        }
    }
}
