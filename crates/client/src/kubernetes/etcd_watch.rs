//! Events of the interface from the responses of a watch.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::WatchResponse;
use portunus_proto::mvccpb::event::EventType;
use portunus_proto::mvccpb::{Event, KeyValue};

use super::{Error, WatchEvent, WatchEvents};
use crate::watch_streams::{StreamWatch, WatchEnd};

/// Returns the events after a revision of a created watch, or of one that the store refused.
pub(super) fn events_of(
    created: Result<StreamWatch, WatchEnd>,
    after_revision: i64,
) -> Result<WatchEvents, Error> {
    match created {
        Ok(watch) => Ok(WatchEvents::new(EtcdWatch {
            watch: Some(watch),
            after_revision,
            events: VecDeque::new(),
        })),
        Err(WatchEnd::Client(error)) => Err(error.into()),
        Err(end) => Ok(WatchEvents::new(EtcdWatch {
            watch: None,
            after_revision,
            events: VecDeque::from([WatchEvent::Error(end.into())]),
        })),
    }
}

struct EtcdWatch {
    /// `None` after the end.
    watch: Option<StreamWatch>,
    /// Events up to this revision are not returned.
    after_revision: i64,
    /// Events of the last response that were not returned yet.
    events: VecDeque<WatchEvent>,
}

impl EtcdWatch {
    fn take(&mut self, response: Result<WatchResponse, WatchEnd>) {
        let converted = match response {
            Ok(response) => convert(response, self.after_revision, &mut self.events),
            Err(end) => Err(end.into()),
        };
        if let Err(error) = converted {
            self.watch = None;
            self.events.push_back(WatchEvent::Error(error));
        }
    }
}

impl Stream for EtcdWatch {
    type Item = WatchEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            let Some(watch) = &mut self.watch else {
                return Poll::Ready(None);
            };
            match Pin::new(watch).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(response)) => self.take(response),
                Poll::Ready(None) => self.watch = None,
            }
        }
    }
}

/// Appends the events of a response after a revision. The events before a broken rule are appended,
/// too.
fn convert(
    response: WatchResponse,
    after_revision: i64,
    events: &mut VecDeque<WatchEvent>,
) -> Result<(), Error> {
    if response.events.is_empty() {
        let revision = response.header.map_or(0, |header| header.revision);
        if revision <= 0 {
            return Err(Error::Contract {
                what: format!("a progress notice has revision {revision}"),
            });
        }
        events.push_back(WatchEvent::Bookmark { revision });
        return Ok(());
    }
    for event in response.events {
        let revision = event.kv.as_ref().map(|kv| kv.mod_revision);
        if revision.is_none_or(|revision| revision > after_revision) {
            events.push_back(convert_event(event)?);
        }
    }
    Ok(())
}

fn convert_event(event: Event) -> Result<WatchEvent, Error> {
    let is_deletion = event.r#type() == EventType::Delete;
    let Some(kv) = event.kv else {
        return Err(Error::Contract {
            what: "an event has no key".to_owned(),
        });
    };
    let revision = kv.mod_revision;
    if !is_deletion && kv.create_revision == revision {
        return Ok(WatchEvent::Added {
            key: kv.key,
            value: kv.value,
            revision,
        });
    }
    let Some(previous) = event.prev_kv else {
        return Err(without_previous_value(&kv));
    };
    if is_deletion {
        return Ok(WatchEvent::Deleted {
            key: kv.key,
            previous_value: previous.value,
            revision,
        });
    }
    Ok(WatchEvent::Modified {
        key: kv.key,
        value: kv.value,
        previous_value: previous.value,
        revision,
    })
}

fn without_previous_value(kv: &KeyValue) -> Error {
    let key = String::from_utf8_lossy(&kv.key);
    let revision = kv.mod_revision;
    Error::Contract {
        what: format!(
            "the event of {key:?} at revision {revision} has no previous value; a store sends none \
             if the revision before was compacted: list again"
        ),
    }
}

impl From<WatchEnd> for Error {
    fn from(end: WatchEnd) -> Self {
        match end {
            WatchEnd::Compacted { compact_revision } => Self::Compacted { compact_revision },
            WatchEnd::Canceled { reason } if reason.contains(EtcdError::NoLeader.text()) => {
                Self::NoLeader
            }
            WatchEnd::Canceled { reason } => Self::Canceled { reason },
            WatchEnd::OutOfOrder {
                revision,
                delivered,
            } => Self::Contract {
                what: format!(
                    "an event of revision {revision} came after all events up to {delivered}"
                ),
            },
            WatchEnd::Client(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::etcdserverpb::ResponseHeader;

    use super::*;

    fn kv(create_revision: i64, mod_revision: i64, value: &'static str) -> KeyValue {
        KeyValue {
            key: "a".into(),
            value: value.into(),
            create_revision,
            mod_revision,
            ..KeyValue::default()
        }
    }

    fn event(r#type: EventType, kv: KeyValue, prev_kv: Option<KeyValue>) -> Event {
        Event {
            r#type: r#type.into(),
            kv: Some(kv),
            prev_kv,
        }
    }

    fn converted(events: Vec<Event>) -> (Vec<WatchEvent>, Result<(), Error>) {
        let response = WatchResponse {
            events,
            ..WatchResponse::default()
        };
        let mut converted = VecDeque::new();
        let outcome = convert(response, 1, &mut converted);
        (converted.into(), outcome)
    }

    /// Proves: K18
    #[test]
    fn creation_is_recognised_by_its_revisions_and_others_have_previous_values() {
        let previous = Some(kv(2, 2, "1"));
        let (events, outcome) = converted(vec![
            // Not after revision 1.
            event(EventType::Put, kv(0, 1, "0"), None),
            event(EventType::Put, kv(2, 2, "1"), None),
            event(EventType::Put, kv(2, 3, "2"), previous.clone()),
            event(EventType::Delete, kv(0, 4, ""), previous),
        ]);
        outcome.unwrap();
        assert!(matches!(&events[0], WatchEvent::Added { revision: 2, .. }));
        assert!(matches!(
            &events[1],
            WatchEvent::Modified { value, previous_value, revision: 3, .. }
                if value == "2" && previous_value == "1"
        ));
        assert!(matches!(
            &events[2],
            WatchEvent::Deleted { previous_value, revision: 4, .. } if previous_value == "1"
        ));
    }

    #[test]
    fn event_without_its_previous_value_breaks_the_contract_after_those_before() {
        for broken in [
            event(EventType::Put, kv(2, 3, "2"), None),
            event(EventType::Delete, kv(0, 3, ""), None),
            Event::default(),
        ] {
            let added = event(EventType::Put, kv(2, 2, "1"), None);
            let (events, outcome) = converted(vec![added, broken]);
            assert_eq!(events.len(), 1);
            assert!(
                matches!(outcome, Err(Error::Contract { .. })),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn progress_with_revision_0_breaks_the_contract() {
        let progress = |revision| WatchResponse {
            header: Some(ResponseHeader {
                revision,
                ..ResponseHeader::default()
            }),
            ..WatchResponse::default()
        };
        let mut events = VecDeque::new();
        convert(progress(5), 1, &mut events).unwrap();
        assert!(matches!(events[0], WatchEvent::Bookmark { revision: 5 }));
        assert!(convert(progress(0), 1, &mut events).is_err());
    }
}
