//! The encodings of the two streams, without I/O.
//!
//! Encoders append to a buffer. Decoders are fed received bytes in pieces of any size and
//! return each message once it is complete. No decoder reserves memory from a length field:
//! it holds only received bytes. The payloads of decoded entries share the receive buffer.

pub mod message;
pub mod msgapp_v2;

use portunus_proto::raftpb::{Message, MessageType};
use thiserror::Error;

/// The size of every length, count and index field.
const WORD_BYTES: usize = 8;

/// A stream that cannot be decoded further.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DecodeError {
    /// A length field above the limit.
    #[error("rafthttp: error limit exceeded: {length} bytes announced, {length_max} allowed")]
    TooLong { length: u64, length_max: u64 },
    /// Bytes that are not a valid protobuf message.
    #[error("message cannot be decoded")]
    Malformed(#[source] prost::DecodeError),
    /// A frame with an undefined kind byte.
    #[error("failed to parse type {kind} in msgappv2 stream")]
    UnknownKind { kind: u8 },
}

/// Returns the message that only keeps a stream alive.
pub fn link_heartbeat() -> Message {
    Message {
        r#type: MessageType::MsgHeartbeat as i32,
        ..Message::default()
    }
}

/// Returns whether a message only keeps the stream alive. Raft heartbeats have a sender.
pub fn is_link_heartbeat(message: &Message) -> bool {
    message.r#type == MessageType::MsgHeartbeat as i32 && message.from == 0
}

/// Returns the first 8 bytes of a buffer as a big-endian integer.
fn peek_word(buffer: &[u8]) -> Option<u64> {
    buffer
        .first_chunk::<WORD_BYTES>()
        .map(|word| u64::from_be_bytes(*word))
}

/// Converts a length field to a size, if it is within the limit.
fn checked_length(length: u64, length_max: u64) -> Result<usize, DecodeError> {
    let too_long = DecodeError::TooLong { length, length_max };
    if length > length_max {
        return Err(too_long);
    }
    usize::try_from(length).map_err(|_| too_long)
}
