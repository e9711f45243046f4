//! Connections, keys and values of the load.

use std::time::Duration;

use bytes::Bytes;
use portunus_proto::etcdserverpb::{
    MemberListRequest, MemberListResponse, PutRequest, RangeRequest, RequestOp, StatusRequest,
    StatusResponse, TxnRequest, request_op::Request as Op,
};
use prost::Message;
use thiserror::Error;
use tokio::task::JoinSet;

use crate::answer::{Fields, field};
use crate::endpoint::Endpoint;
use crate::wire::{Connection, Event, MESSAGE_BYTES_MAX, Method, WireError};

/// Default size of a value.
pub const VALUE_BYTES: usize = 256;

/// Puts in one transaction while filling a store; below etcd's default limit of 128.
pub const PUTS_PER_FILL: usize = 100;

/// The largest size of a put besides its value.
const PUT_OVERHEAD_BYTES: usize = 64;

/// Connections that fill a store, and concurrent transactions on each.
const FILLING_CONNECTIONS: usize = 4;
const FILLS_UNDER_WAY: usize = 8;

/// The time limit for an answer; a server that is not ready may accept connections.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A store that could not be filled.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum FillError {
    /// The connection broke.
    #[error("the store could not be filled")]
    Wire(#[from] WireError),
    /// The server refused transactions.
    #[error("{refused} transactions that fill the store were refused")]
    Refused { refused: u64 },
}

/// Opens `count` connections, to the endpoints in turn.
pub async fn connect(endpoints: &[Endpoint], count: usize) -> Result<Vec<Connection>, WireError> {
    let mut connections = Vec::with_capacity(count);
    for endpoint in endpoints.iter().cycle().take(count.max(1)) {
        connections.push(Connection::open(endpoint).await?);
    }
    Ok(connections)
}

/// Returns whether a linearizable read is answered, which requires a leader.
pub async fn is_answering(endpoint: &Endpoint) -> bool {
    let read = RangeRequest {
        key: key(0),
        ..RangeRequest::default()
    };
    call(endpoint, Method::Range, &read).await.is_some()
}

/// Returns whether this member has applied the put of a key.
pub async fn holds_key(endpoint: &Endpoint, number: usize) -> bool {
    let read = RangeRequest {
        key: key(number),
        serializable: true,
        keys_only: true,
        ..RangeRequest::default()
    };
    let answer = call(endpoint, Method::Range, &read).await;
    answer.is_some_and(|answer| Fields::of(&answer).all(field::RANGE_KVS).count() == 1)
}

/// Returns the status of a member, if it answers.
pub async fn status(endpoint: &Endpoint) -> Option<StatusResponse> {
    let answer = call(endpoint, Method::Status, &StatusRequest {}).await?;
    StatusResponse::decode(answer).ok()
}

/// Returns the number of members in a member's own list.
pub async fn member_count(endpoint: &Endpoint) -> Option<usize> {
    let own_view = MemberListRequest {
        linearizable: false,
    };
    let answer = call(endpoint, Method::MemberList, &own_view).await?;
    let answer = MemberListResponse::decode(answer).ok()?;
    Some(answer.members.len())
}

/// Sends one request on a new connection; returns `None` if it was refused or timed out. For
/// requests that are not measured.
pub async fn call(endpoint: &Endpoint, method: Method, request: &impl Message) -> Option<Bytes> {
    let message = request.encode_to_vec();
    let answer = async {
        let mut connection = Connection::open(endpoint).await?;
        connection.call(method, &message).await
    };
    let answer = tokio::time::timeout(ANSWER_TIME_MAX, answer).await;
    answer.ok()?.ok()?
}

/// Writes keys 0 to `keys`, with many concurrent transactions.
pub async fn fill(endpoint: &Endpoint, keys: usize, value_bytes: usize) -> Result<(), FillError> {
    let mut fillers = JoinSet::new();
    for (number, connection) in connect(std::slice::from_ref(endpoint), FILLING_CONNECTIONS)
        .await?
        .into_iter()
        .enumerate()
    {
        fillers.spawn(fill_share(connection, number, keys, value_bytes));
    }
    while let Some(filled) = fillers.join_next().await {
        match filled {
            Ok(filled) => filled?,
            Err(ended) => return Err(WireError::Socket(ended.into()).into()),
        }
    }
    Ok(())
}

async fn fill_share(
    mut connection: Connection,
    share: usize,
    keys: usize,
    value_bytes: usize,
) -> Result<(), FillError> {
    let puts = PUTS_PER_FILL.min(MESSAGE_BYTES_MAX / (value_bytes + PUT_OVERHEAD_BYTES));
    let mut starts = (share * puts..keys).step_by(FILLING_CONNECTIONS * puts);
    let (mut under_way, mut answered, mut ended) = (0, 0_u64, 0_u64);
    loop {
        while under_way < FILLS_UNDER_WAY
            && let Some(from) = starts.next()
        {
            let batch = puts_of(from..keys.min(from + puts), value_bytes);
            connection.request(Method::Txn, &batch.encode_to_vec());
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        connection.flush().await?;
        connection.receive().await?;
        while let Some(event) = connection.next_event() {
            match event {
                Event::Message(..) => answered += 1,
                Event::End(_) => {
                    ended += 1;
                    under_way -= 1;
                }
            }
        }
    }
    match ended.saturating_sub(answered) {
        0 => Ok(()),
        refused => Err(FillError::Refused { refused }),
    }
}

/// Returns a transaction that puts these keys.
#[must_use]
pub fn puts_of(numbers: std::ops::Range<usize>, value_bytes: usize) -> TxnRequest {
    let puts = numbers.map(|number| RequestOp {
        request: Some(Op::RequestPut(PutRequest {
            key: key(number),
            value: value(value_bytes),
            ..PutRequest::default()
        })),
    });
    TxnRequest {
        success: puts.collect(),
        ..TxnRequest::default()
    }
}

/// The prefix of all keys.
pub const PREFIX: &[u8] = b"/registry/bench/";
/// The end of the range of all keys with the prefix.
pub const PREFIX_END: &[u8] = b"/registry/bench0";

const KEY_DIGITS: usize = 10;

/// Returns the key with this number. Keys are ordered as their numbers.
#[must_use]
pub fn key(number: usize) -> Bytes {
    let mut text = [b'0'; PREFIX.len() + KEY_DIGITS];
    text[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut rest = number;
    // Without `format!`, which would be a measurable part of a request.
    for digit in text[PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Bytes::copy_from_slice(&text)
}

/// Returns a value of this length, up to 32 KiB.
#[must_use]
pub fn value(bytes: usize) -> Bytes {
    static LONGEST: [u8; 32_768] = [b'v'; 32_768];
    Bytes::from_static(&LONGEST[..bytes.min(LONGEST.len())])
}

/// Returns a put of the key with this number.
#[must_use]
pub fn put_of(number: usize) -> PutRequest {
    PutRequest {
        key: key(number),
        value: value(VALUE_BYTES),
        ..PutRequest::default()
    }
}

/// Pseudo-random numbers, the same in every run: an xorshift generator.
#[derive(Debug, Clone)]
pub struct RandomNumbers {
    state: u64,
}

impl RandomNumbers {
    /// Returns a different sequence for each client.
    #[must_use]
    pub fn of_client(client: usize) -> RandomNumbers {
        // Never 0, from which xorshift does not leave: an odd factor times a non-zero number.
        RandomNumbers {
            state: (client as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// Returns the next number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state % bound.max(1) as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_like_their_numbers() {
        assert_eq!(key(1203), "/registry/bench/0000001203");
        assert!(key(9) < key(10));
        assert!(key(99_999) < key(100_000));
        assert!(key(0).starts_with(PREFIX));
        assert!(PREFIX_END > &key(9_999_999_999)[..]);
    }

    #[test]
    fn fill_transaction_fits_into_one_message() {
        for value_bytes in [VALUE_BYTES, 1024, 4096, 32_768] {
            let puts = PUTS_PER_FILL.min(MESSAGE_BYTES_MAX / (value_bytes + PUT_OVERHEAD_BYTES));
            assert!(puts_of(0..puts, value_bytes).encoded_len() <= MESSAGE_BYTES_MAX);
        }
    }

    #[test]
    fn numbers_cover_the_range_below_the_bound() {
        let mut numbers = RandomNumbers::of_client(3);
        let mut seen = [false; 16];
        for _ in 0..1000 {
            seen[numbers.below(16)] = true;
        }
        assert_eq!(seen, [true; 16]);
    }

    #[test]
    fn clients_have_different_sequences() {
        let (mut one, mut other) = (RandomNumbers::of_client(0), RandomNumbers::of_client(1));
        let differing = (0..100).filter(|_| one.below(10_000) != other.below(10_000));
        assert!(differing.count() > 90);
    }
}
