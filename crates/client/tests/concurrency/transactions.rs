use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use portunus_client::concurrency::{Isolation, StmError, StmOptions, stm};
use portunus_client::{Client, ClientError, Put, Range};
use portunus_proto::etcdserverpb::CompactionRequest;
use portunus_testkit::wait::soon;

use crate::store::{Store, connect};

fn number(value: Option<Bytes>) -> u64 {
    let text = value.map(|value| String::from_utf8_lossy(&value).into_owned());
    text.map_or(0, |text| text.parse().unwrap())
}

async fn value(client: &Client, key: &str) -> u64 {
    let read = client.range(Range::key(key)).await.unwrap();
    number(read.kvs.into_iter().next().map(|kv| kv.value))
}

const ISOLATIONS_WITHOUT_LOST_UPDATES: [Isolation; 3] = [
    Isolation::SerializableSnapshot,
    Isolation::Serializable,
    Isolation::RepeatableReads,
];

#[tokio::test]
async fn concurrent_increments_are_all_counted() {
    const TASKS: u64 = 4;
    const INCREMENTS: u64 = 10;
    let test = "concurrency::concurrent_increments_are_all_counted";
    for store in Store::both(test).await {
        for isolation in ISOLATIONS_WITHOUT_LOST_UPDATES {
            let key = format!("{isolation:?}");
            let mut tasks = Vec::new();
            for _ in 0..TASKS {
                let client = connect(vec![store.member.endpoint()]);
                let key = key.clone();
                tasks.push(tokio::spawn(async move {
                    let key = key.as_str();
                    for _ in 0..INCREMENTS {
                        let options = StmOptions::with_isolation(isolation);
                        stm(&client, options, |keys| async move {
                            let now = number(keys.get(key).await?);
                            keys.put(key, (now + 1).to_string());
                            Ok::<_, ClientError>(())
                        })
                        .await
                        .unwrap();
                    }
                }));
            }
            for task in tasks {
                soon("end of a task", task).await.unwrap();
            }
            assert_eq!(value(&store.client, &key).await, TASKS * INCREMENTS);
        }
    }
}

/// Runs a transaction that reads `a`, lets another client write `a` and `b` in the first attempt,
/// and then reads `b`; returns what each attempt read.
async fn reads_with_a_writer_between(store: &Store, isolation: Isolation) -> Vec<(u64, u64)> {
    let client = &store.client;
    for key in ["a", "b", "sum"] {
        client.put(Put::new(key, "1")).await.unwrap();
    }
    let all_seen = Mutex::new(Vec::new());
    let seen = &all_seen;
    let options = StmOptions::with_isolation(isolation);
    stm(client, options, |keys| async move {
        let a = number(keys.get("a").await?);
        let is_first = seen.lock().unwrap().is_empty();
        if is_first {
            client.put(Put::new("a", "2")).await?;
            client.put(Put::new("b", "2")).await?;
        }
        let b = number(keys.get("b").await?);
        seen.lock().unwrap().push((a, b));
        keys.put("sum", (a + b).to_string());
        Ok::<_, ClientError>(())
    })
    .await
    .unwrap();
    all_seen.into_inner().unwrap()
}

#[tokio::test]
async fn isolation_levels_read_and_conflict_as_in_clientv3() {
    let test = "concurrency::isolation_levels_read_and_conflict";
    for store in Store::both(test).await {
        for (isolation, expected) in [
            (Isolation::SerializableSnapshot, vec![(1, 1), (2, 2)]),
            (Isolation::Serializable, vec![(1, 1), (2, 2)]),
            (Isolation::RepeatableReads, vec![(1, 2), (2, 2)]),
            (Isolation::ReadCommitted, vec![(1, 2)]),
        ] {
            let seen = reads_with_a_writer_between(&store, isolation).await;
            assert_eq!(seen, expected, "{isolation:?}");
        }
    }
}

#[tokio::test]
async fn blind_write_conflicts_only_with_snapshot_isolation() {
    let store = Store::portunus().await;
    let client = &store.client;
    for (isolation, attempts) in [
        (Isolation::SerializableSnapshot, 2),
        (Isolation::Serializable, 1),
    ] {
        client.put(Put::new("read", "1")).await.unwrap();
        let runs = &AtomicU32::new(0);
        let committed = stm(
            client,
            StmOptions::with_isolation(isolation),
            |keys| async move {
                keys.get("read").await?;
                if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                    client.put(Put::new("blind", "other")).await?;
                }
                keys.put("blind", "own");
                Ok::<_, ClientError>(())
            },
        )
        .await
        .unwrap();
        assert_eq!(committed.attempts, attempts, "{isolation:?}");
    }
}

#[tokio::test]
async fn attempts_are_bounded_and_an_aborted_transaction_writes_nothing() {
    let store = Store::portunus().await;
    let client = &store.client;
    let options = StmOptions {
        attempts_max: 3,
        ..StmOptions::default()
    };
    let conflict = stm(client, options, |keys| async move {
        let now = number(keys.get("k").await?);
        client.put(Put::new("k", (now + 1).to_string())).await?;
        keys.put("k", "0");
        Ok::<_, ClientError>(())
    });
    let conflict = conflict.await.unwrap_err();
    assert!(
        matches!(conflict, StmError::Conflict { attempts: 3 }),
        "{conflict:?}"
    );
    assert_eq!(value(client, "k").await, 3);

    #[derive(Debug, PartialEq)]
    enum Failure {
        Client(String),
        Own,
    }
    impl From<ClientError> for Failure {
        fn from(error: ClientError) -> Self {
            Failure::Client(error.to_string())
        }
    }
    let aborted = stm(client, StmOptions::default(), |keys| async move {
        keys.put("k", "0");
        Err::<(), _>(Failure::Own)
    });
    let aborted = aborted.await.unwrap_err();
    assert!(
        matches!(aborted, StmError::Aborted(Failure::Own)),
        "{aborted:?}"
    );
    assert_eq!(value(client, "k").await, 3);
}

#[tokio::test]
async fn transaction_sees_its_own_writes_and_survives_a_compaction() {
    let store = Store::portunus().await;
    let client = &store.client;
    for key in ["a", "b"] {
        client.put(Put::new(key, "1")).await.unwrap();
    }
    let runs = &AtomicU32::new(0);
    let committed = stm(client, StmOptions::default(), |keys| async move {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        keys.get("a").await?;
        if run == 0 {
            let put = client.put(Put::new("other", "1")).await?;
            let revision = put.header.unwrap_or_default().revision;
            let request = CompactionRequest {
                revision,
                physical: true,
            };
            client.compact(request).await?;
        }
        keys.put("b", "5");
        assert_eq!(number(keys.get("b").await?), 5);
        keys.delete("a");
        assert_eq!(keys.get("a").await?, None);
        assert_eq!(
            keys.get_first(["a", "missing", "b"]).await?,
            Some("5".into())
        );
        let revision = keys.revision("missing").await?;
        Ok::<_, ClientError>(revision)
    })
    .await
    .unwrap();
    assert_eq!((committed.attempts, committed.value), (2, 0));
    assert_eq!(value(client, "b").await, 5);
}
