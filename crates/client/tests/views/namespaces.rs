use portunus_client::{ArgumentError, ClientError, Compare, Delete, Put, Range, Txn, Watch};
use portunus_proto::etcdserverpb::LeaseTimeToLiveRequest;
use portunus_proto::etcdserverpb::response_op::Response;
use portunus_testkit::wait::soon;

use crate::store::Store;

async fn keys(store: &Store) -> Vec<String> {
    let read = store.client.range(Range::all()).await.unwrap();
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    read.kvs.iter().map(|kv| text(&kv.key)).collect()
}

#[tokio::test]
async fn namespace_reads_writes_and_watches_only_its_keys() {
    let test = "views::namespace_reads_writes_and_watches_only_its_keys";
    for store in Store::both(test).await {
        let client = &store.client;
        let (a, b) = (client.namespace("/a/"), client.namespace("/b/"));
        let lease = client.lease(60).await.unwrap();
        let mut watcher = a.watch(Watch::from_key("k").from_revision(1).with_previous());
        let put = a.put(Put::new("k", "1").lease(lease.id())).await.unwrap();
        let revision = put.header.unwrap().revision;
        b.put(Put::new("k", "2").lease(lease.id())).await.unwrap();
        let put = a.put(Put::new("k", "3").return_previous()).await.unwrap();
        assert_eq!(put.prev_kv.unwrap().key, "k");
        a.put(Put::new("l", "4").lease(lease.id())).await.unwrap();
        assert_eq!(keys(&store).await, ["/a/k", "/a/l", "/b/k"]);

        let read = a.range(Range::all()).await.unwrap();
        let found: Vec<_> = read
            .kvs
            .iter()
            .map(|kv| (&kv.key[..], &kv.value[..]))
            .collect();
        assert_eq!(found, [(&b"k"[..], &b"3"[..]), (b"l", b"4")]);
        let mut list = a.list(Range::from_key("l")).unwrap();
        assert_eq!(list.next().await.unwrap().unwrap().key, "l");
        assert!(list.next().await.unwrap().is_none());
        assert!(list.revision() > Some(revision));

        let mut events = Vec::new();
        while events.len() < 3 {
            let response = soon("events", watcher.next()).await.unwrap().unwrap();
            events.extend(response.events);
        }
        let seen = events.iter().map(|event| event.kv.as_ref().unwrap());
        let seen: Vec<_> = seen.map(|kv| (&kv.key[..], &kv.value[..])).collect();
        assert_eq!(seen, [(&b"k"[..], &b"1"[..]), (b"k", b"3"), (b"l", b"4")]);
        assert_eq!(events[1].prev_kv.as_ref().unwrap().key, "k");

        let request = LeaseTimeToLiveRequest {
            id: lease.id(),
            keys: true,
        };
        let attached = a.lease_time_to_live(request).await.unwrap();
        assert_eq!(attached.keys, ["l"]);

        let txn = Txn::new()
            .when(Compare::value("k").equals("3"))
            .then(Range::key("k"))
            .then(Txn::new().then(Put::new("m", "5")).then(Range::prefix("m")))
            .then(Delete::key("l").return_previous());
        let answer = a.txn(txn).await.unwrap();
        assert!(answer.succeeded);
        let Some(Response::ResponseTxn(nested)) = &answer.responses[1].response else {
            panic!("{answer:?}");
        };
        let Some(Response::ResponseRange(read)) = &nested.responses[1].response else {
            panic!("{nested:?}");
        };
        assert_eq!(read.kvs[0].key, "m");
        let Some(Response::ResponseDeleteRange(deleted)) = &answer.responses[2].response else {
            panic!("{answer:?}");
        };
        assert_eq!(deleted.prev_kvs[0].key, "l");

        let deleted = a
            .delete_range(Delete::prefix("").return_previous())
            .await
            .unwrap();
        assert_eq!(deleted.deleted, 2);
        assert_eq!(deleted.prev_kvs[0].key, "k");
        assert_eq!(keys(&store).await, ["/b/k"]);
    }
}

#[tokio::test]
async fn empty_key_of_a_namespace_is_refused_before_it_is_sent() {
    let store = Store::portunus().await;
    let namespace = store.client.namespace("/a/");
    for error in [
        namespace.range(Range::key("")).await.unwrap_err(),
        namespace.put(Put::new("", "v")).await.unwrap_err(),
        namespace.delete_range(Delete::key("")).await.unwrap_err(),
        namespace
            .txn(Txn::new().then(Put::new("", "")))
            .await
            .unwrap_err(),
    ] {
        assert!(matches!(
            error,
            ClientError::Argument(ArgumentError::EmptyKey)
        ));
    }
    assert!(keys(&store).await.is_empty());
}
