//! A backup: the store as a bbolt file, streamed.

use std::io::{self, Write};

use bytes::Bytes;
use portunus_proto::etcdserverpb::SnapshotResponse;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Api;
use crate::export::{Export, ExportError, Pieces};
use portunus_bolt::BulkOptions;

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
            let started = std::time::Instant::now();
            match api.write_snapshot(&sender) {
                Ok(bytes) => {
                    let took = started.elapsed();
                    let metrics = &api.member.metrics.disk;
                    metrics.snapshot_seconds.observe(took.as_secs_f64());
                    tracing::info!(bytes, took_ms = took.as_millis() as u64, "snapshot sent");
                }
                // The client went away.
                Err(_) if sender.is_closed() => {}
                Err(status) => {
                    tracing::warn!(error = status.message(), "a snapshot could not be sent");
                    let _ = sender.blocking_send(Err(status));
                }
            }
        });
        ReceiverStream::new(receiver)
    }

    fn write_snapshot(
        &self,
        sender: &mpsc::Sender<Result<SnapshotResponse, Status>>,
    ) -> Result<u64, Status> {
        let unavailable = |error: ExportError| Status::unavailable(error.to_string());
        let snapshot = self.member.reader().snapshot();
        let snapshot = snapshot.map_err(|error| self.read_failed(error))?;
        let export = Export::plan(snapshot, BulkOptions::default()).map_err(unavailable)?;
        let total_bytes = export.bytes(true);
        let mut remaining_bytes = total_bytes;
        let pieces = Pieces::new(BLOB_BYTES, |blob| {
            remaining_bytes = remaining_bytes.saturating_sub(blob.len() as u64);
            sender
                .blocking_send(Ok(self.blob(blob, remaining_bytes)))
                .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client went away"))
        });
        let mut pieces = export.write_with_digest(pieces).map_err(unavailable)?;
        pieces.flush().map_err(|error| unavailable(error.into()))?;
        Ok(total_bytes)
    }

    fn blob(&self, blob: Bytes, remaining_bytes: u64) -> SnapshotResponse {
        let member = &self.member;
        let version = member.membership.load().cluster_version;
        SnapshotResponse {
            header: Some(member.header(member.reader().revision())),
            remaining_bytes,
            blob,
            version: version.map_or_else(String::new, |version| format!("{version}.0")),
        }
    }
}
