//! What is measured: one file per kind of load, and a table for one member and for three.

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
use crate::report::Sample;
use crate::server::ServerError;
use crate::usage::{self, UsageError};
use crate::window::{Pace, Seen, Spent};
use crate::wire::{Connection, WireError};

/// How much of everything. A smoke run differs only in this.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// How long each load runs.
    pub pace: Pace,
    /// Keys that loads read and write.
    pub hot_keys: usize,
    /// Keys of the long list.
    pub list_keys: usize,
    /// Keys of the store that is restarted.
    pub restart_keys: usize,
    /// Keys of the big store.
    pub big_keys: usize,
    /// Keys, of 32 000 bytes each, of the store that a new member gets.
    pub snapshot_keys: usize,
    /// Leaders that are killed in a round.
    pub leader_kills: usize,
    /// How long a store that was filled is left alone.
    pub settle: Duration,
    /// No load has more connections.
    pub connections_max: usize,
    /// No load has more clients.
    pub clients_max: usize,
}

impl Scale {
    /// For figures.
    #[must_use]
    pub fn full(measured: Duration) -> Scale {
        Scale {
            pace: Pace {
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

    /// To see that everything works; the figures mean nothing.
    #[must_use]
    pub fn smoke() -> Scale {
        Scale {
            pace: Pace {
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

/// A load on a server that runs.
struct Load<'a> {
    /// The server, or the leader: where stores are filled.
    address: String,
    /// Where the clients of the load connect.
    addresses: Vec<String>,
    /// Of all members.
    process_ids: Vec<u32>,
    connections: usize,
    clients: usize,
    scale: &'a Scale,
}

impl Load<'_> {
    async fn connect(&self) -> Result<Vec<Connection>, WireError> {
        client::connect(&self.addresses, self.connections).await
    }
}

/// What clients saw, and what it cost.
type LoadOutcome = (Seen, Spent);

/// A workload that could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The server would not start, restart or stop.
    #[error("the server failed")]
    Server(#[from] ServerError),
    /// A cluster that is none.
    #[error("the cluster failed")]
    Cluster(#[from] ClusterError),
    /// A connection was refused, or broke before it was measured.
    #[error("no connection to the server")]
    Wire(#[from] WireError),
    /// The keys that a load needs could not be written.
    #[error("preparing the load failed")]
    Fill(#[from] FillError),
    /// The meters could not be read.
    #[error("the server's use of CPU and memory is unknown")]
    Usage(#[from] UsageError),
    /// A watch that was not created.
    #[error("the server refused a watch")]
    WatchRefused,
    /// A put whose event was to be measured.
    #[error("the server refused the put that watches wait for")]
    PutRefused,
    /// A cluster that did not come back.
    #[error("no put was acknowledged within {seconds} s after the leader was killed")]
    NoLeaderAgain {
        /// How long was waited.
        seconds: u64,
    },
    /// Load that was refused before anything was killed.
    #[error("no put was acknowledged while all members ran")]
    NoPuts,
    /// Events that never came.
    #[error("{missing} of {expected} watch events did not arrive within {seconds} s")]
    EventsMissing {
        /// How many.
        missing: u64,
        /// Of how many.
        expected: u64,
        /// How long was waited.
        seconds: u64,
    },
}

impl Workload {
    /// Runs it once against a cluster that was started for it, or that the workload before
    /// it in its group has left.
    pub async fn run(&self, cluster: &mut Cluster, scale: &Scale) -> Result<Sample, WorkloadError> {
        let (leader, term) = cluster.leader().await?;
        let load = self.load(cluster, leader, scale);
        let (seen, spent) = match self.kind {
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
            Kind::Restart(ending) => return restart::restart(cluster.first(), ending).await,
            Kind::LeaderChange(ending) => return leader_change::run(cluster, scale, ending).await,
            Kind::NewMember => return new_member::run(cluster, scale).await,
        };
        let (_, term_afterwards) = cluster.leader().await?;
        if term_afterwards != term {
            eprintln!("!! there was an election while it was measured: the machine is too busy");
        }
        sample_of(&load.process_ids, seen, spent)
    }

    fn load<'a>(&self, cluster: &Cluster, leader: usize, scale: &'a Scale) -> Load<'a> {
        let mut addresses = cluster.addresses();
        addresses.rotate_left(leader);
        if self.target == Target::Leader {
            addresses.truncate(1);
        }
        Load {
            address: cluster.servers[leader].address(),
            addresses,
            process_ids: cluster.process_ids(),
            connections: self.connections.min(scale.connections_max),
            clients: self.clients.min(scale.clients_max),
            scale,
        }
    }
}

fn sample_of(process_ids: &[u32], seen: Seen, spent: Spent) -> Result<Sample, WorkloadError> {
    let memory = usage::memory_of_all(process_ids)?;
    Ok(Sample::of(seen, spent, memory))
}
