//! Long range responses, encoded while they are sent.
//!
//! ```text
//!  Kv::range ──▶ respond() ──▶ short: the message, which tonic encodes
//!                          └─▶ long: an empty message with the answer as an extension
//!                                   │
//!                serve/counted.rs ──▶ send_in_pieces(): the body of the answer, in pieces
//! ```
//! `respond` is the only function that a handler calls, and [`send_in_pieces`] the only one that
//! replaces a body; no other answer is changed after its handler.
//!
//! The handler cannot return this body itself: a tonic handler returns a message, which tonic
//! encodes whole before the first byte is sent, and axum's router carries bodies of contiguous
//! bytes only. Ten thousand keys of 1 KiB would be ten megabytes that are written to memory and
//! read again, for each client that lists. Measured against the binary that does so
//! (docs/benchmarks/tried.md, "List of 10 000 keys of 1 KiB"): 70 MiB of memory instead of 105 with
//! the same CPU, and, since pieces point to values and frames are written together, 1.43 times the
//! lists and 1.37 times the ranges of 500 keys per second. A slow reader holds references to
//! values that are in memory anyway.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response};
use bytes::BufMut;
use http_body::{Frame, SizeHint};
use portunus_proto::etcdserverpb::RangeResponse;
use portunus_proto::wire::RESPONSE_BYTES_MAX;
use prost::{EncodeError, Message};
use tonic::Status;

use super::oversized;
use super::piece::{Piece, Woven};
use crate::handles::range_budget::{LARGE_BYTES, RangeBudget, RangeBytes};

/// The length at which a piece is sent.
const PIECE_BYTES: usize = 64 * 1024;
/// Shorter responses are faster whole.
const LONG_BYTES: usize = LARGE_BYTES;
/// With fewer keys a response is sent whole, however long it is.
const LONG_KEYS: usize = 64;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The extension of a response until [`send_in_pieces`] takes it.
#[derive(Debug, Clone)]
struct LongAnswer {
    answer: Arc<RangeResponse>,
    message_bytes: u32,
}

/// Returns the response of the handler for an answer: the answer itself, or if it is long an
/// empty one that carries it to [`send_in_pieces`]. An answer above the size limit of responses is refused.
pub(super) fn respond(
    answer: RangeResponse,
    budget: &Arc<RangeBudget>,
) -> Result<tonic::Response<RangeResponse>, Refused> {
    respond_within(answer, RESPONSE_BYTES_MAX, budget)
}

/// Why an answer is not sent.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is longer than a response may be.
    Oversized(Status),
    /// Too many large answers wait for their clients.
    TooManyBytes,
}

/// Takes the bytes of an answer from the budget if it is large.
pub(super) fn hold<T>(
    response: &mut tonic::Response<T>,
    message_bytes: usize,
    budget: &Arc<RangeBudget>,
) -> Result<(), Refused> {
    if message_bytes >= LARGE_BYTES {
        let bytes = budget.take(message_bytes).ok_or(Refused::TooManyBytes)?;
        response.extensions_mut().insert(Arc::new(bytes));
    }
    Ok(())
}

/// Takes the bytes that `hold` added to a response, to be dropped with its last frame.
pub fn take_range_bytes(response: &mut Response<Body>) -> Option<Arc<RangeBytes>> {
    response.extensions_mut().remove()
}

fn respond_within(
    answer: RangeResponse,
    bytes_max: usize,
    budget: &Arc<RangeBudget>,
) -> Result<tonic::Response<RangeResponse>, Refused> {
    let message_bytes = answer.encoded_len();
    if message_bytes > bytes_max {
        let refusal = oversized::response(message_bytes, bytes_max);
        return Err(Refused::Oversized(refusal));
    }
    let is_long = answer.kvs.len() >= LONG_KEYS && message_bytes >= LONG_BYTES;
    let mut response = match u32::try_from(message_bytes) {
        Ok(message_bytes) if is_long => {
            let mut response = tonic::Response::new(RangeResponse::default());
            response.extensions_mut().insert(LongAnswer {
                answer: Arc::new(answer),
                message_bytes,
            });
            response
        }
        _ => tonic::Response::new(answer),
    };
    hold(&mut response, message_bytes, budget)?;
    Ok(response)
}

/// Replaces the body of a response that carries a long answer of `respond`. The outermost
/// service of a connection calls it, where a body need not be contiguous bytes.
pub fn send_in_pieces(mut response: Response<Body>) -> Response<AnswerBody> {
    match response.extensions_mut().remove::<LongAnswer>() {
        Some(long) => response.map(|_| AnswerBody::Long(Pieces::of(long))),
        None => response.map(AnswerBody::Whole),
    }
}

/// The body of a response.
#[derive(Debug)]
pub enum AnswerBody {
    /// The body that tonic encodes.
    Whole(Body),
    /// A long range response.
    Long(Pieces),
}

impl http_body::Body for AnswerBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        Poll::Ready(match self.get_mut() {
            Self::Whole(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                frame.map(|frame| Ok(frame?.map_data(Piece::whole)))
            }
            Self::Long(pieces) => pieces.next().map_err(axum::Error::new).transpose(),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Long(pieces) => matches!(pieces.next, Next::Nothing),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Long(_) => SizeHint::default(),
        }
    }
}

/// The pieces of one long response.
#[derive(Debug)]
pub struct Pieces {
    long: LongAnswer,
    next: Next,
}

/// The part of the message that comes next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Header,
    Key(usize),
    Trailers,
    Nothing,
}

impl Pieces {
    fn of(long: LongAnswer) -> Self {
        let next = Next::Header;
        Self { long, next }
    }

    fn next(&mut self) -> Result<Option<Frame<Piece>>, EncodeError> {
        let answer = &*self.long.answer;
        let mut piece = Woven::of(&self.long.answer);
        let mut number = match self.next {
            Next::Nothing => return Ok(None),
            Next::Trailers => {
                self.next = Next::Nothing;
                let mut trailers = HeaderMap::new();
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                return Ok(Some(Frame::trailers(trailers)));
            }
            Next::Header => {
                // The gRPC prefix: not compressed, and the length.
                piece.own().put_u8(0);
                piece.own().put_u32(self.long.message_bytes);
                let header = RangeResponse {
                    header: answer.header,
                    ..RangeResponse::default()
                };
                header.encode(piece.own())?;
                0
            }
            Next::Key(number) => number,
        };
        while number < answer.kvs.len() && piece.len() < PIECE_BYTES {
            piece.weave(number)?;
            number += 1;
        }
        self.next = Next::Key(number);
        if number == answer.kvs.len() {
            let rest = RangeResponse {
                more: answer.more,
                count: answer.count,
                ..RangeResponse::default()
            };
            rest.encode(piece.own())?;
            self.next = Next::Trailers;
        }
        Ok(Some(Frame::data(Piece::woven(piece))))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf;
    use portunus_proto::etcdserverpb::ResponseHeader;
    use portunus_proto::mvccpb::KeyValue;

    use super::*;

    fn budget() -> Arc<RangeBudget> {
        let gauge = prometheus::IntGauge::new("bytes", "bytes").unwrap();
        Arc::new(RangeBudget::new(usize::MAX, gauge))
    }

    fn answer(keys: usize, value_bytes: usize) -> RangeResponse {
        let kvs = (0..keys).map(|number| KeyValue {
            key: format!("key/{number}").into(),
            value: vec![b'v'; value_bytes].into(),
            create_revision: 2,
            mod_revision: number as i64,
            version: 1,
            lease: number as i64 % 3,
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
        let response = respond(answer.clone(), &budget()).unwrap();
        let long = response.extensions().get::<LongAnswer>()?.clone();
        let mut pieces = Pieces::of(long);
        let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let frame = pieces.next().unwrap().expect("trailers come last");
            match frame.into_data() {
                Ok(data) => {
                    lengths.push(data.remaining());
                    bytes.put(data);
                }
                Err(frame) => {
                    assert!(pieces.next().unwrap().is_none());
                    return Some((lengths, bytes, frame.into_trailers().unwrap()));
                }
            }
        }
    }

    #[test]
    fn long_answer_in_pieces_equals_the_message() {
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
    fn response_limit_applies_to_long_and_short_answers() {
        for (keys, value_bytes) in [(3, 10), (5000, 100)] {
            let answer = answer(keys, value_bytes);
            let bytes = answer.encoded_len();
            assert!(respond_within(answer.clone(), bytes, &budget()).is_ok());
            let refused = respond_within(answer, bytes - 1, &budget()).unwrap_err();
            let Refused::Oversized(refused) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            let text = format!(
                "grpc: trying to send message larger than max ({bytes} vs. {})",
                bytes - 1
            );
            assert_eq!(refused.message(), text);
        }
    }

    #[test]
    fn short_answer_is_encoded_by_the_library() {
        for (keys, value_bytes) in [(0, 0), (1, 1 << 20), (LONG_KEYS - 1, 10_000), (500, 100)] {
            let answer = answer(keys, value_bytes);
            assert!(sent(&answer).is_none());
            assert_eq!(
                respond(answer.clone(), &budget()).unwrap().into_inner(),
                answer
            );
        }
    }
}
