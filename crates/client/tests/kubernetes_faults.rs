//! Watches of the Kubernetes interface while servers are killed and consumers are slow: no event is
//! lost or repeated.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use bytes::Bytes;
use portunus_client::kubernetes::{
    CountOptions, Error, GetOptions, Interface, Kubernetes, PutOptions, WatchEvent, WatchEvents,
    WatchOptions,
};
use portunus_client::{Client, ClientError, Options, WatchStreams};
use portunus_proto::EtcdError;
use portunus_testkit::cluster::Cluster;
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::{soon, until};
use tempfile::TempDir;

const PREFIX: &[u8] = b"/registry/pods/";
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

fn connect(endpoints: Vec<String>) -> Client {
    Client::connect(Options {
        endpoints,
        command_timeout: Some(COMMAND_TIMEOUT),
        ..Options::default()
    })
    .unwrap()
}

async fn start(program: Program) -> (Member, TempDir, Kubernetes) {
    let directory = tempfile::tempdir().unwrap();
    let mut member = Member::new("m1", program, directory.path()).unwrap();
    member.launch(&[]);
    let store = Kubernetes::new(connect(vec![member.endpoint()]));
    wait_until_serving(&store).await;
    (member, directory, store)
}

async fn wait_until_serving(store: &Kubernetes) {
    until("serving member", async || {
        store.count(b"", CountOptions::default()).await
    })
    .await;
}

/// Writes a key with its number until the store has it, whatever happens to the server.
async fn write(store: &Kubernetes, number: usize) {
    let key = [PREFIX, number.to_string().as_bytes()].concat();
    until("acknowledged write", async || {
        let value = Bytes::from(number.to_string());
        let put = store.optimistic_put(&key, value, 0, PutOptions::default());
        match put.await {
            Ok(_) => Ok(()),
            // The write may have happened: then the next one does not succeed, which is fine.
            Err(error) => Err(error),
        }
    })
    .await;
}

async fn watch(store: &Kubernetes, stream_key: &str, revision: i64) -> WatchEvents {
    let options = WatchOptions {
        stream_key: stream_key.to_owned(),
        revision,
        prefix: true,
    };
    store.watch(PREFIX, options).await.unwrap()
}

/// Returns the next changes as key and revision.
async fn changes(events: &mut WatchEvents, count: usize) -> Vec<(Bytes, i64)> {
    let mut changes = Vec::new();
    while changes.len() < count {
        match soon("event", events.next()).await {
            Some(WatchEvent::Added { key, revision, .. }) => changes.push((key, revision)),
            Some(WatchEvent::Bookmark { .. }) => {}
            other => panic!("{other:?} after {} changes", changes.len()),
        }
    }
    changes
}

async fn newest(store: &Kubernetes) -> i64 {
    let read = store.get(b"never-written", GetOptions::default()).await;
    read.unwrap().revision
}

#[tokio::test]
async fn watches_of_one_stream_lose_and_repeat_nothing_when_the_server_restarts() {
    let test = "kubernetes_faults::watches_of_one_stream_lose_and_repeat_nothing";
    let portunus = Some(Program::portunus());
    for program in [portunus, Program::etcd(test)].into_iter().flatten() {
        let (mut member, _directory, store) = start(program).await;
        let begin = newest(&store).await;
        let mut first = watch(&store, "a", begin).await;
        let mut second = watch(&store, "a", begin).await;
        let mut number = 0;
        for _ in 0..3 {
            for _ in 0..20 {
                write(&store, number).await;
                number += 1;
            }
            member.kill();
            member.launch(&[]);
            wait_until_serving(&store).await;
        }
        write(&store, number).await;
        let seen = changes(&mut first, number + 1).await;
        assert_eq!(changes(&mut second, number + 1).await, seen);
        let mut replay = watch(&store, "b", begin).await;
        assert_eq!(changes(&mut replay, number + 1).await, seen);
        assert!(
            seen.windows(2).all(|pair| pair[0].1 < pair[1].1),
            "{seen:?}"
        );
    }
}

/// Proves: S4-16, K26
#[tokio::test]
async fn watch_goes_on_at_another_member_and_requests_need_a_leader() {
    let test = "kubernetes_faults::watch_goes_on_at_another_member";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    cluster.leader().await;
    let endpoints = cluster.members.iter().map(Member::endpoint).collect();
    let store = Kubernetes::new(connect(endpoints));
    let begin = newest(&store).await;
    let mut events = watch(&store, "", begin).await;
    let mut number = 0;
    for _ in 0..2 {
        for _ in 0..10 {
            write(&store, number).await;
            number += 1;
        }
        let leader = cluster.leader().await;
        cluster.kill(leader);
        write(&store, number).await;
        number += 1;
        cluster.start_one(leader).await;
    }
    let seen = changes(&mut events, number).await;
    let mut replay = watch(&store, "replay", begin).await;
    assert_eq!(changes(&mut replay, number).await, seen);

    // A member alone has no leader, and says so instead of waiting.
    let leader = cluster.leader().await;
    let alone = connect(vec![cluster.members[leader].endpoint()]);
    let alone = Kubernetes::new(alone);
    for other in (0..3).filter(|member| *member != leader) {
        cluster.kill(other);
    }
    until("refusal without a leader", async || {
        let put = alone.optimistic_put(b"/registry/x", Bytes::new(), 0, PutOptions::default());
        match put.await {
            Err(Error::NoLeader) => Ok(()),
            other => Err(other),
        }
    })
    .await;
    // A read is repeated until its deadline; each attempt was refused for the same reason.
    let read = alone.get(b"/registry/x", GetOptions::default()).await;
    let Err(Error::Client(ClientError::DeadlineExceeded {
        last_attempt: Some(refusal),
    })) = read
    else {
        panic!("{read:?}");
    };
    assert_eq!(refusal.to_string(), EtcdError::NoLeader.text());
}

#[tokio::test]
async fn slow_consumer_delays_no_other_watch_and_loses_nothing() {
    const EVENTS: usize = 300;
    const VALUE_BYTES: usize = 8 * 1024;
    let test = "kubernetes_faults::slow_consumer_delays_no_other_watch_and_loses_nothing";
    let portunus = Some(Program::portunus());
    for program in [portunus, Program::etcd(test)].into_iter().flatten() {
        let (member, _directory, _) = start(program).await;
        let client = connect(vec![member.endpoint()]);
        // Far smaller than the events.
        let streams = WatchStreams::with_buffer(client.clone(), 4 * VALUE_BYTES);
        let store = Kubernetes::with_streams(client, streams);
        let begin = newest(&store).await;
        let mut slow = watch(&store, "", begin).await;
        let mut fast = watch(&store, "", begin).await;
        let writes = async {
            for number in 0..EVENTS {
                let key = [PREFIX, number.to_string().as_bytes()].concat();
                let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
                let put = store.optimistic_put(&key, value, 0, PutOptions::default());
                assert!(put.await.unwrap().succeeded);
            }
        };
        let ((), seen) = tokio::join!(writes, changes(&mut fast, EVENTS));
        assert_eq!(changes(&mut slow, EVENTS).await, seen);
    }
}
