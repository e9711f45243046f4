//! A failed read of the backend ends the watch that needed it, with a reason; all others go on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use portunus_mvcc::backend::MemoryBackend;
use portunus_mvcc::watch::{Event, Hub, Limits, RevisionEvents, SyncBudget, WatchState};
use portunus_mvcc::{Config, EntryId, Hooks, Store};
use portunus_proto::Term;
use portunus_proto::etcdserverpb::{PutRequest, WatchCreateRequest};

use support::{Client, event_texts, event_texts_all, from, on_key};

const REASON: &str =
    "etcdserver: the backend could not be read; check the disk: a commit or read failed on request";

fn open(backend: &MemoryBackend) -> Store {
    let config = Config {
        resident_value_bytes_max: 1,
        ..Config::default()
    };
    let backend = Arc::new(backend.clone());
    Store::open(backend, config, Hooks::default()).unwrap().0
}

/// A store with revisions 2, 3 and 4 of key `a`. Only the newest value is in memory.
fn store_with_three_versions() -> (MemoryBackend, Store) {
    let backend = MemoryBackend::new();
    let mut store = open(&backend);
    for index in 1..=3 {
        store
            .begin(EntryId {
                index,
                term: Term(1),
            })
            .unwrap();
        let request = PutRequest {
            key: Bytes::from_static(b"a"),
            value: format!("{index}").into(),
            ..PutRequest::default()
        };
        let _ = store.put(&request, &|_| true).unwrap();
        store.end().unwrap();
    }
    store.flush().unwrap();
    drop(store);
    let store = open(&backend);
    (backend, store)
}

fn with_prev(request: WatchCreateRequest) -> WatchCreateRequest {
    WatchCreateRequest {
        prev_kv: true,
        ..request
    }
}

#[test]
fn watch_whose_history_cannot_be_read_is_cancelled_and_others_go_on() {
    let (backend, store) = store_with_three_versions();
    let reader = store.reader();
    let mut hub = Hub::new(store.revision(), Limits::default());
    let mut client = Client::open(&mut hub);
    let first = client.watch(&mut hub, from(2, on_key("a")));
    let second = client.watch(&mut hub, from(2, on_key("a")));

    backend.fail_next_snapshot();
    while hub.sync_step(&reader, SyncBudget::default()).runnable > 0 {}

    let (ended, rest): (Vec<_>, Vec<_>) = client
        .drain()
        .into_iter()
        .partition(|response| response.canceled);
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((ended[0].watch_id, ended[0].created), (first, false));
    assert_eq!(ended[0].compact_revision, 0);
    assert_eq!(ended[0].cancel_reason, REASON);
    assert!(rest.iter().all(|response| response.watch_id == second));
    assert_eq!(event_texts_all(&rest), ["put a@2", "put a@3", "put a@4"]);
    assert_eq!(hub.state(client.stream, first), None);
    assert_eq!(hub.state(client.stream, second), Some(WatchState::Synced));
}

/// An event whose predecessor could not be read when it happened.
#[test]
fn live_watch_without_its_previous_version_reads_it_from_history() {
    for fails_again in [false, true] {
        let (backend, store) = store_with_three_versions();
        let reader = store.reader();
        let mut hub = Hub::new(store.revision() - 1, Limits::default());
        let mut client = Client::open(&mut hub);
        let wants_prev = client.watch(&mut hub, with_prev(on_key("a")));
        let plain = client.watch(&mut hub, on_key("a"));

        let kv = reader.events_since(4, 1).unwrap()[0].events[0].kv().clone();
        let event = Event::put_without_prev(kv);
        backend.fail_next_snapshot();
        event.look_up_prev(&reader).unwrap_err();
        let events = Arc::new(RevisionEvents {
            revision: 4,
            events: [event].into(),
        });
        hub.publish(&events).unwrap();
        let live = client.drain();
        assert_eq!(live.len(), 1, "{live:?}");
        assert_eq!(
            (live[0].watch_id, event_texts(&live[0])),
            (plain, vec!["put a@4".into()])
        );

        if fails_again {
            backend.fail_next_snapshot();
        }
        while hub.sync_step(&reader, SyncBudget::default()).runnable > 0 {}
        let later = client.drain();
        assert_eq!(later.len(), 1, "{later:?}");
        assert_eq!(later[0].watch_id, wants_prev);
        if fails_again {
            assert!(later[0].canceled, "{later:?}");
            assert_eq!(later[0].cancel_reason, REASON);
        } else {
            let prev = later[0].events[0].prev_kv.as_ref().unwrap();
            assert_eq!((prev.mod_revision, &prev.value[..]), (3, &b"2"[..]));
        }
        assert_eq!(hub.state(client.stream, plain), Some(WatchState::Synced));
    }
}
