//! Snapshots of the leader, until raft accepts or rejects them.
//!
//! The records are copied into a backend beside the present one: while the file arrives if its
//! order allows it, else from the stored file. Raft steps the message only when the backend is
//! complete and durable. The apply thread installs it.
//!
//! One snapshot is received at a time, and snapshot messages reach raft only from here. So a
//! snapshot that raft does not need now was rejected or is installed, and a snapshot of an
//! index that raft needs is complete: it is not received again, because it may be being
//! installed.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes};
use portunus_bolt::{STREAM_HEAD_BYTES, StreamReader};
use portunus_consensus::Handle;
use portunus_proto::raftpb::Message;
use portunus_rafthttp::{BoxStream, SnapshotRefused};
use tokio_stream::StreamExt;

use crate::handles::{Process, StoreAccess};
use crate::metrics::DiskMetrics;
use portunus_datadir::import::{self, ImportError};

/// The write buffer for a file that has to be stored.
const STORE_BUFFER_BYTES: usize = 1 << 20;

/// Receives snapshots of the leader, one at a time.
pub(super) struct Receiver {
    process: Arc<Process>,
    store: Arc<StoreAccess>,
    consensus: Handle,
    /// Held while a snapshot is received.
    receiving: Arc<tokio::sync::Mutex<()>>,
}

impl Receiver {
    /// Starts without a snapshot.
    pub(super) fn new(
        process: Arc<Process>,
        store: Arc<StoreAccess>,
        consensus: Handle,
    ) -> Receiver {
        Receiver {
            process,
            store,
            consensus,
            receiving: Arc::default(),
        }
    }

    /// Receives a snapshot of the leader, then steps its message.
    pub(super) async fn receive(
        &self,
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
        let one_at_a_time = Arc::clone(&self.receiving).try_lock_owned();
        let Ok(one_at_a_time) = one_at_a_time else {
            return Err(SnapshotRefused::Failed {
                reason: "another snapshot is being received".to_owned(),
            });
        };
        let is_complete = self.consensus.pending_snapshots().contains(&index);
        if index <= self.store.applied.index().0 || is_complete {
            // Raft responds with this member's index.
            self.step(message)?;
            drop(one_at_a_time);
            return discard(body).await;
        }
        let body = ArrivingBody::new(body);
        let taken = tokio::task::spawn_blocking({
            let process = Arc::clone(&self.process);
            // The lock moves along: if the peer disconnects, this future is dropped, but the next
            // snapshot must not be received before this thread has finished.
            move || (keep(&process, body, index), one_at_a_time)
        });
        let (taken, one_at_a_time) = taken.await.map_err(|error| failed(&error))?;
        let bytes = taken?;
        let took = started.elapsed().as_secs_f64();
        self.process.metrics.disk.received_seconds.observe(took);
        tracing::info!(
            from = %format_args!("{:x}", message.from),
            index,
            bytes,
            took_ms = started.elapsed().as_millis() as u64,
            "received a snapshot of the leader"
        );
        let stepped = self.step(message);
        let (process, consensus) = (Arc::clone(&self.process), self.consensus.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let needed = consensus.pending_snapshots();
            process.data_dir.remove_refused(&needed);
            drop(one_at_a_time);
        });
        removed.await.map_err(|error| failed(&error))?;
        stepped
    }

    fn step(&self, message: Message) -> Result<(), SnapshotRefused> {
        self.consensus.step(message).map_err(|error| failed(&error))
    }
}

/// Reads a body to its end: a sender may take an earlier response for a failure.
async fn discard(mut body: BoxStream<'static, io::Result<Bytes>>) -> Result<(), SnapshotRefused> {
    while let Some(piece) = body.next().await {
        piece.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Receives a snapshot and prepares its installation; returns the length of its file.
fn keep(process: &Process, body: ArrivingBody, index: u64) -> Result<u64, SnapshotRefused> {
    let backend = process.data_dir.receiving(index);
    let bytes = take_in(body, &backend, index, &process.metrics.disk)?;
    process
        .data_dir
        .keep_received(index)
        .map_err(|error| failed(&error))?;
    Ok(bytes)
}

/// A blocking reader of the body.
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

/// Writes the received records to a backend, unless their index is below the message's or they
/// must not be served; returns the length of the file. Members of Portunus send their records
/// in order, so nothing is stored twice.
fn take_in(
    mut body: ArrivingBody,
    backend: &Path,
    index: u64,
    metrics: &DiskMetrics,
) -> Result<u64, SnapshotRefused> {
    let mut head = Vec::new();
    (&mut body)
        .take(STREAM_HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(|error| failed(&error))?;
    match StreamReader::new(&head, body) {
        Ok(arriving) => {
            let bytes = arriving.file_bytes();
            import::import_stream(arriving, backend, index).map_err(|error| failed(&error))?;
            Ok(bytes)
        }
        Err(body) => {
            let database = backend.with_extension("db");
            let stored = store(&database, &mut Read::chain(&head[..], body), metrics);
            let stored = stored.map_err(|error| failed(&error));
            let imported = stored.and_then(|bytes| {
                prepare(&database, backend, index).map_err(|error| failed(&error))?;
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

/// Copies the file into a backend, unless its index is below the message's.
fn prepare(database: &Path, backend: &Path, index: u64) -> Result<(), ImportError> {
    let applied = import::applied_index(database)?;
    if applied < index {
        return Err(ImportError::TooOld { applied, index });
    }
    import::import(database, backend).map(drop)
}

fn failed(error: &dyn std::error::Error) -> SnapshotRefused {
    let reason = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    SnapshotRefused::Failed { reason }
}
