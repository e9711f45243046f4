//! A long range, answered in pieces.
//!
//! A sort target without an order is accepted as the default order, and then sorts each piece
//! separately: etcd's quirk, kept for compatibility. The next piece begins after the last key of
//! the sorted one, so such a stream may omit or repeat keys, as in etcd.
//!
//! The first piece is small, so that it is sent soon; later pieces approach
//! `piece_bytes`. All are read at the revision of the first. Only the last one
//! carries header, count and `more`; the concatenated pieces equal the answer
//! of a single range.

use bytes::{BufMut, Bytes, BytesMut};
use portunus_proto::{
    EtcdError,
    etcdserverpb::{RangeRequest, RangeResponse, ResponseHeader},
};
use prost::Message;

use super::Reader;
use crate::{
    error::ReadError,
    rules::{range::Counting, validate},
};

const FIRST_PIECE_KEYS: i64 = 10;

/// The pieces of a range, in order. Ends after the last or after an error.
#[derive(Debug)]
pub struct RangeStream {
    reader: Reader,
    /// The remaining range; `None` after the last piece.
    rest: Option<RangeRequest>,
    piece_bytes: usize,
    keys_left: i64,
    keys_sent: i64,
    header_revision: Option<i64>,
}

impl Reader {
    /// Answers a range in pieces of about `piece_bytes`.
    pub fn range_stream(
        &self,
        request: &RangeRequest,
        piece_bytes: usize,
    ) -> Result<RangeStream, EtcdError> {
        validate::range_stream(request)?;
        let keys_left = match request.limit {
            ..=0 => i64::MAX,
            limit => limit,
        };
        Ok(RangeStream {
            reader: self.clone(),
            rest: Some(RangeRequest {
                limit: FIRST_PIECE_KEYS.min(keys_left),
                ..request.clone()
            }),
            piece_bytes,
            keys_left,
            keys_sent: 0,
            header_revision: None,
        })
    }
}

impl Iterator for RangeStream {
    type Item = Result<RangeResponse, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = self.rest.take()?;
        Some(match request.count_only {
            true => self.reader.range(&request),
            false => self.piece(request),
        })
    }
}

impl RangeStream {
    fn piece(&mut self, mut request: RangeRequest) -> Result<RangeResponse, ReadError> {
        let mut piece = self.reader.range_counting(&request, Counting::UntilLimit)?;
        let newest = piece.header.take().map_or(0, |header| header.revision);
        let header_revision = *self.header_revision.get_or_insert(newest);
        if request.revision <= 0 {
            request.revision = header_revision;
        }
        let size = piece.encoded_len();
        let keys = piece.kvs.len() as i64;
        self.keys_sent += keys;
        self.keys_left -= keys;
        let next_key = piece.kvs.last().map(|last| successor(&last.key));
        match next_key {
            Some(next_key) if piece.more && self.keys_left > 0 => {
                piece.more = false;
                piece.count = 0;
                request.key = next_key;
                request.limit = next_limit(request.limit, size, self.piece_bytes);
                request.limit = request.limit.min(self.keys_left);
                self.rest = Some(request);
            }
            next_key => {
                piece.header = Some(ResponseHeader {
                    revision: header_revision,
                    ..ResponseHeader::default()
                });
                let remaining = match next_key {
                    Some(next_key) if piece.more => self.count_from(next_key, &request)?,
                    _ => 0,
                };
                piece.count = self.keys_sent + remaining;
            }
        }
        Ok(piece)
    }

    fn count_from(&self, key: Bytes, request: &RangeRequest) -> Result<i64, ReadError> {
        let counted = self.reader.range(&RangeRequest {
            key,
            range_end: request.range_end.clone(),
            revision: request.revision,
            count_only: true,
            ..RangeRequest::default()
        })?;
        Ok(counted.count)
    }
}

/// Returns the first key after the given one.
fn successor(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

/// Doubles or halves the limit if the size is off by more than a factor of two.
fn next_limit(limit: i64, size_bytes: usize, wanted_bytes: usize) -> i64 {
    if size_bytes < wanted_bytes / 2 {
        limit.saturating_mul(2)
    } else if size_bytes > wanted_bytes.saturating_mul(2) {
        (limit / 2).max(1)
    } else {
        limit
    }
}
