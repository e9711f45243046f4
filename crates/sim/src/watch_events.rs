//! The events that watchers must receive, and the comparison with those they received.
//!
//! The expected events come from the log of the member, applied by the model. A watcher must
//! receive exactly these, each once and in the order of revisions, also when its connection
//! broke in between. Pure.

use std::fmt;

use thiserror::Error;

use crate::linearizability::etcd::{Entry, Key, Store};

/// Events shown before a difference.
const CONTEXT_EVENTS: usize = 3;

/// One change of one key.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision of the change.
    pub revision: i64,
    /// The key.
    pub key: Key,
    /// The entry after the change; `None` if it was deleted.
    pub now: Option<Entry>,
    /// The entry before the change.
    pub before: Option<Entry>,
}

/// A difference between the expected and the received events.
#[derive(Debug, Error)]
#[error("expected, after {after:?},\n    {expected:?}\nbut received\n    {seen:?}")]
#[non_exhaustive]
pub struct WatchViolation {
    /// The last equal events.
    pub after: Vec<Event>,
    /// The expected event; `None` if there is none.
    pub expected: Option<Event>,
    /// The received event; `None` if there is none.
    pub seen: Option<Event>,
}

/// Returns the events of one request, from the stores before and after it.
#[must_use]
pub fn between(before: &Store, after: &Store) -> Vec<Event> {
    let revision = after.revision;
    if revision == before.revision {
        return Vec::new();
    }
    let event = |key: &Key, now: Option<&Entry>| Event {
        revision,
        key: key.clone(),
        now: now.cloned(),
        before: before.keys.get(key).cloned(),
    };
    let is_new = |entry: &Entry| entry.mod_revision == revision;
    let written = after.keys.iter().filter(|(_, entry)| is_new(entry));
    let gone = before
        .keys
        .keys()
        .filter(|key| !after.keys.contains_key(*key));
    let mut events: Vec<Event> = written
        .map(|(key, entry)| event(key, Some(entry)))
        .collect();
    events.extend(gone.map(|key| event(key, None)));
    events
}

/// Compares expected and received events. The order of keys within a revision is ignored.
pub fn compare(mut expected: Vec<Event>, mut seen: Vec<Event>) -> Result<(), Box<WatchViolation>> {
    for events in [&mut expected, &mut seen] {
        // Only adjacent events of one revision are sorted, so that a revision out of order is
        // detected.
        for revision in events.chunk_by_mut(|one, next| one.revision == next.revision) {
            revision.sort_by(|one, other| one.key.cmp(&other.key));
        }
    }
    let position = (0..expected.len().max(seen.len()))
        .find(|position| expected.get(*position) != seen.get(*position));
    let Some(position) = position else {
        return Ok(());
    };
    Err(Box::new(WatchViolation {
        after: expected[position.saturating_sub(CONTEXT_EVENTS)..position].to_vec(),
        expected: expected.get(position).cloned(),
        seen: seen.get(position).cloned(),
    }))
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event {
            revision,
            key,
            now,
            before,
        } = self;
        match now {
            Some(now) => write!(f, "{revision}: {key} = {now:?}")?,
            None => write!(f, "{revision}: {key} deleted")?,
        }
        match before {
            Some(before) => write!(f, ", before {before:?}"),
            None => write!(f, ", new"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizability::etcd::{Op, Request, Txn};

    fn events_of_requests() -> Vec<Event> {
        let mut store = Store::default();
        let mut events = Vec::new();
        let both = Txn {
            then: vec![
                Op::Put("b".into(), "3".into(), 0),
                Op::Put("a".into(), "3".into(), 0),
            ],
            ..Txn::default()
        };
        for request in [
            Request::put("a", "1"),
            Request::get("a"),
            Request::Txn(both),
            Request::delete("a"),
            Request::delete("a"),
        ] {
            let before = store.clone();
            let _ = store.apply(&request);
            events.extend(between(&before, &store));
        }
        events
    }

    #[test]
    fn every_change_gives_one_event() {
        let revisions: Vec<(i64, String)> = events_of_requests()
            .iter()
            .map(|event| (event.revision, event.key.to_string()))
            .collect();
        let expected = [(2, "a"), (3, "a"), (3, "b"), (4, "a")];
        assert_eq!(
            revisions,
            expected.map(|(revision, key)| (revision, key.to_owned()))
        );
    }

    #[test]
    fn missing_repeated_reordered_or_changed_event_is_detected() {
        let mut other_order = events_of_requests();
        other_order.swap(1, 2);
        assert!(compare(events_of_requests(), other_order).is_ok());
        let falsified: [fn(&mut Vec<Event>); 6] = [
            |events| drop(events.remove(1)),
            |events| drop(events.pop()),
            |events| events.insert(1, events[0].clone()),
            |events| events.swap(0, 1),
            |events| events[1].before = None,
            |events| events[3].revision += 1,
        ];
        for falsify in falsified {
            let mut seen = events_of_requests();
            falsify(&mut seen);
            assert!(compare(events_of_requests(), seen).is_err());
        }
    }
}
