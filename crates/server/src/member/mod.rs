//! One running member: what its threads and services share.
//!
//! ```text
//!  services ──propose──▶ consensus ──committed──▶ apply thread ──▶ Store
//!     │  ▲                                           │   │
//!     │  └────────────── Waiters ◀───────────────────┘   ├─▶ Lessor (leases)
//!     └── Reader ◀── views of the store                  └─▶ Hub (watches)
//! ```
//!
//! Services only propose, wait and read. Only the apply thread changes state; everything else
//! here is immutable, or locked briefly (lessor, hub).

pub mod applied;
mod boot;
pub mod cluster_gates;
pub mod coarse_timeout;
pub mod corruption;
pub mod downgrade;
mod first_election;
pub mod founding;
mod hand_over;
pub mod hashing;
pub mod leadership;
pub mod leases;
pub mod propose;
pub mod reconfigure;
pub mod settings;
mod skew;
mod start;
mod start_line;
pub mod stop;
pub mod upkeep;
pub mod versions;
pub mod waiters;
pub mod watches;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use portunus_consensus::bootstrap::Identity;
use portunus_consensus::{Handle, ReadIndexError, RequestIds};
use portunus_gates::Gates;
use portunus_mvcc::Reader;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::ResponseHeader;
use tonic::Status;
use tonic_health::server::HealthReporter;

use crate::apply::CompactionProgress;
use crate::config::Config;
use crate::grpc::SnapshotSlots;
use crate::metrics::Metrics;
use crate::peers::Peers;
use applied::Applied;
use cluster_gates::ClusterGates;
use coarse_timeout::coarse_timeout;
use founding::Founding;
use hashing::HashSlots;
use leadership::Leaders;
use leases::Leases;
use portunus_datadir::DataDir;
use portunus_features::ServerFeatures;
use portunus_statemachine::alarms::Alarms;
use portunus_statemachine::membership::Membership;
pub use start::{Running, StartError, start, store_config, store_hooks};
use stop::{StopReason, StopSwitch};
use tokio::sync::Notify;
use waiters::Waiters;
use watches::Watches;

/// Longest wait for a proposal or a read index, as in etcd: five seconds and two election
/// timeouts.
pub fn request_timeout(election_timeout: Duration) -> Duration {
    Duration::from_secs(5) + 2 * election_timeout
}

/// The state that the threads and services of a member share.
pub struct Member {
    /// The checked configuration.
    pub config: Config,
    /// The ids of the member and its cluster.
    pub identity: Identity,
    /// The server gates, fixed at start.
    pub gates: Gates<ServerFeatures>,
    /// The cluster features.
    pub cluster_gates: ClusterGates,
    /// Takes proposals and read index requests.
    pub consensus: Handle,
    /// The reader of the store; see [`Member::reader`].
    store_reader: ArcSwap<Reader>,
    /// Requests that wait for their entry to be applied.
    pub waiters: Arc<Waiters>,
    /// How far the log is applied.
    pub applied: Applied,
    /// Leases and their clock.
    pub leases: Leases,
    /// Watches.
    pub watches: Arc<Watches>,
    /// How far compactions are finished.
    pub compactions: CompactionProgress,
    /// Alarms in force, as applied.
    pub alarms: ArcSwap<Alarms>,
    /// The revision of users and roles. Changes only with the store: entries that would change
    /// it are not applied by this version.
    pub auth_revision: AtomicU64,
    /// Members and cluster version, as applied.
    pub membership: ArcSwap<Membership>,
    /// Ids for requests and leases.
    pub request_ids: RequestIds,
    /// When the member started.
    pub started: Instant,
    /// The metrics.
    pub metrics: Metrics,
    /// The gRPC health service. The empty name stands for all services and is serving from the
    /// start: clients cannot connect before the member is ready.
    pub health: HealthReporter,
    /// Ends the process.
    pub stop: Arc<StopSwitch>,
    /// The connections to the other members.
    pub peers: Peers,
    /// Whether this member has compared its version with the other founders'.
    pub founding: Founding,
    /// The current leader.
    pub leadership: Arc<Leaders>,
    /// Notified when the cluster version may have to change.
    pub versions_changed: Notify,
    /// Held while a snapshot of the leader is received.
    pub receiving_snapshot: Arc<tokio::sync::Mutex<()>>,
    /// Limits the snapshots that clients request.
    pub snapshot_slots: SnapshotSlots,
    /// Limits the hashes that clients request.
    pub client_hashes: HashSlots,
    /// Limits the hashes that peers request.
    pub peer_hashes: HashSlots,
    /// The data directory.
    pub data_dir: DataDir,
}

impl Member {
    /// The reader of the present store. A snapshot of the leader may replace the store, so
    /// callers must not keep the reader for long.
    pub fn reader(&self) -> Guard<Arc<Reader>> {
        self.store_reader.load()
    }

    /// Replaces the store that later reads use.
    pub fn replace_reader(&self, reader: Reader) {
        self.store_reader.store(Arc::new(reader));
    }

    /// A response header with the given revision.
    pub fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.identity.cluster_id,
            member_id: self.identity.member_id,
            revision,
            raft_term: self.applied.term(),
        }
    }

    /// Completes the header the store made, which has only the revision.
    pub fn complete(&self, header: &mut Option<ResponseHeader>) {
        let revision = header
            .as_ref()
            .map_or_else(|| self.reader().revision(), |h| h.revision);
        *header = Some(self.header(revision));
    }

    /// Stops a member that was removed from its cluster.
    pub fn stop_as_removed(&self) {
        self.stop.stop(StopReason::Requested(
            "this member was removed from the cluster; its data directory is of no use any more",
        ));
    }

    /// The error for a proposal that began at `started` and was not applied in time.
    pub fn why_late(&self, started: Instant) -> EtcdError {
        let elected = self.leadership.elected_at();
        let lost = elected.and_then(|at| at.checked_sub(2 * self.config.election_timeout));
        if let (Some(lost), Some(elected)) = (lost, elected)
            && started > lost
            && started < elected
        {
            return EtcdError::TimeoutDueToLeaderFail;
        }
        let since = started.elapsed();
        let leader = self.consensus.status().leader;
        let is_connected = if leader == 0 {
            true
        } else if leader == self.identity.member_id {
            let membership = self.membership.load();
            let voters = membership.iter().filter(|member| !member.is_learner);
            let voters: Vec<u64> = voters.map(|member| member.id).collect();
            let quorum = voters.len() / 2 + 1;
            self.peers.active_for(voters, since) >= quorum
        } else {
            self.peers.active_for([leader], since) == 1
        };
        match is_connected {
            true => EtcdError::Timeout,
            false => EtcdError::TimeoutDueToConnectionLost,
        }
    }

    /// Converts an error to the status that the emulated version sends.
    pub fn status(&self, error: EtcdError) -> Status {
        let emulation = self.config.version.emulation();
        let minor = u32::try_from(emulation.minor()).unwrap_or(u32::MAX);
        error.status((3, minor))
    }

    /// Returns once this member has applied every entry that any member had committed at the time
    /// of the call.
    pub async fn linearizable(&self) -> Result<(), EtcdError> {
        let timeout = request_timeout(self.config.election_timeout);
        let barrier = async {
            let index = loop {
                match self.consensus.read_index().await {
                    Ok(index) => break index,
                    // A read changes nothing, so the next leader can be asked instead.
                    Err(ReadIndexError::LeaderChanged) => {}
                    Err(_) => return Err(EtcdError::Stopped),
                }
            };
            self.applied.wait_for(index).await;
            Ok(())
        };
        let read = match coarse_timeout(timeout, barrier).await {
            Some(result) => result,
            None => Err(EtcdError::Timeout),
        };
        match read {
            Ok(()) => {}
            Err(EtcdError::Timeout) => self.metrics.read_indexes_slow.inc(),
            Err(_) => self.metrics.read_indexes_failed.inc(),
        }
        read
    }
}
