//! The apply loop of a member: entries and snapshots to the state machine, effects to the engine,
//! events to watches, answers to clients.

use std::sync::Arc;

use portunus_consensus::Role;
use portunus_mvcc::{EntryId, Event, RevisionEvents};
use portunus_proto::Term;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::{ConfChange, ConfState, Entry, EntryType};
use portunus_statemachine::membership::PlannedChange;
use portunus_statemachine::{Applied, Effect, EntryError};
use prost::Message as _;

use super::super::planted::PlantedBug;
use super::super::violation::Violation;
use super::requests::Reply;
use super::{Member, Opened, Running, Surroundings, ToApply, gates};

/// A new leader extends leases by an election timeout, in milliseconds.
const EXTENSION_MS: u64 = 1000;

/// What the world has to do next for the apply loop of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) enum Next {
    /// Nothing to apply.
    #[default]
    Idle,
    /// Apply the next entry after a while.
    Apply,
    /// Install the snapshot after a while.
    Install,
}

impl Member {
    /// Applies the next entry, or begins to install the next snapshot. Returns whether it did
    /// something.
    pub(in super::super) fn apply_next(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Violation> {
        let now_ms = self.now_ms(around.now);
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        if running.installing.is_some() {
            return Ok(false);
        }
        match running.to_apply.pop_front() {
            None => return Ok(false),
            Some(ToApply::Entry(entry)) => match running.apply_entry(entry, now_ms, around) {
                Ok(()) => {}
                Err(fault) => return self.stop_for(fault),
            },
            Some(ToApply::Snapshot(snapshot)) => running.installing = Some(snapshot),
        }
        running.serve_reads();
        if running.engine.applied_is_urgent() {
            running.turn(&self.shadow, around)?;
        }
        Ok(true)
    }

    /// Stops the member if an entry needs another version; the operator starts it with that one.
    fn stop_for(&mut self, fault: ApplyFault) -> Result<bool, Violation> {
        let needed = match fault {
            ApplyFault::Entry(EntryError::ClusterVersionTooHigh { cluster, .. }) => {
                cluster.parse().ok()
            }
            ApplyFault::Entry(EntryError::MixedVersions { source, .. }) => Some(source.needed),
            ApplyFault::Entry(error) => {
                return Err(Violation::Apply {
                    id: self.id,
                    source: Box::new(error),
                });
            }
            ApplyFault::Violation(violation) => return Err(violation),
        };
        if let Some(needed) = needed {
            self.start.version = self.start.version.max(needed);
        }
        self.is_version_too_low = true;
        Ok(false)
    }

    /// Installs the snapshot that [`Member::apply_next`] has met.
    pub(in super::super) fn finish_install(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Violation> {
        let id = self.id;
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        let Some(snapshot) = running.installing.take() else {
            return Ok(false);
        };
        let index = snapshot.index;
        if running.replica.applied_index() < index {
            let file = self.incoming.remove(&index);
            let file = file.ok_or(Violation::NoSnapshotToInstall { id, index })?;
            self.incoming.retain(|received, _| *received > index);
            let is_skipped = around.has(PlantedBug::AppliesBeforeInstalling);
            if !is_skipped {
                let opened = Opened::from(id, &file.backend)?;
                let at = EntryId {
                    index,
                    term: Term(snapshot.term),
                };
                let conf_state = snapshot.conf_state.as_ref();
                running.replica.install(opened, conf_state, at, around.bug);
                if around.has(PlantedBug::InstallsTurnWatchesBack) {
                    running.turn_watches_back(around.now);
                }
                running.backend = file.backend.clone();
                self.backend = file.backend;
                self.durable = running.replica.position();
            }
            around
                .invariants
                .installed(id, &running.replica, &snapshot)?;
            check_raft(
                id,
                index,
                &running.core().conf_state(),
                running.replica.machine.conf_state(),
            )?;
            let lost = running.requests.take_proposed_before(Term(snapshot.term));
            let lost = lost.into_iter().map(|request| (request, Reply::Unknown));
            running.replies.extend(lost);
        }
        running.turn(&self.shadow, around)?;
        Ok(true)
    }
}

/// Why an entry was not applied.
enum ApplyFault {
    Entry(EntryError),
    Violation(Violation),
}

impl From<Violation> for ApplyFault {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Running {
    pub(in super::super) fn next(&self) -> Next {
        if self.installing.is_some() {
            Next::Install
        } else if self.to_apply.is_empty() {
            Next::Idle
        } else {
            Next::Apply
        }
    }

    fn apply_entry(
        &mut self,
        entry: Entry,
        now_ms: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), ApplyFault> {
        let id = self.core().id();
        let (index, term) = (entry.index, Term(entry.term));
        let applied_index = self.replica.applied_index();
        // Entries that were applied before a restart come again for raft's configuration.
        if index > applied_index + 1 {
            return Err(Violation::AppliedWithGap {
                id,
                index,
                applied_index,
            }
            .into());
        }
        let begins_term = term > self.replica.applied_term();
        let planted = self.plant_in_entry(&entry, around.bug);
        let original = entry.clone();
        let requests = &self.requests;
        let is_waiting = |request: u64| requests.is_waiting(request);
        let applied = self
            .replica
            .apply(planted.unwrap_or(entry), now_ms, &is_waiting)
            .map_err(ApplyFault::Entry)?;
        if let Some(events) = &applied.events {
            // Values that have left memory; a failed read leaves the event without its previous
            // value.
            let reader = self.replica.machine.reader();
            for event in events.events.iter().filter(|it| it.known_prev().is_none()) {
                let _ = event.look_up_prev(&reader);
            }
        }
        if index > applied_index {
            around.invariants.applies(id, &self.replica, &applied)?;
            around.oracle.applies(&original, &applied)?;
        }
        self.carry_out_applied(index, applied, now_ms, around)?;
        if begins_term {
            let lost = self.requests.take_proposed_before(term);
            let lost = lost.into_iter().map(|request| (request, Reply::Unknown));
            self.replies.extend(lost);
        }
        Ok(())
    }

    /// Returns another entry for planted bugs.
    fn plant_in_entry(&self, entry: &Entry, bug: Option<PlantedBug>) -> Option<Entry> {
        let empty = || Entry {
            data: bytes::Bytes::new(),
            r#type: EntryType::EntryNormal.into(),
            ..entry.clone()
        };
        match bug? {
            PlantedBug::ReadsNewestFeatures => gates::judged_by(entry, &self.newest_features),
            PlantedBug::ReadsDependOnCompaction if self.replica.compaction_work => {
                let request = InternalRaftRequest::decode(entry.data.clone()).ok()?;
                request.txn.is_some().then(empty)
            }
            PlantedBug::SkipsEntryAtRestart if entry.index <= self.skip_to => Some(empty()),
            PlantedBug::ForgetsPromotion if entry.r#type() == EntryType::EntryConfChange => {
                let change = ConfChange::decode(entry.data.clone()).ok()?;
                let is_promotion =
                    String::from_utf8_lossy(&change.context).contains("isPromote\":true");
                // Raft is configured; only the record is not written.
                (is_promotion && (entry.index ^ self.core().id()).is_multiple_of(2)).then(empty)
            }
            _ => None,
        }
    }

    fn carry_out_applied(
        &mut self,
        index: u64,
        applied: Applied,
        now_ms: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        for effect in applied.effects {
            self.carry_out_effect(index, effect, now_ms, around)?;
        }
        if let Some(events) = &applied.events {
            self.publish(events, around)?;
        }
        if applied.request_id != 0 && self.requests.take_waiting(applied.request_id) {
            let answer = applied.answer;
            self.replies
                .push((applied.request_id, Reply::Applied { index, answer }));
        }
        Ok(())
    }

    fn carry_out_effect(
        &mut self,
        index: u64,
        effect: Effect,
        now_ms: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Violation> {
        let id = self.core().id();
        match effect {
            Effect::TermBegan { term } => {
                let leadership = self.core().current_leadership();
                let leads = leadership.role == Role::Leader && leadership.term == term;
                if leads && !around.has(PlantedBug::NeverExpires) {
                    let now_ms = match around.has(PlantedBug::ShortensLeases) {
                        true => now_ms.saturating_sub(4 * EXTENSION_MS),
                        false => now_ms,
                    };
                    let mut lessor = self.replica.machine.lessor().lock();
                    lessor.promote(term, now_ms, EXTENSION_MS);
                }
            }
            Effect::ConfigureRaft { change, expected } => {
                let skips = around.has(PlantedBug::SkipsConfChange);
                if skips && (index ^ id).is_multiple_of(3) {
                    return Ok(());
                }
                let raft = self.engine.apply_conf_change(&change);
                let raft = raft.map_err(|source| Violation::ConfChange { id, index, source })?;
                if let Some(expected) = &expected {
                    check_raft(id, index, &raft, expected)?;
                }
            }
            Effect::CompactionBegan { .. } => self.replica.compaction_work = true,
            // The world reads the membership, params, alarms and users itself.
            Effect::MembershipChanged
            | Effect::MemberChanged(
                PlannedChange::Add(_)
                | PlannedChange::Promote(_)
                | PlannedChange::Update(_)
                | PlannedChange::Remove(_),
            )
            | Effect::MemberStarted { .. }
            | Effect::RepublishProposal
            | Effect::ParamsDecided
            | Effect::AlarmsChanged
            | Effect::AuthChanged
            | Effect::TokenAssigned { .. }
            | Effect::UserTokensInvalidated { .. }
            | Effect::QuotaExceeded => {}
        }
        Ok(())
    }

    /// Sends events to the watch hub.
    fn publish(
        &mut self,
        events: &Arc<RevisionEvents>,
        around: &Surroundings<'_>,
    ) -> Result<(), Violation> {
        let gap = |_| Violation::WatchGap {
            id: self.engine.core().id(),
            revision: events.revision,
        };
        if around.has(PlantedBug::SplitsRevision) && events.events.len() > 1 {
            let part = |range: std::ops::Range<usize>| {
                let events_of = &events.events[range];
                let copy = |event: &Event| match event.kv().version {
                    0 => Event::delete(event.kv().key.clone(), events.revision, None),
                    _ => Event::put(event.kv().clone(), event.prev().cloned()),
                };
                Arc::new(RevisionEvents {
                    revision: events.revision,
                    events: events_of.iter().map(copy).collect(),
                })
            };
            // The second part comes as if it were lost.
            let first = part(0..1);
            return self.replica.hub.publish(&first).map_err(gap);
        }
        self.replica.hub.publish(events).map_err(gap)
    }
}

/// Checks that raft and the state machine have the same configuration.
fn check_raft(
    id: u64,
    index: u64,
    raft: &ConfState,
    state_machine: &ConfState,
) -> Result<(), Violation> {
    let sorted = |of: &ConfState| {
        let mut of = of.clone();
        of.voters.sort_unstable();
        of.learners.sort_unstable();
        (of.voters, of.learners)
    };
    if sorted(raft) == sorted(state_machine) {
        return Ok(());
    }
    Err(Violation::RaftMembersDiffer {
        id,
        index,
        raft: raft.clone(),
        state_machine: state_machine.clone(),
    })
}
