//! What watchers must see, and whether they did.
//!
//! The truth comes from the log of the member, carried out by the model; a watcher has to
//! see exactly that, each event once, in the order of revisions, however often its
//! connection broke. Pure.

use std::fmt;

use thiserror::Error;

use crate::linearizability::etcd::{Entry, Key, Store};

/// Events shown in front of a difference.
const CONTEXT_EVENTS: usize = 3;

/// One change of one key.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub revision: i64,
    /// Which key.
    pub key: Key,
    /// What it is now; `None` if it is gone.
    pub now: Option<Entry>,
    /// What it was before.
    pub before: Option<Entry>,
}

/// A watcher that saw something else than what happened.
#[derive(Debug, Error)]
#[error("a watcher should have seen, after {after:?},\n    {expected:?}\nbut saw\n    {seen:?}")]
#[non_exhaustive]
pub struct WatchViolation {
    /// The last events that were right.
    pub after: Vec<Event>,
    /// What comes next; `None` if nothing does.
    pub expected: Option<Event>,
    /// What the watcher saw instead; `None` if nothing.
    pub seen: Option<Event>,
}

/// The events between two moments that are one request apart.
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

/// Compares what happened with what a watcher saw. Within a revision the order of keys does
/// not matter.
pub fn compare(mut expected: Vec<Event>, mut seen: Vec<Event>) -> Result<(), Box<WatchViolation>> {
    for events in [&mut expected, &mut seen] {
        // Only neighbours of one revision are brought into order: a revision that comes
        // too late stays where it is.
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

    fn story() -> Vec<Event> {
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
    fn every_change_is_an_event() {
        let revisions: Vec<(i64, String)> = story()
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
    fn what_is_missing_repeated_swapped_or_changed_is_found() {
        let mut other_order = story();
        other_order.swap(1, 2);
        assert!(compare(story(), other_order).is_ok());
        let falsified: [fn(&mut Vec<Event>); 6] = [
            |events| drop(events.remove(1)),
            |events| drop(events.pop()),
            |events| events.insert(1, events[0].clone()),
            |events| events.swap(0, 1),
            |events| events[1].before = None,
            |events| events[3].revision += 1,
        ];
        for falsify in falsified {
            let mut seen = story();
            falsify(&mut seen);
            assert!(compare(story(), seen).is_err());
        }
    }
}
