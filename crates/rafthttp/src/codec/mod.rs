//! The bytes of the two streams, without any I/O.
//!
//! Encoders append to a buffer. Decoders are fed whatever arrived, in pieces of any size,
//! and give messages as soon as they are whole. No decoder reserves memory because a
//! length field says so: it holds what has arrived and nothing more. The payloads of
//! decoded entries share the memory they arrived in.

pub mod message;
pub mod msgapp_v2;

use portunus_proto::raftpb::{Message, MessageType};
use thiserror::Error;

/// Bytes of every length, count and index field.
const WORD_BYTES: usize = 8;

/// What ends a stream while it is read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DecodeError {
    /// A length field above the limit.
    #[error("rafthttp: error limit exceeded: {length} bytes announced, {length_max} allowed")]
    TooLong { length: u64, length_max: u64 },
    /// Bytes that are no protobuf message.
    #[error("a message that cannot be read")]
    Malformed(#[source] prost::DecodeError),
    /// A frame of a kind nobody knows.
    #[error("failed to parse type {kind} in msgappv2 stream")]
    UnknownKind { kind: u8 },
}

/// The message that says nothing but "the line is alive".
pub fn link_heartbeat() -> Message {
    Message {
        r#type: MessageType::MsgHeartbeat as i32,
        ..Message::default()
    }
}

/// Whether a message is only about the line. Raft's own heartbeats name their sender.
pub fn is_link_heartbeat(message: &Message) -> bool {
    message.r#type == MessageType::MsgHeartbeat as i32 && message.from == 0
}

/// Reads the first word of a buffer.
fn peek_word(buffer: &[u8]) -> Option<u64> {
    buffer
        .first_chunk::<WORD_BYTES>()
        .map(|word| u64::from_be_bytes(*word))
}

/// A length that is allowed, as a size in memory.
fn checked_length(length: u64, length_max: u64) -> Result<usize, DecodeError> {
    let too_long = DecodeError::TooLong { length, length_max };
    if length > length_max {
        return Err(too_long);
    }
    usize::try_from(length).map_err(|_| too_long)
}
