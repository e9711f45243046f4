//! Sends one message per request: to a peer without an attached stream, and to remotes,
//! which have no streams. Workers share one queue, so messages may be reordered.

use std::sync::Arc;

use bytes::Bytes;
use portunus_proto::raftpb::Message;
use prost::Message as _;
use tokio::sync::{Mutex, mpsc};

use crate::body;
use crate::peer::Peer;
use crate::post::{PostError, post};
use crate::status::Failure;

/// The receiver of the queue, shared by the workers.
pub(crate) type PipelineQueue = Arc<Mutex<mpsc::Receiver<Message>>>;

/// Runs one worker until the task is aborted.
pub(crate) async fn work(peer: Arc<Peer>, queue: PipelineQueue) {
    let raft = peer.shared.raft.wait().await.clone();
    loop {
        let next = queue.lock().await.recv().await;
        let Some(message) = next else {
            return;
        };
        let bytes = Bytes::from(message.encode_to_vec());
        let length = bytes.len() as u64;
        let request = post(&peer, "/raft", "application/protobuf", body::full(bytes));
        let result = tokio::time::timeout(peer.shared.config.post_timeout, request)
            .await
            .unwrap_or_else(|_| {
                let failure = Failure::Broken("no answer in time".into());
                Err(PostError::Failed(failure))
            });
        match result {
            Ok(()) => {
                peer.activate();
                peer.metrics.sent_bytes.inc_by(length);
            }
            Err(error) => {
                if error == PostError::Removed {
                    peer.report_removed(&*raft);
                }
                peer.metrics.sent_failures.inc();
                peer.status
                    .deactivate("posting a message", &error.failure());
                peer.shared.reports.unreachable(peer.id);
            }
        }
    }
}
