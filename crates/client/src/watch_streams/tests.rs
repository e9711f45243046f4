use std::task::Waker;

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{ResponseHeader, WatchRequest, watch_request::RequestUnion};
use portunus_proto::mvccpb::{Event, KeyValue};

use super::multiplexer::{Effect, Multiplexer};
use super::*;

fn create(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest {
        key: "a".into(),
        start_revision,
        ..WatchCreateRequest::default()
    }
}

fn response(watch_id: i64, revision: i64) -> WatchResponse {
    WatchResponse {
        header: Some(ResponseHeader {
            revision,
            ..ResponseHeader::default()
        }),
        watch_id,
        ..WatchResponse::default()
    }
}

fn created(watch_id: i64, revision: i64) -> WatchResponse {
    WatchResponse {
        created: true,
        ..response(watch_id, revision)
    }
}

fn changed(watch_id: i64, revisions: &[i64]) -> WatchResponse {
    let event = |mod_revision: &i64| Event {
        kv: Some(KeyValue {
            key: "a".into(),
            mod_revision: *mod_revision,
            ..KeyValue::default()
        }),
        ..Event::default()
    };
    WatchResponse {
        events: revisions.iter().map(event).collect(),
        ..response(watch_id, *revisions.last().unwrap())
    }
}

/// Returns the effects as short lines.
fn lines(effects: Vec<Effect>) -> Vec<String> {
    effects.into_iter().map(|effect| line(&effect)).collect()
}

fn line(effect: &Effect) -> String {
    match effect {
        Effect::Send(WatchRequest { request_union }) => match request_union.as_ref().unwrap() {
            RequestUnion::CreateRequest(create) => format!("create from {}", create.start_revision),
            RequestUnion::CancelRequest(cancel) => format!("cancel {}", cancel.watch_id),
            RequestUnion::ProgressRequest(_) => "progress".to_owned(),
        },
        Effect::Created(watch) => format!("{watch} created"),
        Effect::Deliver {
            watch, response, ..
        } => {
            let revision = |event: &Event| event.kv.as_ref().unwrap().mod_revision;
            let revisions: Vec<_> = response.events.iter().map(revision).collect();
            match revisions.is_empty() {
                false => format!("{watch} gets {revisions:?}"),
                true => format!(
                    "{watch} progress {}",
                    response.header.as_ref().unwrap().revision
                ),
            }
        }
        Effect::TokenRefused { watch, .. } => format!("{watch} token refused"),
        Effect::End { watch, end } => format!("{watch} ends: {end}"),
    }
}

/// Returns a multiplexer with active watches 1 and 2, which have the ids 11 and 12 at the server.
fn with_two_watches() -> Multiplexer {
    let mut multiplexer = Multiplexer::default();
    multiplexer.connected();
    multiplexer.add(1, create(0));
    multiplexer.response(created(11, 5));
    multiplexer.add(2, create(3));
    multiplexer.response(created(12, 5));
    multiplexer
}

#[test]
fn watches_are_created_one_after_the_other() {
    let mut multiplexer = Multiplexer::default();
    assert!(multiplexer.add(1, create(0)).is_empty());
    assert!(multiplexer.add(2, create(3)).is_empty());
    assert_eq!(lines(multiplexer.connected()), ["create from 0"]);
    let effects = multiplexer.response(created(11, 5));
    assert_eq!(lines(effects), ["1 created", "create from 3"]);
    assert_eq!(lines(multiplexer.response(created(12, 5))), ["2 created"]);
    let effects = multiplexer.response(changed(12, &[3, 4]));
    assert_eq!(lines(effects), ["2 gets [3, 4]"]);
}

#[test]
fn each_watch_resumes_after_its_own_last_event() {
    let mut multiplexer = with_two_watches();
    multiplexer.response(changed(12, &[3, 4]));
    multiplexer.response(changed(11, &[7]));
    multiplexer.disconnected();
    assert_eq!(lines(multiplexer.connected()), ["create from 8"]);
    let effects = multiplexer.response(created(0, 9));
    assert_eq!(lines(effects), ["1 created", "create from 5"]);
    multiplexer.response(created(1, 9));
    let effects = multiplexer.response(changed(1, &[5]));
    assert_eq!(lines(effects), ["2 gets [5]"]);
}

#[test]
fn watch_from_now_that_had_no_event_resumes_where_it_was_created() {
    let mut multiplexer = with_two_watches();
    multiplexer.disconnected();
    assert_eq!(lines(multiplexer.connected()), ["create from 6"]);
}

#[test]
fn progress_of_the_stream_goes_to_all_active_watches() {
    let mut multiplexer = with_two_watches();
    assert_eq!(lines(multiplexer.request_progress()), ["progress"]);
    let effects = multiplexer.response(response(-1, 9));
    assert_eq!(lines(effects), ["1 progress 9", "2 progress 9"]);
    let effects = multiplexer.response(response(12, 10));
    assert_eq!(lines(effects), ["2 progress 10"]);
    multiplexer.disconnected();
    assert_eq!(lines(multiplexer.connected()), ["create from 10"]);
    let effects = multiplexer.response(created(0, 9));
    assert_eq!(lines(effects), ["1 created", "create from 11"]);
}

#[test]
fn progress_is_requested_after_the_watches_that_are_being_created() {
    let mut multiplexer = Multiplexer::default();
    multiplexer.connected();
    multiplexer.add(1, create(0));
    assert!(multiplexer.request_progress().is_empty());
    let effects = multiplexer.response(created(0, 5));
    assert_eq!(lines(effects), ["1 created", "progress"]);
}

#[test]
fn event_after_progress_of_its_revision_ends_the_watch() {
    let mut multiplexer = with_two_watches();
    multiplexer.response(response(-1, 9));
    let effects = multiplexer.response(changed(11, &[9]));
    let end = "1 ends: the server sent an event of revision 9 after all events up to 9";
    assert_eq!(lines(effects), ["cancel 11", end]);
    assert!(multiplexer.response(changed(11, &[10])).is_empty());
    let effects = multiplexer.response(changed(12, &[10]));
    assert_eq!(lines(effects), ["2 gets [10]"]);
}

#[test]
fn removed_watch_is_canceled_even_while_it_is_created() {
    let mut multiplexer = with_two_watches();
    assert_eq!(lines(multiplexer.remove(1)), ["cancel 11"]);
    assert!(multiplexer.response(changed(11, &[9])).is_empty());
    multiplexer.add(3, create(0));
    assert!(multiplexer.remove(3).is_empty());
    assert_eq!(lines(multiplexer.response(created(13, 9))), ["cancel 13"]);
}

#[test]
fn paused_watch_resumes_where_its_consumer_stopped() {
    let mut multiplexer = with_two_watches();
    let effects = multiplexer.response(changed(12, &[3, 4]));
    let Some(Effect::Deliver { watch, before, .. }) = effects.into_iter().next() else {
        panic!("no delivery");
    };
    assert_eq!(lines(multiplexer.pause(watch, before)), ["cancel 12"]);
    assert!(multiplexer.response(changed(12, &[5])).is_empty());
    assert_eq!(
        lines(multiplexer.response(response(-1, 9))),
        ["1 progress 9"]
    );
    // A broken stream does not resume it, its consumer does.
    multiplexer.disconnected();
    assert_eq!(lines(multiplexer.connected()), ["create from 10"]);
    assert_eq!(lines(multiplexer.response(created(0, 9))), ["1 created"]);
    assert_eq!(lines(multiplexer.resume(2)), ["create from 3"]);
}

#[test]
fn canceled_watch_ends_with_the_reason() {
    let mut multiplexer = with_two_watches();
    let compacted = WatchResponse {
        canceled: true,
        compact_revision: 8,
        ..response(12, 0)
    };
    let effects = multiplexer.response(compacted);
    let text = EtcdError::Compacted.text();
    assert_eq!(lines(effects), [format!("2 ends: {text}")]);
    let refused = |reason: &str| WatchResponse {
        canceled: true,
        cancel_reason: reason.to_owned(),
        ..created(-1, 9)
    };
    multiplexer.add(3, create(0));
    let effects = multiplexer.response(refused("permission denied"));
    assert_eq!(
        lines(effects),
        ["3 ends: the server canceled the watch: permission denied"]
    );
    multiplexer.add(4, create(0));
    let reason = format!("rpc error: desc = {}", EtcdError::InvalidAuthToken.text());
    let effects = multiplexer.response(refused(&reason));
    assert_eq!(lines(effects), ["4 token refused"]);
}

#[test]
fn full_buffer_takes_nothing_until_the_consumer_does() {
    let buffer = Buffer::new(1);
    let mut context = Context::from_waker(Waker::noop());
    assert!(!buffer.pause(), "an empty buffer needs no pause");
    buffer.push(changed(1, &[1])).unwrap();
    assert!(buffer.push(changed(1, &[2])).is_err());
    assert!(buffer.pause());
    buffer.end(WatchEnd::Compacted {
        compact_revision: None,
    });
    let taken = buffer.poll_take(&mut context);
    assert!(
        matches!(taken, Poll::Ready(Taken::Response { resume: true, .. })),
        "{taken:?}"
    );
    let taken = buffer.poll_take(&mut context);
    assert!(matches!(taken, Poll::Ready(Taken::End(_))), "{taken:?}");
    assert!(buffer.poll_take(&mut context).is_pending());
}
