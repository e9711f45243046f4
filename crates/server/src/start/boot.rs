//! How a member obtains its log: by founding a cluster, joining one, or restarting.

use portunus_consensus::bootstrap::{
    self, BackendPosition, Boot, NewClusterError, RestartError, force_new_cluster, member_id,
};
use portunus_mvcc::Store;
use portunus_proto::raftpb::ConfState;
use portunus_proto::walpb;
use portunus_rafthttp::PeerClient;
use portunus_wal::{WalOptions, WriteError};
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::peers::join::{self, JoinError};
use portunus_statemachine::membership::MemberRecord;

/// The result of [`boot`].
pub struct Booted {
    /// The open log and raft's initial state.
    pub boot: Boot,
    /// Members reported by peers, not read from the log.
    pub remotes: Vec<MemberRecord>,
}

/// Why a member has no log to start from.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootError {
    /// A new log could not be created.
    #[error("the write-ahead log cannot be created")]
    NewLog(#[from] NewClusterError),
    /// An existing log could not be opened.
    #[error("the write-ahead log cannot be opened")]
    OldLog(#[from] RestartError),
    /// Joining the cluster, or founding it with the peers, failed.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The log could not be continued for `--force-new-cluster`.
    #[error("the write-ahead log cannot be continued")]
    Continue(#[from] WriteError),
    /// `--force-new-cluster` was set without data.
    #[error("--force-new-cluster needs the data of a member: there is none in {dir}")]
    NothingToForce {
        /// The data directory.
        dir: String,
    },
}

/// The snapshots that the log can be opened at; `None` if there is no log yet.
pub fn snapshots_in_log(config: &Config) -> Result<Option<Vec<walpb::Snapshot>>, BootError> {
    match portunus_wal::valid_snapshots(&config.wal_dir) {
        Ok(snapshots) => Ok(Some(snapshots)),
        Err(error) if error.is_no_log() => Ok(None),
        Err(error) => Err(RestartError::Read(error).into()),
    }
}

/// Restarts from the log, or creates a new one where there is none; `client` asks peers.
pub fn boot(
    config: &Config,
    store: &Store,
    conf_state: Option<ConfState>,
    runtime: &Runtime,
    client: &PeerClient,
) -> Result<Booted, BootError> {
    let position = BackendPosition {
        applied_index: store.applied().map_or(0, |applied| applied.index),
        conf_state,
    };
    let mut remotes = Vec::new();
    let restarted = bootstrap::restart(&config.wal_dir, WalOptions::default(), &position);
    let boot = match restarted {
        Ok(mut boot) => {
            if config.cluster.force_new {
                tracing::warn!(
                    "making a cluster of one of this member, as --force-new-cluster says"
                );
                force_new_cluster(&mut boot)?;
            }
            boot
        }
        Err(RestartError::NoLog { .. } | RestartError::Blank { .. })
            if position.applied_index == 0 =>
        {
            if config.cluster.force_new {
                return Err(BootError::NothingToForce {
                    dir: config.data_dir.display().to_string(),
                });
            }
            if config.cluster.is_existing {
                let found = runtime.block_on(join::find(config, client))?;
                remotes = found.members;
                bootstrap::join(&config.wal_dir, WalOptions::default(), found.identity)?
            } else {
                found_cluster(config, client, runtime)?
            }
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(torn) = &boot.torn_tail {
        tracing::warn!(
            file = %torn.file.display(),
            offset = torn.offset,
            bytes = torn.bytes,
            "a record at the end of the log was torn by a crash and cut off; nothing acknowledged was in it"
        );
    }
    Ok(Booted { boot, remotes })
}

fn found_cluster(
    config: &Config,
    client: &PeerClient,
    runtime: &Runtime,
) -> Result<Boot, BootError> {
    let cluster = &config.cluster;
    if cluster.initial_members.len() > 1 {
        let own_id = member_id(&cluster.advertise_peer_urls, &cluster.token);
        runtime.block_on(join::refuse_started(config, client, own_id))?;
    }
    Ok(bootstrap::new_cluster(
        &config.wal_dir,
        WalOptions::default(),
        &config.name,
        &cluster.initial_members,
        &cluster.token,
    )?)
}
