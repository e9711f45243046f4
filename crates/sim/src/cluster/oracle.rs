//! What clients must observe: a sequential model that executes the log.
//!
//! The first member that applies an entry passes it on, so the model follows the committed log.
//! Its answers, events and leases are those that every client has to see:
//!
//! - An acknowledged write has the answer that the model gave at its index.
//! - A linearizable read returns the model's state at a revision not older than any revision that
//!   was acknowledged before the read began; every read returns the state of one revision.
//! - A withdrawn request, whose client received a timeout, never enters the log.
//! - A lease that was granted or renewed does not expire before its TTL is over; a lease is not
//!   found only after the log revoked it.

use std::collections::{BTreeMap, BTreeSet};

use portunus_mvcc::RevisionEvents;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    CompactionRequest, InternalRaftRequest, RangeRequest, RangeResponse, RequestHeader,
};
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_statemachine::{Answer as ApplyAnswer, Applied, Response, wrap};
use prost::Message as _;

use super::users::{Sender, Users};
use super::violation::Violation;
use crate::linearizability::etcd::{Answer, Keys, OpAnswer, Refusal, Store};
use crate::watch_events::{self, Event};
use crate::wire;

/// How much earlier than promised a lease may expire: a former leader renews leases until it
/// notices that it was replaced.
const LEASE_SLACK_MS: u64 = 2000;

const NEVER_COMPACTED: i64 = -1;

/// The answer that a request must have.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Model(Answer),
    Compacted(Result<i64, &'static str>),
    FeatureOff,
    /// A change of users and roles.
    Administered,
    /// A refusal by the rules about users and roles.
    Refused(&'static str),
}

/// A lease as the clients know it.
#[derive(Debug, Clone, Copy, Default)]
struct Lease {
    /// The lease must not expire before this time.
    alive_until_ms: u64,
}

#[derive(Default)]
pub(super) struct Oracle {
    pub(super) now: u64,
    index: u64,
    store: Store,
    /// The state after each revision.
    states: BTreeMap<i64, Store>,
    events: BTreeMap<i64, Vec<Event>>,
    expected: BTreeMap<u64, Expected>,
    indexes: BTreeMap<u64, u64>,
    failed: BTreeSet<u64>,
    compact_revision: i64,
    leases: BTreeMap<i64, Lease>,
    /// The users of requests.
    senders: BTreeMap<u64, &'static str>,
    users: Users,
    /// The users and roles from an index on.
    users_since: BTreeMap<u64, Users>,
    pub(super) refused_by_permission: u64,
    /// The newest revision in any answer.
    acknowledged_revision: i64,
    acknowledged_compaction: i64,
    pub(super) acknowledged: u64,
    pub(super) expired: u64,
    pub(super) refused_by_feature: u64,
}

/// The revisions that were acknowledged before a request began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Floor {
    revision: i64,
    compaction: i64,
}

impl Oracle {
    pub(super) fn new() -> Self {
        let store = Store::default();
        Self {
            states: [(store.revision, store.clone())].into(),
            store,
            compact_revision: NEVER_COMPACTED,
            ..Self::default()
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.store.revision
    }

    pub(super) fn has_leases(&self) -> bool {
        !self.store.leases.is_empty()
    }

    pub(super) fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    pub(super) fn floor(&self) -> Floor {
        Floor {
            revision: self.acknowledged_revision,
            compaction: self.acknowledged_compaction,
        }
    }

    /// Executes an entry if it is the next one, and checks its events.
    pub(super) fn applies(&mut self, entry: &Entry, applied: &Applied) -> Result<(), Violation> {
        if entry.index != self.index + 1 {
            return Ok(());
        }
        self.index = entry.index;
        if entry.r#type() != EntryType::EntryNormal || entry.data.is_empty() {
            return Ok(());
        }
        let index = entry.index;
        let Ok(mut request) = InternalRaftRequest::decode(entry.data.clone()) else {
            return Ok(());
        };
        let header = request.header.take().unwrap_or_default();
        let id = header.id;
        self.check_sender(index, &header, &request)?;
        let sender = Sender {
            user: &header.username,
            revision: header.auth_revision,
        };
        if self.failed.contains(&id) {
            return Err(Violation::LateProposal { request: id, index });
        }
        if id != 0 {
            self.indexes.insert(id, index);
        }
        if let Some(wrapped) = &request.wrapped {
            if matches!(applied.answer, Err(EtcdError::RequiredFeatureOff)) {
                self.refused_by_feature += 1;
                self.expected.insert(index, Expected::FeatureOff);
                return Ok(());
            }
            match wrap::open(wrapped) {
                Ok(inside) => request = inside,
                Err(_) => return Ok(()),
            }
        }
        if let Some(administered) = self.users.administer(sender, &request) {
            self.users_since.insert(index, self.users.clone());
            let expected = match administered {
                Ok(()) => Expected::Administered,
                Err(error) => Expected::Refused(error.text()),
            };
            self.expected.insert(index, expected);
            return Ok(());
        }
        let keys = &self.store.keys;
        let leases = &self.store.leases;
        let leased = |lease: i64| {
            let attached = keys.iter().filter(|(_, entry)| entry.lease == lease);
            let keys = attached.map(|(key, _)| key.to_string());
            keys.filter(|_| leases.contains(&lease)).collect()
        };
        if let Err(error) = self.users.check_request(sender, &request, &leased) {
            self.refused_by_permission += 1;
            self.expected.insert(index, Expected::Refused(error.text()));
            return match applied.events {
                None => Ok(()),
                Some(_) => Err(Violation::WrongAnswer {
                    request: id,
                    what: format!("entry {index} had events, but was not permitted: {error}"),
                }),
            };
        }
        if let Some(compaction) = &request.compaction {
            let expected = self.compact(compaction);
            self.expected.insert(index, Expected::Compacted(expected));
            return Ok(());
        }
        self.execute(id, index, &request, applied)
    }

    /// Records the user of a request.
    pub(super) fn sends(&mut self, request: u64, user: &'static str) {
        self.senders.insert(request, user);
    }

    /// Checks that an entry names the user of its client, or none if authentication was disabled
    /// at the member that proposed it. Members revoke expired leases as `root`.
    fn check_sender(
        &self,
        index: u64,
        header: &RequestHeader,
        request: &InternalRaftRequest,
    ) -> Result<(), Violation> {
        let sender = match header.id {
            0 if request.lease_revoke.is_some() => "root",
            id => self.senders.get(&id).copied().unwrap_or_default(),
        };
        let named = header.username.as_str();
        if named.is_empty() || named == sender {
            return Ok(());
        }
        Err(Violation::WrongAnswer {
            request: header.id,
            what: format!("entry {index} of user {sender:?} names user {named:?}"),
        })
    }

    /// Checks the answer to a read by the users and roles at the applied index of its member.
    pub(super) fn answers_reader(
        &mut self,
        request: u64,
        range: &RangeRequest,
        applied_index: u64,
        answer: &Result<RangeResponse, EtcdError>,
    ) -> Result<(), Violation> {
        let user = self.senders.get(&request).copied().unwrap_or_default();
        let users = self.users_since.range(..=applied_index).next_back();
        let checked = users.map_or(Ok(()), |(_, users)| {
            users.check_read(user, &range.key, &range.range_end)
        });
        let refusal = answer.as_ref().err().copied().filter(is_permission);
        if checked.err() == refusal {
            self.refused_by_permission += u64::from(refusal.is_some());
            return Ok(());
        }
        let what = format!("user {user:?} at index {applied_index}: {checked:?}, not {refusal:?}");
        Err(Violation::WrongAnswer { request, what })
    }

    fn execute(
        &mut self,
        id: u64,
        index: u64,
        request: &InternalRaftRequest,
        applied: &Applied,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| Violation::WrongAnswer {
            request: id,
            what: what.to_owned(),
        };
        let Some(modelled) = wire::logged(request).map_err(wrong)? else {
            return Ok(());
        };
        if let Some(revoke) = &request.lease_revoke
            && id == 0
            && self.store.leases.contains(&revoke.id)
        {
            self.expires(revoke.id)?;
        }
        let before = self.store.clone();
        let answer = self.store.apply(&modelled);
        let events = watch_events::between(&before, &self.store);
        if events != applied_events(applied.events.as_deref(), &events) {
            let what = format!("entry {index} {modelled:?} had events {:?}", applied.events);
            return Err(wrong(&what));
        }
        if self.store.revision > before.revision {
            let revision = self.store.revision;
            self.events.insert(revision, events);
            self.states.insert(revision, self.store.clone());
        }
        self.expected.insert(index, Expected::Model(answer));
        Ok(())
    }

    fn compact(&mut self, request: &CompactionRequest) -> Result<i64, &'static str> {
        if request.revision <= self.compact_revision {
            return Err(EtcdError::Compacted.text());
        }
        if request.revision > self.store.revision {
            return Err(EtcdError::FutureRevision.text());
        }
        self.compact_revision = request.revision;
        Ok(self.store.revision)
    }

    fn expires(&mut self, lease: i64) -> Result<(), Violation> {
        self.expired += 1;
        let known = self.leases.get(&lease).copied().unwrap_or_default();
        if self.now + LEASE_SLACK_MS < known.alive_until_ms {
            let what = format!(
                "expired at {} ms, but was granted or renewed until {} ms",
                self.now, known.alive_until_ms
            );
            return Err(Violation::WrongLease { lease, what });
        }
        Ok(())
    }

    /// Records a request that was withdrawn before the engine proposed it.
    pub(super) fn fails(&mut self, request: u64) -> Result<(), Violation> {
        self.failed.insert(request);
        match self.indexes.get(&request) {
            Some(&index) => Err(Violation::LateProposal { request, index }),
            None => Ok(()),
        }
    }

    /// Checks the answer to a write, applied at `index`.
    pub(super) fn answers_write(
        &mut self,
        request: u64,
        index: u64,
        answer: &ApplyAnswer,
    ) -> Result<(), Violation> {
        let wrong = |what: String| Violation::WrongAnswer { request, what };
        let Some(expected) = self.expected.get(&index) else {
            return Err(wrong(format!("entry {index} has no answer")));
        };
        if self.indexes.get(&request) != Some(&index) {
            return Err(wrong(format!("the answer is that of entry {index}")));
        }
        let given = given(answer);
        if given.as_ref() != Some(expected) {
            return Err(wrong(format!("{given:?} instead of {expected:?}")));
        }
        self.acknowledged += 1;
        match given {
            Some(Expected::Model(answer)) => {
                let revision = answer.revision().unwrap_or(0);
                self.acknowledged_revision = self.acknowledged_revision.max(revision);
            }
            Some(Expected::Compacted(Ok(_))) => {
                let compacted = self.compact_revision;
                self.acknowledged_compaction = self.acknowledged_compaction.max(compacted);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the answer to a read that began after `floor`.
    pub(super) fn answers_read(
        &mut self,
        request: u64,
        range: &RangeRequest,
        keys: &Keys,
        floor: Floor,
        answer: &Result<RangeResponse, EtcdError>,
    ) -> Result<(), Violation> {
        let wrong = |what: String| Violation::WrongAnswer { request, what };
        let at = range.revision;
        let response = match answer {
            Ok(response) => response,
            Err(EtcdError::Compacted) if at > 0 && at < self.compact_revision => return Ok(()),
            Err(EtcdError::FutureRevision)
                if at > 0 && (range.serializable || at > floor.revision) =>
            {
                return Ok(());
            }
            Err(EtcdError::Stopped) => return Ok(()),
            Err(error) if is_permission(error) => return Ok(()),
            Err(error) => {
                return Err(wrong(format!("read of revision {at} failed: {error}")));
            }
        };
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        if !range.serializable && revision < floor.revision {
            let known = floor.revision;
            let what = format!("read at revision {revision}, but {known} was acknowledged before");
            return Err(wrong(what));
        }
        if !range.serializable && at > 0 && at < floor.compaction {
            return Err(wrong(format!("read of compacted revision {at} succeeded")));
        }
        let at = if at > 0 { at } else { revision };
        let Some(state) = self.states.get(&at) else {
            return Err(wrong(format!(
                "read at revision {at}, which does not exist"
            )));
        };
        let expected = match keys {
            Keys::One(key) => state
                .keys
                .get_key_value(key)
                .map(|(key, entry)| (key.clone(), entry.clone()))
                .into_iter()
                .collect(),
            Keys::All => {
                let all = state.keys.iter();
                all.map(|(key, entry)| (key.clone(), entry.clone()))
                    .collect::<Vec<_>>()
            }
        };
        let found = wire::entries(&response.kvs);
        if found != expected {
            let what = format!("revision {at}: read {found:?} instead of {expected:?}");
            return Err(wrong(what));
        }
        if !range.serializable {
            self.acknowledged_revision = self.acknowledged_revision.max(revision);
        }
        self.acknowledged += 1;
        Ok(())
    }

    /// Records a lease that was granted or renewed, by a request that began at `called_at`.
    pub(super) fn lease_lives(&mut self, lease: i64, called_at: u64, ttl_s: i64) {
        let ttl_ms = u64::try_from(ttl_s).unwrap_or(0) * 1000;
        // Clocks of members are up to a tenth faster.
        let until_ms = called_at + ttl_ms * 9 / 10;
        let known = self.leases.entry(lease).or_default();
        known.alive_until_ms = known.alive_until_ms.max(until_ms);
    }

    /// Checks that a lease whose grant was acknowledged is missing for a reason.
    pub(super) fn lease_not_found(&self, lease: i64) -> Result<(), Violation> {
        if !self.store.leases.contains(&lease) {
            return Ok(());
        }
        let what = "not found, but it was granted and never revoked".to_owned();
        Err(Violation::WrongLease { lease, what })
    }

    /// Returns the events of a key or of all keys from a revision on.
    pub(super) fn events_from(&self, keys: &Keys, from: i64) -> impl Iterator<Item = &Event> {
        let is_watched = move |event: &&Event| match keys {
            Keys::One(key) => event.key == *key,
            Keys::All => true,
        };
        let events = self.events.range(from..).flat_map(|(_, events)| events);
        events.filter(is_watched)
    }
}

/// Returns the events of an entry in the order of the model's, which sorts them by key.
fn applied_events(events: Option<&RevisionEvents>, expected: &[Event]) -> Vec<Event> {
    let Some(events) = events else {
        return Vec::new();
    };
    let mut converted: Vec<Event> = events.events.iter().map(convert).collect();
    let place = |event: &Event| expected.iter().position(|it| it.key == event.key);
    converted.sort_by_key(place);
    converted
}

fn convert(event: &portunus_mvcc::Event) -> Event {
    let kv = event.kv();
    Event {
        revision: kv.mod_revision,
        key: wire::key(&kv.key),
        now: (event.kind() == portunus_mvcc::EventKind::Put).then(|| wire::entry(kv)),
        before: event.prev().map(wire::entry),
    }
}

/// Whether a read was refused because of its user.
fn is_permission(error: &EtcdError) -> bool {
    matches!(error, EtcdError::UserEmpty | EtcdError::PermissionDenied)
}

/// Converts an answer of the state machine.
fn given(answer: &ApplyAnswer) -> Option<Expected> {
    let revision = |header: &Option<portunus_proto::etcdserverpb::ResponseHeader>| {
        header.as_ref().map_or(0, |header| header.revision)
    };
    Some(match answer {
        Ok(Response::Put(put)) => {
            let previous = OpAnswer::Put(put.prev_kv.as_ref().map(wire::entry));
            Expected::Model(wire::op_answer(put.header.as_ref(), previous))
        }
        Ok(Response::DeleteRange(deleted)) => {
            let previous = OpAnswer::Delete(wire::entries(&deleted.prev_kvs));
            Expected::Model(wire::op_answer(deleted.header.as_ref(), previous))
        }
        Ok(Response::Txn(txn)) => Expected::Model(wire::txn_answer(txn)),
        Ok(Response::LeaseGrant(granted)) => Expected::Model(Answer::Lease {
            revision: revision(&granted.header),
        }),
        Ok(Response::LeaseRevoke(revoked)) => Expected::Model(Answer::Lease {
            revision: revision(&revoked.header),
        }),
        Ok(Response::Compaction(compacted)) => Expected::Compacted(Ok(revision(&compacted.header))),
        Err(EtcdError::LeaseNotFound) => Expected::Model(Answer::Refused(Refusal::LeaseNotFound)),
        Err(EtcdError::LeaseExists) => Expected::Model(Answer::Refused(Refusal::LeaseExists)),
        Err(EtcdError::RequiredFeatureOff) => Expected::FeatureOff,
        Ok(Response::AuthChanged(_)) => Expected::Administered,
        Err(error @ (EtcdError::Compacted | EtcdError::FutureRevision)) => {
            Expected::Compacted(Err(error.text()))
        }
        Err(error) => Expected::Refused(error.text()),
        Ok(_) => return None,
    })
}
