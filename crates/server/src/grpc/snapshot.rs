//! A snapshot of the store as a bbolt file, streamed with bounded memory.

use std::io::{self, Write};
use std::ops::ControlFlow;

use bytes::{Bytes, BytesMut};
use portunus_bolt::snapshot::{DIGEST_BYTES, DigestWriter};
use portunus_bolt::{BulkOptions, Planner, StreamWriter, WriteError};
use portunus_mvcc::ReadError;
use portunus_mvcc::backend::{BackendError, Bucket, Snapshot};
use portunus_proto::etcdserverpb::SnapshotResponse;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Api;

/// As etcd cuts it.
const BLOB_BYTES: usize = 32 * 1024;
/// Blobs that wait for a slow client.
const BLOBS_QUEUED_MAX: usize = 16;

impl Api {
    /// The blobs of a snapshot. Reading and writing happen on a thread of their own that
    /// waits whenever the client does.
    pub(super) fn snapshot_blobs(&self) -> ReceiverStream<Result<SnapshotResponse, Status>> {
        let (sender, receiver) = mpsc::channel(BLOBS_QUEUED_MAX);
        let api = self.clone();
        tokio::task::spawn_blocking(move || {
            let sink = BlobSink {
                api: &api,
                sender: &sender,
                buffer: BytesMut::with_capacity(BLOB_BYTES),
                remaining_bytes: 0,
            };
            let started = std::time::Instant::now();
            match write_snapshot(&api, sink) {
                Ok(bytes) => tracing::info!(
                    bytes,
                    took_ms = started.elapsed().as_millis() as u64,
                    "snapshot sent"
                ),
                // The client went away.
                Err(_) if sender.is_closed() => {}
                Err(error) => {
                    tracing::warn!(%error, "a snapshot could not be sent");
                    let _ = sender.blocking_send(Err(Status::unavailable(error.to_string())));
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

/// Two passes over one fixed view: sizes first, then the bytes.
fn write_snapshot(api: &Api, mut sink: BlobSink<'_>) -> Result<u64, SnapshotError> {
    let snapshot = api.member.reader.snapshot()?;
    let mut planner = Planner::new(BulkOptions::default());
    for bucket in Bucket::ALL {
        planner.bucket(bucket.name().as_bytes())?;
        scan(&*snapshot, bucket, |key, value| {
            planner.entry(key, value.len() as u64)
        })?;
    }
    let layout = planner.finish()?;
    let total_bytes = layout.file_bytes() + DIGEST_BYTES;
    sink.remaining_bytes = total_bytes;
    let mut writer = StreamWriter::new(layout, DigestWriter::new(sink))?;
    for bucket in Bucket::ALL {
        writer.bucket(bucket.name().as_bytes())?;
        scan(&*snapshot, bucket, |key, value| writer.entry(key, value))?;
    }
    let mut sink = writer.finish()?.finish()?;
    sink.flush()?;
    Ok(total_bytes)
}

fn scan(
    snapshot: &dyn Snapshot,
    bucket: Bucket,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), WriteError>,
) -> Result<(), SnapshotError> {
    let mut failed = None;
    snapshot.scan(bucket, b"", &mut |key, value| match each(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Cuts what is written into messages.
struct BlobSink<'a> {
    api: &'a Api,
    sender: &'a mpsc::Sender<Result<SnapshotResponse, Status>>,
    buffer: BytesMut,
    remaining_bytes: u64,
}

impl BlobSink<'_> {
    fn send(&mut self, blob: Bytes) -> io::Result<()> {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(blob.len() as u64);
        let member = &self.api.member;
        let response = SnapshotResponse {
            header: Some(member.header(member.reader.revision())),
            remaining_bytes: self.remaining_bytes,
            blob,
            version: member
                .membership
                .load()
                .cluster_version
                .map_or_else(String::new, |version| format!("{version}.0")),
        };
        self.sender
            .blocking_send(Ok(response))
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))
    }
}

impl Write for BlobSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() >= BLOB_BYTES {
            let blob = self.buffer.split_to(BLOB_BYTES).freeze();
            self.send(blob)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let blob = self.buffer.split().freeze();
            self.send(blob)?;
        }
        Ok(())
    }
}

/// Why a snapshot was not sent.
#[derive(Debug, Error)]
enum SnapshotError {
    #[error("the store could not be read")]
    Read(#[from] ReadError),
    #[error("the backend could not be read")]
    Backend(#[from] BackendError),
    #[error("the snapshot could not be written")]
    Write(#[from] WriteError),
    #[error("the snapshot could not be sent")]
    Io(#[from] io::Error),
}
