//! How far a watch has come: no event is lost and none is repeated when it is resumed.

use portunus_proto::mvccpb::Event;

/// The position of a watch in the events of its keys.
///
/// Every event before `next_revision` was delivered, and the first `delivered` events of
/// `next_revision` itself: a response in fragments may end within a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// The first revision that was not delivered completely; 0 until the watch was created, if it
    /// begins at the newest revision.
    pub(crate) next_revision: i64,
    /// Events of `next_revision` that were delivered.
    delivered: usize,
    /// Events of `next_revision` that the server repeats after the watch was resumed.
    repeated: usize,
}

/// An event that comes after a later event or after a progress notice of its revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder {
    /// The revision of the event.
    pub(crate) revision: i64,
}

impl Position {
    /// Creates the position of a watch from its start revision.
    pub(crate) fn from_start(start_revision: i64) -> Self {
        Self {
            next_revision: start_revision,
            delivered: 0,
            repeated: 0,
        }
    }

    /// Prepares for the events of a newly created watch. `newest` is the revision of the store.
    pub(crate) fn begin(&mut self, newest: i64) {
        if self.next_revision == 0 {
            self.next_revision = newest + 1;
        }
        self.repeated = self.delivered;
    }

    /// Removes repeated events from a response and advances past the others. `fragment` is whether
    /// the next response continues this one.
    ///
    /// # Errors
    /// If an event is older than the position.
    pub(crate) fn accept(
        &mut self,
        events: &mut Vec<Event>,
        fragment: bool,
    ) -> Result<(), OutOfOrder> {
        let mut out_of_order = None;
        events.retain(|event| {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            if revision < self.next_revision {
                out_of_order.get_or_insert(OutOfOrder { revision });
                return false;
            }
            if revision > self.next_revision {
                *self = Self::from_start(revision);
            }
            if self.repeated > 0 {
                self.repeated -= 1;
                return false;
            }
            self.delivered += 1;
            true
        });
        if let Some(error) = out_of_order {
            return Err(error);
        }
        if !fragment && self.delivered > 0 {
            *self = Self::from_start(self.next_revision + 1);
        }
        Ok(())
    }

    /// Advances past the revision of a progress notice; returns whether it says anything new.
    pub(crate) fn accept_progress(&mut self, revision: i64) -> bool {
        let is_news = self.delivered == 0 && revision + 1 >= self.next_revision;
        if is_news {
            self.next_revision = revision + 1;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use portunus_proto::mvccpb::KeyValue;

    use super::*;

    fn events(revisions: &[i64]) -> Vec<Event> {
        let event = |mod_revision: &i64| Event {
            kv: Some(KeyValue {
                mod_revision: *mod_revision,
                ..KeyValue::default()
            }),
            ..Event::default()
        };
        revisions.iter().map(event).collect()
    }

    fn accepted(position: &mut Position, revisions: &[i64], fragment: bool) -> usize {
        let mut events = events(revisions);
        position.accept(&mut events, fragment).unwrap();
        events.len()
    }

    #[test]
    fn watch_is_resumed_after_the_last_complete_revision() {
        let mut position = Position::from_start(0);
        position.begin(4);
        assert_eq!(position.next_revision, 5);
        assert_eq!(accepted(&mut position, &[6, 6, 8], false), 3);
        assert_eq!(position.next_revision, 9);
        position.begin(20);
        assert_eq!(position.next_revision, 9);
    }

    #[test]
    fn events_of_a_fragment_are_not_repeated_after_a_resume() {
        let mut position = Position::from_start(5);
        position.begin(9);
        assert_eq!(accepted(&mut position, &[5, 6, 6], true), 3);
        assert_eq!(position.next_revision, 6);
        position.begin(9);
        assert_eq!(accepted(&mut position, &[6, 6, 6, 7], false), 2);
        assert_eq!(position.next_revision, 8);
    }

    #[test]
    fn fragments_of_one_revision_continue_without_a_resume() {
        let mut position = Position::from_start(5);
        position.begin(9);
        assert_eq!(accepted(&mut position, &[5, 5], true), 2);
        assert_eq!(accepted(&mut position, &[5], true), 1);
        // Broken off again, and resumed into other fragments.
        position.begin(9);
        assert_eq!(accepted(&mut position, &[5, 5], true), 0);
        assert_eq!(accepted(&mut position, &[5, 5], false), 1);
        assert_eq!(position.next_revision, 6);
    }

    #[test]
    fn event_behind_the_position_is_out_of_order() {
        let mut position = Position::from_start(5);
        position.begin(5);
        assert!(position.accept_progress(7));
        let refused = position.accept(&mut events(&[7]), false);
        assert_eq!(refused, Err(OutOfOrder { revision: 7 }));
    }

    #[test]
    fn progress_behind_the_position_says_nothing_new() {
        let mut position = Position::from_start(5);
        position.begin(5);
        assert!(position.accept_progress(4));
        assert!(position.accept_progress(8));
        assert!(position.accept_progress(8));
        assert!(!position.accept_progress(7));
        assert!(!position.accept_progress(0));
        assert_eq!(position.next_revision, 9);
    }
}
