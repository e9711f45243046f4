//! Snapshots between members: a bbolt file behind a raft message.
//!
//! Outgoing: what raft announced is only the least it will be; the message is rewritten to
//! what the file really holds. Incoming: the records are copied into a backend beside the
//! present one, while the file arrives if its order allows it, else from the stored file. Only
//! when all of it is there and durable, raft hears of it. The apply thread installs it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes};
use portunus_bolt::{BulkOptions, STREAM_HEAD_BYTES, StreamReader};
use portunus_gates::MajorMinor;
use portunus_mvcc::backend::{Bucket, Snapshot, meta};
use portunus_proto::raftpb::{self, Message, SnapshotMetadata};
use portunus_rafthttp::{BoxStream, OutgoingSnapshot, SnapshotRefused};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::export::{Export, Pieces};
use crate::import;
use crate::member::Member;
use crate::member::configuration::configuration;
use crate::member::membership::{conf_state_of, member_records};
use crate::member::v2_store;
use crate::metrics::DiskMetrics;

const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait for a slow peer.
const PIECES_QUEUED_MAX: usize = 16;
/// Written at once of a file that has to be stored.
const STORE_BUFFER_BYTES: usize = 1 << 20;
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
    let export =
        Export::plan(snapshot, BulkOptions::for_stream_reader()).map_err(io::Error::other)?;
    Ok((metadata, export))
}

fn members(snapshot: &dyn Snapshot) -> io::Result<raftpb::ConfState> {
    let json = snapshot
        .get(Bucket::Meta, meta::CONF_STATE.as_bytes())
        .map_err(io::Error::other)?;
    let stored = json.map(|json| conf_state_of(&json)).transpose();
    let members = member_records(snapshot).map_err(io::Error::other)?;
    configuration(stored.map_err(io::Error::other)?, members.iter())
        .ok_or_else(|| io::Error::other("the backend does not know the members"))
}

/// What members up to 3.6 insist on.
fn v2_store(member: &Member) -> Bytes {
    let membership = member.membership.load();
    match membership.cluster_version {
        Some(version) if version >= V2_STORE_UNTIL => Bytes::new(),
        _ => Bytes::from(v2_store::json(&membership)),
    }
}

/// Takes in what the leader sends, then lets raft decide whether to take it.
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
    let one_at_a_time = Arc::clone(&member.receiving_snapshot).try_lock_owned();
    let Ok(one_at_a_time) = one_at_a_time else {
        return Err(failed("another snapshot is being received".to_owned()));
    };
    if index <= member.applied.index() {
        // Raft answers it with how far this member is.
        return step(&member, message);
    }
    let backend = member.data_dir.incoming(index);
    let body = ArrivingBody::new(body);
    let taken = tokio::task::spawn_blocking({
        let member = Arc::clone(&member);
        // The lock goes along: if the peer goes away nobody waits here any more, but the
        // file must not be written by the next one until this is really over.
        move || {
            (
                take_in(body, &backend, index, &member.metrics.disk),
                one_at_a_time,
            )
        }
    });
    let (taken, _one_at_a_time) = taken.await.map_err(|error| failed(error.to_string()))?;
    let bytes = taken.map_err(failed)?;
    let took = started.elapsed().as_secs_f64();
    member.metrics.disk.received_seconds.observe(took);
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

/// The body, for those who wait for it on a thread of their own.
struct ArrivingBody {
    runtime: tokio::runtime::Handle,
    body: BoxStream<'static, io::Result<Bytes>>,
    piece: Bytes,
}

impl ArrivingBody {
    fn new(body: BoxStream<'static, io::Result<Bytes>>) -> ArrivingBody {
        ArrivingBody {
            runtime: tokio::runtime::Handle::current(),
            body,
            piece: Bytes::new(),
        }
    }
}

impl Read for ArrivingBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(self.body.next()) {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        (&mut self.piece).reader().read(buffer)
    }
}

/// Makes a backend of what arrives, unless it is not what the message says; returns its
/// length. Members of Portunus send their records in order, so nothing is stored twice.
fn take_in(
    mut body: ArrivingBody,
    backend: &Path,
    index: u64,
    metrics: &DiskMetrics,
) -> Result<u64, String> {
    let mut head = Vec::new();
    (&mut body)
        .take(STREAM_HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|error| error.to_string())?;
    match StreamReader::new(&head, body) {
        Ok(arriving) => {
            let bytes = arriving.file_bytes();
            import::import_stream(arriving, backend, index)
                .map(|_| bytes)
                .map_err(|error| describe(&error))
        }
        Err(body) => {
            let database = backend.with_extension("db");
            let stored = store(&database, &mut Read::chain(&head[..], body), metrics)
                .map_err(|error| error.to_string());
            let imported = stored.and_then(|bytes| {
                prepare(&database, backend, index)?;
                Ok(bytes)
            });
            let _ = std::fs::remove_file(&database);
            imported
        }
    }
}

fn store(path: &Path, body: &mut impl Read, metrics: &DiskMetrics) -> io::Result<u64> {
    let mut out = BufWriter::with_capacity(STORE_BUFFER_BYTES, File::create(path)?);
    let bytes = io::copy(body, &mut out)?;
    let received = Instant::now();
    out.into_inner()?.sync_all()?;
    let sync = received.elapsed().as_secs_f64();
    metrics.received_fsync_seconds.observe(sync);
    Ok(bytes)
}

/// Copies the file into a backend, unless it is not what the message says.
fn prepare(database: &Path, backend: &Path, index: u64) -> Result<(), String> {
    let has = import::applied_index(database).map_err(|error| describe(&error))?;
    if has < index {
        return Err(format!("the snapshot holds index {has}, not {index}"));
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
