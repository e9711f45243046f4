//! The encoding of the msgapp stream: appends, without fields that the reader can derive.
//!
//! ```text
//!   0                                                       link heartbeat
//!   1  count  (length entry)*count  commit                  entries that follow the previous ones
//!   2  length message                                       any other append
//! ```
//!
//! Both sides track the term and index of the last entry on the stream. While a leader sends
//! in order, appends use kind 1, which contains neither term nor index.

use bytes::{Buf, BufMut, BytesMut};
use portunus_proto::raftpb::{Entry, Message, MessageType};
use prost::Message as _;

use super::{
    DecodeError, WORD_BYTES, checked_length, is_link_heartbeat, link_heartbeat, peek_word,
};

const LINK_HEARTBEAT: u8 = 0;
const APP_ENTRIES: u8 = 1;
const APP: u8 = 2;

/// The memory of an entry besides its payload. It counts against the message limit, because
/// a short message of empty entries could otherwise use much memory.
const ENTRY_OVERHEAD_BYTES: u64 = size_of::<Entry>() as u64;

/// The term and index of the last entry on a stream; the same on both sides.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct StreamPosition {
    term: u64,
    index: u64,
}

impl StreamPosition {
    fn after(message: &Message) -> StreamPosition {
        let last = message.entries.last();
        StreamPosition {
            term: message.term,
            index: last.map_or(message.index, |entry| entry.index),
        }
    }
}

/// Encodes one stream.
#[derive(Debug, Default)]
pub struct Encoder {
    position: StreamPosition,
}

impl Encoder {
    /// Appends one message, which is an append or a link heartbeat.
    pub fn encode(&mut self, message: &Message, to: &mut BytesMut) {
        if is_link_heartbeat(message) {
            to.put_u8(LINK_HEARTBEAT);
        } else if self.continues(message) {
            to.put_u8(APP_ENTRIES);
            to.put_u64(message.entries.len() as u64);
            for entry in &message.entries {
                put_with_length(entry, to);
            }
            to.put_u64(message.commit);
            self.position.index = self
                .position
                .index
                .wrapping_add(message.entries.len() as u64);
        } else {
            to.put_u8(APP);
            put_with_length(message, to);
            self.position = StreamPosition::after(message);
        }
    }

    fn continues(&self, message: &Message) -> bool {
        message.r#type == MessageType::MsgApp as i32
            && message.index == self.position.index
            && message.log_term == self.position.term
            && message.log_term == message.term
    }
}

fn put_with_length(message: &impl prost::Message, to: &mut BytesMut) {
    let length = message.encoded_len();
    to.reserve(WORD_BYTES + length);
    to.put_u64(length as u64);
    // Encoding fails only if the buffer is full, and this buffer grows.
    let _ = message.encode(to);
}

/// Decodes one stream.
pub struct Decoder {
    local: u64,
    remote: u64,
    message_bytes_max: u64,
    position: StreamPosition,
    arrived: BytesMut,
    open: Option<OpenAppend>,
}

/// An append of kind 1 that is not complete yet.
struct OpenAppend {
    message: Message,
    entries_missing: u64,
    bytes_left: u64,
}

impl Decoder {
    /// A decoder for the stream from `remote` to `local`, with messages of at most this size.
    pub fn new(local: u64, remote: u64, message_bytes_max: u64) -> Decoder {
        Decoder {
            local,
            remote,
            message_bytes_max,
            position: StreamPosition::default(),
            arrived: BytesMut::new(),
            open: None,
        }
    }

    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// Returns the next complete message. After an error the stream cannot be decoded further.
    pub fn next_message(&mut self) -> Result<Option<Message>, DecodeError> {
        if self.open.is_some() {
            return self.continue_append();
        }
        let Some(&kind) = self.arrived.first() else {
            return Ok(None);
        };
        match kind {
            LINK_HEARTBEAT => {
                self.arrived.advance(1);
                Ok(Some(link_heartbeat()))
            }
            APP_ENTRIES => {
                let Some(entries_missing) = peek_word(&self.arrived[1..]) else {
                    return Ok(None);
                };
                self.arrived.advance(1 + WORD_BYTES);
                self.open = Some(OpenAppend {
                    message: self.next_append(),
                    entries_missing,
                    bytes_left: self.message_bytes_max,
                });
                self.continue_append()
            }
            APP => self.decode_full_append(),
            kind => Err(DecodeError::UnknownKind { kind }),
        }
    }

    fn next_append(&self) -> Message {
        Message {
            r#type: MessageType::MsgApp as i32,
            from: self.remote,
            to: self.local,
            term: self.position.term,
            log_term: self.position.term,
            index: self.position.index,
            ..Message::default()
        }
    }

    /// Decodes the received entries; returns the message once its commit index was received.
    fn continue_append(&mut self) -> Result<Option<Message>, DecodeError> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        while open.entries_missing > 0 {
            let Some(length) = peek_word(&self.arrived) else {
                return Ok(None);
            };
            let taken_bytes = length.saturating_add(ENTRY_OVERHEAD_BYTES);
            let size = checked_length(taken_bytes, open.bytes_left)? - size_of::<Entry>();
            if self.arrived.len() - WORD_BYTES < size {
                return Ok(None);
            }
            self.arrived.advance(WORD_BYTES);
            let entry = self.arrived.split_to(size).freeze();
            let entry = Entry::decode(entry).map_err(DecodeError::Malformed)?;
            open.message.entries.push(entry);
            open.entries_missing -= 1;
            open.bytes_left -= taken_bytes;
        }
        let Some(commit) = peek_word(&self.arrived) else {
            return Ok(None);
        };
        self.arrived.advance(WORD_BYTES);
        let Some(OpenAppend { mut message, .. }) = self.open.take() else {
            return Ok(None);
        };
        message.commit = commit;
        self.position.index = self
            .position
            .index
            .wrapping_add(message.entries.len() as u64);
        Ok(Some(message))
    }

    fn decode_full_append(&mut self) -> Result<Option<Message>, DecodeError> {
        let Some(length) = peek_word(&self.arrived[1..]) else {
            return Ok(None);
        };
        let length = checked_length(length, self.message_bytes_max)?;
        let head_bytes = 1 + WORD_BYTES;
        if self.arrived.len() - head_bytes < length {
            return Ok(None);
        }
        self.arrived.advance(head_bytes);
        let message = self.arrived.split_to(length).freeze();
        let message = Message::decode(message).map_err(DecodeError::Malformed)?;
        self.position = StreamPosition::after(&message);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(term: u64, index: u64, data: &[u8]) -> Entry {
        Entry {
            term,
            index,
            data: Bytes::copy_from_slice(data),
            ..Entry::default()
        }
    }

    fn append(term: u64, log_term: u64, index: u64, commit: u64, entries: Vec<Entry>) -> Message {
        Message {
            r#type: MessageType::MsgApp as i32,
            from: 1,
            to: 2,
            term,
            log_term,
            index,
            commit,
            entries,
            ..Message::default()
        }
    }

    fn encoded(messages: &[Message]) -> BytesMut {
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::default();
        for message in messages {
            encoder.encode(message, &mut bytes);
        }
        bytes
    }

    fn decoded(mut bytes: &[u8], piece_bytes: usize) -> Vec<Message> {
        let mut decoder = Decoder::new(2, 1, 1 << 20);
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(piece_bytes.min(bytes.len()));
            decoder.feed(piece);
            while let Some(message) = decoder.next_message().unwrap() {
                messages.push(message);
            }
            bytes = rest;
        }
        messages
    }

    #[test]
    fn encoding_equals_etcds_bytes() {
        let messages = [
            append(3, 2, 9, 8, vec![entry(3, 10, b"a")]),
            append(3, 3, 10, 10, vec![entry(3, 11, b"b")]),
            link_heartbeat(),
            append(3, 3, 11, 11, vec![]),
        ];
        #[rustfmt::skip]
        let golden: &[u8] = &[
            2, 0,0,0,0,0,0,0,23,                            // a full append
            0x08,3, 0x10,2, 0x18,1, 0x20,3, 0x28,2, 0x30,9,
            0x3a,7, 0x10,3, 0x18,10, 0x22,1,b'a', 0x40,8,
            1, 0,0,0,0,0,0,0,1,                             // one following entry
            0,0,0,0,0,0,0,7, 0x10,3, 0x18,11, 0x22,1,b'b',
            0,0,0,0,0,0,0,10,                               // commit
            0,                                              // heartbeat
            1, 0,0,0,0,0,0,0,0, 0,0,0,0,0,0,0,11,           // commit only
        ];
        assert_eq!(&encoded(&messages)[..], golden);
        for piece_bytes in [1, 2, 7, 1000] {
            assert_eq!(decoded(golden, piece_bytes), messages);
        }
    }

    #[test]
    fn append_that_does_not_continue_is_sent_in_full() {
        let cases = [
            ("another index", append(3, 3, 12, 0, vec![])),
            ("an older entry before it", append(3, 2, 10, 0, vec![])),
            ("a new term", append(4, 3, 10, 0, vec![])),
        ];
        for (what, message) in cases {
            let first = append(3, 2, 9, 8, vec![entry(3, 10, b"a")]);
            let alone = encoded(std::slice::from_ref(&first)).len();
            let bytes = encoded(&[first.clone(), message.clone()]);
            assert_eq!(bytes[alone], APP, "{what}");
            assert_eq!(decoded(&bytes, 5), [first, message], "{what}");
        }
    }

    #[test]
    fn unknown_kind_is_an_error() {
        let mut decoder = Decoder::new(2, 1, 100);
        decoder.feed(b"HTTP/1.1 400 Bad Request");
        assert!(matches!(
            decoder.next_message(),
            Err(DecodeError::UnknownKind { kind: b'H' })
        ));
    }

    #[test]
    fn length_above_the_limit_is_refused_without_allocating() {
        let announcements: [&[u8]; 2] = [
            &[2, 0, 0, 0, 0, 0x80, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 0, 0, 0],
        ];
        for announcement in announcements {
            let mut decoder = Decoder::new(2, 1, 512 << 20);
            decoder.feed(announcement);
            assert!(matches!(
                decoder.next_message(),
                Err(DecodeError::TooLong { .. })
            ));
            assert!(decoder.arrived.capacity() < 1024);
        }
    }

    #[test]
    fn announced_entry_count_allocates_no_memory() {
        let mut decoder = Decoder::new(2, 1, 512 << 20);
        decoder.feed(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(decoder.next_message().unwrap().is_none());
        assert_eq!(decoder.open.unwrap().message.entries.capacity(), 0);
    }

    #[test]
    fn empty_entries_count_against_the_limit() {
        let mut decoder = Decoder::new(2, 1, 10 * ENTRY_OVERHEAD_BYTES);
        decoder.feed(&[1, 0, 0, 0, 0, 0, 0, 0, 200]);
        decoder.feed(&[0; 200 * WORD_BYTES]);
        assert!(matches!(
            decoder.next_message(),
            Err(DecodeError::TooLong { .. })
        ));
        assert_eq!(decoder.open.unwrap().message.entries.len(), 10);
    }
}
