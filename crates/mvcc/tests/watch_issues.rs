//! Former watch bugs of etcd as tests of this implementation. The numbers are
//! those of etcd's issue tracker.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use portunus_mvcc::watch::{
    History, HistoryError, Hub, Limits, RevisionEvents, SyncBudget, WatchState,
};
use portunus_proto::etcdserverpb::WatchCreateRequest;
use portunus_proto::mvccpb::KeyValue;
use support::{
    Client, ModelStore, PROGRESS_INTERVAL, event_texts, event_texts_all, from, new_hub, on_key,
    on_range, sync_all,
};

/// A progress notice named a revision whose events were not yet sent, so a
/// client that resumed after it lost them.
///
/// Proves: K19, C17
#[test]
fn issue_15220_progress_notice_never_overtakes_events() {
    let limits = Limits {
        responses_max: 4,
        ..Limits::default()
    };
    let (mut hub, mut store) = (Hub::new(1, limits), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(
        &mut hub,
        WatchCreateRequest {
            progress_notify: true,
            ..on_key("a")
        },
    );
    // Queued but unread: the notice waits behind the events.
    hub.publish(&store.put("a", "1")).unwrap();
    hub.publish(&store.put("a", "2")).unwrap();
    assert!(hub.request_progress(client.stream).unwrap());
    let responses = client.drain();
    assert_eq!(event_texts_all(&responses[..2]), ["put a@2", "put a@3"]);
    assert_eq!(responses[2].header.as_ref().unwrap().revision, 3);
    // Not even queued: no notice of either kind.
    for _ in 0..10 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    assert!(!hub.request_progress(client.stream).unwrap());
    hub.tick(PROGRESS_INTERVAL);
    hub.tick(PROGRESS_INTERVAL * 2);
    let responses = client.drain();
    assert!(responses.iter().all(|r| !r.events.is_empty()));
    sync_all(&mut hub, &store);
    assert!(hub.request_progress(client.stream).unwrap());
    let responses = client.drain();
    assert_eq!(event_texts(&responses[0]).last().unwrap(), "put a@13");
    assert_eq!(responses[1].header.as_ref().unwrap().revision, 13);
}

/// A member that installed a snapshot sent old events again, because a synced
/// watch did not store its next revision.
#[test]
fn issue_15271_restore_does_not_repeat_events() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_key("a"));
    for _ in 0..5 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    assert_eq!(client.drain().len(), 5);
    // The member is partitioned while the others write three revisions.
    for _ in 0..3 {
        store.put("a", "missed");
    }
    hub.restore(store.revision_now());
    sync_all(&mut hub, &store);
    assert_eq!(
        event_texts_all(&client.drain()),
        ["put a@7", "put a@8", "put a@9"]
    );
}

/// History that repeats revisions and is ahead of what was published.
struct RepeatingHistory(ModelStore);

impl History for RepeatingHistory {
    fn revision(&self) -> i64 {
        self.0.revision()
    }

    fn compact_revision(&self) -> i64 {
        self.0.compact_revision()
    }

    fn events_since(
        &self,
        from: i64,
        revisions_max: usize,
    ) -> Result<Vec<Arc<RevisionEvents>>, HistoryError> {
        let once = self.0.events_since((from - 1).max(2), revisions_max)?;
        Ok(once
            .iter()
            .flat_map(|r| [Arc::clone(r), Arc::clone(r)])
            .collect())
    }

    fn prev_kv(&self, key: &[u8], mod_revision: i64) -> Result<Option<KeyValue>, HistoryError> {
        self.0.prev_kv(key, mod_revision)
    }
}

/// A read that saw both a buffer and the committed data returned records twice,
/// and the watch passed the duplicates on.
#[test]
fn issue_17247_repeated_revision_in_history_is_sent_once() {
    let (mut hub, mut store) = (new_hub(), RepeatingHistory(ModelStore::default()));
    for _ in 0..3 {
        hub.publish(&store.0.put("a", "v")).unwrap();
    }
    let mut client = Client::open(&mut hub);
    let id = client.watch(&mut hub, from(3, on_key("a")));
    // Applied, visible to readers, not yet published.
    let ahead = store.0.put("a", "v");
    for _ in 0..3 {
        let _ = hub.sync_step(&store, SyncBudget::default());
    }
    assert_eq!(hub.state(client.stream, id), Some(WatchState::Synced));
    hub.publish(&ahead).unwrap();
    assert_eq!(
        event_texts_all(&client.drain()),
        ["put a@3", "put a@4", "put a@5"]
    );
}

/// Hundreds of watches with prev_kv on one stream starved each other: each
/// looked up every previous version separately, and a watch that fell behind
/// compaction while its queue was full lost events without a cancellation.
#[test]
fn issue_17529_prev_kv_watches_share_lookups_and_are_never_dropped_silently() {
    const WATCHES: i64 = 300;
    let limits = Limits {
        responses_max: 128,
        ..Limits::default()
    };
    let (mut hub, mut store) = (Hub::new(1, limits), ModelStore::default());
    let mut client = Client::open(&mut hub);
    for _ in 0..WATCHES {
        let request = WatchCreateRequest {
            prev_kv: true,
            ..on_range("pods/", "pods0")
        };
        client.watch(&mut hub, request);
    }
    let mut seen: Vec<Vec<i64>> = vec![Vec::new(); WATCHES as usize];
    let mut ended = 0;
    let mut read = |client: &mut Client, responses: usize| {
        for _ in 0..responses {
            let Some(response) = client.next() else {
                return;
            };
            if response.canceled {
                assert!(response.compact_revision > 0);
                ended += 1;
            }
            let of = &mut seen[usize::try_from(response.watch_id).unwrap()];
            of.extend(
                response
                    .events
                    .iter()
                    .map(|e| e.kv.as_ref().unwrap().mod_revision),
            );
        }
    };
    for number in 0..200 {
        hub.publish(&store.put("pods/1", &number.to_string()))
            .unwrap();
        let _ = hub.sync_step(&store, SyncBudget::default());
        read(&mut client, 20);
        assert!(client.receiver.queued().responses <= 128);
    }
    assert!(
        store.prev_lookups.get() < 40 * 200,
        "lookups are per event and round, not per watch"
    );
    assert!(hub.stats().slow > 0);
    // Compaction passes the slow watches; the client reads everything after.
    store.compact = store.revision_now() - 2;
    for _ in 0..50 {
        read(&mut client, 1000);
        let _ = hub.sync_step(&store, SyncBudget::default());
    }
    for revisions in &seen {
        assert!(
            revisions.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "a gap: {revisions:?}"
        );
    }
    let complete = seen
        .iter()
        .filter(|of| of.last() == Some(&store.revision_now()))
        .count();
    assert_eq!(
        complete + ended,
        WATCHES as usize,
        "synced, or canceled with the compact revision"
    );
    assert!(ended > 0);
}

/// Compaction at the revision of a delete removed the delete itself, so a watch
/// starting there saw only what came after.
#[test]
fn issue_18089_delete_at_the_compact_revision_is_delivered() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    for value in ["2", "3", "4"] {
        hub.publish(&store.put("k", value)).unwrap();
    }
    hub.publish(&store.delete("k")).unwrap();
    hub.publish(&store.put("k", "6")).unwrap();
    store.compact = 5;
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(5, on_key("k")));
    sync_all(&mut hub, &store);
    assert_eq!(event_texts_all(&client.drain()), ["delete k@5", "put k@6"]);
}

/// A watch opened at the revision being compacted missed the delete there when
/// the compaction ran between opening and reading.
#[test]
fn issue_19179_compaction_between_opening_and_reading_keeps_its_own_revision() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("k", "1")).unwrap();
    hub.publish(&store.delete("k")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(3, on_key("k")));
    let too_old = client.watch(&mut hub, from(2, on_key("k")));
    let plan = hub.sync_plan(SyncBudget::default());
    store.compact = 3;
    let _ = hub.sync_commit(plan.read(&store));
    let responses = client.drain();
    assert_eq!(event_texts(&responses[0]), ["delete k@3"]);
    assert!(responses[1].canceled && responses[1].watch_id == too_old);
    assert_eq!(responses[1].compact_revision, 3);
}

/// A client that switched to a lagging member opened a future watch there and
/// got progress notices below its start revision.
#[test]
fn issue_20221_future_watch_gets_no_progress_notice() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    let request = WatchCreateRequest {
        progress_notify: true,
        ..from(6, on_key("a"))
    };
    let id = client.watch(&mut hub, request);
    for tick in 1..4 {
        hub.tick(PROGRESS_INTERVAL * tick);
        assert!(!hub.request_progress(client.stream).unwrap());
        hub.restore(store.revision_now());
        sync_all(&mut hub, &store);
    }
    assert!(client.drain().is_empty());
    for _ in 0..3 {
        store.put("b", "v");
    }
    hub.restore(store.revision_now());
    assert_eq!(
        hub.state(client.stream, id),
        Some(WatchState::Future { start: 6 })
    );
    hub.publish(&store.put("b", "v")).unwrap();
    hub.tick(PROGRESS_INTERVAL * 4);
    let notices = client.drain();
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].header.as_ref().unwrap().revision, 6);
}

/// When that member then installed a snapshot, the client got events from
/// before the start, because catch-up lowered the watch's next revision.
#[test]
fn issue_20221_restore_does_not_start_a_future_watch_early() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(6, on_key("a")));
    let passed = client.watch(&mut hub, from(4, on_key("a")));
    for _ in 0..2 {
        store.put("a", "missed");
    }
    hub.restore(store.revision_now());
    sync_all(&mut hub, &store);
    let responses = client.drain();
    assert_eq!(responses.len(), 1);
    assert_eq!(
        (responses[0].watch_id, event_texts(&responses[0])),
        (passed, vec!["put a@4".into()])
    );
    for _ in 0..3 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    let responses = client.drain();
    let early: Vec<_> = responses
        .iter()
        .filter(|r| r.watch_id != passed)
        .cloned()
        .collect();
    assert_eq!(event_texts_all(&early), ["put a@6", "put a@7"]);
}
