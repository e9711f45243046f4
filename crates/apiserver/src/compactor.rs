//! Compaction of the store, which several API servers coordinate through one key.
//!
//! Each server tries once per interval to replace the key of the round that it saw last. One of
//! them wins and compacts to the revision that it saw one round ago, so at least one interval of
//! history is kept. The others adopt the round of the winner. Key and rounds are those of
//! kube-apiserver, so that both can share a store.

use std::time::Duration;

use portunus_client::{Client, ClientError, Compare, Put, Range, Txn};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::response_op::Response;
use portunus_proto::etcdserverpb::{CompactionRequest, TxnResponse};
use tokio::time::{MissedTickBehavior, interval};

/// The key of the rounds.
const KEY: &str = "compact_rev_key";

/// What a server knows of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Round {
    /// The version of the key, which is the number of rounds.
    number: i64,
    /// The revision of the store when the round began.
    revision: i64,
}

impl Round {
    /// Returns the request that wins the next round if no other server did.
    fn request(self) -> Txn {
        let value = self.revision.to_string();
        Txn::new()
            .when(Compare::version(KEY).equals(self.number))
            .then(Put::new(KEY, value))
            .otherwise(Range::key(KEY))
    }

    /// Returns the round after the answer, and the revision to compact to if this server won.
    fn after(self, answer: &TxnResponse) -> (Round, Option<i64>) {
        let header = answer.header.as_ref();
        let revision = header.map_or(self.revision, |header| header.revision);
        if answer.succeeded {
            let number = self.number.saturating_add(1);
            let compact = (self.revision > 0).then_some(self.revision);
            return (Round { number, revision }, compact);
        }
        let found = answer.responses.first().and_then(|it| it.response.as_ref());
        let number = match found {
            Some(Response::ResponseRange(range)) => range.kvs.first().map_or(0, |kv| kv.version),
            _ => 0,
        };
        (Round { number, revision }, None)
    }
}

/// Compacts the store once per interval until the task is aborted. Failures are logged; the next
/// round tries again.
pub async fn compact_periodically(store: Client, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = Round::default();
    loop {
        ticks.tick().await;
        match attempt(&store, round).await {
            Ok(next) => round = next,
            Err(error) => tracing::warn!(%error, "compaction of the store failed"),
        }
    }
}

async fn attempt(store: &Client, round: Round) -> Result<Round, ClientError> {
    let answer = store.txn(round.request()).await?;
    let (next, compact) = round.after(&answer);
    if let Some(revision) = compact {
        let request = CompactionRequest {
            revision,
            physical: false,
        };
        match store.compact(request).await {
            Ok(_) => tracing::info!(revision, "compacted the store"),
            // Another client compacted further.
            Err(error) if error.etcd() == Some(EtcdError::Compacted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use portunus_proto::etcdserverpb::{RangeResponse, ResponseHeader, ResponseOp};
    use portunus_proto::mvccpb::KeyValue;

    use super::*;

    fn answer(succeeded: bool, revision: i64, version: i64) -> TxnResponse {
        let kv = KeyValue {
            version,
            ..KeyValue::default()
        };
        let range = RangeResponse {
            kvs: vec![kv],
            ..RangeResponse::default()
        };
        TxnResponse {
            header: Some(ResponseHeader {
                revision,
                ..ResponseHeader::default()
            }),
            succeeded,
            responses: vec![ResponseOp {
                response: Some(Response::ResponseRange(range)),
            }],
        }
    }

    /// Proves: K22, C19
    #[test]
    fn winner_compacts_to_the_round_before_and_losers_adopt_its_round() {
        let first = Round::default();
        // The first round of a new store compacts nothing.
        let (second, compact) = first.after(&answer(true, 10, 0));
        assert_eq!(
            (second, compact),
            (
                Round {
                    number: 1,
                    revision: 10
                },
                None
            )
        );
        let (third, compact) = second.after(&answer(true, 20, 0));
        assert_eq!(
            (third, compact),
            (
                Round {
                    number: 2,
                    revision: 20
                },
                Some(10)
            )
        );
        // A server that lost takes over the number of the winner and compacts nothing.
        let (adopted, compact) = second.after(&answer(false, 25, 7));
        assert_eq!(
            (adopted, compact),
            (
                Round {
                    number: 7,
                    revision: 25
                },
                None
            )
        );
    }
}
