use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portunus_client::{Client, Put, Range, Watch, Watcher};
use portunus_proto::etcdserverpb::CompactionRequest;
use portunus_testkit::wait::{POLL_INTERVAL, WAIT_MAX, soon, until};

use crate::nemesis::Nemesis;
use crate::store::Store;

/// Writes the numbered key until it is acknowledged.
async fn write(client: &Client, number: usize) {
    let deadline = Instant::now() + WAIT_MAX;
    let put = Put::new(format!("/w/{number:05}"), "");
    while let Err(error) = client.put(put.clone()).await {
        assert!(Instant::now() < deadline, "no acknowledged write: {error}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the events up to one of a key, as key and revision.
async fn events_up_to(watcher: &mut Watcher, last: &str) -> Vec<(String, i64)> {
    let mut seen = Vec::new();
    loop {
        let response = soon("events", watcher.next()).await.unwrap().unwrap();
        assert!(!response.canceled, "{response:?}");
        for event in response.events {
            let kv = event.kv.unwrap();
            let key = String::from_utf8_lossy(&kv.key).into_owned();
            let is_last = key == last;
            seen.push((key, kv.mod_revision));
            if is_last {
                return seen;
            }
        }
    }
}

async fn replay(client: &Client, last: &str) -> Vec<(String, i64)> {
    let mut watcher = client.watch(Watch::prefix("/w/").from_revision(1));
    events_up_to(&mut watcher, last).await
}

#[tokio::test]
async fn watch_loses_and_repeats_nothing_during_faults() {
    let test = "faults::watch_loses_and_repeats_nothing_during_faults";
    let mut nemesis = Nemesis::start(test).await;
    let client = nemesis.client();
    let mut watcher = client.watch(Watch::prefix("/w/").from_revision(1));
    let watching = tokio::spawn(async move { events_up_to(&mut watcher, "/w/end").await });
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writer = nemesis.client();
    let progress = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&progress);
    let writing = tokio::spawn(async move {
        let mut number = 0;
        while !*stopped.borrow() {
            write(&writer, number).await;
            number += 1;
            counted.store(number, Ordering::Relaxed);
        }
        number
    });
    nemesis.every_fault(&progress).await;
    stop.send(true).unwrap();
    let numbers = soon("end of the writes", writing).await.unwrap();
    until("last write", async || {
        client.put(Put::new("/w/end", "")).await
    })
    .await;
    let seen = soon("all events", watching).await.unwrap();
    let again = replay(&client, "/w/end").await;
    // A last write without an answer may be repeated by the test.
    let without_end = |events: Vec<(String, i64)>| -> Vec<(String, i64)> {
        events
            .into_iter()
            .filter(|(key, _)| key != "/w/end")
            .collect()
    };
    let (seen, again) = (without_end(seen), without_end(again));
    assert!(seen.len() >= numbers);
    assert_eq!(seen, again);
}

#[tokio::test]
async fn slow_consumer_gets_every_event() {
    const EVENTS: usize = 400;
    let test = "faults::slow_consumer_gets_every_event";
    for store in Store::both(test).await {
        let mut watcher = store.client.watch(Watch::prefix("/w/").from_revision(1));
        let value = vec![b'x'; 32 * 1024];
        for number in 0..EVENTS {
            let key = format!("/w/{number:05}");
            store
                .client
                .put(Put::new(key, value.clone()))
                .await
                .unwrap();
            if number == 0 {
                // The watch is open, and then not read while megabytes of events wait.
                soon("event", watcher.next()).await.unwrap().unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let seen = events_up_to(&mut watcher, &format!("/w/{:05}", EVENTS - 1)).await;
        let expected = (1..EVENTS).map(|number| format!("/w/{number:05}"));
        let seen: Vec<String> = seen.into_iter().map(|(key, _)| key).collect();
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn watch_that_falls_behind_a_compaction_while_the_server_is_away_reports_it() {
    let test = "faults::watch_that_falls_behind_a_compaction";
    for mut store in Store::both(test).await {
        let client = store.client.clone();
        let mut watcher = client.watch(Watch::prefix("/w/").from_revision(1).in_fragments());
        for number in 0..3 {
            write(&client, number).await;
        }
        let seen = events_up_to(&mut watcher, "/w/00002").await;
        assert_eq!(seen.len(), 3);
        // The connection of the watch breaks. Then the watch is not polled until its events are gone.
        store.member.kill();
        store.member.launch(&[]);
        store.wait_until_serving().await;
        for number in 3..10 {
            write(&client, number).await;
        }
        let newest = client.range(Range::key("x")).await.unwrap();
        let revision = newest.header.unwrap().revision;
        let request = CompactionRequest {
            revision,
            physical: true,
        };
        client.compact(request).await.unwrap();
        let response = soon("response", watcher.next()).await.unwrap().unwrap();
        assert!(
            response.canceled && response.events.is_empty(),
            "{response:?}"
        );
        assert_eq!(response.compact_revision, revision);
        assert!(watcher.next().await.unwrap().is_none());
    }
}
