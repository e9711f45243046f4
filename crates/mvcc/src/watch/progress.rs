//! Progress notices: the newest revision, for watches without events.
//!
//! A notice names the newest revision and goes through the stream's queue like
//! an event, so it arrives after every event it covers. Only watches that are
//! synced and have started get one.

use std::time::Duration;

use super::hub::{Hub, StreamId};
use super::requests::RequestError;
use super::response::NO_WATCH_ID;
use super::response_queue::{Item, QueueShare};
use super::watcher::{WatchState, WatcherKey};

impl Hub {
    /// Answers a progress request: one notice for the whole stream if all its
    /// watches are synced and have started, else nothing (the client asks
    /// again). Returns whether a notice was queued.
    ///
    /// # Errors
    /// [`RequestError::UnknownStream`] if the stream is closed.
    pub fn request_progress(&mut self, id: StreamId) -> Result<bool, RequestError> {
        let stream = self.streams.get(&id).ok_or(RequestError::UnknownStream)?;
        if stream.watches.is_empty() || stream.lagging > 0 || stream.future > 0 {
            return Ok(false);
        }
        let notice = Item::Progress {
            watch_id: NO_WATCH_ID,
            revision: self.revision,
        };
        Ok(stream.sender.push(notice, QueueShare::All))
    }

    /// Returns when the next automatic notice is due.
    #[must_use]
    pub fn next_tick(&self) -> Option<Duration> {
        self.ticks.first().map(|(due, _)| *due)
    }

    /// Sends the automatic notices that are due at `now`: to watches that asked
    /// for them, are synced, and got no event since their stream's last tick.
    pub fn tick(&mut self, now: Duration) {
        let due: Vec<(Duration, StreamId)> = self
            .ticks
            .iter()
            .take_while(|(due, _)| *due <= now)
            .copied()
            .collect();
        for (due, id) in due {
            self.ticks.remove(&(due, id));
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.next_tick = now.saturating_add(stream.progress_interval);
            self.ticks.insert((stream.next_tick, id));
            let watchers: Vec<WatcherKey> = stream.watches.values().copied().collect();
            for key in watchers {
                self.tick_watcher(key);
            }
        }
    }

    fn tick_watcher(&mut self, key: WatcherKey) {
        let Some(watcher) = self.watchers.get_mut(key) else {
            return;
        };
        if !watcher.progress_notify {
            return;
        }
        let live = self
            .groups
            .get(watcher.group)
            .is_some_and(|group| group.last_event_revision > watcher.tick_revision);
        let quiet = !live && !watcher.caught_up_since_tick;
        watcher.tick_revision = self.revision;
        watcher.caught_up_since_tick = false;
        if quiet
            && watcher.state == WatchState::Synced
            && let Some(stream) = self.streams.get(&watcher.stream)
        {
            // Without room the notice is dropped: the queued events carry newer information.
            let notice = Item::Progress {
                watch_id: watcher.watch_id,
                revision: self.revision,
            };
            stream.sender.push(notice, QueueShare::All);
        }
    }
}
