//! Bytes of a response, contiguous or with references to values.
//!
//! A long range response is mostly values, which are in memory already. A piece references them
//! and owns the bytes between them. The connection copies a value once, into the buffer that it
//! writes to the kernel.

use std::io::IoSlice;
use std::sync::Arc;

use axum::body::Bytes;
use bytes::{Buf, BufMut};
use portunus_proto::etcdserverpb::RangeResponse;
use portunus_proto::mvccpb::KeyValue;
use prost::encoding::{self, WireType};
use prost::{EncodeError, Message};

use crate::handles::connections::PendingBytes;

/// Shorter values are copied: a reference would cost more.
const POINTED_BYTES: usize = 512;
/// Capacity for the own bytes of a piece, enough for usual keys.
const OWN_BYTES: usize = 8 * 1024;
/// Field 2 of `RangeResponse`, length-delimited.
const KVS_TAG: u8 = 2 << 3 | 2;
/// Fields of `KeyValue`.
const VALUE_FIELD: u32 = 5;
const LEASE_FIELD: u32 = 6;

/// One frame of a response body.
#[derive(Debug)]
pub struct Piece {
    content: Content,
    /// Dropped when the piece was sent or discarded.
    _pending: Option<PendingBytes>,
}

#[derive(Debug)]
enum Content {
    /// Contiguous bytes.
    Whole(Bytes),
    /// A part of a long range response.
    Woven(Woven),
}

impl Piece {
    /// Returns a frame of contiguous bytes.
    pub fn whole(bytes: Bytes) -> Piece {
        Piece {
            content: Content::Whole(bytes),
            _pending: None,
        }
    }

    /// Returns a frame of a long range response.
    pub(super) fn woven(woven: Woven) -> Piece {
        Piece {
            content: Content::Woven(woven),
            _pending: None,
        }
    }

    /// Counts the bytes of the frame as pending for as long as it exists.
    #[must_use]
    pub fn pending(self, pending: PendingBytes) -> Piece {
        Piece {
            _pending: Some(pending),
            ..self
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match &self.content {
            Content::Whole(bytes) => bytes.remaining(),
            Content::Woven(woven) => woven.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.content {
            Content::Whole(bytes) => bytes.chunk(),
            Content::Woven(woven) => woven.chunk(),
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match &self.content {
            Content::Whole(bytes) => bytes.chunks_vectored(slices),
            Content::Woven(woven) => woven.chunks_vectored(slices),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.content {
            Content::Whole(bytes) => bytes.advance(count),
            Content::Woven(woven) => woven.advance(count),
        }
    }
}

/// Own bytes, with values of a response in between.
#[derive(Debug)]
pub struct Woven {
    answer: Arc<RangeResponse>,
    own: Vec<u8>,
    values: Vec<Pointed>,
    values_len: usize,
    sent: Place,
    sent_len: usize,
}

/// A value held by reference.
#[derive(Debug)]
struct Pointed {
    /// The number of own bytes in front of it.
    after: usize,
    /// The index of its key in the response.
    number: usize,
}

/// A position in a piece.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    own: usize,
    /// Values before the position.
    values: usize,
    /// Bytes of the next value before the position.
    in_value: usize,
}

impl Woven {
    /// Creates an empty piece of a response.
    pub fn of(answer: &Arc<RangeResponse>) -> Self {
        Self {
            answer: Arc::clone(answer),
            own: Vec::with_capacity(OWN_BYTES),
            values: Vec::new(),
            values_len: 0,
            sent: Place::default(),
            sent_len: 0,
        }
    }

    /// The buffer for bytes that are no keys.
    pub fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Returns the total number of bytes.
    pub fn len(&self) -> usize {
        self.own.len() + self.values_len
    }

    /// Appends a key of the response with its value.
    pub fn weave(&mut self, number: usize) -> Result<(), EncodeError> {
        let kv = &self.answer.kvs[number];
        let own = &mut self.own;
        own.put_u8(KVS_TAG);
        if kv.value.len() < POINTED_BYTES {
            return kv.encode_length_delimited(own);
        }
        encoding::encode_varint(kv.encoded_len() as u64, own);
        let before_value = KeyValue {
            key: kv.key.clone(),
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            value: Bytes::new(),
            lease: 0,
        };
        before_value.encode(own)?;
        encoding::encode_key(VALUE_FIELD, WireType::LengthDelimited, own);
        encoding::encode_varint(kv.value.len() as u64, own);
        let after = own.len();
        self.values.push(Pointed { after, number });
        self.values_len += kv.value.len();
        if kv.lease != 0 {
            encoding::int64::encode(LEASE_FIELD, &kv.lease, own);
        }
        Ok(())
    }

    /// Returns the contiguous bytes at `place`, and the position after them.
    fn follows(&self, place: Place) -> Option<(&[u8], Place)> {
        let value = self.values.get(place.values);
        let own_end = value.map_or(self.own.len(), |value| value.after);
        if place.own < own_end {
            let behind = Place {
                own: own_end,
                ..place
            };
            return Some((&self.own[place.own..own_end], behind));
        }
        let value = &self.answer.kvs[value?.number].value;
        let behind = Place {
            own: place.own,
            values: place.values + 1,
            in_value: 0,
        };
        Some((&value[place.in_value..], behind))
    }
}

impl Buf for Woven {
    fn remaining(&self) -> usize {
        self.len() - self.sent_len
    }

    fn chunk(&self) -> &[u8] {
        self.follows(self.sent).map_or(&[], |(bytes, _)| bytes)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut place = self.sent;
        for (count, slice) in slices.iter_mut().enumerate() {
            let Some((bytes, behind)) = self.follows(place) else {
                return count;
            };
            *slice = IoSlice::new(bytes);
            place = behind;
        }
        slices.len()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining(), "there is not so much");
        self.sent_len += count;
        while let Some((bytes, behind)) = self.follows(self.sent) {
            if count >= bytes.len() {
                count -= bytes.len();
                self.sent = behind;
                continue;
            }
            if behind.values == self.sent.values {
                self.sent.own += count;
            } else {
                self.sent.in_value += count;
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woven(values: &[usize]) -> (Woven, Vec<u8>) {
        let kvs = values.iter().zip(1..).map(|(bytes, number)| KeyValue {
            key: format!("key/{number}").into(),
            value: vec![number as u8; *bytes].into(),
            create_revision: 2,
            mod_revision: number,
            version: 1,
            lease: number % 2,
        });
        let answer = RangeResponse {
            kvs: kvs.collect(),
            ..RangeResponse::default()
        };
        let expected = answer.encode_to_vec();
        let mut woven = Woven::of(&Arc::new(answer));
        for number in 0..values.len() {
            woven.weave(number).unwrap();
        }
        assert_eq!(woven.len(), expected.len());
        (woven, expected)
    }

    /// Reading `step` bytes at a time yields the encoded message.
    #[test]
    fn pieces_of_any_length_equal_the_message() {
        let values = [0, 1, 511, 512, 513, 4000, 0, 70_000, 600];
        let (_, expected) = woven(&values);
        for step in [1, 7, 100, 512, 600, 16_384, expected.len()] {
            let (mut woven, _) = woven(&values);
            let mut read: Vec<u8> = Vec::new();
            while woven.has_remaining() {
                assert_eq!(woven.remaining(), expected.len() - read.len());
                let mut slices = [IoSlice::new(&[]); 5];
                let count = woven.chunks_vectored(&mut slices);
                assert_eq!(*slices[0], *woven.chunk());
                let bytes = slices[..count].iter().flat_map(|slice| slice.iter());
                let before = read.len();
                read.extend(bytes.take(step));
                let taken = read.len() - before;
                woven.advance(taken);
            }
            assert!(read == expected, "steps of {step}");
            assert!(woven.chunk().is_empty());
        }
    }

    #[test]
    fn long_values_are_not_copied() {
        let (woven, _) = woven(&[10_000, 20_000]);
        assert!(woven.own.len() < 100);
        assert_eq!(woven.values_len, 30_000);
    }
}
