use std::io;

use super::json::{Answer, of_error, to_error};
use super::*;
use crate::ClientError;
use crate::kubernetes::{
    CountOptions, DeleteOptions, Error, GetOptions, Interface, ListOptions, Memory, PutOptions,
    RequestProgressOptions, WatchEvent, WatchOptions,
};
use portunus_proto::EtcdError;

const KEY: &[u8] = b"/registry/pods/a\xff";

/// Makes every call of the interface, and returns what was answered.
async fn session(store: &dyn Interface) -> Vec<String> {
    let watch = WatchOptions {
        prefix: true,
        ..WatchOptions::default()
    };
    let mut events = store.watch(b"/registry/", watch).await.unwrap();
    let created = store
        .optimistic_put(KEY, "1\0".into(), 0, PutOptions::default())
        .await;
    let refused = store
        .optimistic_put(
            KEY,
            "2".into(),
            0,
            PutOptions {
                get_on_failure: true,
                lease_id: 0,
            },
        )
        .await;
    let lease = PutOptions {
        lease_id: 77,
        ..PutOptions::default()
    };
    let unknown = store
        .optimistic_put(b"/registry/b", "".into(), 0, lease)
        .await;
    let read = store.get(KEY, GetOptions::default()).await;
    let future = store.get(KEY, GetOptions { revision: 99 }).await;
    let list = store.list(b"/registry/", ListOptions::default()).await;
    let count = store.count(b"/registry/", CountOptions::default()).await;
    let progress = store
        .request_progress(RequestProgressOptions::default())
        .await;
    let deleted = store
        .optimistic_delete(KEY, 2, DeleteOptions::default())
        .await;
    let mut answers = vec![
        format!("{created:?}"),
        format!("{refused:?}"),
        format!("{unknown:?}"),
        format!("{read:?}"),
        format!("{future:?}"),
        format!("{list:?}"),
        format!("{count:?}"),
        format!("{progress:?}"),
        format!("{deleted:?}"),
    ];
    for _ in 0..3 {
        answers.push(format!("{:?}", events.next().await));
    }
    answers
}

#[tokio::test]
async fn recorded_session_is_replayed_without_a_store() {
    let recorder = Recorder::new(Memory::new(), Vec::new());
    let recorded = session(&recorder).await;
    assert!(recorded[0].contains("succeeded: true"), "{recorded:?}");
    let recording = recorder.finish().unwrap();

    let replay = Replay::read(&recording[..]).unwrap();
    assert_eq!(replay.remaining().len(), 10);
    assert_eq!(session(&replay).await, recorded);
    assert!(replay.remaining().is_empty());
}

#[tokio::test]
async fn call_that_was_not_recorded_is_refused() {
    let recorder = Recorder::new(Memory::new(), Vec::new());
    recorder.get(b"a", GetOptions::default()).await.unwrap();
    let mut events = recorder.watch(b"a", WatchOptions::default()).await.unwrap();
    let put = recorder.optimistic_put(b"a", "1".into(), 0, PutOptions::default());
    put.await.unwrap();
    events.next().await.unwrap();
    let recording = recorder.finish().unwrap();

    let replay = Replay::read(&recording[..]).unwrap();
    replay.get(b"a", GetOptions::default()).await.unwrap();
    for key in [b"a", b"b"] {
        let refused = replay.get(key, GetOptions::default()).await;
        assert!(matches!(refused, Err(Error::Replay { .. })), "{refused:?}");
    }
    let mut events = replay.watch(b"a", WatchOptions::default()).await.unwrap();
    assert!(matches!(
        events.next().await,
        Some(WatchEvent::Added { .. })
    ));
    let end = events.next().await;
    assert!(
        matches!(end, Some(WatchEvent::Error(Error::Replay { .. }))),
        "{end:?}"
    );
    assert!(events.next().await.is_none());
}

#[test]
fn errors_and_events_survive_the_recording() {
    for error in [
        Error::EmptyKey,
        Error::EmptyPrefix,
        Error::ContinueOutsidePrefix {
            continue_key: "a".to_owned(),
            prefix: "b".to_owned(),
        },
        Error::Negative {
            name: "limit",
            value: -1,
        },
        Error::Compacted {
            compact_revision: Some(7),
        },
        Error::Compacted {
            compact_revision: None,
        },
        Error::FutureRevision,
        Error::LeaseNotFound,
        Error::NoLeases,
        Error::NoLeader,
        Error::NoSpace,
        Error::UnknownStream {
            stream_key: "x".to_owned(),
        },
        Error::Canceled {
            reason: "x".to_owned(),
        },
        Error::Contract {
            what: "x".to_owned(),
        },
        Error::Replay {
            call: "x".to_owned(),
        },
        Error::Client(ClientError::Etcd(EtcdError::DuplicateKey)),
        Error::Client(ClientError::DeadlineExceeded { last_attempt: None }),
    ] {
        let copy = to_error(&of_error(&error)).unwrap();
        assert_eq!(format!("{copy:?}"), format!("{error:?}"));
        let event = WatchEvent::Error(error);
        let copy = WatchEvent::from_json(&event.to_json()).unwrap();
        assert_eq!(format!("{copy:?}"), format!("{event:?}"));
    }
}

#[test]
fn malformed_recording_is_refused_with_the_line() {
    for text in [
        "{\"call\":{},\"answer\":{}}\nnot JSON\n",
        "{\"call\":{},\"answer\":{}}\n{\"call\":{}}\n",
        "{\"call\":{},\"answer\":{}}\n{\"call\":{},\"error\":{\"kind\":\"x\"}}\n",
        "{\"call\":{},\"answer\":{}}\n{\"watch\":1,\"event\":{\"type\":\"ADDED\"}}\n",
    ] {
        let refused = Replay::read(text.as_bytes()).unwrap_err();
        assert!(
            matches!(refused, RecordingError::Line { line: 2, .. }),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn failed_writer_fails_the_recording_and_no_call() {
    struct Full;

    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::other("full"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let recorder = Recorder::new(Memory::new(), Full);
    recorder.get(b"a", GetOptions::default()).await.unwrap();
    assert_eq!(recorder.finish().err().unwrap().to_string(), "full");
}
