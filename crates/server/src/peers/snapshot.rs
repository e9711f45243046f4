//! Snapshots for other members: a bbolt file after a raft message.
//!
//! The file may be newer than the snapshot of raft's message; the message is rewritten to match
//! the file.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portunus_bolt::BulkOptions;
use portunus_gates::MajorMinor;
use portunus_mvcc::backend::{Bucket, Snapshot, meta};
use portunus_proto::raftpb::{self, Message, SnapshotMetadata};
use portunus_rafthttp::OutgoingSnapshot;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::handles::{ClusterState, Process, StoreAccess};
use portunus_datadir::export::{Export, Pieces};
use portunus_statemachine::conf_state::configuration;
use portunus_statemachine::conf_state::decode_conf_state;
use portunus_statemachine::membership::member_records;
use portunus_statemachine::v2_store;

const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for a slow peer.
const PIECES_QUEUED_MAX: usize = 16;
/// From this cluster version on, no member reads the v2 store in a snapshot message.
const V2_STORE_UNTIL: MajorMinor = MajorMinor::literal("3.7");

/// What snapshots for other members are made from.
pub(super) struct SnapshotSource {
    pub(super) process: Arc<Process>,
    pub(super) store: Arc<StoreAccess>,
    pub(super) cluster: Arc<ClusterState>,
}

impl SnapshotSource {
    /// Opens a snapshot for a member that lags.
    pub(super) async fn open(&self, message: Message) -> io::Result<OutgoingSnapshot> {
        let planned = tokio::task::spawn_blocking({
            let store = Arc::clone(&self.store);
            move || plan(&store)
        });
        let (metadata, export) = planned.await.map_err(io::Error::other)??;
        let to = message.to;
        let bytes = export.bytes(false);
        tracing::info!(
            to = %format_args!("{to:x}"),
            index = metadata.index,
            bytes,
            "sending a snapshot to a member that lags"
        );
        let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(PIECES_QUEUED_MAX);
        let seconds = self.process.metrics.disk.snapshot_seconds.clone();
        tokio::task::spawn_blocking(move || {
            let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the peer went away");
            let pieces = Pieces::new(PIECE_BYTES, |piece| {
                sender.blocking_send(Ok(piece)).map_err(|_| gone())
            });
            let started = Instant::now();
            let written = export
                .write(pieces)
                .map_err(io::Error::other)
                .and_then(|mut pieces| pieces.flush());
            seconds.observe(started.elapsed().as_secs_f64());
            if let Err(error) = written {
                // The error aborts the upload; otherwise it would look complete.
                let _ = sender.blocking_send(Err(error));
            }
        });
        let data = v2_store(&self.cluster);
        Ok(OutgoingSnapshot {
            message: Message {
                snapshot: Some(raftpb::Snapshot {
                    data,
                    metadata: Some(metadata),
                }),
                ..message
            },
            body: Box::pin(ReceiverStream::new(receiver)),
        })
    }
}

/// Returns a fixed view of the store, with its index, term and configuration.
fn plan(store: &StoreAccess) -> io::Result<(SnapshotMetadata, Export)> {
    let snapshot = store.reader().snapshot().map_err(io::Error::other)?;
    let number = |key: &str| -> io::Result<u64> {
        let value = snapshot
            .get(Bucket::Meta, key.as_bytes())
            .map_err(io::Error::other)?;
        let bytes = value.as_deref().and_then(|value| value.try_into().ok());
        bytes
            .map(u64::from_be_bytes)
            .ok_or_else(|| io::Error::other(format!("the backend has no {key}")))
    };
    let metadata = SnapshotMetadata {
        index: number(meta::CONSISTENT_INDEX)?,
        term: number(meta::TERM)?,
        conf_state: Some(members(&*snapshot)?),
    };
    let export =
        Export::plan(snapshot, BulkOptions::for_stream_reader()).map_err(io::Error::other)?;
    Ok((metadata, export))
}

fn members(snapshot: &dyn Snapshot) -> io::Result<raftpb::ConfState> {
    let json = snapshot
        .get(Bucket::Meta, meta::CONF_STATE.as_bytes())
        .map_err(io::Error::other)?;
    let stored = json.map(|json| decode_conf_state(&json)).transpose();
    let members = member_records(snapshot).map_err(io::Error::other)?;
    configuration(stored.map_err(io::Error::other)?, members.iter())
        .ok_or_else(|| io::Error::other("the backend does not know the members"))
}

/// Returns the v2 store, which members up to 3.6 require.
fn v2_store(cluster: &ClusterState) -> Bytes {
    let membership = cluster.membership();
    match membership.cluster_version {
        Some(version) if version >= V2_STORE_UNTIL => Bytes::new(),
        _ => Bytes::from(v2_store::json(&membership)),
    }
}
