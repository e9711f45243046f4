//! Why a member cannot start.

use portunus_gates::{RegisterError, SetErrors};
use thiserror::Error;

use super::boot::BootError;
use super::skew::SkewTooLarge;
use crate::config::DifferentSettings;
use crate::handles::open_store::OpenStoreError;
use crate::listen::ListenError;
use crate::member::corruption;
use crate::member::downgrade::ClusterVersionAbove;
use crate::metrics::MetricsError;
use crate::peers::PeersError;
use portunus_datadir::DataDirError;
use portunus_statemachine::LoadError;

/// Why a member cannot start. Each message is one line with the next step.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum StartError {
    /// The program's own gates are declared wrongly.
    #[error("the features of this program are declared wrongly")]
    Declarations(#[from] RegisterError),
    /// `--feature-gates` cannot be applied.
    #[error("--feature-gates cannot be applied")]
    Gates(#[from] SetErrors),
    /// `--cluster-feature-gates` cannot be applied.
    #[error("--cluster-feature-gates cannot be applied")]
    ClusterGates(#[source] SetErrors),
    /// Another member has different settings.
    #[error(transparent)]
    Settings(#[from] DifferentSettings),
    /// Founders have different versions.
    #[error(transparent)]
    MixedFounders(#[from] portunus_gates::cluster::MixedFounders),
    /// An alpha feature is on under strict emulation.
    #[error(
        "alpha feature {name} is on while {emulation} is emulated: turn it off or drop --strict-emulation"
    )]
    AlphaUnderEmulation { name: String, emulation: String },
    /// A key file of `--auth-token` cannot be read.
    #[error("the key file {} of --auth-token cannot be read", path.display())]
    TokenKeyFile {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    /// The keys of `--auth-token` cannot be used.
    #[error("the keys of --auth-token cannot be used")]
    TokenKeys(#[from] portunus_auth::jwt::KeyError),
    /// A listen address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates or keys cannot be used.
    #[error("{flags} cannot be used")]
    Tls {
        flags: &'static str,
        source: Box<portunus_tls::LoadError>,
    },
    /// A self-signed certificate cannot be created.
    #[error("--{flag}: no self-signed certificate could be created")]
    SelfSigned {
        flag: &'static str,
        source: Box<portunus_tls::SelfSignedError>,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenStoreError),
    /// The state beside the keys cannot be loaded from the store.
    #[error(transparent)]
    State(#[from] LoadError),
    /// The member is too far ahead of its cluster.
    #[error(transparent)]
    Skew(#[from] SkewTooLarge),
    /// The cluster version is above the version to emulate.
    #[error(transparent)]
    ClusterVersionAbove(#[from] ClusterVersionAbove),
    /// The log cannot be created or opened, or the cluster cannot be joined.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The data differs from other members' data.
    #[error(transparent)]
    Inconsistent(#[from] corruption::InconsistentError),
    /// The data cannot be read.
    #[error("the data cannot be read")]
    Read(#[from] portunus_mvcc::ReadError),
    /// The connections to peers cannot be set up.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// Raft cannot start.
    #[error("consensus cannot start")]
    Consensus(#[from] portunus_consensus::StartError),
    /// The metrics cannot be registered.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// A thread or its runtime could not be started.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}
