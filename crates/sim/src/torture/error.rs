//! Why a run ended before its time: something is wrong with the machine, or with the member.

use std::error::Error;
use std::path::PathBuf;

use thiserror::Error;
use tonic::Status;

use crate::at_rest::AtRestError;
use crate::linearizability::etcd::Store;
use crate::watch_events::WatchViolation;

/// A run that could not go on, or must not.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum TortureError {
    /// No such binary.
    #[error("{} cannot be started: build it with `cargo build -p portunus-server`, or give the path of another", path.display())]
    Start {
        path: PathBuf,
        source: std::io::Error,
    },
    /// It does not come back.
    #[error("the member does not serve; its last lines:\n{log}")]
    NotReady { log: String },
    /// Nobody asked it to.
    #[error("the member ended by itself with {status}; its last lines:\n{log}")]
    Ended { status: String, log: String },
    /// It says it serves but does not.
    #[error("the member cannot be reached although it says that it serves")]
    Connect(#[from] tonic::transport::Error),
    /// A read after the start.
    #[error("the member does not answer although it says that it serves")]
    NoAnswer,
    /// A refusal that no request of this run can cause.
    #[error("{request} was refused")]
    Refused {
        request: String,
        source: Box<Status>,
    },
    /// Clients were told what cannot be.
    #[error("the answers contradict each other: {0}")]
    NotLinearizable(String),
    /// The search was given up.
    #[error("whether the answers fit is not decided after {steps} steps: run the seed again")]
    Undecided { steps: u64 },
    /// The data directory.
    #[error("the data directory contradicts itself")]
    AtRest(#[from] AtRestError),
    /// The member is not what its log says.
    #[error("the log makes\n    {log:?}\nbut the member holds\n    {member:?}")]
    NotTheLog { log: Box<Store>, member: Box<Store> },
    /// A watcher.
    #[error("watcher {watcher} saw something else than what happened")]
    Watch {
        watcher: usize,
        source: Box<WatchViolation>,
    },
    /// A watcher's stream.
    #[error("watcher {watcher}: {problem}")]
    WatchStream { watcher: usize, problem: String },
    /// A task of the run itself.
    #[error("a client of this run failed")]
    Client(#[from] tokio::task::JoinError),
}

impl TortureError {
    /// With everything that led to it, for people.
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
