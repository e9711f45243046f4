//! Maintenance snapshots: the store as a bbolt file, streamed.
//!
//! A snapshot holds a read transaction of the backend, a thread and a few blobs until it ends,
//! and the client determines its pace. So the number of snapshots is limited, few blobs are
//! queued, and a client that takes no blob within [`STALL_MAX`] gets an error instead of the
//! rest.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portunus_bolt::BulkOptions;
use portunus_proto::etcdserverpb::SnapshotResponse;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tonic::Status;

use super::Api;
use portunus_datadir::export::{Export, ExportError, Pieces};

/// The blob size of etcd.
const BLOB_BYTES: usize = 32 * 1024;
/// Blobs that wait for a slow client.
const BLOBS_QUEUED_MAX: usize = 2;
/// A snapshot whose client takes no blob for this long is aborted.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(60);

impl Api {
    /// Streams the blobs of a snapshot. A separate thread reads and writes, and blocks while
    /// the client does not take blobs.
    pub(super) fn snapshot_blobs(&self) -> Result<Blobs, Status> {
        let slots = &self.member.store.snapshot_slots;
        let Some(slot) = slots.take() else {
            self.member.process.metrics.snapshots_refused.inc();
            let text = format!(
                "etcdserver: too many snapshots are being sent, at most {} at once; try again later",
                slots.snapshots_max
            );
            return Err(Status::resource_exhausted(text));
        };
        let (sender, blobs) = Blobs::channel();
        let api = self.clone();
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let Sender { blobs, outcome } = sender;
            let written = api.write_snapshot(&blobs, &runtime);
            match &written {
                Ok(bytes) => {
                    let took = started.elapsed();
                    let metrics = &api.member.process.metrics.disk;
                    metrics.snapshot_seconds.observe(took.as_secs_f64());
                    tracing::info!(bytes, took_ms = took.as_millis() as u64, "snapshot sent");
                }
                // The client disconnected.
                Err(_) if blobs.is_closed() => {}
                Err(status) => {
                    tracing::warn!(reason = status.message(), "snapshot could not be sent");
                }
            }
            // A disconnected client has dropped the receiver.
            let _ = outcome.send(written.map(drop));
            drop(slot);
        });
        Ok(blobs)
    }

    fn write_snapshot(
        &self,
        blobs: &mpsc::Sender<SnapshotResponse>,
        runtime: &Handle,
    ) -> Result<u64, Status> {
        let unavailable =
            |error: ExportError| Status::unavailable(crate::error_chain::chain(&error));
        let snapshot = self.member.store.reader().snapshot();
        let snapshot = snapshot.map_err(|error| self.read_failed(error))?;
        let export = Export::plan(snapshot, BulkOptions::default()).map_err(unavailable)?;
        let total_bytes = export.bytes(true);
        let mut remaining_bytes = total_bytes;
        let pieces = Pieces::new(BLOB_BYTES, |blob| {
            remaining_bytes = remaining_bytes.saturating_sub(blob.len() as u64);
            let sent = blobs.send_timeout(self.blob(blob, remaining_bytes), STALL_MAX);
            runtime.block_on(sent).map_err(|error| match error {
                SendTimeoutError::Timeout(_) => io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the client took nothing for {} s", STALL_MAX.as_secs()),
                ),
                SendTimeoutError::Closed(_) => {
                    io::Error::new(io::ErrorKind::BrokenPipe, "the client went away")
                }
            })
        });
        let mut pieces = export.write_with_digest(pieces).map_err(unavailable)?;
        pieces.flush().map_err(|error| unavailable(error.into()))?;
        Ok(total_bytes)
    }

    fn blob(&self, blob: Bytes, remaining_bytes: u64) -> SnapshotResponse {
        let member = &self.member;
        let version = member.cluster.membership().cluster_version;
        SnapshotResponse {
            header: Some(member.store.newest_header()),
            remaining_bytes,
            blob,
            version: version.map_or_else(String::new, |version| format!("{version}.0")),
        }
    }
}

/// The blobs of one snapshot, then its error if it has one. A truncated snapshot never ends
/// without an error.
pub(super) struct Blobs {
    blobs: mpsc::Receiver<SnapshotResponse>,
    outcome: Option<oneshot::Receiver<Result<(), Status>>>,
}

struct Sender {
    blobs: mpsc::Sender<SnapshotResponse>,
    outcome: oneshot::Sender<Result<(), Status>>,
}

impl Blobs {
    fn channel() -> (Sender, Blobs) {
        let (blob_sender, blobs) = mpsc::channel(BLOBS_QUEUED_MAX);
        let (outcome_sender, outcome) = oneshot::channel();
        let sender = Sender {
            blobs: blob_sender,
            outcome: outcome_sender,
        };
        let outcome = Some(outcome);
        (sender, Blobs { blobs, outcome })
    }
}

impl Stream for Blobs {
    type Item = Result<SnapshotResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(blob) = ready!(this.blobs.poll_recv(context)) {
            return Poll::Ready(Some(Ok(blob)));
        }
        let Some(outcome) = &mut this.outcome else {
            return Poll::Ready(None);
        };
        let ended = ready!(Pin::new(outcome).poll(context));
        this.outcome = None;
        let cut_off = || Status::internal("etcdserver: the snapshot was cut off");
        Poll::Ready(match ended.unwrap_or_else(|_| Err(cut_off())) {
            Ok(()) => None,
            Err(status) => Some(Err(status)),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    /// Collects a stream whose sender runs `finish` after one blob.
    async fn end_after(finish: impl FnOnce(Sender)) -> Vec<Result<usize, tonic::Code>> {
        let (sender, blobs) = Blobs::channel();
        let blob = SnapshotResponse {
            blob: vec![7; 10].into(),
            ..SnapshotResponse::default()
        };
        sender.blobs.send(blob).await.unwrap();
        finish(sender);
        let items: Vec<_> = blobs.collect().await;
        let brief = |item: Result<SnapshotResponse, Status>| {
            item.map(|blob| blob.blob.len())
                .map_err(|status| status.code())
        };
        items.into_iter().map(brief).collect()
    }

    #[tokio::test]
    async fn snapshot_that_was_cut_off_ends_with_an_error() {
        let whole = |sender: Sender| drop(sender.outcome.send(Ok(())));
        assert_eq!(end_after(whole).await, [Ok(10)]);
        let stalled = |sender: Sender| {
            let status = Status::unavailable("the client took nothing");
            drop(sender.outcome.send(Err(status)));
        };
        let unavailable = tonic::Code::Unavailable;
        assert_eq!(end_after(stalled).await, [Ok(10), Err(unavailable)]);
        // The writing thread panicked.
        assert_eq!(end_after(drop).await, [Ok(10), Err(tonic::Code::Internal)]);
    }
}
