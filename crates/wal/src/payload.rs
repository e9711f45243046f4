//! The data of entry, state and snapshot records.
//!
//! Encoded as in etcd up to 3.6, zeros included, so that equal histories give
//! equal files. Decoding is strict for entries and states: the checksum does
//! not cover a record's type, and a lenient decoder could decode one message as
//! the other.

use bytes::Bytes;
use portunus_proto::{
    raftpb::{Entry, HardState},
    walpb::Snapshot,
};
use prost::Message;

use crate::record::{VarintReader, put_varint};

const FIELD_1: u8 = 1 << 3;
const FIELD_2: u8 = 2 << 3;
const FIELD_3: u8 = 3 << 3;
const FIELD_3_MESSAGE: u8 = 3 << 3 | 2;
const FIELD_4_BYTES: u8 = 4 << 3 | 2;
const CONF_STATE_AUTO_LEAVE: u8 = 5 << 3;

/// Entry types known to raft: normal, membership change, membership change v2.
pub(crate) const ENTRY_TYPE_MAX: i32 = 2;

/// Encodes an entry up to its payload, which must follow.
pub(crate) fn put_entry_front(entry: &Entry, out: &mut Vec<u8>) {
    out.push(FIELD_1);
    // Sign extension, as protobuf encodes enums; types are checked before this.
    put_varint(i64::from(entry.r#type) as u64, out);
    out.push(FIELD_2);
    put_varint(entry.term, out);
    out.push(FIELD_3);
    put_varint(entry.index, out);
    if !entry.data.is_empty() {
        out.push(FIELD_4_BYTES);
        put_varint(entry.data.len() as u64, out);
    }
}

pub(crate) fn put_state(state: &HardState, out: &mut Vec<u8>) {
    for (tag, value) in [
        (FIELD_1, state.term),
        (FIELD_2, state.vote),
        (FIELD_3, state.commit),
    ] {
        out.push(tag);
        put_varint(value, out);
    }
}

pub(crate) fn put_snapshot(snapshot: &Snapshot, out: &mut Vec<u8>) {
    out.push(FIELD_1);
    put_varint(snapshot.index, out);
    out.push(FIELD_2);
    put_varint(snapshot.term, out);
    if let Some(conf_state) = &snapshot.conf_state {
        let mut encoded = conf_state.encode_to_vec();
        if !conf_state.auto_leave {
            encoded.extend_from_slice(&[CONF_STATE_AUTO_LEAVE, 0]);
        }
        out.push(FIELD_3_MESSAGE);
        put_varint(encoded.len() as u64, out);
        out.extend_from_slice(&encoded);
    }
}

/// Decodes an entry whose payload shares `data`'s memory; `None` if `data` is
/// not exactly an entry's fields in order.
pub(crate) fn read_entry(data: &Bytes) -> Option<Entry> {
    let mut entry = Entry::default();
    let mut fields = OrderedFields::new(data);
    while let Some(tag) = fields.next_tag()? {
        match tag {
            FIELD_1 => {
                entry.r#type = i32::try_from(fields.varint()?).ok()?;
                if entry.r#type > ENTRY_TYPE_MAX {
                    return None;
                }
            }
            FIELD_2 => entry.term = fields.varint()?,
            FIELD_3 => entry.index = fields.varint()?,
            FIELD_4_BYTES => {
                let payload_bytes = usize::try_from(fields.varint()?).ok()?;
                let start = fields.reader.position;
                if start.checked_add(payload_bytes)? != data.len() {
                    return None;
                }
                entry.data = data.slice(start..);
                return Some(entry);
            }
            _ => return None,
        }
    }
    Some(entry)
}

/// Decodes a hard state; `None` if `data` is not exactly its fields in order.
pub(crate) fn read_state(data: &[u8]) -> Option<HardState> {
    let mut state = HardState::default();
    let mut fields = OrderedFields::new(data);
    while let Some(tag) = fields.next_tag()? {
        let field = match tag {
            FIELD_1 => &mut state.term,
            FIELD_2 => &mut state.vote,
            FIELD_3 => &mut state.commit,
            _ => return None,
        };
        *field = fields.varint()?;
    }
    Some(state)
}

pub(crate) fn read_snapshot(data: Bytes) -> Option<Snapshot> {
    Snapshot::decode(data).ok()
}

/// Reads fields with one-byte tags that must ascend.
struct OrderedFields<'a> {
    reader: VarintReader<'a>,
    last_tag: u8,
}

impl<'a> OrderedFields<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            reader: VarintReader::new(bytes),
            last_tag: 0,
        }
    }

    /// Returns the next tag. Outer `None`: malformed. Inner `None`: the end.
    fn next_tag(&mut self) -> Option<Option<u8>> {
        if self.reader.at_end() {
            return Some(None);
        }
        let tag = self.reader.byte().ok()?;
        if tag <= self.last_tag {
            return None;
        }
        self.last_tag = tag;
        Some(Some(tag))
    }

    fn varint(&mut self) -> Option<u64> {
        self.reader.varint().ok()
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::raftpb::ConfState;

    use super::*;

    fn encoded(entry: &Entry) -> Bytes {
        let mut out = Vec::new();
        put_entry_front(entry, &mut out);
        out.extend_from_slice(&entry.data);
        out.into()
    }

    #[test]
    fn entries_decode_as_with_the_protobuf_decoder() {
        for data in [&b""[..], b"x", &[7; 300]] {
            for (r#type, term, index) in [(0, 1, 1), (1, 300, u64::MAX), (2, 0, 0)] {
                let entry = Entry {
                    r#type,
                    term,
                    index,
                    data: Bytes::copy_from_slice(data),
                };
                let bytes = encoded(&entry);
                assert_eq!(read_entry(&bytes), Some(entry.clone()));
                assert_eq!(Entry::decode(bytes).unwrap(), entry);
                let sparse = Bytes::from(entry.encode_to_vec());
                assert_eq!(read_entry(&sparse), Some(entry), "as 3.7 writes it");
            }
        }
    }

    #[test]
    fn entry_does_not_decode_as_a_state_and_malformed_ones_do_not_decode() {
        let entry = Entry {
            term: 1,
            index: 2,
            data: Bytes::from_static(b"payload"),
            ..Default::default()
        };
        let bytes = encoded(&entry);
        assert_eq!(read_state(&bytes), None);
        assert_eq!(read_entry(&bytes.slice(..bytes.len() - 1)), None);
        for wrong in [
            &[FIELD_2, 1, FIELD_1, 1][..], // out of order
            &[FIELD_1, 3],                 // no such type
            &[FIELD_1, 0, 5 << 3, 0],      // no such field
            &[FIELD_1, 0x80],              // cut
        ] {
            assert_eq!(read_entry(&Bytes::copy_from_slice(wrong)), None);
        }
    }

    #[test]
    fn states_and_snapshots_encode_zeros_and_round_trip() {
        let state = HardState {
            term: 2,
            vote: 0,
            commit: 300,
        };
        let mut out = Vec::new();
        put_state(&state, &mut out);
        assert_eq!(out, [8, 2, 16, 0, 24, 0xac, 2]);
        assert_eq!(read_state(&out), Some(state));
        assert_eq!(read_state(&state.encode_to_vec()), Some(state));

        let snapshot = Snapshot {
            index: 9,
            term: 0,
            conf_state: Some(ConfState {
                voters: vec![1, 2],
                ..Default::default()
            }),
        };
        out.clear();
        put_snapshot(&snapshot, &mut out);
        assert_eq!(out, [8, 9, 16, 0, 26, 6, 8, 1, 8, 2, 40, 0]);
        assert_eq!(read_snapshot(out.into()), Some(snapshot));
    }
}
