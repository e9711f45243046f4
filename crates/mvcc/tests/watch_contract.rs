//! The rules of watches, one test each.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use portunus_mvcc::watch::{
    ConnectionId, Hub, Limits, NO_WATCH_ID, RequestError, SyncBudget, WatchInfo, WatchState,
};
use portunus_proto::etcdserverpb::WatchCreateRequest;
use portunus_proto::etcdserverpb::watch_create_request::FilterType;
use support::{
    Client, ModelStore, Op, PROGRESS_INTERVAL, event_texts, event_texts_all, from, new_hub, on_key,
    on_range, sync_all,
};

fn small(limits: Limits) -> Hub {
    Hub::new(1, limits)
}

#[test]
fn live_events_reach_exactly_the_watches_of_their_keys() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let exact = client.watch(&mut hub, on_key("b"));
    let range = client.watch(&mut hub, on_range("a", "c"));
    let onward = client.watch(&mut hub, on_range("c", "\0"));
    for key in ["a", "b", "c", "d"] {
        hub.publish(&store.put(key, "v")).unwrap();
    }
    let mut seen: Vec<(i64, Vec<String>)> = client
        .drain()
        .iter()
        .map(|r| (r.watch_id, event_texts(r)))
        .collect();
    seen.sort();
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!(
        seen,
        [
            (exact, one("put b@3")),
            (range, one("put a@2")),
            (range, one("put b@3")),
            (onward, one("put c@4")),
            (onward, one("put d@5")),
        ]
    );
}

#[test]
fn empty_key_in_a_watch_means_the_smallest_key() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_range("", "\0"));
    client.watch(&mut hub, on_key(""));
    hub.publish(&store.put("\0", "v")).unwrap();
    assert_eq!(event_texts_all(&client.drain()).len(), 2);
    hub.publish(&store.put("x", "v")).unwrap();
    assert_eq!(event_texts_all(&client.drain()), ["put x@3"]);
}

#[test]
fn created_response_comes_first_with_the_current_revision() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    hub.create(client.stream, from(2, on_key("a"))).unwrap();
    hub.publish(&store.put("a", "2")).unwrap();
    sync_all(&mut hub, &store);
    let responses = client.drain();
    assert!(responses[0].created && responses[0].events.is_empty());
    assert_eq!(responses[0].header.as_ref().unwrap().revision, 2);
    assert_eq!(event_texts_all(&responses[1..]), ["put a@2", "put a@3"]);
}

#[test]
fn automatic_ids_count_up_and_skip_used_ones() {
    let mut hub = new_hub();
    let mut client = Client::open(&mut hub);
    assert_eq!(client.watch(&mut hub, on_key("a")), 0);
    let named = WatchCreateRequest {
        watch_id: 1,
        ..on_key("a")
    };
    assert_eq!(client.watch(&mut hub, named), 1);
    assert_eq!(client.watch(&mut hub, on_key("a")), 2);
    hub.cancel(client.stream, 2).unwrap();
    client.drain();
    assert_eq!(
        client.watch(&mut hub, on_key("a")),
        3,
        "ids of ended watches are not reused"
    );
}

#[test]
fn refused_create_is_created_and_canceled_with_etcd_reason() {
    let mut hub = new_hub();
    let mut client = Client::open(&mut hub);
    client.watch(
        &mut hub,
        WatchCreateRequest {
            watch_id: 5,
            ..on_key("a")
        },
    );
    let cases = [
        (
            WatchCreateRequest {
                watch_id: 5,
                ..on_key("b")
            },
            "mvcc: duplicate watch ID provided on the WatchStream",
        ),
        (on_range("b", "a"), "mvcc: watcher range is empty"),
        (on_range("b", "b"), "mvcc: watcher range is empty"),
        (
            from(-1, on_key("a")),
            "etcdserver: mvcc: required revision has been compacted",
        ),
        // The start revision is checked before the range.
        (
            from(-1, on_range("b", "a")),
            "etcdserver: mvcc: required revision has been compacted",
        ),
    ];
    for (request, reason) in cases {
        assert_eq!(hub.create(client.stream, request).unwrap(), None);
        let answer = client.next().unwrap();
        assert!(answer.created && answer.canceled);
        assert_eq!(
            (answer.watch_id, answer.cancel_reason.as_str()),
            (NO_WATCH_ID, reason)
        );
        assert_eq!(answer.header.unwrap().revision, 1);
    }
    hub.refuse(client.stream, "no").unwrap();
    let answer = client.next().unwrap();
    assert!(answer.created && answer.canceled && answer.cancel_reason == "no");
    assert_eq!(hub.stats().watchers, 1);
}

#[test]
fn cancel_is_answered_without_reason_and_unknown_ids_are_not_answered() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let id = client.watch(&mut hub, on_key("a"));
    assert!(!hub.cancel(client.stream, 77).unwrap());
    assert!(hub.cancel(client.stream, id).unwrap());
    hub.publish(&store.put("a", "1")).unwrap();
    let responses = client.drain();
    assert_eq!(responses.len(), 1);
    assert!(responses[0].canceled && !responses[0].created);
    assert_eq!(responses[0].cancel_reason, "");
    assert_eq!(responses[0].compact_revision, 0);
}

/// Proves: K21
#[test]
fn response_holds_all_events_of_a_revision() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_range("a", "z"));
    client.watch(&mut hub, on_range("a", "c"));
    let put = |key: &str| Op::Put(key.into(), "v".into());
    hub.publish(&store.txn(&[put("a"), put("b"), put("x")]))
        .unwrap();
    let responses = client.drain();
    assert_eq!(
        event_texts(&responses[0]).len() + event_texts(&responses[1]).len(),
        5
    );
    let narrow = responses.iter().find(|r| r.watch_id == 1).unwrap();
    assert_eq!(event_texts(narrow), ["put a@2", "put b@2"]);
}

#[test]
fn filters_remove_events_and_empty_responses_are_not_sent() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    let filtered = |filter: FilterType, start| WatchCreateRequest {
        filters: vec![filter.into(), 99],
        ..from(start, on_key("a"))
    };
    let no_put = client.watch(&mut hub, filtered(FilterType::Noput, 0));
    let no_delete = client.watch(&mut hub, filtered(FilterType::Nodelete, 0));
    let late = client.watch(&mut hub, filtered(FilterType::Noput, 2));
    sync_all(&mut hub, &store);
    assert_eq!(hub.state(client.stream, late), Some(WatchState::Synced));
    hub.publish(&store.put("a", "2")).unwrap();
    hub.publish(&store.delete("a")).unwrap();
    let responses = client.drain();
    let seen = |id| {
        let of: Vec<_> = responses
            .iter()
            .filter(|r| r.watch_id == id)
            .cloned()
            .collect();
        event_texts_all(&of)
    };
    assert_eq!(seen(no_put), ["delete a@4"]);
    assert_eq!(seen(no_delete), ["put a@3"]);
    assert_eq!(seen(late), ["delete a@4"]);
    assert_eq!(responses.len(), 3);
}

/// Proves: K18
#[test]
fn delete_event_carries_the_old_value_only_as_prev_kv() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let plain = client.watch(&mut hub, on_key("a"));
    let with_prev = client.watch(
        &mut hub,
        WatchCreateRequest {
            prev_kv: true,
            ..on_key("a")
        },
    );
    hub.publish(&store.put("a", "old")).unwrap();
    hub.publish(&store.delete("a")).unwrap();
    let responses = client.drain();
    for id in [plain, with_prev] {
        let of: Vec<_> = responses.iter().filter(|r| r.watch_id == id).collect();
        let created = &of[0].events[0];
        assert!(
            created.prev_kv.is_none(),
            "a create has no previous version"
        );
        let deleted = of[1].events[0].clone();
        let kv = deleted.kv.unwrap();
        assert_eq!((kv.key.as_ref(), kv.mod_revision), (&b"a"[..], 3));
        assert_eq!(
            (kv.value.len(), kv.version, kv.create_revision, kv.lease),
            (0, 0, 0, 0)
        );
        let prev = deleted.prev_kv.map(|prev| prev.value);
        assert_eq!(prev.as_deref(), (id == with_prev).then_some(&b"old"[..]));
    }
}

/// Proves: K20
#[test]
fn future_watch_starts_at_its_revision() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let id = client.watch(&mut hub, from(4, on_key("a")));
    assert_eq!(
        hub.state(client.stream, id),
        Some(WatchState::Future { start: 4 })
    );
    for value in ["1", "2", "3", "4"] {
        hub.publish(&store.put("a", value)).unwrap();
    }
    assert_eq!(event_texts_all(&client.drain()), ["put a@4", "put a@5"]);
    assert_eq!(hub.state(client.stream, id), Some(WatchState::Synced));
}

/// Proves: K20
#[test]
fn watch_from_a_compacted_revision_is_created_then_canceled() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    for value in ["1", "2", "3"] {
        hub.publish(&store.put("a", value)).unwrap();
    }
    store.compact = 3;
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(2, on_key("a")));
    let legal = client.watch(&mut hub, from(3, on_key("a")));
    sync_all(&mut hub, &store);
    let responses = client.drain();
    let gone = &responses[0];
    assert!(gone.canceled && gone.compact_revision == 3 && gone.cancel_reason.is_empty());
    assert_eq!(gone.header.as_ref().unwrap().revision, 0);
    assert_eq!(responses[1].watch_id, legal);
    assert_eq!(event_texts_all(&responses[1..]), ["put a@3", "put a@4"]);
    assert_eq!(hub.stats().watchers, 1);
}

#[test]
fn catch_up_response_holds_at_most_1000_revisions() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let put = |key: &str| Op::Put(key.into(), "v".into());
    for _ in 0..2500 {
        hub.publish(&store.txn(&[put("a"), put("b")])).unwrap();
    }
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(1, on_range("a", "c")));
    sync_all(&mut hub, &store);
    let responses = client.drain();
    let sizes: Vec<usize> = responses.iter().map(|r| r.events.len()).collect();
    assert_eq!(
        sizes,
        [2000, 2000, 1000],
        "both events of a revision stay together"
    );
    for response in &responses {
        assert_eq!(response.header.as_ref().unwrap().revision, 2501);
    }
}

#[test]
fn catch_up_response_respects_its_byte_limit_in_whole_revisions() {
    let limits = Limits {
        catch_up_bytes_max: 1000,
        ..Limits::default()
    };
    let (mut hub, mut store) = (small(limits), ModelStore::default());
    let put = |key: &str, size: usize| Op::Put(key.into(), "v".repeat(size));
    hub.publish(&store.txn(&[put("a", 10), put("b", 3000)]))
        .unwrap();
    for _ in 0..5 {
        hub.publish(&store.txn(&[put("a", 300)])).unwrap();
    }
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(1, on_range("a", "c")));
    sync_all(&mut hub, &store);
    let sizes: Vec<usize> = client.drain().iter().map(|r| r.events.len()).collect();
    assert_eq!(sizes, [2, 2, 2, 1]);
}

#[test]
fn large_response_is_fragmented_only_on_request() {
    let limits = Limits {
        fragment_bytes: 600,
        ..Limits::default()
    };
    let (mut hub, mut store) = (small(limits), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let asked = WatchCreateRequest {
        fragment: true,
        ..on_range("a", "z")
    };
    let asked = client.watch(&mut hub, asked);
    client.watch(&mut hub, on_range("a", "z"));
    let put = |key: &str, size: usize| Op::Put(key.into(), "v".repeat(size));
    hub.publish(&store.txn(&[put("a", 200), put("b", 200), put("c", 900), put("d", 1)]))
        .unwrap();
    hub.publish(&store.put("e", "small")).unwrap();
    let responses = client.drain();
    let of = |want: bool| {
        responses
            .iter()
            .filter(move |r| (r.watch_id == asked) == want)
    };
    let cut: Vec<(bool, Vec<String>)> = of(true).map(|r| (r.fragment, event_texts(r))).collect();
    let texts = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        cut,
        [
            (true, texts(&["put a@2", "put b@2"])),
            (true, texts(&["put c@2"])),
            (false, texts(&["put d@2"])),
            (false, texts(&["put e@3"])),
        ]
    );
    let whole: Vec<(bool, usize)> = of(false).map(|r| (r.fragment, r.events.len())).collect();
    assert_eq!(whole, [(false, 4), (false, 1)]);
}

#[test]
fn slow_client_has_a_bounded_queue_and_loses_no_event() {
    let limits = Limits {
        responses_max: 8,
        ..Limits::default()
    };
    let (mut hub, mut store) = (small(limits), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let id = client.watch(&mut hub, on_key("a"));
    for number in 0..100 {
        hub.publish(&store.put("a", &number.to_string())).unwrap();
        let _ = hub.sync_step(&store, SyncBudget::default());
        assert!(client.receiver.queued().responses <= 8);
    }
    assert_eq!(
        hub.state(client.stream, id),
        Some(WatchState::Slow { next: 10 })
    );
    let mut texts = event_texts_all(&client.drain());
    assert!(
        client.wake.drained.load(Ordering::Relaxed) > 0,
        "the hub requests a drained notification"
    );
    sync_all(&mut hub, &store);
    texts.extend(event_texts_all(&client.drain()));
    let expected: Vec<String> = (2..=101).map(|r| format!("put a@{r}")).collect();
    assert_eq!(texts, expected);
    assert_eq!(hub.state(client.stream, id), Some(WatchState::Synced));
}

#[test]
fn byte_limit_bounds_a_queue_but_admits_one_huge_revision() {
    let limits = Limits {
        bytes_max: 1000,
        ..Limits::default()
    };
    let (mut hub, mut store) = (small(limits), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let id = client.watch(&mut hub, on_key("a"));
    hub.publish(&store.put("a", &"x".repeat(5000))).unwrap();
    hub.publish(&store.put("a", "tiny")).unwrap();
    assert_eq!(client.receiver.queued().responses, 1);
    assert_eq!(
        hub.state(client.stream, id),
        Some(WatchState::Slow { next: 3 })
    );
    let first = event_texts_all(&client.drain());
    sync_all(&mut hub, &store);
    assert_eq!(
        [first, event_texts_all(&client.drain())].concat(),
        ["put a@2", "put a@3"]
    );
}

#[test]
fn request_is_refused_while_too_many_answers_are_unread() {
    let limits = Limits {
        answers_max: 2,
        ..Limits::default()
    };
    let mut hub = small(limits);
    let mut client = Client::open(&mut hub);
    for _ in 0..2 {
        hub.create(client.stream, on_key("a")).unwrap();
    }
    let refused = Err(RequestError::Backpressure);
    assert_eq!(
        hub.create(client.stream, on_key("a")),
        refused.map(|()| None)
    );
    assert_eq!(
        hub.cancel(client.stream, 0),
        Err(RequestError::Backpressure)
    );
    client.drain();
    assert_eq!(client.wake.drained.load(Ordering::Relaxed), 1);
    assert_eq!(hub.create(client.stream, on_key("a")), Ok(Some(2)));
}

#[test]
fn reader_is_woken_once_when_its_queue_becomes_non_empty() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_key("a"));
    let before = client.wake.readable.load(Ordering::Relaxed);
    for _ in 0..5 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    assert_eq!(client.wake.readable.load(Ordering::Relaxed), before + 1);
    client.drain();
    hub.publish(&store.put("a", "v")).unwrap();
    assert_eq!(client.wake.readable.load(Ordering::Relaxed), before + 2);
}

/// Proves: K19
#[test]
fn automatic_progress_goes_to_synced_watches_without_events_that_requested_it() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let asks = |request| WatchCreateRequest {
        progress_notify: true,
        ..request
    };
    let quiet = client.watch(&mut hub, asks(on_key("q")));
    let busy = client.watch(&mut hub, asks(on_key("b")));
    client.watch(&mut hub, on_key("never asked"));
    client.watch(&mut hub, asks(from(100, on_key("future"))));
    let late = client.watch(&mut hub, asks(from(2, on_key("b"))));
    hub.publish(&store.put("b", "1")).unwrap();
    hub.tick(PROGRESS_INTERVAL - Duration::from_millis(1));
    assert_eq!(client.drain().len(), 1 + 1, "not due yet");
    hub.tick(PROGRESS_INTERVAL);
    let notices = client.drain();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].watch_id, notices[0].events.len()), (quiet, 0));
    assert_eq!(notices[0].header.as_ref().unwrap().revision, 2);
    hub.tick(PROGRESS_INTERVAL * 2);
    let mut ids: Vec<i64> = client.drain().iter().map(|r| r.watch_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [quiet, busy, late], "all were quiet since");
    assert_eq!(hub.next_tick(), Some(PROGRESS_INTERVAL * 3));
}

#[test]
fn watch_that_caught_up_since_the_last_tick_gets_no_notice() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(
        &mut hub,
        WatchCreateRequest {
            progress_notify: true,
            ..from(1, on_key("a"))
        },
    );
    hub.tick(PROGRESS_INTERVAL);
    assert!(client.drain().is_empty(), "not synced");
    sync_all(&mut hub, &store);
    hub.tick(PROGRESS_INTERVAL * 2);
    assert_eq!(event_texts_all(&client.drain()), ["put a@2"]);
    hub.tick(PROGRESS_INTERVAL * 3);
    assert_eq!(client.drain().len(), 1);
}

/// Proves: K19
#[test]
fn requested_progress_needs_every_watch_of_the_stream_synced() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    assert!(
        !hub.request_progress(client.stream).unwrap(),
        "a stream without watches gets no notice"
    );
    client.watch(&mut hub, on_key("a"));
    hub.publish(&store.put("b", "1")).unwrap();
    assert!(hub.request_progress(client.stream).unwrap());
    let notice = client.next().unwrap();
    assert_eq!(
        (notice.watch_id, notice.header.unwrap().revision),
        (NO_WATCH_ID, 2)
    );
    let behind = client.watch(&mut hub, from(2, on_key("b")));
    assert!(
        !hub.request_progress(client.stream).unwrap(),
        "one watch is behind"
    );
    sync_all(&mut hub, &store);
    assert!(hub.request_progress(client.stream).unwrap());
    hub.cancel(client.stream, behind).unwrap();
    client.drain();
    client.watch(&mut hub, from(4, on_key("b")));
    assert!(
        !hub.request_progress(client.stream).unwrap(),
        "one watch has not started"
    );
    hub.publish(&store.put("c", "1")).unwrap();
    hub.publish(&store.put("c", "2")).unwrap();
    assert!(hub.request_progress(client.stream).unwrap());
}

#[test]
fn server_cancels_watches_with_a_reason_after_queued_events() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    let secret = client.watch(&mut hub, on_range("s/", "s0"));
    let open = client.watch(&mut hub, on_range("o/", "o0"));
    hub.publish(&store.put("s/1", "v")).unwrap();
    let ended = hub.cancel_where("etcdserver: permission denied", |watch: WatchInfo<'_>| {
        watch.range.contains(b"s/x")
    });
    assert_eq!(ended, 1);
    hub.publish(&store.put("s/2", "v")).unwrap();
    hub.publish(&store.put("o/1", "v")).unwrap();
    let responses = client.drain();
    assert_eq!(event_texts(&responses[0]), ["put s/1@2"]);
    assert!(responses[1].canceled && responses[1].watch_id == secret);
    assert_eq!(responses[1].cancel_reason, "etcdserver: permission denied");
    assert_eq!(
        (responses[2].watch_id, event_texts(&responses[2])),
        (open, vec!["put o/1@4".to_owned()])
    );
}

#[test]
fn watches_are_limited_per_stream_and_per_connection() {
    let mut hub = small(Limits {
        watches_max: 3,
        connection_watches_max: 4,
        ..Limits::default()
    });
    let connection = Some(ConnectionId(1));
    let mut first = Client::open_on(&mut hub, connection);
    let mut second = Client::open_on(&mut hub, connection);
    let mut other = Client::open_on(&mut hub, Some(ConnectionId(2)));
    let create = |hub: &mut Hub, client: &mut Client| {
        let created = hub.create(client.stream, on_key("a")).unwrap();
        let answer = client.next().unwrap();
        assert_eq!(answer.canceled, created.is_none());
        if created.is_none() {
            assert_eq!(answer.cancel_reason, "etcdserver: too many requests");
        }
        created
    };
    let refused = |hub: &Hub| {
        (
            hub.stats().refused_per_stream,
            hub.stats().refused_per_connection,
        )
    };
    for _ in 0..3 {
        assert!(create(&mut hub, &mut first).is_some());
    }
    assert_eq!(create(&mut hub, &mut first), None);
    assert_eq!(refused(&hub), (1, 0));
    assert!(create(&mut hub, &mut second).is_some());
    assert_eq!(create(&mut hub, &mut second), None);
    assert_eq!(refused(&hub), (1, 1));
    // Another connection is not affected, and what ends makes room.
    assert!(create(&mut hub, &mut other).is_some());
    assert!(hub.cancel(first.stream, 0).unwrap());
    assert!(create(&mut hub, &mut second).is_some());
    assert_eq!(create(&mut hub, &mut second), None);
    hub.close_stream(first.stream);
    hub.cancel_where("ended by the server", |watch| watch.stream == second.stream);
    second.drain();
    for _ in 0..3 {
        assert!(create(&mut hub, &mut second).is_some());
    }
    assert_eq!(refused(&hub), (1, 2));
}

#[test]
fn closing_a_stream_removes_its_watches() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_key("a"));
    client.watch(&mut hub, from(1, on_key("a")));
    client.watch(&mut hub, from(9, on_key("a")));
    hub.close_stream(client.stream);
    assert_eq!(hub.stats(), Default::default());
    assert_eq!(hub.next_tick(), None);
    assert_eq!(
        hub.create(client.stream, on_key("a")),
        Err(RequestError::UnknownStream)
    );
    hub.publish(&store.put("a", "2")).unwrap();
    assert!(client.drain().is_empty());
}

#[test]
fn one_read_of_history_serves_watches_that_start_close_together() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    for _ in 0..500 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    let mut client = Client::open(&mut hub);
    for start in 0..200 {
        client.watch(&mut hub, from(2 + start, on_key("a")));
    }
    sync_all(&mut hub, &store);
    assert_eq!(store.reads.get(), 1);
    assert_eq!(client.drain().len(), 200);
}

#[test]
fn watch_left_out_by_the_budget_is_served_in_the_next_round() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    for _ in 0..5000 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    let mut client = Client::open(&mut hub);
    let far = client.watch(&mut hub, from(2, on_key("a")));
    let near = client.watch(&mut hub, from(4900, on_key("a")));
    let budget = SyncBudget {
        watchers_max: 10,
        revisions_max: 1000,
    };
    let _ = hub.sync_step(&store, budget);
    assert_eq!(
        hub.state(client.stream, far),
        Some(WatchState::CatchingUp { next: 1002 })
    );
    let _ = hub.sync_step(&store, budget);
    assert_eq!(
        hub.state(client.stream, near),
        Some(WatchState::Synced),
        "served in the second round"
    );
}

#[test]
fn revisions_skipped_by_the_publisher_are_read_from_history() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_key("a"));
    client.watch(&mut hub, from(3, on_key("a")));
    let _skipped = (store.put("a", "1"), store.put("a", "2"));
    hub.publish(&store.put("a", "3")).unwrap();
    assert!(
        hub.publish(&store_event(&store)).is_err(),
        "revisions must ascend"
    );
    sync_all(&mut hub, &store);
    let responses = client.drain();
    assert_eq!(
        event_texts(&responses[0]),
        ["put a@2", "put a@3", "put a@4"]
    );
    assert_eq!(event_texts(&responses[1]), ["put a@3", "put a@4"]);
}

fn store_event(store: &ModelStore) -> std::sync::Arc<portunus_mvcc::watch::RevisionEvents> {
    use portunus_mvcc::watch::History;
    store.events_since(4, 1).unwrap().remove(0)
}

#[test]
fn round_read_outside_the_hub_tolerates_concurrent_changes() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, from(2, on_key("a")));
    let gone = client.watch(&mut hub, from(2, on_key("a")));
    let plan = hub.sync_plan(SyncBudget::default());
    let twin = hub.sync_plan(SyncBudget::default());
    hub.publish(&store.put("a", "2")).unwrap();
    hub.cancel(client.stream, gone).unwrap();
    client.next();
    let again = client.watch(&mut hub, from(3, on_key("a")));
    let _ = hub.sync_commit(plan.read(&store));
    let _ = hub.sync_commit(twin.read(&store));
    sync_all(&mut hub, &store);
    let responses = client.drain();
    let of = |id| {
        let of: Vec<_> = responses
            .iter()
            .filter(|r| r.watch_id == id)
            .cloned()
            .collect();
        event_texts_all(&of)
    };
    assert_eq!(of(0), ["put a@2", "put a@3"]);
    assert_eq!(of(again), ["put a@3"]);
    assert!(of(gone).is_empty());
}

#[test]
fn busy_watch_does_not_starve_other_watches_of_the_stream() {
    let limits = Limits {
        responses_max: 8,
        ..Limits::default()
    };
    let (mut hub, mut store) = (small(limits), ModelStore::default());
    hub.publish(&store.put("b", "old")).unwrap();
    let mut client = Client::open(&mut hub);
    client.watch(&mut hub, on_key("a"));
    let behind = client.watch(&mut hub, from(2, on_key("b")));
    for _ in 0..8 {
        hub.publish(&store.put("a", "v")).unwrap();
    }
    // The client reads as fast as the busy key is written, and the queue is
    // full again before each round.
    let mut caught_up = Vec::new();
    for _ in 0..8 {
        let read: Vec<_> = (0..4).filter_map(|_| client.next()).collect();
        caught_up.extend(read.into_iter().filter(|r| r.watch_id == behind));
        for _ in 0..4 {
            hub.publish(&store.put("a", "v")).unwrap();
        }
        let _ = hub.sync_step(&store, SyncBudget::default());
    }
    assert_eq!(event_texts_all(&caught_up), ["put b@2"]);
}

#[test]
fn events_read_for_an_ended_watch_do_not_reach_a_new_watch() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("a", "1")).unwrap();
    let mut client = Client::open(&mut hub);
    let ended = client.watch(&mut hub, from(2, on_key("a")));
    let plan = hub.sync_plan(SyncBudget::default());
    hub.cancel(client.stream, ended).unwrap();
    client.drain();
    let successor = client.watch(&mut hub, from(2, on_key("b")));
    let _ = hub.sync_commit(plan.read(&store));
    assert!(client.drain().is_empty());
    assert_eq!(
        hub.state(client.stream, successor),
        Some(WatchState::CatchingUp { next: 2 })
    );
}

/// The watch that kube-apiserver opens for its cache: from the revision after
/// its list, with previous versions and progress.
///
/// Proves: K17, K18
#[test]
fn kubernetes_cache_watch_gets_events_and_progress() {
    let (mut hub, mut store) = (new_hub(), ModelStore::default());
    hub.publish(&store.put("/registry/pods/ns/a", "listed"))
        .unwrap();
    let listed_at = hub.revision();
    hub.publish(&store.put("/registry/pods/ns/a", "changed"))
        .unwrap();
    let mut client = Client::open(&mut hub);
    let id = client.watch(
        &mut hub,
        WatchCreateRequest {
            start_revision: listed_at + 1,
            prev_kv: true,
            progress_notify: true,
            ..on_range("/registry/pods/", "/registry/pods0")
        },
    );
    sync_all(&mut hub, &store);
    hub.publish(&store.put("/registry/pods/ns/b", "new"))
        .unwrap();
    hub.publish(&store.delete("/registry/pods/ns/a")).unwrap();
    hub.publish(&store.put("/registry/podsets/x", "elsewhere"))
        .unwrap();
    let responses = client.drain();
    assert!(responses.iter().all(|r| r.watch_id == id));
    let events: Vec<_> = responses.into_iter().flat_map(|r| r.events).collect();
    let seen: Vec<(bool, Option<&[u8]>)> = events
        .iter()
        .map(|event| {
            let kv = event.kv.as_ref().unwrap();
            let is_create = kv.create_revision == kv.mod_revision;
            (
                is_create,
                event.prev_kv.as_ref().map(|prev| prev.value.as_ref()),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (false, Some(&b"listed"[..])),
            (true, None),
            (false, Some(&b"changed"[..]))
        ]
    );
    hub.tick(PROGRESS_INTERVAL);
    hub.tick(PROGRESS_INTERVAL * 2);
    assert_eq!(
        client.drain()[0].header.as_ref().unwrap().revision,
        hub.revision()
    );
}
