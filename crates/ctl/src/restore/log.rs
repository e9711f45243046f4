//! The log of a member that has just been restored: its identity, one entry per member of the
//! cluster, and a mark that all of it is in the store already.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portunus_proto::etcdserverpb::Metadata;
use portunus_proto::raftpb::{
    ConfChange, ConfChangeType, ConfState, Entry, EntryType, HardState, Snapshot, SnapshotMetadata,
};
use portunus_proto::{snappb, walpb};
use portunus_wal::{CreateError, Wal, WriteError};
use prost::Message;

use super::cluster::InitialCluster;
use super::v2_store;

/// The term of the entries every member of a new cluster begins with.
const FIRST_TERM: u64 = 1;

/// Why the log was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The log could not be created.
    #[error("cannot create the log")]
    Create(#[from] CreateError),
    /// The log could not be written.
    #[error("cannot write the log")]
    Write(#[from] WriteError),
    /// The snapshot file for older versions could not be written.
    #[error("cannot write {path:?}")]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The position of the last log entry; the store must hold the same.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition {
    pub index: u64,
    pub term: u64,
}

/// Writes the log and the `.snap` file that etcd before 3.7 requires beside it.
pub fn write(
    wal_dir: &Path,
    snap_dir: &Path,
    cluster: &InitialCluster,
) -> Result<LogPosition, LogError> {
    let metadata = Metadata {
        node_id: cluster.local_id,
        cluster_id: cluster.cluster_id,
    };
    let entries = entries(cluster);
    let position = LogPosition {
        index: entries.len() as u64,
        term: FIRST_TERM,
    };
    let conf_state = ConfState {
        voters: cluster.ids(),
        ..ConfState::default()
    };
    let hard_state = HardState {
        term: FIRST_TERM,
        vote: cluster.ids().first().copied().unwrap_or_default(),
        commit: position.index,
    };

    let mut wal = Wal::create(wal_dir, metadata.encode_to_vec().into())?;
    wal.save(Some(&hard_state), &entries, true)?;
    write_snap_file(snap_dir, cluster, &conf_state, position)?;
    wal.save_snapshot(&walpb::Snapshot {
        index: position.index,
        term: position.term,
        conf_state: Some(conf_state),
    })?;
    Ok(position)
}

fn entries(cluster: &InitialCluster) -> Vec<Entry> {
    let members = cluster.members.iter().zip(1..);
    members
        .map(|(member, index)| {
            let change = ConfChange {
                r#type: ConfChangeType::ConfChangeAddNode.into(),
                node_id: member.id,
                context: Bytes::from(member.json()),
                ..ConfChange::default()
            };
            Entry {
                r#type: EntryType::EntryConfChange.into(),
                term: FIRST_TERM,
                index,
                data: change.encode_to_vec().into(),
            }
        })
        .collect()
}

fn write_snap_file(
    snap_dir: &Path,
    cluster: &InitialCluster,
    conf_state: &ConfState,
    position: LogPosition,
) -> Result<(), LogError> {
    let snapshot = Snapshot {
        data: v2_store::json(cluster).into(),
        metadata: Some(SnapshotMetadata {
            conf_state: Some(conf_state.clone()),
            index: position.index,
            term: position.term,
        }),
    };
    let data = snapshot.encode_to_vec();
    let file = snappb::Snapshot {
        crc: crc32c::crc32c(&data),
        data: data.into(),
    };
    let name = format!("{:016x}-{:016x}.snap", position.term, position.index);
    let path = snap_dir.join(name);
    let written = File::create(&path).and_then(|mut out| {
        out.write_all(&file.encode_to_vec())?;
        out.sync_all()
    });
    written.map_err(|source| LogError::Snapshot { path, source })
}
