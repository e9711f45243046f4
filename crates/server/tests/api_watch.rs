//! The guarantees of a watch: every event once, in order, whole revisions at a time.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::requests::{delete, delete_op, get, put, put_op, txn};
use common::watching::{WatchStream, show, watch, watch_all};
use common::{Clients, Server, data_dir};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::watch_create_request::FilterType;
use portunus_proto::etcdserverpb::{CompactionRequest, DeleteRangeRequest, WatchCreateRequest};
use portunus_proto::mvccpb::Event;

async fn started(flags: &[&str]) -> (tempfile::TempDir, Server, Clients) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, flags);
    let clients = server.connect().await;
    (guard, server, clients)
}

fn shown(events: &[Event]) -> Vec<String> {
    events.iter().map(show).collect()
}

/// Returns the previous values of the events' keys; `-` where there was none.
fn previous(events: &[Event]) -> Vec<String> {
    let value = |event: &Event| match &event.prev_kv {
        Some(kv) => String::from_utf8(kv.value.to_vec()).unwrap(),
        None => "-".to_owned(),
    };
    events.iter().map(value).collect()
}

#[tokio::test]
async fn watch_without_revision_gets_later_events() {
    let (_guard, _server, mut clients) = started(&[]).await;
    clients.kv.put(put("a", "before")).await.unwrap();
    let mut stream = WatchStream::open(&clients).await;
    let created = stream.create(watch("a")).await;
    assert_eq!((created.watch_id, created.canceled), (0, false));
    assert_eq!(created.header.unwrap().revision, 2);
    assert!(created.header.unwrap().member_id != 0 && created.header.unwrap().cluster_id != 0);

    clients.kv.put(put("a", "1")).await.unwrap();
    clients.kv.put(put("b", "not watched")).await.unwrap();
    clients.kv.delete_range(delete("a")).await.unwrap();
    let first = stream.next().await;
    assert_eq!(shown(&first.events), ["PUT a=1@3"]);
    assert_eq!((first.watch_id, first.header.unwrap().revision), (0, 3));
    let kv = first.events[0].kv.clone().unwrap();
    assert_eq!(
        (
            kv.create_revision,
            kv.version,
            first.events[0].prev_kv.clone()
        ),
        (2, 2, None)
    );
    let second = stream.next().await;
    assert_eq!(shown(&second.events), ["DELETE a@5"]);
    // A delete event has only the key and the revision.
    let kv = second.events[0].kv.clone().unwrap();
    let empty = (kv.create_revision, kv.version, kv.lease, kv.value.len());
    assert_eq!(empty, (0, 0, 0, 0));
}

#[tokio::test]
async fn events_of_a_revision_are_in_one_response() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch_all(0)).await;
    clients.kv.put(put("c", "1")).await.unwrap();
    clients
        .kv
        .txn(txn([put_op("b", "2"), delete_op("c"), put_op("a", "3")]))
        .await
        .unwrap();
    assert_eq!(shown(&stream.next().await.events), ["PUT c=1@2"]);
    let together = ["PUT b=2@3", "DELETE c@3", "PUT a=3@3"];
    assert_eq!(shown(&stream.next().await.events), together);
    // A watcher that is created later gets the same.
    let mut late = WatchStream::open(&clients).await;
    late.create(watch_all(3)).await;
    assert_eq!(shown(&late.next().await.events), together);
}

#[tokio::test]
async fn watch_starts_at_past_current_and_future_revisions() {
    let (_guard, _server, mut clients) = started(&[]).await;
    for number in 2..=10 {
        clients.kv.put(put("a", &number.to_string())).await.unwrap();
    }
    let request = CompactionRequest {
        revision: 5,
        physical: true,
    };
    clients.kv.compact(request).await.unwrap();
    let mut stream = WatchStream::open(&clients).await;

    // The compaction's own revision can still be watched, everything before it cannot.
    let first = stream.create(watch_all(5)).await;
    let events = stream.events(6).await;
    assert_eq!(show(&events[0]), "PUT a=5@5");
    assert_eq!(show(&events[5]), "PUT a=10@10");
    stream.cancel(first.watch_id).await;
    assert!(stream.next().await.canceled);

    for start in [4, 1] {
        let created = stream.create(watch_all(start)).await;
        assert!(!created.canceled, "{start}");
        let canceled = stream.next().await;
        assert_eq!(canceled.watch_id, created.watch_id, "{start}");
        assert!(canceled.canceled && !canceled.created, "{start}");
        assert_eq!(canceled.compact_revision, 5, "{start}");
        assert_eq!(canceled.cancel_reason, "", "{start}");
        assert_eq!(canceled.header.unwrap().revision, 0, "{start}");
        assert!(canceled.events.is_empty(), "{start}");
    }

    let negative = stream.create(watch_all(-1)).await;
    assert!(negative.canceled);
    assert_eq!(negative.watch_id, -1);
    assert_eq!(negative.cancel_reason, EtcdError::Compacted.text());

    // A watcher from a future revision gets no earlier events.
    let future = stream.create(watch_all(13)).await;
    for number in 11..=14 {
        clients.kv.put(put("a", &number.to_string())).await.unwrap();
    }
    let response = stream.next().await;
    assert_eq!(response.watch_id, future.watch_id);
    let mut events = response.events;
    while events.len() < 2 {
        events.extend(stream.next().await.events);
    }
    assert_eq!(shown(&events), ["PUT a=13@13", "PUT a=14@14"]);
}

#[tokio::test]
async fn prev_kv_is_the_version_before_the_event() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let create = |start_revision| WatchCreateRequest {
        prev_kv: true,
        ..watch_all(start_revision)
    };
    let mut live = WatchStream::open(&clients).await;
    live.create(create(0)).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    clients.kv.put(put("a", "2")).await.unwrap();
    clients.kv.delete_range(delete("a")).await.unwrap();
    clients.kv.put(put("a", "3")).await.unwrap();
    clients.kv.put(put("a", "4")).await.unwrap();
    let expected = ["-", "1", "2", "-", "3"];
    assert_eq!(previous(&live.events(5).await), expected);
    let mut late = WatchStream::open(&clients).await;
    late.create(create(2)).await;
    assert_eq!(previous(&late.events(5).await), expected);
    // A compacted previous value is absent.
    let request = CompactionRequest {
        revision: 6,
        physical: true,
    };
    clients.kv.compact(request).await.unwrap();
    let mut after = WatchStream::open(&clients).await;
    after.create(create(6)).await;
    let events = after.events(1).await;
    assert_eq!(
        (shown(&events), previous(&events)),
        (vec!["PUT a=4@6".to_owned()], vec!["-".to_owned()])
    );
}

#[tokio::test]
async fn filters_remove_puts_or_deletes() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    let filtered = |filter: FilterType, watch_id| WatchCreateRequest {
        filters: vec![filter as i32],
        watch_id,
        ..watch_all(0)
    };
    stream.create(filtered(FilterType::Noput, 10)).await;
    stream.create(filtered(FilterType::Nodelete, 20)).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    clients.kv.delete_range(delete("a")).await.unwrap();
    clients.kv.put(put("a", "2")).await.unwrap();
    clients.kv.delete_range(delete("a")).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..4 {
        let response = stream.next().await;
        assert_eq!(response.events.len(), 1);
        told.push((response.watch_id, show(&response.events[0])));
    }
    told.sort();
    let expected = [
        (10, "DELETE a@3"),
        (10, "DELETE a@5"),
        (20, "PUT a=1@2"),
        (20, "PUT a=2@4"),
    ];
    assert_eq!(told, expected.map(|(id, text)| (id, text.to_owned())));
}

#[tokio::test]
async fn watch_ids_are_unique_per_stream() {
    let (_guard, _server, clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    let with_id = |watch_id| WatchCreateRequest {
        watch_id,
        ..watch("a")
    };
    assert_eq!(stream.create(with_id(0)).await.watch_id, 0);
    assert_eq!(stream.create(with_id(1)).await.watch_id, 1);
    // Ids chosen by the client are skipped.
    assert_eq!(stream.create(with_id(0)).await.watch_id, 2);
    let duplicate = stream.create(with_id(1)).await;
    assert!(duplicate.canceled);
    assert_eq!(duplicate.watch_id, -1);
    assert_eq!(
        duplicate.cancel_reason,
        "mvcc: duplicate watch ID provided on the WatchStream"
    );
    // Another stream has its own ids.
    let mut other = WatchStream::open(&clients).await;
    assert_eq!(other.create(with_id(1)).await.watch_id, 1);
}

#[tokio::test]
async fn empty_watch_range_is_refused_and_all_keys_can_be_watched() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    let backwards = WatchCreateRequest {
        range_end: "a".into(),
        ..watch("b")
    };
    let refused = stream.create(backwards).await;
    assert!(refused.canceled);
    assert_eq!(refused.watch_id, -1);
    assert_eq!(refused.cancel_reason, "mvcc: watcher range is empty");
    // No key means the first possible key.
    let from_start = WatchCreateRequest {
        range_end: "\0".into(),
        ..watch("")
    };
    stream.create(from_start).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    assert_eq!(shown(&stream.next().await.events), ["PUT a=1@2"]);
}

#[tokio::test]
async fn cancelled_watch_gets_no_events() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    let gone = stream.create(watch_all(0)).await.watch_id;
    let stays = stream.create(watch_all(0)).await.watch_id;
    // An id that does not exist gets no response.
    stream.cancel(99).await;
    stream.cancel(gone).await;
    let canceled = stream.next().await;
    assert!(canceled.canceled && !canceled.created);
    assert_eq!((canceled.watch_id, &*canceled.cancel_reason), (gone, ""));
    stream.cancel(gone).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    clients.kv.put(put("a", "2")).await.unwrap();
    for expected in ["PUT a=1@2", "PUT a=2@3"] {
        let response = stream.next().await;
        assert_eq!(
            (response.watch_id, shown(&response.events)),
            (stays, vec![expected.to_owned()])
        );
    }
}

#[tokio::test]
async fn requested_progress_has_the_current_revision() {
    let (_guard, _server, mut clients) = started(&[]).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch("a")).await;
    stream.create(watch("b")).await;
    // An idle stream gets the revision up to which it has seen all events.
    clients.kv.put(put("not watched", "1")).await.unwrap();
    stream.request_progress().await;
    let progress = stream.next().await;
    assert_eq!(
        (progress.watch_id, progress.header.unwrap().revision),
        (-1, 3)
    );
    assert!(progress.events.is_empty() && !progress.created && !progress.canceled);
    // A progress notification never overtakes an event.
    clients.kv.put(put("a", "2")).await.unwrap();
    stream.request_progress().await;
    assert_eq!(shown(&stream.next().await.events), ["PUT a=2@4"]);
    assert_eq!(stream.next().await.header.unwrap().revision, 4);
}

#[tokio::test]
async fn idle_watch_gets_progress_at_the_interval() {
    let (_guard, _server, mut clients) = started(&["--watch-progress-notify-interval=100ms"]).await;
    let mut stream = WatchStream::open(&clients).await;
    let create = WatchCreateRequest {
        progress_notify: true,
        watch_id: 7,
        ..watch("a")
    };
    stream.create(create).await;
    clients.kv.put(put("not watched", "1")).await.unwrap();
    // Notifications come until one includes the write.
    loop {
        let notice = stream.next().await;
        assert!(notice.events.is_empty(), "{notice:?}");
        assert_eq!(notice.watch_id, 7);
        if notice.header.unwrap().revision == 2 {
            break;
        }
    }
}

/// Five megabytes in one revision: in fragments if the client requests it, else at once.
#[tokio::test]
async fn large_revision_is_fragmented_on_request() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let large = "v".repeat(1_000_000);
    for key in ["a", "b", "c", "d", "e"] {
        clients.kv.put(put(key, &large)).await.unwrap();
    }
    let create = |fragment| WatchCreateRequest {
        fragment,
        prev_kv: true,
        ..watch_all(0)
    };
    let mut whole = WatchStream::open(&clients).await;
    whole.create(create(false)).await;
    let mut pieces = WatchStream::open(&clients).await;
    pieces.create(create(true)).await;
    let request = DeleteRangeRequest {
        range_end: "z".into(),
        ..delete("a")
    };
    clients.kv.delete_range(request).await.unwrap();

    let response = whole.next().await;
    assert_eq!((response.events.len(), response.fragment), (5, false));
    let mut events = Vec::new();
    let mut responses = 0;
    loop {
        let response = pieces.next().await;
        responses += 1;
        events.extend(response.events);
        if !response.fragment {
            break;
        }
    }
    assert!(responses > 1);
    assert!(events == response.events);
}

/// Hundreds of watches, on one stream and on many, live and catching up: each event arrives
/// once.
#[tokio::test]
async fn hundreds_of_watches_get_each_event_once() {
    let (_guard, server, mut clients) = started(&[]).await;
    clients.kv.put(put("a", "1")).await.unwrap();
    const WATCHES: usize = 300;
    let mut one = WatchStream::open(&clients).await;
    for number in 0..WATCHES {
        // Half of them have events to catch up with.
        let start = if number % 2 == 0 { 0 } else { 2 };
        one.send(
            portunus_proto::etcdserverpb::watch_request::RequestUnion::CreateRequest(watch_all(
                start,
            )),
        )
        .await;
    }
    let mut told = vec![Vec::new(); WATCHES];
    let mut created = 0;
    let expected = WATCHES + WATCHES / 2;
    while created < WATCHES {
        let response = one.next().await;
        created += usize::from(response.created);
        told[usize::try_from(response.watch_id).unwrap()].extend(shown(&response.events));
    }
    clients.kv.put(put("a", "2")).await.unwrap();
    while told.iter().map(Vec::len).sum::<usize>() < expected {
        let response = one.next().await;
        told[usize::try_from(response.watch_id).unwrap()].extend(shown(&response.events));
    }
    for (number, events) in told.iter().enumerate() {
        let expected: &[&str] = if number % 2 == 0 {
            &["PUT a=2@3"]
        } else {
            &["PUT a=1@2", "PUT a=2@3"]
        };
        assert_eq!(events, expected, "watch {number}");
    }

    let mut streams = Vec::new();
    for _ in 0..20 {
        let clients = server.connect().await;
        let mut stream = WatchStream::open(&clients).await;
        stream.create(watch("b")).await;
        streams.push(stream);
    }
    clients.kv.put(put("b", "1")).await.unwrap();
    for stream in &mut streams {
        assert_eq!(shown(&stream.next().await.events), ["PUT b=1@4"]);
    }
}

/// While several clients write, a watch from now on and one from the beginning see the same:
/// every revision once, none missing.
#[tokio::test]
async fn watch_has_no_gap_and_no_repetition_under_load() {
    const WRITES: usize = 400;
    let (_guard, server, clients) = started(&["--backend-batch-interval=5ms"]).await;
    let mut live = WatchStream::open(&clients).await;
    live.create(watch_all(0)).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let mut clients = server.connect().await;
        writers.spawn(async move {
            for number in 0..WRITES / 4 {
                clients
                    .kv
                    .put(put(&format!("w{writer}"), &number.to_string()))
                    .await
                    .unwrap();
            }
        });
    }
    // These start in the past, while writes continue.
    let mut late = Vec::new();
    for _ in 0..5 {
        live.events(10).await;
        let mut stream = WatchStream::open(&server.connect().await).await;
        stream.create(watch_all(2)).await;
        late.push(stream);
    }
    let rest = live.events(WRITES - 50).await;
    let first = rest[0].kv.clone().unwrap().mod_revision;
    assert_eq!(first, 52);
    for (position, event) in rest.iter().enumerate() {
        assert_eq!(
            event.kv.as_ref().unwrap().mod_revision,
            first + position as i64
        );
    }
    for mut stream in late {
        let events = stream.events(WRITES).await;
        let revisions: Vec<i64> = events
            .iter()
            .map(|event| event.kv.as_ref().unwrap().mod_revision)
            .collect();
        let expected: Vec<i64> = (2..2 + WRITES as i64).collect();
        assert_eq!(revisions, expected);
    }
    writers.join_all().await;
}

/// A client that lost its member resumes where it was, with the same events.
#[tokio::test]
async fn watch_resumes_after_a_restart() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch_all(0)).await;
    for number in 0..5 {
        clients.kv.put(put("a", &number.to_string())).await.unwrap();
    }
    clients
        .kv
        .txn(txn([delete_op("a"), put_op("b", "1")]))
        .await
        .unwrap();
    let before = stream.events(7).await;
    server.kill();
    assert!(!matches!(stream.next_or_end().await, Some(Ok(_))));

    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch_all(4)).await;
    assert_eq!(stream.events(5).await, before[2..]);
    clients.kv.put(put("a", "new")).await.unwrap();
    assert_eq!(shown(&stream.events(1).await), ["PUT a=new@8"]);
}

/// A client may close its side and still receive.
#[tokio::test]
async fn half_closed_watch_stream_continues() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch("a")).await;
    stream.close_requests();
    clients.kv.put(put("a", "1")).await.unwrap();
    assert_eq!(shown(&stream.next().await.events), ["PUT a=1@2"]);
    assert_eq!(
        clients.kv.range(get("a")).await.unwrap().into_inner().count,
        1
    );
}
