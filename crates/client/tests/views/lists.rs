use portunus_client::{ClientError, Delete, Put, Range, Txn, Watch};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::CompactionRequest;
use portunus_proto::mvccpb::KeyValue;
use portunus_testkit::program::Program;
use tokio_stream::StreamExt;

use crate::store::Store;

const KEYS: usize = 1200;

fn key(number: usize) -> String {
    format!("/list/{number:05}")
}

async fn fill(store: &Store) -> i64 {
    let mut revision = 0;
    for first in (0..KEYS).step_by(100) {
        let puts = (first..first + 100).map(|number| Put::new(key(number), "1").into());
        let written = store.client.txn(Txn::new().then_all(puts)).await.unwrap();
        revision = written.header.unwrap().revision;
    }
    revision
}

fn numbers(kvs: &[KeyValue]) -> Vec<usize> {
    let number = |kv: &KeyValue| std::str::from_utf8(&kv.key[6..]).unwrap().parse().unwrap();
    kvs.iter().map(number).collect()
}

async fn check_list_while_others_write(store: &Store, phase: &str) {
    let revision = fill(store).await;
    let mut list = store.client.list(Range::prefix("/list/")).page_keys(100);
    assert_eq!(list.revision(), None);
    let mut kvs = Vec::new();
    while let Some(kv) = list.next().await.unwrap() {
        if kvs.len() % 300 == 0 {
            // In front of the list, behind it, and where it is.
            for number in [0, kvs.len() + 50, KEYS - 1] {
                store.client.put(Put::new(key(number), "2")).await.unwrap();
            }
            let deleted = key(kvs.len() + 150);
            store
                .client
                .delete_range(Delete::key(deleted))
                .await
                .unwrap();
            store.client.put(Put::new("/list/x", "new")).await.unwrap();
        }
        if kvs.len() == 150 {
            let state = format!("{list:?}");
            assert!(state.contains(phase), "the list is not read by {phase}");
        }
        kvs.push(kv);
    }
    assert_eq!(list.revision(), Some(revision));
    assert_eq!(list.count(), i64::try_from(KEYS).unwrap());
    assert_eq!(numbers(&kvs), (0..KEYS).collect::<Vec<_>>());
    assert!(
        kvs.iter()
            .all(|kv| kv.value == "1" && kv.mod_revision <= revision)
    );

    // A watch from the revision of the list sees the first change after it.
    let watch = Watch::prefix("/list/").from_revision(revision + 1);
    let events = store.client.watch(watch).next().await.unwrap().unwrap();
    let first = events.events[0].kv.as_ref().unwrap();
    assert_eq!(first.mod_revision, revision + 1);
}

#[tokio::test]
async fn list_is_of_one_revision_while_others_write() {
    let test = "views::list_is_of_one_revision_while_others_write";
    for store in Store::both(test).await {
        check_list_while_others_write(&store, "phase: Streaming(Some(").await;
    }
}

/// A server that behaves as 3.6 has no RangeStream.
#[tokio::test]
async fn list_reads_pages_from_a_server_without_streams() {
    let flags = ["--emulated-version=3.6"];
    let store = Store::start_with(Program::portunus(), &flags).await;
    check_list_while_others_write(&store, "phase: Paging").await;
}

#[tokio::test]
async fn limits_orders_and_filters_are_those_of_a_range() {
    let test = "views::limits_orders_and_filters";
    for store in Store::both(test).await {
        fill(&store).await;
        let prefix = || Range::prefix("/list/");
        for range in [
            prefix().limit(1),
            prefix().limit(150),
            prefix().limit(700).keys_only(),
            prefix().sorted_by_mod_revision(true).limit(30),
            prefix().mod_revisions(4, 5),
            prefix().count_only(),
            prefix().serializable(),
            Range::key(key(7)),
            Range::between(key(100), key(900)),
            Range::from_key(key(1100)),
            Range::key("/missing"),
        ] {
            let whole = store.client.range(range.clone()).await.unwrap();
            let list = store.client.list(range.clone()).page_keys(100);
            assert_eq!(list.collect().await.unwrap(), whole.kvs, "{range:?}");
        }
        let stream = store.client.list(Range::prefix("/list/")).into_stream();
        let mut stream = Box::pin(stream);
        let mut count = 0;
        while let Some(kv) = stream.next().await {
            kv.unwrap();
            count += 1;
        }
        assert_eq!(count, KEYS);
    }
}

#[tokio::test]
async fn list_whose_revision_is_compacted_ends_with_that_error() {
    let flags = ["--emulated-version=3.6"];
    let store = Store::start_with(Program::portunus(), &flags).await;
    fill(&store).await;
    let mut list = store.client.list(Range::prefix("/list/")).page_keys(100);
    list.next().await.unwrap();
    let put = store.client.put(Put::new("/other", "1")).await.unwrap();
    let revision = put.header.unwrap().revision;
    let request = CompactionRequest {
        revision,
        physical: true,
    };
    store.client.compact(request).await.unwrap();
    let mut read = 1;
    let error: ClientError = loop {
        match list.next().await {
            Ok(Some(_)) => read += 1,
            Ok(None) => panic!("the list has {read} keys although its revision is compacted"),
            Err(error) => break error,
        }
    };
    assert_eq!(read, 100);
    assert_eq!(error.etcd(), Some(EtcdError::Compacted));
}
