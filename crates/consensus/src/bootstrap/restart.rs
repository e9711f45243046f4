//! Restart: log and backend together determine the state of the member.
//!
//! The log is ahead of the backend or level with it, never behind: an entry is applied only
//! after it is durable here. If the log ends before what the backend has applied, the disk has
//! lost synced writes, and the member must not start again: it could vote twice or commit
//! against its own acknowledgements.

use std::path::PathBuf;

use portunus_proto::{raftpb::HardState, walpb};
use portunus_wal::{LogDir, OpenError, ReadError, SnapshotPoint, WalOptions, valid_snapshots};
use thiserror::Error;

use super::{BackendPosition, Boot, Identity};
use crate::core::InitialState;

/// Why a member could not restart.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestartError {
    /// There is no log: a first start, or the wrong directory.
    #[error("{} holds no log; start as a new or joining member, or correct the directory", dir.display())]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// The first start was interrupted before it had written entries or a hard state.
    #[error("the log in {} is blank; start again as a new or joining member", dir.display())]
    Blank {
        /// The directory.
        dir: PathBuf,
    },
    /// The log does not name its member.
    #[error("the log in {} does not name its member; it was not written by an etcd or portunus server", dir.display())]
    NoIdentity {
        /// The directory.
        dir: PathBuf,
    },
    /// The disk lost synced writes, or log and backend are of different age.
    #[error(
        "the log in {} ends at index {last_index}, but the backend has applied {applied_index}: \
         synced writes are lost, or log and backend do not belong together. Do not start this \
         member with this data: restore both from the same backup, or remove the member, delete \
         its data and add it again", dir.display()
    )]
    LogBehindBackend {
        /// The directory.
        dir: PathBuf,
        /// The last index in the log.
        last_index: u64,
        /// The applied index of the backend.
        applied_index: u64,
    },
    /// The log starts after the backend's applied index.
    #[error(
        "the backend has applied {applied_index}, but the log in {} starts after {first_snapshot}: \
         the backend is an older copy. Restore both from the same backup, or remove the member, \
         delete its data and add it again", dir.display()
    )]
    BackendBehindLog {
        /// The directory.
        dir: PathBuf,
        /// The applied index of the backend.
        applied_index: u64,
        /// The oldest index from which the log can be read.
        first_snapshot: u64,
    },
    /// Neither backend nor log has the members at the applied index.
    #[error(
        "the backend does not say who the members were at index {applied_index}, and the log has \
         no snapshot there"
    )]
    MembersUnknown {
        /// The applied index of the backend.
        applied_index: u64,
    },
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Read(#[from] ReadError),
    /// The log cannot be opened.
    #[error("the log cannot be opened")]
    Open(#[from] OpenError),
}

/// Opens the log of a member that ran before and determines its state. Committed entries beyond
/// the backend will be delivered again.
///
/// # Errors
/// If there is no such member, or its log and backend do not belong together.
pub fn restart(
    wal_dir: impl Into<LogDir>,
    options: WalOptions,
    backend: &BackendPosition,
) -> Result<Boot, RestartError> {
    let wal_dir = wal_dir.into();
    let applied_index = backend.applied_index;
    let snapshots = valid_snapshots(&wal_dir).map_err(|error| match error {
        error if error.is_no_log() => RestartError::NoLog {
            dir: wal_dir.path().to_owned(),
        },
        other => RestartError::Read(other),
    })?;
    // The newest snapshot from which the backend can continue.
    let Some(from) = snapshots
        .iter()
        .rev()
        .find(|snapshot| snapshot.index <= applied_index)
    else {
        return Err(RestartError::BackendBehindLog {
            dir: wal_dir.path().to_owned(),
            applied_index,
            first_snapshot: snapshots.first().map_or(0, |snapshot| snapshot.index),
        });
    };
    let from = SnapshotPoint {
        index: from.index,
        term: from.term,
    };
    let (wal, recovered) = options.open(&wal_dir, from)?;
    let identity =
        Identity::decode(&recovered.metadata).ok_or_else(|| RestartError::NoIdentity {
            dir: wal_dir.path().to_owned(),
        })?;
    let last_index = from.index + recovered.entries.len() as u64;
    if applied_index > last_index {
        return Err(RestartError::LogBehindBackend {
            dir: wal_dir.path().to_owned(),
            last_index,
            applied_index,
        });
    }
    if last_index == 0 && recovered.hard_state == HardState::default() {
        return Err(RestartError::Blank {
            dir: wal_dir.path().to_owned(),
        });
    }
    let conf_state = members_at(applied_index, backend, &recovered.snapshot)?;
    let mut hard_state = recovered.hard_state;
    // The commit index is written to the log only with later entries; but applied entries were
    // committed.
    hard_state.commit = hard_state.commit.max(applied_index);
    Ok(Boot {
        wal,
        identity,
        initial: InitialState {
            member_id: identity.member_id.0,
            hard_state,
            conf_state,
            applied_index,
            base_index: from.index,
            base_term: from.term,
            entries: recovered.entries,
        },
        torn_tail: recovered.torn_tail,
    })
}

fn members_at(
    applied_index: u64,
    backend: &BackendPosition,
    snapshot: &walpb::Snapshot,
) -> Result<portunus_proto::raftpb::ConfState, RestartError> {
    if applied_index == 0 {
        // The first entries of the log add them.
        return Ok(Default::default());
    }
    let from_snapshot = (snapshot.index == applied_index)
        .then(|| snapshot.conf_state.clone())
        .flatten();
    backend
        .conf_state
        .clone()
        .or(from_snapshot)
        .ok_or(RestartError::MembersUnknown { applied_index })
}
