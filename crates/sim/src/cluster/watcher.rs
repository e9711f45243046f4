//! A client that watches a key or all keys, across restarts and installs of members.
//!
//! It checks every response against the events of the model: each event once, in order, whole
//! revisions at a time, and no progress notice before an event that it covers.

use portunus_mvcc::watch::Response;
use portunus_proto::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
use portunus_proto::mvccpb::event::EventType;

use super::oracle::Oracle;
use super::planted::PlantedBug;
use super::violation::Violation;
use crate::linearizability::etcd::Keys;
use crate::watch_events::Event;
use crate::wire;

pub(super) struct Watcher {
    number: u64,
    keys: Keys,
    with_previous: bool,
    /// The next revision; `None` until the watch is created at the newest one.
    next: Option<i64>,
    /// The member and its incarnation, while a stream is open.
    pub(super) at: Option<(u64, u64)>,
    pub(super) events: u64,
    pub(super) compacted: u64,
    pub(super) notices: u64,
}

impl Watcher {
    pub(super) fn new(number: u64, keys: Keys, with_previous: bool, next: Option<i64>) -> Self {
        Self {
            number,
            keys,
            with_previous,
            next,
            at: None,
            events: 0,
            compacted: 0,
            notices: 0,
        }
    }

    /// Returns the request that opens the watch. For a planted bug, a watch of a future revision
    /// starts at the member's `revision`.
    pub(super) fn request(&self, revision: i64, bug: Option<PlantedBug>) -> WatchCreateRequest {
        let range = wire::range(&self.keys);
        let mut start_revision = self.next.unwrap_or(0);
        if bug == Some(PlantedBug::FutureWatchStartsEarly) && start_revision > revision {
            start_revision = revision;
        }
        WatchCreateRequest {
            key: range.key,
            range_end: range.range_end,
            start_revision,
            progress_notify: true,
            prev_kv: self.with_previous,
            ..WatchCreateRequest::default()
        }
    }

    /// Whether all events of the model have arrived.
    pub(super) fn is_caught_up(&self, oracle: &Oracle) -> bool {
        self.at.is_some()
            && self
                .next
                .is_some_and(|next| oracle.events_from(&self.keys, next).next().is_none())
    }

    pub(super) fn next(&self) -> Option<i64> {
        self.next
    }

    /// Checks a response. Returns false if the watch has ended.
    pub(super) fn receives(
        &mut self,
        response: &Response,
        oracle: &Oracle,
    ) -> Result<bool, Violation> {
        let message = response.to_message(&ResponseHeader::default());
        let message = message.map_err(|error| self.wrong(error.to_string()))?;
        let revision = message.header.as_ref().map_or(0, |header| header.revision);
        if message.created && !message.canceled {
            // A watch of the newest revision gets what comes after it.
            self.next.get_or_insert(revision + 1);
            return Ok(true);
        }
        if message.canceled {
            self.is_cancelled(&message, oracle)?;
            return Ok(false);
        }
        if message.events.is_empty() {
            self.progresses(revision, oracle)?;
            return Ok(true);
        }
        self.takes(&message, oracle)?;
        Ok(true)
    }

    fn wrong(&self, what: String) -> Violation {
        Violation::WrongWatch {
            watcher: self.number,
            what,
        }
    }

    fn is_cancelled(&mut self, message: &WatchResponse, oracle: &Oracle) -> Result<(), Violation> {
        let compacted = message.compact_revision;
        if compacted == 0 {
            // The history could not be read, or the member refuses the watch: watch again.
            return Ok(());
        }
        self.compacted += 1;
        let next = self.next.unwrap_or(i64::MAX);
        if compacted > oracle.compact_revision() || next >= compacted {
            return Err(self.wrong(format!(
                "cancelled at compact revision {compacted}, next is {next}, compacted is {}",
                oracle.compact_revision()
            )));
        }
        self.next = Some(compacted);
        Ok(())
    }

    fn progresses(&mut self, revision: i64, oracle: &Oracle) -> Result<(), Violation> {
        self.notices += 1;
        let Some(next) = self.next else {
            return Err(self.wrong("progress before the watch was created".to_owned()));
        };
        let missing = oracle.events_from(&self.keys, next).next();
        if let Some(missing) = missing.filter(|event| event.revision <= revision) {
            let what = format!("progress notice of revision {revision} before {missing:?}");
            return Err(self.wrong(what));
        }
        if revision > oracle.revision() {
            let what = format!("progress notice of revision {revision}, which does not exist");
            return Err(self.wrong(what));
        }
        self.next = Some(next.max(revision + 1));
        Ok(())
    }

    fn takes(&mut self, message: &WatchResponse, oracle: &Oracle) -> Result<(), Violation> {
        let next = self.next.unwrap_or(0);
        let received: Vec<Event> = message.events.iter().map(convert).collect();
        let last = received.last().map_or(0, |event| event.revision);
        let expected: Vec<&Event> = oracle
            .events_from(&self.keys, next)
            .take_while(|event| event.revision <= last)
            .collect();
        let is_same = |(one, other): (&Event, &&Event)| {
            one.revision == other.revision
                && one.key == other.key
                && one.now == other.now
                && self.is_previous(one, other, oracle)
        };
        // The order of keys within a revision is that of the transaction.
        let mut sorted = received.clone();
        sorted.sort_by_key(|event| {
            let place = |it: &&Event| it.revision == event.revision && it.key == event.key;
            let known = expected.iter().position(place);
            known.unwrap_or(usize::MAX)
        });
        let in_order = received.is_sorted_by_key(|event| event.revision);
        let all_equal = sorted.iter().zip(&expected).all(is_same);
        if !in_order || sorted.len() != expected.len() || !all_equal {
            let what =
                format!("from revision {next}: received {received:?}, expected {expected:?}");
            return Err(self.wrong(what));
        }
        self.events += received.len() as u64;
        self.next = Some(last + 1);
        Ok(())
    }

    /// Whether the previous entry is right: it may be missing if it is compacted.
    fn is_previous(&self, received: &Event, expected: &Event, oracle: &Oracle) -> bool {
        if !self.with_previous {
            return received.before.is_none();
        }
        let is_compacted = expected.revision <= oracle.compact_revision();
        received.before == expected.before || received.before.is_none() && is_compacted
    }
}

fn convert(event: &portunus_proto::mvccpb::Event) -> Event {
    let kv = event.kv.as_ref();
    let is_put = event.r#type() == EventType::Put;
    Event {
        revision: kv.map_or(0, |kv| kv.mod_revision),
        key: kv.map_or_else(|| "".into(), |kv| wire::key(&kv.key)),
        now: kv.filter(|_| is_put).map(wire::entry),
        before: event.prev_kv.as_ref().map(wire::entry),
    }
}
