//! What is measured: one file per kind of load, and the table of all of them.

mod kv;
mod lease;
mod restart;
mod watch;

use std::time::Duration;

use thiserror::Error;
use tonic::Status;

use crate::client::Connections;
use crate::report::Sample;
use crate::server::{Ending, Server, ServerError};
use crate::usage::{self, UsageError};
use crate::window::{Pace, Seen, Spent};

/// How much of everything. A smoke run differs only in this.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// How long each load runs.
    pub pace: Pace,
    /// Keys that loads read and write.
    pub hot_keys: usize,
    /// Keys of the store that is restarted.
    pub restart_keys: usize,
    /// Watches on one prefix.
    pub watches: usize,
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
            restart_keys: 100_000,
            watches: 1000,
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
            restart_keys: 1000,
            watches: 50,
            connections_max: 5,
            clients_max: 20,
        }
    }
}

/// Clients and the connections they share.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// TCP connections.
    pub connections: usize,
    /// Clients, each with one request under way.
    pub clients: usize,
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Puts of keys of the hot set.
    Put,
    /// Linearizable reads of one key.
    Get,
    /// Serializable reads of one key.
    GetSerializable,
    /// Linearizable reads of 500 keys.
    Range,
    /// Put if unchanged, else read: an update by kube-apiserver.
    Txn,
    /// Many watches on one prefix.
    Watch,
    /// Granting a lease and renewing it.
    Lease,
    /// Starting on existing data.
    Restart(Ending),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// How `--only` names it.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What is done.
    pub kind: Kind,
    /// By how many.
    pub crowd: Crowd,
}

const fn workload(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    kind: Kind,
    connections: usize,
    clients: usize,
) -> Workload {
    Workload {
        name,
        title,
        unit,
        kind,
        crowd: Crowd {
            connections,
            clients,
        },
    }
}

/// All of them, in the order in which they run.
pub const ALL: &[Workload] = &[
    workload(
        "put-1",
        "put, 1 connection, 1 client",
        "put",
        Kind::Put,
        1,
        1,
    ),
    workload(
        "put-100",
        "put, 10 connections, 100 clients",
        "put",
        Kind::Put,
        10,
        100,
    ),
    workload(
        "put-1000",
        "put, 100 connections, 1000 clients",
        "put",
        Kind::Put,
        100,
        1000,
    ),
    workload(
        "get",
        "linearizable get, 10 connections, 100 clients",
        "get",
        Kind::Get,
        10,
        100,
    ),
    workload(
        "get-serializable",
        "serializable get, 10 connections, 100 clients",
        "get",
        Kind::GetSerializable,
        10,
        100,
    ),
    workload(
        "range",
        "linearizable range of 500 keys, 10 connections, 20 clients",
        "range",
        Kind::Range,
        10,
        20,
    ),
    workload(
        "txn",
        "txn: put if the key is unchanged, else get; 10 connections, 100 clients",
        "txn",
        Kind::Txn,
        10,
        100,
    ),
    workload(
        "watch",
        "watch fan-out: each put goes to 1000 watches on 10 connections, the next put when all have it",
        "event",
        Kind::Watch,
        10,
        10,
    ),
    workload(
        "lease",
        "lease grant and one keep-alive, 10 connections, 100 clients",
        "pair",
        Kind::Lease,
        10,
        100,
    ),
    workload(
        "restart",
        "restart with 100 000 keys after SIGTERM, to the first linearizable answer",
        "start",
        Kind::Restart(Ending::Asked),
        1,
        1,
    ),
    workload(
        "restart-killed",
        "restart with 100 000 keys after SIGKILL, to the first linearizable answer",
        "start",
        Kind::Restart(Ending::Killed),
        1,
        1,
    ),
];

/// A workload that could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The server would not start, restart or stop.
    #[error("the server failed")]
    Server(#[from] ServerError),
    /// A connection was refused.
    #[error("no connection to the server")]
    Connect(#[from] tonic::transport::Error),
    /// What has to work before measuring did not.
    #[error("preparing the load failed")]
    Prepare(#[source] Box<Status>),
    /// The meters could not be read.
    #[error("the server's use of CPU and memory is unknown")]
    Usage(#[from] UsageError),
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

impl From<Status> for WorkloadError {
    fn from(status: Status) -> WorkloadError {
        WorkloadError::Prepare(Box::new(status))
    }
}

impl Workload {
    /// Whether `--only` with this word means it: the name, or its beginning up to a dash.
    #[must_use]
    pub fn is_meant_by(&self, word: &str) -> bool {
        self.name
            .strip_prefix(word)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// Runs it once against a server that was started for it.
    pub async fn run(&self, server: &mut Server, scale: &Scale) -> Result<Sample, WorkloadError> {
        if let Kind::Restart(ending) = self.kind {
            return restart::run(server, scale, ending).await;
        }
        let crowd = Crowd {
            connections: self.crowd.connections.min(scale.connections_max),
            clients: self.crowd.clients.min(scale.clients_max),
        };
        let connections = Connections::open(&server.endpoint(), crowd.connections).await?;
        let server = &*server;
        let (seen, spent) = match self.kind {
            Kind::Watch => watch::run(server, &connections, scale).await?,
            Kind::Lease => lease::run(server, &connections, crowd.clients, scale).await?,
            _ => kv::run(self.kind, server, &connections, crowd.clients, scale).await?,
        };
        sample_of(server, seen, spent)
    }
}

fn sample_of(server: &Server, seen: Seen, spent: Spent) -> Result<Sample, WorkloadError> {
    let resident_bytes = usage::resident_bytes(server.process_id())?;
    Ok(Sample::of(seen, spent, resident_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant_by(word: &str) -> Vec<&'static str> {
        let meant = ALL.iter().filter(|workload| workload.is_meant_by(word));
        meant.map(|workload| workload.name).collect()
    }

    #[test]
    fn a_word_means_a_name_or_a_family_of_names() {
        assert_eq!(meant_by("put"), ["put-1", "put-100", "put-1000"]);
        assert_eq!(meant_by("put-1"), ["put-1"]);
        assert_eq!(meant_by("get"), ["get", "get-serializable"]);
        assert!(meant_by("pu").is_empty());
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|load| load.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
