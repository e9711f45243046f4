//! Why a watch ended.

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchResponse;

use crate::error::ClientError;

/// Why a watch of a [stream](super::WatchStreams) ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchEnd {
    /// The events that the watch needs next were compacted.
    #[error("{}", EtcdError::Compacted.text())]
    Compacted {
        /// The oldest revision at which a watch can start, if the server told it.
        compact_revision: Option<i64>,
    },
    /// The server canceled the watch.
    #[error("the server canceled the watch: {reason}")]
    Canceled {
        /// The reason as the server gave it; may be empty.
        reason: String,
    },
    /// The server sent an event after a later one or after a progress notice of its revision.
    #[error("the server sent an event of revision {revision} after all events up to {delivered}")]
    OutOfOrder {
        /// The revision of the event.
        revision: i64,
        /// The revision up to which events were complete.
        delivered: i64,
    },
    /// The stream failed with an error that a new stream does not repair.
    #[error(transparent)]
    Client(ClientError),
}

impl WatchEnd {
    /// Returns why a response with `canceled` ended its watch.
    pub(super) fn of_response(response: &WatchResponse) -> Self {
        let reason = &response.cancel_reason;
        let compact_revision = Some(response.compact_revision).filter(|revision| *revision > 0);
        if compact_revision.is_some() || reason.contains(EtcdError::Compacted.text()) {
            return Self::Compacted { compact_revision };
        }
        Self::Canceled {
            reason: reason.clone(),
        }
    }
}

/// Returns the same error for another watch of the stream.
pub(super) fn copy_of(error: &ClientError) -> ClientError {
    match error {
        ClientError::Etcd(error) => ClientError::Etcd(*error),
        ClientError::DeadlineExceeded { .. } => {
            ClientError::DeadlineExceeded { last_attempt: None }
        }
        ClientError::Rpc { code, message } => ClientError::Rpc {
            code: *code,
            message: message.clone(),
        },
        ClientError::Canceled { reason } => ClientError::Canceled {
            reason: reason.clone(),
        },
        ClientError::Unsupported { call, message } => ClientError::Unsupported {
            call,
            message: message.clone(),
        },
        ClientError::Argument(error) => ClientError::Argument(error.clone()),
        ClientError::StreamEnded => ClientError::StreamEnded,
    }
}
