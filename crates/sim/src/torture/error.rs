//! Why a run failed: a problem of the machine, or a bug of the member.

use std::error::Error;
use std::path::PathBuf;

use thiserror::Error;
use tonic::Status;

use crate::at_rest::AtRestError;
use crate::linearizability::etcd::Store;
use crate::watch_events::WatchViolation;

/// A failed run.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum TortureError {
    /// The binary cannot be started.
    #[error("{} cannot be started: build it with `cargo build -p portunus-server`, or give the path of another", path.display())]
    Start {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The member is not ready within the time limit.
    #[error("the member does not serve; its last lines:\n{log}")]
    NotReady { log: String },
    /// The process ended without being killed.
    #[error("the member exited unexpectedly with {status}; its last lines:\n{log}")]
    Ended { status: String, log: String },
    /// The member logged that it is ready, but connecting failed.
    #[error("the member cannot be reached although it logged that it is ready")]
    Connect(#[from] tonic::transport::Error),
    /// The member logged that it is ready, but does not answer.
    #[error("the member does not answer although it logged that it is ready")]
    NoAnswer,
    /// A refusal that the requests of a run cannot cause.
    #[error("{request} was refused")]
    Refused {
        request: String,
        source: Box<Status>,
    },
    /// The answers are not linearizable.
    #[error("the answers contradict each other: {0}")]
    NotLinearizable(String),
    /// The linearizability check reached its limit.
    #[error("linearizability is undecided after {steps} steps: run the seed again")]
    Undecided { steps: u64 },
    /// The data directory is inconsistent.
    #[error("the data directory is inconsistent")]
    AtRest(#[from] AtRestError),
    /// The state of the member differs from its log.
    #[error("the log gives\n    {log:?}\nbut the member holds\n    {member:?}")]
    NotTheLog { log: Box<Store>, member: Box<Store> },
    /// A watcher received other events than the log contains.
    #[error("watcher {watcher} received other events than the log contains")]
    Watch {
        watcher: usize,
        source: Box<WatchViolation>,
    },
    /// A stream of a watcher violated the watch protocol.
    #[error("watcher {watcher}: {problem}")]
    WatchStream { watcher: usize, problem: String },
    /// A task of the run failed.
    #[error("a client of this run failed")]
    Client(#[from] tokio::task::JoinError),
}

impl TortureError {
    /// Formats the error with its sources.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}
