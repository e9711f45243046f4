//! The encoding of the message stream and of the head of a snapshot body: length, message.

use bytes::{BufMut, Bytes, BytesMut};
use portunus_proto::raftpb::Message;
use prost::Message as _;

use super::{DecodeError, WORD_BYTES, checked_length, peek_word};

/// Appends one message.
pub fn encode(message: &Message, to: &mut BytesMut) {
    let length = message.encoded_len();
    to.reserve(WORD_BYTES + length);
    to.put_u64(length as u64);
    // Encoding fails only if the buffer is full, and this buffer grows.
    let _ = message.encode(to);
}

/// Decodes messages from received bytes.
pub struct Decoder {
    arrived: BytesMut,
    message_bytes_max: u64,
}

impl Decoder {
    /// A decoder for messages of at most this size.
    pub fn new(message_bytes_max: u64) -> Decoder {
        Decoder {
            arrived: BytesMut::new(),
            message_bytes_max,
        }
    }

    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// Returns the next complete message. After an error the stream cannot be decoded further.
    pub fn next_message(&mut self) -> Result<Option<Message>, DecodeError> {
        let Some(length) = peek_word(&self.arrived) else {
            return Ok(None);
        };
        let length = checked_length(length, self.message_bytes_max)?;
        if self.arrived.len() - WORD_BYTES < length {
            return Ok(None);
        }
        let mut frame = self.arrived.split_to(WORD_BYTES + length).freeze();
        let message = frame.split_off(WORD_BYTES);
        Message::decode(message)
            .map(Some)
            .map_err(DecodeError::Malformed)
    }

    /// Returns the bytes received after the last message.
    pub fn into_rest(self) -> Bytes {
        self.arrived.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{is_link_heartbeat, link_heartbeat};
    use portunus_proto::raftpb::{Entry, MessageType};

    fn vote() -> Message {
        Message {
            r#type: MessageType::MsgVote as i32,
            to: 2,
            from: 1,
            term: 300,
            ..Message::default()
        }
    }

    #[test]
    fn message_is_encoded_as_length_and_protobuf() {
        let mut bytes = BytesMut::new();
        encode(&vote(), &mut bytes);
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 9, // length
            0x08, 5, 0x10, 2, 0x18, 1, 0x20, 0xac, 0x02, // type, to, from, term
        ];
        assert_eq!(&bytes[..], &golden);
    }

    #[test]
    fn link_heartbeat_has_no_sender() {
        let mut bytes = BytesMut::new();
        encode(&link_heartbeat(), &mut bytes);
        assert_eq!(&bytes[..], &[0, 0, 0, 0, 0, 0, 0, 2, 0x08, 8]);
        assert!(is_link_heartbeat(&link_heartbeat()));
        let of_raft = Message {
            from: 1,
            ..link_heartbeat()
        };
        assert!(!is_link_heartbeat(&of_raft));
    }

    #[test]
    fn message_with_explicit_zeros_of_etcd_35_is_decoded() {
        let mut decoder = Decoder::new(100);
        // As etcd 3.5 encodes it: every scalar, zeros included, and an empty snapshot.
        let encoded_by_35 = [
            0x08, 8, 0x10, 2, 0x18, 1, 0x20, 7, 0x28, 0, 0x30, 0, 0x40, 5, 0x4a, 8, 0x12, 6, 0x0a,
            0, 0x10, 0, 0x18, 0, 0x50, 0, 0x58, 0,
        ];
        decoder.feed(&[0, 0, 0, 0, 0, 0, 0, encoded_by_35.len() as u8]);
        decoder.feed(&encoded_by_35);
        let message = decoder.next_message().unwrap().unwrap();
        assert_eq!((message.to, message.from, message.term), (2, 1, 7));
        assert_eq!(message.commit, 5);
    }

    #[test]
    fn length_above_the_limit_is_refused_without_allocating() {
        let mut decoder = Decoder::new(512 << 20);
        decoder.feed(&(2u64 << 30).to_be_bytes());
        let error = decoder.next_message().unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { length, .. } if length == 2 << 30));
        assert!(decoder.arrived.capacity() < 1024);
    }

    #[test]
    fn announced_length_allocates_no_memory() {
        let mut decoder = Decoder::new(512 << 20);
        decoder.feed(&(512u64 << 20).to_be_bytes());
        decoder.feed(&[0; 1000]);
        assert!(decoder.next_message().unwrap().is_none());
        assert!(decoder.arrived.capacity() < 16 << 10);
    }

    #[test]
    fn malformed_message_is_an_error() {
        let mut decoder = Decoder::new(100);
        decoder.feed(&[0, 0, 0, 0, 0, 0, 0, 1, 0xff]);
        assert!(matches!(
            decoder.next_message(),
            Err(DecodeError::Malformed(_))
        ));
    }

    #[test]
    fn decoded_payloads_share_the_receive_buffer() {
        let message = Message {
            entries: (1..=3)
                .map(|index| Entry {
                    index,
                    data: Bytes::from(vec![index as u8; 100]),
                    ..Entry::default()
                })
                .collect(),
            ..vote()
        };
        let mut bytes = BytesMut::new();
        encode(&message, &mut bytes);
        let mut decoder = Decoder::new(1 << 20);
        decoder.feed(&bytes);
        let arrived = decoder.arrived.as_ptr_range();
        let read = decoder.next_message().unwrap().unwrap();
        assert_eq!(read, message);
        for entry in &read.entries {
            assert!(arrived.contains(&entry.data.as_ptr()));
        }
    }

    #[test]
    fn bytes_after_the_message_are_returned() {
        let mut bytes = BytesMut::new();
        encode(&vote(), &mut bytes);
        bytes.extend_from_slice(b"database");
        let mut decoder = Decoder::new(100);
        decoder.feed(&bytes);
        assert_eq!(decoder.next_message().unwrap(), Some(vote()));
        assert_eq!(&decoder.into_rest()[..], b"database");
    }
}
