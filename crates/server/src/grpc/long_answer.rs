//! Long answers to ranges, encoded while they are sent.
//!
//! The library encodes a message whole before the first byte leaves: ten thousand keys are ten
//! megabytes that are written to memory once and read from there again, for each client that
//! lists. Here such an answer goes along beside its message, and a body that makes a piece
//! whenever the connection wants one takes the place of the library's. A piece is still in the
//! processor's cache when the kernel copies it, and what waits for a slow reader are
//! references to values that are in memory anyway.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use bytes::{BufMut, BytesMut};
use http_body::Frame;
use portunus_proto::etcdserverpb::RangeResponse;
use prost::{EncodeError, Message};

/// A piece is sent when it has this much.
const PIECE_BYTES: usize = 64 * 1024;
/// Shorter answers are faster whole.
const LONG_BYTES: usize = 4 * PIECE_BYTES;
/// With fewer keys nobody looks how long an answer is.
const LONG_KEYS: usize = 64;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Field 2 of an answer, length-delimited.
const KVS_TAG: u8 = 2 << 3 | 2;

/// What a response carries until [`send_in_pieces`] takes it.
#[derive(Debug, Clone)]
struct LongAnswer {
    answer: Arc<RangeResponse>,
    message_bytes: u32,
}

/// The response for an answer: the answer itself, or if it is long an empty one that carries it.
pub(super) fn respond(answer: RangeResponse) -> tonic::Response<RangeResponse> {
    if answer.kvs.len() < LONG_KEYS {
        return tonic::Response::new(answer);
    }
    let message_bytes = answer.encoded_len();
    match u32::try_from(message_bytes) {
        Ok(message_bytes) if message_bytes as usize >= LONG_BYTES => {
            let mut response = tonic::Response::new(RangeResponse::default());
            response.extensions_mut().insert(LongAnswer {
                answer: Arc::new(answer),
                message_bytes,
            });
            response
        }
        // What is longer than any message may be is the library's to refuse.
        _ => tonic::Response::new(answer),
    }
}

/// Gives a response that carries a long answer the body for it.
pub fn send_in_pieces(response: &mut Response<Body>) {
    if let Some(long) = response.extensions_mut().remove::<LongAnswer>() {
        *response.body_mut() = Body::new(Pieces {
            long,
            next: Next::Header,
        });
    }
}

/// A message in the making.
struct Pieces {
    long: LongAnswer,
    next: Next,
}

/// What the next piece begins with.
#[derive(Debug, Clone, Copy)]
enum Next {
    Header,
    Key(usize),
    Trailers,
    Nothing,
}

impl Pieces {
    fn next(&mut self) -> Result<Option<Frame<Bytes>>, EncodeError> {
        let answer = &*self.long.answer;
        let mut piece = BytesMut::new();
        let first = match self.next {
            Next::Nothing => return Ok(None),
            Next::Trailers => {
                self.next = Next::Nothing;
                let mut trailers = HeaderMap::new();
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                return Ok(Some(Frame::trailers(trailers)));
            }
            Next::Header => {
                piece.reserve(PIECE_BYTES + PIECE_BYTES / 4);
                // Not compressed, and so long.
                piece.put_u8(0);
                piece.put_u32(self.long.message_bytes);
                let header = RangeResponse {
                    header: answer.header,
                    ..RangeResponse::default()
                };
                header.encode(&mut piece)?;
                0
            }
            Next::Key(number) => {
                piece.reserve(PIECE_BYTES + PIECE_BYTES / 4);
                number
            }
        };
        let mut number = first;
        while let Some(kv) = answer.kvs.get(number) {
            piece.put_u8(KVS_TAG);
            kv.encode_length_delimited(&mut piece)?;
            number += 1;
            if piece.len() >= PIECE_BYTES {
                break;
            }
        }
        self.next = Next::Key(number);
        if number == answer.kvs.len() {
            let rest = RangeResponse {
                more: answer.more,
                count: answer.count,
                ..RangeResponse::default()
            };
            rest.encode(&mut piece)?;
            self.next = Next::Trailers;
        }
        Ok(Some(Frame::data(piece.freeze())))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = EncodeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EncodeError>>> {
        Poll::Ready(self.next().transpose())
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::etcdserverpb::ResponseHeader;
    use portunus_proto::mvccpb::KeyValue;

    use super::*;

    fn answer(keys: usize, value_bytes: usize) -> RangeResponse {
        let kvs = (0..keys).map(|number| KeyValue {
            key: format!("key/{number}").into(),
            value: vec![b'v'; value_bytes].into(),
            create_revision: 2,
            mod_revision: number as i64,
            version: 1,
            lease: 0,
        });
        RangeResponse {
            header: Some(ResponseHeader {
                cluster_id: 7,
                revision: 9,
                ..ResponseHeader::default()
            }),
            kvs: kvs.collect(),
            more: true,
            count: 12_345,
        }
    }

    fn sent(answer: &RangeResponse) -> Option<(Vec<usize>, Vec<u8>, HeaderMap)> {
        let response = respond(answer.clone());
        let long = response.extensions().get::<LongAnswer>()?.clone();
        let mut pieces = Pieces {
            long,
            next: Next::Header,
        };
        let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let frame = pieces.next().unwrap().expect("trailers come last");
            match frame.into_data() {
                Ok(data) => {
                    lengths.push(data.len());
                    bytes.extend_from_slice(&data);
                }
                Err(frame) => {
                    assert!(pieces.next().unwrap().is_none());
                    return Some((lengths, bytes, frame.into_trailers().unwrap()));
                }
            }
        }
    }

    #[test]
    fn a_long_answer_is_the_same_message_in_pieces() {
        for (keys, value_bytes) in [(5000, 100), (300, 1024), (64, 100_000), (100_000, 0)] {
            let answer = answer(keys, value_bytes);
            let (lengths, bytes, trailers) = sent(&answer).unwrap();
            let (prefix, message) = bytes.split_at(5);
            assert_eq!(prefix[0], 0);
            assert_eq!(prefix[1..], (message.len() as u32).to_be_bytes());
            assert!(message == answer.encode_to_vec(), "{keys} keys");
            assert!(lengths.len() > 1, "{lengths:?}");
            let longest = lengths.iter().max().unwrap();
            assert!(*longest < PIECE_BYTES + value_bytes + 200, "{lengths:?}");
            assert_eq!(trailers["grpc-status"], "0");
        }
    }

    #[test]
    fn a_short_answer_is_left_to_the_library() {
        for (keys, value_bytes) in [(0, 0), (1, 1 << 20), (LONG_KEYS - 1, 10_000), (500, 100)] {
            let answer = answer(keys, value_bytes);
            assert!(sent(&answer).is_none());
            assert_eq!(respond(answer.clone()).into_inner(), answer);
        }
    }
}
