//! Connections, keys and values of the load, alike for every server.

use std::time::Duration;

use bytes::Bytes;
use portunus_proto::etcdserverpb::kv_client::KvClient;
use portunus_proto::etcdserverpb::{
    PutRequest, RangeRequest, RequestOp, TxnRequest, request_op::Request as Op,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Bytes of every value.
pub const VALUE_BYTES: usize = 256;

/// Puts in one transaction while filling a store; below etcd's default limit of 128.
const PUTS_PER_FILL: usize = 100;

/// A server that takes a connection answers this, or is not ready yet.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Connections to one server, handed to clients in turn.
#[derive(Debug, Clone)]
pub struct Connections {
    channels: Vec<Channel>,
}

impl Connections {
    /// Opens all of them, one TCP connection each.
    pub async fn open(
        endpoint: &str,
        count: usize,
    ) -> Result<Connections, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned())?.tcp_nodelay(true);
        let mut channels = Vec::with_capacity(count);
        for _ in 0..count.max(1) {
            channels.push(endpoint.connect().await?);
        }
        Ok(Connections { channels })
    }

    /// The connection of the client with this number.
    #[must_use]
    pub fn of_client(&self, client: usize) -> Channel {
        self.channels[client % self.channels.len()].clone()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.channels.len()
    }

    /// Whether a linearizable read is answered, which takes a leader.
    pub async fn answers(&self) -> bool {
        let read = RangeRequest {
            key: key(0),
            ..RangeRequest::default()
        };
        let mut kv = KvClient::new(self.of_client(0));
        tokio::time::timeout(ANSWER_TIME_MAX, kv.range(read))
            .await
            .is_ok_and(|answer| answer.is_ok())
    }

    /// Writes keys 0 to `keys`, so that reads find something.
    pub async fn fill(&self, keys: usize) -> Result<(), Status> {
        let mut kv = KvClient::new(self.of_client(0));
        let mut from = 0;
        while from < keys {
            let to = keys.min(from + PUTS_PER_FILL);
            let puts = (from..to).map(|number| RequestOp {
                request: Some(Op::RequestPut(put_of(number))),
            });
            kv.txn(TxnRequest {
                success: puts.collect(),
                ..TxnRequest::default()
            })
            .await?;
            from = to;
        }
        Ok(())
    }
}

/// The key with this number. Their order is that of the numbers.
#[must_use]
pub fn key(number: usize) -> Bytes {
    Bytes::from(format!("/registry/bench/{number:08}"))
}

/// A value of the usual length.
#[must_use]
pub fn value() -> Bytes {
    Bytes::from_static(&[b'v'; VALUE_BYTES])
}

/// A put of the key with this number.
#[must_use]
pub fn put_of(number: usize) -> PutRequest {
    PutRequest {
        key: key(number),
        value: value(),
        ..PutRequest::default()
    }
}

/// Numbers without visible order, the same for every run: an xorshift generator.
#[derive(Debug, Clone)]
pub struct Numbers {
    state: u64,
}

impl Numbers {
    /// A sequence of its own for each client.
    #[must_use]
    pub fn of_client(client: usize) -> Numbers {
        // Odd times anything but zero is not zero, the one state that would stay as it is.
        Numbers {
            state: (client as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    /// The next one below `bound`.
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
        assert!(key(9) < key(10));
        assert!(key(99_999) < key(100_000));
    }

    #[test]
    fn numbers_stay_below_the_bound_and_reach_all_of_it() {
        let mut numbers = Numbers::of_client(3);
        let mut seen = [false; 16];
        for _ in 0..1000 {
            seen[numbers.below(16)] = true;
        }
        assert_eq!(seen, [true; 16]);
    }

    #[test]
    fn clients_do_not_walk_in_step() {
        let (mut one, mut other) = (Numbers::of_client(0), Numbers::of_client(1));
        let differing = (0..100).filter(|_| one.below(10_000) != other.below(10_000));
        assert!(differing.count() > 90);
    }
}
