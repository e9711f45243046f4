//! Objects that do not come from the store: a resource whose program knows its objects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

/// How many states are kept for watches that begin at an earlier one.
const STATES_MAX: usize = 32;

/// One state of a read-only resource: its objects in the hub version by name, and a version that
/// grows with every change. The objects are cluster-scoped.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Collection {
    /// The objects by name, without a resource version.
    pub objects: BTreeMap<String, Value>,
    /// The version of this state; larger than that of every state before.
    pub version: i64,
}

/// The last states of a collection, the newest last. There is always one.
#[derive(Debug, Clone)]
pub(crate) struct History {
    states: VecDeque<Arc<Collection>>,
    newest: Arc<Collection>,
}

impl History {
    fn new(first: Collection) -> History {
        let newest = Arc::new(first);
        History {
            states: VecDeque::from([Arc::clone(&newest)]),
            newest,
        }
    }

    pub(crate) fn newest(&self) -> Arc<Collection> {
        Arc::clone(&self.newest)
    }

    /// Returns the state with a version, if it is still known.
    pub(crate) fn at(&self, version: i64) -> Option<Arc<Collection>> {
        let mut states = self.states.iter();
        states.find(|state| state.version == version).cloned()
    }

    fn with(&self, objects: BTreeMap<String, Value>) -> History {
        let version = self.newest.version.saturating_add(1);
        let newest = Arc::new(Collection { objects, version });
        let mut states = self.states.clone();
        states.push_back(Arc::clone(&newest));
        if states.len() > STATES_MAX {
            states.pop_front();
        }
        History { states, newest }
    }
}

/// Publishes the states of a [`Collection`]. The resource serves the last one.
#[derive(Debug, Clone)]
pub struct CollectionPublisher {
    sender: watch::Sender<Arc<History>>,
}

impl CollectionPublisher {
    /// Creates a publisher of an empty collection at a version. A program that takes the time of
    /// its start as the first version never sends a client back to an earlier one.
    #[must_use]
    pub fn starting_at(version: i64) -> CollectionPublisher {
        let first = Collection {
            version: version.max(1),
            ..Collection::default()
        };
        CollectionPublisher {
            sender: watch::Sender::new(Arc::new(History::new(first))),
        }
    }

    /// Replaces the objects. The version grows by one; without a change nothing happens.
    pub fn publish(&self, objects: BTreeMap<String, Value>) {
        self.sender.send_if_modified(|history| {
            if history.newest.objects == objects {
                return false;
            }
            *history = Arc::new(history.with(objects));
            true
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<History>> {
        self.sender.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn version_grows_with_changes_only_and_old_states_are_forgotten() {
        let publisher = CollectionPublisher::starting_at(7);
        let states = publisher.subscribe();
        assert_eq!(states.borrow().newest().version, 7);
        let objects = |number: i64| BTreeMap::from([("a".to_owned(), json!({"x": number}))]);
        publisher.publish(objects(1));
        publisher.publish(objects(1));
        assert_eq!(states.borrow().newest().version, 8);
        assert!(states.borrow().at(7).is_some());
        for number in 2..100 {
            publisher.publish(objects(number));
        }
        assert!(states.borrow().at(7).is_none());
        assert_eq!(states.borrow().states.len(), STATES_MAX);
    }
}
