use super::watchers::EVENTS_BUFFERED_MAX;
use super::*;
use crate::kubernetes::WatchEvent;

fn put(key: &str, value: &str) -> Write {
    put_with_lease(key, value, 0)
}

fn put_with_lease(key: &str, value: &str, lease: i64) -> Write {
    Write::Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        lease,
    }
}

fn delete(key: &str) -> Write {
    Write::Delete {
        key: Bytes::copy_from_slice(key.as_bytes()),
    }
}

fn state() -> State {
    State::new(usize::MAX)
}

fn watch(state: &mut State, prefix: &str, revision: i64) -> u64 {
    let range = KeyRange::Prefix(Bytes::copy_from_slice(prefix.as_bytes()));
    state.create_watch(range, String::new(), revision)
}

/// Returns what a watch returns until it has nothing more, one line per event.
fn events(state: &mut State, id: u64) -> Vec<String> {
    let mut lines = Vec::new();
    while let Polled::Event(event) = state.poll_watch(id) {
        lines.push(line(&event));
    }
    lines
}

fn line(event: &WatchEvent) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    match event {
        WatchEvent::Added {
            key,
            value,
            revision,
        } => format!("{revision} + {}={}", text(key), text(value)),
        WatchEvent::Modified {
            key,
            value,
            previous_value,
            revision,
        } => format!(
            "{revision} ~ {}={} was {}",
            text(key),
            text(value),
            text(previous_value)
        ),
        WatchEvent::Deleted {
            key,
            previous_value,
            revision,
        } => format!("{revision} - {} was {}", text(key), text(previous_value)),
        WatchEvent::Bookmark { revision } => format!("{revision} bookmark"),
        WatchEvent::Error(error) => error.to_string(),
    }
}

#[test]
fn write_with_another_expected_revision_changes_nothing() {
    let mut state = state();
    let created = state.write_if(0, put("a", "1")).unwrap();
    assert!(created.succeeded && created.kv.is_none());
    assert_eq!(created.revision, 2);
    for expected in [0, 1, 3] {
        let refused = state.write_if(expected, put("a", "2")).unwrap();
        assert!(!refused.succeeded);
        assert_eq!(refused.kv.unwrap().value, "1");
        assert_eq!(refused.revision, 2);
    }
    assert!(state.write_if(2, delete("a")).unwrap().succeeded);
    let absent = state.write_if(0, delete("a")).unwrap();
    assert!(absent.succeeded);
    assert_eq!(absent.revision, 3, "deleting nothing is no revision");
    assert!(!state.write_if(3, delete("a")).unwrap().succeeded);
}

#[test]
fn history_is_readable_from_the_compact_revision_on() {
    let mut state = state();
    for value in ["1", "2", "3"] {
        state.write(vec![put("a", value)]).unwrap();
    }
    state.write(vec![delete("a")]).unwrap();
    state.write(vec![put("b", "x")]).unwrap();
    state.compact(3).unwrap();

    let value_at = |revision| {
        let kv = state.get(b"a", revision).unwrap().kv;
        kv.map(|kv| (kv.value, kv.create_revision, kv.version))
    };
    assert_eq!(value_at(3), Some(("2".into(), 2, 2)));
    assert_eq!(value_at(4), Some(("3".into(), 2, 3)));
    assert_eq!(value_at(5), None);
    assert_eq!(state.get(b"a", 4).unwrap().revision, 6);
    let compacted = state.get(b"a", 2).unwrap_err();
    assert!(
        matches!(
            compacted,
            Error::Compacted {
                compact_revision: Some(3)
            }
        ),
        "{compacted:?}"
    );
    assert!(matches!(state.get(b"a", 7), Err(Error::FutureRevision)));
    assert!(matches!(state.compact(3), Err(Error::Compacted { .. })));
    assert!(matches!(state.compact(7), Err(Error::FutureRevision)));

    state.compact(6).unwrap();
    assert_eq!(state.count(b""), 1);
    let created = state.write_if(0, put("a", "4")).unwrap();
    assert!(created.succeeded, "a compacted tombstone is an absent key");
}

#[test]
fn list_counts_the_keys_after_its_limit_and_stays_inside_its_prefix() {
    let mut state = state();
    for key in ["/a/1", "/a/2", "/a/3", "/b/1"] {
        state.write(vec![put(key, "")]).unwrap();
    }
    let first = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let page = state.list(b"/a/", &first).unwrap();
    assert_eq!((page.kvs.len(), page.count, page.revision), (2, 3, 5));
    let rest = ListOptions {
        continue_key: Bytes::from_static(b"/a/2\0"),
        revision: page.revision,
        ..first
    };
    let page = state.list(b"/a/", &rest).unwrap();
    assert_eq!(page.kvs[0].key, "/a/3");
    assert_eq!((page.kvs.len(), page.count), (1, 1));
    assert_eq!((state.count(b"/a/"), state.count(b"")), (3, 4));
}

#[test]
fn transaction_has_one_revision_and_refuses_a_key_twice() {
    let mut state = state();
    let id = watch(&mut state, "/", 0);
    assert_eq!(
        state.write(vec![put("/a", "1"), put("/b", "1")]).unwrap(),
        2
    );
    assert!(state.write(vec![put("/a", "2"), delete("/a")]).is_err());
    assert_eq!(state.write(vec![delete("/c")]).unwrap(), 2);
    assert_eq!(state.write(vec![delete("/a"), put("/c", "1")]).unwrap(), 3);
    let expected = ["2 + /a=1", "2 + /b=1", "3 - /a was 1", "3 + /c=1"];
    assert_eq!(events(&mut state, id), expected);
}

#[test]
fn watch_returns_each_event_after_its_revision_once() {
    let mut state = state();
    state.write(vec![put("/a", "1")]).unwrap();
    let from_history = watch(&mut state, "/", 1);
    let from_now = watch(&mut state, "/", 0);
    let from_later = watch(&mut state, "/", 3);
    state.write(vec![put("/a", "2")]).unwrap();
    state.write(vec![delete("/a")]).unwrap();
    assert_eq!(
        events(&mut state, from_history),
        ["2 + /a=1", "3 ~ /a=2 was 1", "4 - /a was 2"]
    );
    assert_eq!(
        events(&mut state, from_now),
        ["3 ~ /a=2 was 1", "4 - /a was 2"]
    );
    assert_eq!(events(&mut state, from_later), ["4 - /a was 2"]);
    assert!(events(&mut state, from_history).is_empty());
}

#[test]
fn bookmark_comes_after_all_events_of_its_revision_and_before_later_ones() {
    let mut state = state();
    let id = watch(&mut state, "/", 0);
    state.write(vec![put("/a", "1"), put("/b", "1")]).unwrap();
    state.request_progress("").unwrap();
    state.write(vec![put("/a", "2")]).unwrap();
    assert_eq!(
        events(&mut state, id),
        ["2 + /a=1", "2 + /b=1", "2 bookmark", "3 ~ /a=2 was 1"]
    );
}

#[test]
fn progress_is_requested_per_stream_and_not_answered_before_all_watches_began() {
    let mut state = state();
    let unknown = state.request_progress("x").unwrap_err();
    assert!(
        matches!(unknown, Error::UnknownStream { .. }),
        "{unknown:?}"
    );
    let range = |key: &'static str| KeyRange::Key(Bytes::from_static(key.as_bytes()));
    let other = state.create_watch(range("a"), "x".to_owned(), 0);
    let default = state.create_watch(range("a"), String::new(), 0);
    state.request_progress("x").unwrap();
    assert_eq!(events(&mut state, other), ["1 bookmark"]);
    assert!(events(&mut state, default).is_empty());

    let later = state.create_watch(range("a"), "x".to_owned(), 5);
    state.request_progress("x").unwrap();
    assert!(events(&mut state, other).is_empty());
    state.remove_watch(later);
    state.request_progress("x").unwrap();
    assert_eq!(events(&mut state, other), ["1 bookmark"]);
    state.remove_watch(other);
    assert!(state.request_progress("x").is_err());
}

#[test]
fn compaction_ends_only_watches_that_miss_events() {
    let mut state = state();
    state.write(vec![put("/a", "1")]).unwrap();
    state.write(vec![put("/a", "2")]).unwrap();
    let synced = watch(&mut state, "/a", 0);
    state.write(vec![put("/b", "1")]).unwrap();
    let slow = watch(&mut state, "/", 0);
    state.write(vec![put("/c", "1")]).unwrap();
    state.write(vec![put("/c", "2")]).unwrap();
    state.compact(6).unwrap();

    let too_old = watch(&mut state, "/", 4);
    assert_eq!(events(&mut state, too_old), [EtcdError::Compacted.text()]);
    assert!(matches!(state.poll_watch(too_old), Polled::End));
    let oldest = watch(&mut state, "/", 5);
    assert_eq!(events(&mut state, oldest), ["6 ~ /c=2 was 1"]);
    assert_eq!(events(&mut state, slow), ["5 + /c=1", "6 ~ /c=2 was 1"]);
    assert!(events(&mut state, synced).is_empty());
    state.write(vec![put("/a", "3")]).unwrap();
    assert_eq!(events(&mut state, synced), ["7 ~ /a=3 was 2"]);
}

#[test]
fn watch_that_is_too_slow_for_the_history_ends_with_the_events_before() {
    let mut state = state();
    let id = watch(&mut state, "/", 0);
    for _ in 0..EVENTS_BUFFERED_MAX + 2 {
        state.write(vec![put("/a", "")]).unwrap();
    }
    let newest = state.revision();
    state.compact(newest).unwrap();
    let returned = events(&mut state, id);
    assert_eq!(returned.len(), EVENTS_BUFFERED_MAX + 1);
    assert_eq!(returned.last().unwrap(), EtcdError::Compacted.text());
    assert!(matches!(state.poll_watch(id), Polled::End));
}

#[test]
fn lease_holds_the_keys_of_the_last_puts_with_it() {
    let mut state = state();
    let first = state.grant_lease(Duration::from_secs(10));
    let second = state.grant_lease(Duration::from_secs(20));
    for key in ["/a", "/b", "/c"] {
        let write = put_with_lease(key, "1", first);
        state.write(vec![write]).unwrap();
    }
    let moved = put_with_lease("/b", "2", second);
    state.write(vec![moved, put("/c", "2")]).unwrap();
    assert_eq!(state.lease_keys(first).unwrap(), ["/a"]);
    assert_eq!(state.lease_keys(second).unwrap(), ["/b"]);

    let id = watch(&mut state, "/", 0);
    state.advance(Duration::from_secs(10));
    state.renew_lease(second).unwrap();
    state.advance(Duration::from_secs(19));
    assert_eq!(events(&mut state, id), ["6 - /a was 1"]);
    state.advance(Duration::from_secs(1));
    assert_eq!(events(&mut state, id), ["7 - /b was 2"]);
    assert!(matches!(
        state.revoke_lease(second),
        Err(Error::LeaseNotFound)
    ));
    let unknown = put_with_lease("/d", "", second);
    assert!(matches!(
        state.write_if(0, unknown),
        Err(Error::LeaseNotFound)
    ));
    assert_eq!(state.count(b""), 1);
}

#[test]
fn revoked_lease_deletes_its_keys_in_one_revision_in_key_order() {
    let mut state = state();
    let lease = state.grant_lease(Duration::from_secs(1));
    for key in ["/b", "/a"] {
        state.write(vec![put_with_lease(key, "1", lease)]).unwrap();
    }
    let id = watch(&mut state, "/", 0);
    state.revoke_lease(lease).unwrap();
    assert_eq!(events(&mut state, id), ["4 - /a was 1", "4 - /b was 1"]);
    let empty = state.grant_lease(Duration::from_secs(1));
    state.revoke_lease(empty).unwrap();
    assert_eq!(state.revision(), 4, "deleting nothing is no revision");
}

#[test]
fn store_without_space_refuses_puts_until_a_compaction() {
    let mut state = State::new(1000);
    let value = "x".repeat(500);
    state.write(vec![put("a", &value)]).unwrap();
    let refused = state.write_if(2, put("a", &value)).unwrap_err();
    assert!(matches!(refused, Error::NoSpace), "{refused:?}");
    state.write(vec![delete("a")]).unwrap();
    state.compact(3).unwrap();
    state.write(vec![put("a", &value)]).unwrap();
    let large = put("b", &"x".repeat(2 * 1024 * 1024));
    assert!(matches!(state.write_if(0, large), Err(Error::Client(_))));
}

#[test]
fn canceled_watch_returns_the_events_before() {
    let mut state = state();
    let id = watch(&mut state, "/", 0);
    state.write(vec![put("/a", "1")]).unwrap();
    state.cancel_watches("", "permission denied");
    state.write(vec![put("/a", "2")]).unwrap();
    let canceled = "the store canceled the watch: permission denied";
    assert_eq!(events(&mut state, id), ["2 + /a=1", canceled]);
}
