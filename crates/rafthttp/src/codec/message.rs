//! The message stream, and the head of a snapshot's body: a length, then a message.

use bytes::{BufMut, Bytes, BytesMut};
use portunus_proto::raftpb::Message;
use prost::Message as _;

use super::{DecodeError, WORD_BYTES, checked_length, peek_word};

/// Appends one message.
pub fn encode(message: &Message, to: &mut BytesMut) {
    let length = message.encoded_len();
    to.reserve(WORD_BYTES + length);
    to.put_u64(length as u64);
    // Encoding fails for want of room only, and a growing buffer always has room.
    let _ = message.encode(to);
}

/// Takes messages out of what arrived.
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

    /// Adds what arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// The next message, if it is whole. After an error the stream is of no more use.
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

    /// What arrived behind the last message.
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
    fn a_message_is_its_length_and_its_protobuf() {
        let mut bytes = BytesMut::new();
        encode(&vote(), &mut bytes);
        let golden = [
            0, 0, 0, 0, 0, 0, 0, 9, // length
            0x08, 5, 0x10, 2, 0x18, 1, 0x20, 0xac, 0x02, // type, to, from, term
        ];
        assert_eq!(&bytes[..], &golden);
    }

    #[test]
    fn the_link_heartbeat_is_known_by_its_missing_sender() {
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
    fn zeros_that_old_members_write_are_read() {
        let mut decoder = Decoder::new(100);
        // Every scalar written out, zeros included, and an empty snapshot, as 3.5 does.
        let old = [
            0x08, 8, 0x10, 2, 0x18, 1, 0x20, 7, 0x28, 0, 0x30, 0, 0x40, 5, 0x4a, 8, 0x12, 6, 0x0a,
            0, 0x10, 0, 0x18, 0, 0x50, 0, 0x58, 0,
        ];
        decoder.feed(&[0, 0, 0, 0, 0, 0, 0, old.len() as u8]);
        decoder.feed(&old);
        let message = decoder.next_message().unwrap().unwrap();
        assert_eq!((message.to, message.from, message.term), (2, 1, 7));
        assert_eq!(message.commit, 5);
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_is_kept() {
        let mut decoder = Decoder::new(512 << 20);
        decoder.feed(&(2u64 << 30).to_be_bytes());
        let error = decoder.next_message().unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { length, .. } if length == 2 << 30));
        assert!(decoder.arrived.capacity() < 1024);
    }

    #[test]
    fn a_long_announcement_alone_costs_no_memory() {
        let mut decoder = Decoder::new(512 << 20);
        decoder.feed(&(512u64 << 20).to_be_bytes());
        decoder.feed(&[0; 1000]);
        assert!(decoder.next_message().unwrap().is_none());
        assert!(decoder.arrived.capacity() < 16 << 10);
    }

    #[test]
    fn bytes_that_are_no_message_end_the_stream() {
        let mut decoder = Decoder::new(100);
        decoder.feed(&[0, 0, 0, 0, 0, 0, 0, 1, 0xff]);
        assert!(matches!(
            decoder.next_message(),
            Err(DecodeError::Malformed(_))
        ));
    }

    #[test]
    fn payloads_share_the_memory_they_arrived_in() {
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
    fn what_follows_the_message_is_handed_on() {
        let mut bytes = BytesMut::new();
        encode(&vote(), &mut bytes);
        bytes.extend_from_slice(b"database");
        let mut decoder = Decoder::new(100);
        decoder.feed(&bytes);
        assert_eq!(decoder.next_message().unwrap(), Some(vote()));
        assert_eq!(&decoder.into_rest()[..], b"database");
    }
}
