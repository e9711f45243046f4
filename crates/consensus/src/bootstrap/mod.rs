//! How a member gets its log: it founds a cluster, joins one, or restarts.
//!
//! The server calls [`restart`] first. If there is no log, or a blank one, it calls
//! [`new_cluster`] or [`join`]. The result is passed to [`crate::start`].
//!
//! A founder writes the same first entries as every other founder, Go members included: one
//! addition per member, term 1, index 1 to n, all committed. So later joiners get the founders
//! from the log itself.
//!
//! Nothing here starts a thread, and nothing touches the state machine.

mod force_new;
mod identity;
mod restart;

use std::path::PathBuf;

use portunus_gates::cluster::MemberId;
use portunus_proto::{
    ClusterId,
    raftpb::{ConfState, Entry, EntryType, HardState},
};
use portunus_wal::{
    CreateError, LogDir, OpenError, SnapshotPoint, TornTail, Wal, WalOptions, WriteError,
};
use prost::Message as _;
use thiserror::Error;

use self::identity::initial_member_change;
pub use self::{
    force_new::force_new_cluster,
    identity::{Identity, InitialMember, added_member_id, cluster_id, member_id},
    restart::{RestartError, restart},
};
use crate::core::InitialState;

/// The most members a cluster may start with; bounds the size of its first batch.
pub const INITIAL_MEMBERS_MAX: usize = 1000;

/// The position of the backend. Both values are from the same commit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BackendPosition {
    /// The last index whose effects are durable; 0 for an empty backend.
    pub applied_index: u64,
    /// The members as of that index. May be missing only if the log has a
    /// snapshot at exactly that index, or the index is 0.
    pub conf_state: Option<ConfState>,
}

/// A member that is ready to start.
pub struct Boot {
    /// The log of the member.
    pub wal: Wal,
    /// The ids of the member and its cluster.
    pub identity: Identity,
    /// The initial raft state.
    pub initial: InitialState,
    /// An interrupted write that was removed, for the server's log.
    pub torn_tail: Option<TornTail>,
}

/// Why a member could not found or join a cluster.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NewClusterError {
    /// The member's own name is not among the initial members.
    #[error(
        "the initial cluster has no member named {name:?}; give --name and --initial-cluster the same name"
    )]
    NotAMember {
        /// The name of this member.
        name: String,
    },
    /// Two initial members have the same peer URLs, and so the same id.
    #[error(
        "the initial members {first:?} and {second:?} have the same peer URLs; give each its own"
    )]
    SameMember {
        /// The name of one of them.
        first: String,
        /// The name of the other.
        second: String,
    },
    /// The initial cluster has too many members.
    #[error(
        "the initial cluster has {members} members; at most {INITIAL_MEMBERS_MAX} are possible"
    )]
    TooManyMembers {
        /// The number of members.
        members: usize,
    },
    /// The directory holds the log of a member that has been running.
    #[error("{} already holds the log of a member; restart that one, or choose an empty directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The log could not be created.
    #[error("no log for the new member")]
    Create(#[from] CreateError),
    /// A log left by an interrupted first start could not be opened.
    #[error("the log left by an interrupted first start cannot be used")]
    Open(#[from] OpenError),
    /// The first entries could not be written.
    #[error("the first entries could not be written")]
    Write(#[from] WriteError),
}

/// Founds a cluster of these members; this member is the one named `local_name`.
///
/// # Errors
/// If the members are inconsistent, or the directory cannot be used.
pub fn new_cluster(
    wal_dir: impl Into<LogDir>,
    options: WalOptions,
    local_name: &str,
    members: &[InitialMember],
    cluster_token: &str,
) -> Result<Boot, NewClusterError> {
    if members.len() > INITIAL_MEMBERS_MAX {
        return Err(NewClusterError::TooManyMembers {
            members: members.len(),
        });
    }
    let mut members: Vec<(u64, &InitialMember)> = members
        .iter()
        .map(|member| (member_id(&member.peer_urls, cluster_token), member))
        .collect();
    members.sort_by_key(|(id, _)| *id);
    if let Some([(_, first), (_, second)]) = members
        .array_windows()
        .find(|[(first, _), (second, _)]| first == second)
    {
        return Err(NewClusterError::SameMember {
            first: first.name.clone(),
            second: second.name.clone(),
        });
    }
    let ids: Vec<u64> = members.iter().map(|(id, _)| *id).collect();
    let local = members.iter().find(|(_, member)| member.name == local_name);
    let Some((local_id, _)) = local else {
        return Err(NewClusterError::NotAMember {
            name: local_name.to_owned(),
        });
    };
    let identity = Identity {
        member_id: MemberId(*local_id),
        cluster_id: ClusterId(cluster_id(&ids)),
    };

    let entries: Vec<Entry> = members
        .iter()
        .zip(1..)
        .map(|((id, member), index)| Entry {
            r#type: EntryType::EntryConfChange.into(),
            term: 1,
            index,
            data: initial_member_change(*id, member).encode_to_vec().into(),
        })
        .collect();
    let hard_state = HardState {
        term: 1,
        vote: 0,
        commit: entries.len() as u64,
    };
    let mut wal = blank_log(&wal_dir.into(), options, identity)?;
    wal.save(Some(&hard_state), &entries, true)?;
    Ok(Boot {
        wal,
        identity,
        initial: InitialState {
            member_id: identity.member_id.0,
            hard_state,
            entries,
            ..Default::default()
        },
        torn_tail: None,
    })
}

/// Starts a member that was added to a running cluster. It gets everything from its peers.
///
/// # Errors
/// If the directory cannot be used.
pub fn join(
    wal_dir: impl Into<LogDir>,
    options: WalOptions,
    identity: Identity,
) -> Result<Boot, NewClusterError> {
    Ok(Boot {
        wal: blank_log(&wal_dir.into(), options, identity)?,
        identity,
        initial: InitialState {
            member_id: identity.member_id.0,
            ..Default::default()
        },
        torn_tail: None,
    })
}

/// Opens a log without entries: a new one, or that of a first start that was interrupted before
/// it wrote any.
fn blank_log(
    wal_dir: &LogDir,
    options: WalOptions,
    identity: Identity,
) -> Result<Wal, NewClusterError> {
    match options.create(wal_dir, identity.encode()) {
        Err(CreateError::NotEmpty { .. }) => {}
        other => return Ok(other?),
    }
    let (wal, recovered) = options.open(wal_dir, SnapshotPoint::default())?;
    let untouched = recovered.entries.is_empty()
        && recovered.hard_state == HardState::default()
        && wal.last_index() == 0;
    if untouched && Identity::decode(&recovered.metadata) == Some(identity) {
        Ok(wal)
    } else {
        Err(NewClusterError::InUse {
            dir: wal_dir.path().to_owned(),
        })
    }
}
