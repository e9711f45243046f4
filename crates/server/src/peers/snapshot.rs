//! Snapshots between members: a bbolt file behind a raft message.
//!
//! Outgoing: what raft announced is only the least it will be; the message is rewritten to
//! what the file really holds. Incoming: the file is stored, copied into a backend beside
//! the present one, and only then raft hears of it. The apply thread installs it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use portunus_gates::MajorMinor;
use portunus_mvcc::backend::{Bucket, Snapshot, meta};
use portunus_proto::raftpb::{self, Message, SnapshotMetadata};
use portunus_rafthttp::{BoxStream, OutgoingSnapshot, SnapshotRefused};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::export::{Export, Pieces};
use crate::import;
use crate::member::Member;
use crate::member::membership::conf_state_of;
use crate::member::v2_store;
use crate::metrics::DiskMetrics;

const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for a slow peer.
const PIECES_QUEUED_MAX: usize = 16;
/// From this version on nobody reads the old store in a snapshot message.
const V2_STORE_UNTIL: MajorMinor = MajorMinor::literal("3.7");

/// The file for a member that lags.
pub async fn open(member: Arc<Member>, message: Message) -> io::Result<OutgoingSnapshot> {
    let planned = tokio::task::spawn_blocking({
        let member = Arc::clone(&member);
        move || plan(&member)
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
    let seconds = member.metrics.disk.snapshot_seconds.clone();
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
            // An upload that ends early is cut off, not short.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let data = v2_store(&member);
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

/// A fixed view of the store, and where in the log it is.
fn plan(member: &Member) -> io::Result<(SnapshotMetadata, Export)> {
    let snapshot = member.reader().snapshot().map_err(io::Error::other)?;
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
    let export = Export::plan(snapshot).map_err(io::Error::other)?;
    Ok((metadata, export))
}

fn members(snapshot: &dyn Snapshot) -> io::Result<raftpb::ConfState> {
    let json = snapshot
        .get(Bucket::Meta, meta::CONF_STATE.as_bytes())
        .map_err(io::Error::other)?;
    let json = json.ok_or_else(|| io::Error::other("the backend does not know the members"))?;
    conf_state_of(&json).map_err(io::Error::other)
}

/// What members up to 3.6 insist on.
fn v2_store(member: &Member) -> Bytes {
    let membership = member.membership.load();
    match membership.cluster_version {
        Some(version) if version >= V2_STORE_UNTIL => Bytes::new(),
        _ => Bytes::from(v2_store::json(&membership)),
    }
}

/// Stores what the leader sends, then lets raft decide whether to take it.
pub async fn receive(
    member: Arc<Member>,
    message: Message,
    body: BoxStream<'static, io::Result<Bytes>>,
) -> Result<(), SnapshotRefused> {
    let started = Instant::now();
    let metadata = message
        .snapshot
        .as_ref()
        .and_then(|it| it.metadata.as_ref());
    let Some(index) = metadata.map(|metadata| metadata.index) else {
        return Err(SnapshotRefused::Mismatch {
            reason: "a snapshot message without a snapshot".to_owned(),
        });
    };
    let failed = |reason: String| SnapshotRefused::Failed { reason };
    let Ok(_one_at_a_time) = member.receiving_snapshot.try_lock() else {
        return Err(failed("another snapshot is being received".to_owned()));
    };
    if index <= member.applied.index() {
        // Raft answers it with how far this member is.
        return step(&member, message);
    }
    let backend = member.data_dir.incoming(index);
    let database = backend.with_extension("db");
    let stored = store(&database, body, &member.metrics.disk).await;
    let bytes = stored.map_err(|error| failed(error.to_string()))?;
    let imported = tokio::task::spawn_blocking({
        let (database, backend) = (database.clone(), backend.clone());
        move || prepare(&database, &backend, index)
    });
    let imported = imported.await.map_err(|error| failed(error.to_string()))?;
    let _ = std::fs::remove_file(&database);
    imported.map_err(failed)?;
    tracing::info!(
        from = %format_args!("{:x}", message.from),
        index,
        bytes,
        took_ms = started.elapsed().as_millis() as u64,
        "received a snapshot of the leader"
    );
    step(&member, message)
}

fn step(member: &Member, message: Message) -> Result<(), SnapshotRefused> {
    member
        .consensus
        .step(message)
        .map_err(|error| SnapshotRefused::Failed {
            reason: error.to_string(),
        })
}

async fn store(
    path: &Path,
    mut body: BoxStream<'static, io::Result<Bytes>>,
    metrics: &DiskMetrics,
) -> io::Result<u64> {
    let started = Instant::now();
    let mut file = tokio::fs::File::create(path).await?;
    let mut bytes = 0;
    while let Some(piece) = body.next().await {
        let piece = piece?;
        bytes += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    let received = Instant::now();
    file.sync_all().await?;
    let (sync, total) = (received.elapsed(), started.elapsed());
    metrics.received_fsync_seconds.observe(sync.as_secs_f64());
    metrics.received_seconds.observe(total.as_secs_f64());
    Ok(bytes)
}

/// Copies the file into a backend, unless it is not what the message says.
fn prepare(database: &Path, backend: &PathBuf, index: u64) -> Result<(), String> {
    let has = import::applied_index(database).map_err(|error| describe(&error))?;
    if has < index {
        return Err(format!("the snapshot holds index {has}, not {index}"));
    }
    if backend.exists() {
        std::fs::remove_dir_all(backend).map_err(|error| error.to_string())?;
    }
    import::import(database, backend)
        .map(drop)
        .map_err(|error| describe(&error))
}

fn describe(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
