//! The workloads: one file per kind of load, and tables for one member and for three.

mod kv;
mod leader_change;
mod lease;
mod mixed;
mod new_member;
mod restart;
mod table;
mod three_members;
mod txn;
mod watch;

use std::time::Duration;

use thiserror::Error;

pub use self::kv::KvKind;
pub use self::lease::LeaseKind;
pub use self::table::{Kind, ONE_MEMBER, Target, Workload, groups};
pub use self::three_members::THREE_MEMBERS;
pub use self::txn::TxnKind;
use crate::client::{self, FillError};
use crate::cluster::{Cluster, ClusterError};
use crate::endpoint::Endpoint;
use crate::report::Sample;
use crate::server::ServerError;
use crate::usage::{self, UsageError};
use crate::window::{ClientResults, WindowDurations, WindowUsage};
use crate::wire::{Connection, WireError};

/// Sizes and durations. A smoke run differs only in these.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Duration of each load.
    pub durations: WindowDurations,
    /// Keys that most loads read and write.
    pub hot_keys: usize,
    /// Keys of the long list.
    pub list_keys: usize,
    /// Keys of the restarted store.
    pub restart_keys: usize,
    /// Keys of the big store.
    pub big_keys: usize,
    /// Keys, of 32 000 bytes each, in the snapshot for a new member.
    pub snapshot_keys: usize,
    /// Killed leaders per round.
    pub leader_kills: usize,
    /// Pause after a store was filled.
    pub settle: Duration,
    /// The most connections of a load.
    pub connections_max: usize,
    /// The most clients of a load.
    pub clients_max: usize,
}

impl Scale {
    /// The sizes of a measurement.
    #[must_use]
    pub fn full(measured: Duration) -> Scale {
        Scale {
            durations: WindowDurations {
                warm_up: measured / 5,
                measured,
            },
            hot_keys: 10_000,
            list_keys: 10_000,
            restart_keys: 100_000,
            big_keys: 1_000_000,
            snapshot_keys: 31_250,
            leader_kills: 8,
            settle: Duration::from_secs(5),
            connections_max: usize::MAX,
            clients_max: usize::MAX,
        }
    }

    /// The sizes of a smoke run, whose figures are meaningless.
    #[must_use]
    pub fn smoke() -> Scale {
        Scale {
            durations: WindowDurations {
                warm_up: Duration::from_millis(50),
                measured: Duration::from_millis(300),
            },
            hot_keys: 600,
            list_keys: 600,
            restart_keys: 1000,
            big_keys: 5000,
            snapshot_keys: 500,
            leader_kills: 1,
            settle: Duration::from_millis(100),
            connections_max: 5,
            clients_max: 20,
        }
    }
}

/// The parameters of a load on a running cluster.
struct Load<'a> {
    /// The leader, where stores are filled.
    endpoint: Endpoint,
    /// The members to which the clients connect.
    endpoints: Vec<Endpoint>,
    /// The process ids of all members.
    process_ids: Vec<u32>,
    connections: usize,
    clients: usize,
    scale: &'a Scale,
}

impl Load<'_> {
    async fn connect(&self) -> Result<Vec<Connection>, WireError> {
        client::connect(&self.endpoints, self.connections).await
    }
}

/// The results of the clients and the used resources.
type LoadOutcome = (ClientResults, WindowUsage);

/// A workload that could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The server did not start, restart or stop.
    #[error("the server failed")]
    Server(#[from] ServerError),
    /// The cluster failed.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// A connection was refused, or broke before it was measured.
    #[error("no connection to the server")]
    Wire(#[from] WireError),
    /// The keys that a load needs could not be written.
    #[error("preparing the load failed")]
    Fill(#[from] FillError),
    /// The usage could not be read.
    #[error("the server's use of CPU and memory is unknown")]
    Usage(#[from] UsageError),
    /// A watch was not created.
    #[error("the server refused a watch")]
    WatchRefused,
    /// A put of the watch workload failed.
    #[error("the server refused the put that watches wait for")]
    PutRefused,
    /// The cluster did not acknowledge puts after a leader was killed.
    #[error("no put was acknowledged within {seconds} s after the leader was killed")]
    NoLeaderAgain {
        /// The time limit.
        seconds: u64,
    },
    /// No put was acknowledged before a leader was killed.
    #[error("no put was acknowledged while all members ran")]
    NoPuts,
    /// Watch events were not received.
    #[error("{missing} of {expected} watch events did not arrive within {seconds} s")]
    EventsMissing {
        /// Missing events.
        missing: u64,
        /// Expected events.
        expected: u64,
        /// The time limit.
        seconds: u64,
    },
}

impl Workload {
    /// Runs the workload once on a cluster that was started for its group.
    pub async fn run(&self, cluster: &mut Cluster, scale: &Scale) -> Result<Sample, WorkloadError> {
        let (leader, term) = cluster.leader().await?;
        let load = self.load(cluster, leader, scale);
        let (results, usage_in_window) = match self.kind {
            Kind::Kv(kind) => kv::run(kind, &load).await?,
            Kind::Txn(kind) => txn::run(kind, &load).await?,
            Kind::Mixed => mixed::run(&load).await?,
            Kind::Watch => watch::run(&load).await?,
            Kind::Lease(kind) => lease::run(kind, &load).await?,
            Kind::Load => {
                return restart::load(cluster.first(), scale.restart_keys, scale.settle).await;
            }
            Kind::LoadBig => {
                return restart::load(cluster.first(), scale.big_keys, scale.settle).await;
            }
            Kind::Restart(stop_mode) => return restart::restart(cluster.first(), stop_mode).await,
            Kind::LeaderChange(stop_mode) => {
                return leader_change::run(cluster, scale, stop_mode).await;
            }
            Kind::NewMember => return new_member::run(cluster, scale).await,
        };
        let (_, term_afterwards) = cluster.leader().await?;
        if term_afterwards != term {
            eprintln!("!! an election took place during the measurement: the machine is too busy");
        }
        sample_of(&load.process_ids, results, usage_in_window)
    }

    fn load<'a>(&self, cluster: &Cluster, leader: usize, scale: &'a Scale) -> Load<'a> {
        let mut endpoints = cluster.endpoints();
        endpoints.rotate_left(leader);
        if self.target == Target::Leader {
            endpoints.truncate(1);
        }
        Load {
            endpoint: cluster.servers[leader].endpoint(),
            endpoints,
            process_ids: cluster.process_ids(),
            connections: self.connections.min(scale.connections_max),
            clients: self.clients.min(scale.clients_max),
            scale,
        }
    }
}

fn sample_of(
    process_ids: &[u32],
    results: ClientResults,
    usage_in_window: WindowUsage,
) -> Result<Sample, WorkloadError> {
    let memory = usage::memory_of_all(process_ids)?;
    Ok(Sample::of(results, usage_in_window, memory))
}
