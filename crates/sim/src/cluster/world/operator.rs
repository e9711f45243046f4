//! Starts, crashes, changes of members, and the other faults.

use std::collections::BTreeMap;

use portunus_consensus::bootstrap::{self, Identity};
use portunus_gates::MajorMinor;
use portunus_gates::cluster::MemberId;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::{ConfChange, ConfChangeType};

use super::super::member::{Member, Origin, Position, Proposal, Start};
use super::super::planted::PlantedBug;
use super::super::scenario::TICK;
use super::super::violation::Violation;
use super::{Event, World};
use crate::wire;

/// Per thousand ticks: how often a member checks whether to propose a feature change.
const FEATURES_RATE: u64 = 300;

impl World<'_> {
    pub(super) fn start(&mut self, id: u64) -> Result<(), Violation> {
        let is_down = self
            .members
            .get(&id)
            .is_some_and(|it| it.running.is_none() && !it.is_shut_down);
        if !is_down {
            return Ok(());
        }
        if self.scenario.features > 0 && !self.faults_stopped && self.random.below(2) == 0 {
            self.choose_start(id);
        }
        let loses_power = self.random.permille(self.scenario.crash_in_write * 3);
        let (calls, completes) = (self.random.below(25), self.random.below(2) == 0);
        if loses_power && let Some(member) = self.members.get(&id) {
            member.disk.schedule_power_loss(calls, completes);
        }
        self.with_member(id, Member::start)?;
        let Some(member) = self.members.get(&id) else {
            return Ok(());
        };
        if member.running.is_none() {
            self.report.crashes_in_start += 1;
            return Ok(());
        }
        if self.random.below(2) == 0 {
            member.disk.cancel_power_loss();
        }
        let incarnation = member.incarnation;
        let applied = member.durable.index;
        self.note(|| format!("{id:x} started, applied {applied}"));
        let delay = self.random.below(TICK);
        self.after(delay, Event::Tick { id, incarnation });
        let delay = self.random.below(TICK);
        self.after(delay, Event::Upkeep { id, incarnation });
        let delay = self.random.between(1, 2 * self.scenario.backend_commit);
        self.after(delay, Event::CommitBackend { id, incarnation });
        Ok(())
    }

    pub(super) fn crash(&mut self, id: u64, when: &'static str) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        member.running = None;
        member.disk.lose_power(&mut self.random);
        self.scheduling.remove(&id);
        self.report.crashes += 1;
        self.note(|| format!("{id:x} lost power {when}"));
        self.lose_requests(id);
        let delay = if self.faults_stopped {
            TICK
        } else {
            self.random.below(40 * TICK)
        };
        self.after(delay, Event::Start { id });
    }

    pub(super) fn start_newcomer(&mut self, id: u64) {
        self.candidates.remove(&id);
        let identity = Identity {
            member_id: MemberId(id),
            cluster_id: self.cluster_id,
        };
        let lowest = self.newest_position().and_then(|it| it.cluster_version);
        let start = Start::any(&mut self.random, lowest);
        let origin = Origin::Joiner { identity };
        self.members.insert(id, Member::new(id, origin, start));
        self.report.members_added += 1;
        self.note(|| format!("{id:x} was added"));
        let delay = self.random.below(10 * TICK);
        self.after(delay, Event::Start { id });
    }

    /// Once per tick: actions of operators, and faults.
    pub(super) fn faults(&mut self) -> Result<(), Violation> {
        let running = self.running_ids();
        let Some(&id) = self.random.choose(&running) else {
            return Ok(());
        };
        let scenario = self.scenario.clone();
        self.propose_feature_changes(FEATURES_RATE)?;
        if self.random.permille(scenario.features) {
            self.crash(id, "to be started again");
        }
        if self.random.permille(scenario.membership) {
            self.change_members()?;
        }
        if self.random.permille(scenario.transfer) {
            self.transfer()?;
        }
        if self.random.permille(scenario.compaction) {
            let compacted = self.with_member(id, Member::compact_log)?;
            self.report.compactions += u64::from(compacted);
            self.note(|| format!("{id:x} compacts its log: {compacted}"));
        }
        if self.random.permille(scenario.skew) {
            let interval = *self.random.choose(&[30, 70, 100, 140]).unwrap_or(&TICK);
            let rate = self.random.between(950, 1050);
            if let Some(member) = self.members.get_mut(&id) {
                member.tick_interval = interval;
                // The clock of a lessor never goes back, so its speed changes with a start.
                if member.running.is_none() {
                    member.clock_rate = rate;
                }
            }
        }
        if self.random.permille(scenario.partition) {
            self.partition();
        }
        if self.random.permille(scenario.crash_in_write) {
            let (calls, completes) = (self.random.below(8), self.random.below(2) == 0);
            if let Some(member) = self.members.get(&id) {
                member.disk.schedule_power_loss(calls, completes);
            }
        }
        if self.random.permille(scenario.crash) {
            self.crash(id, "");
        }
        if self.random.permille(scenario.crash_of_all) {
            for id in running {
                self.crash(id, "with all others");
            }
        }
        if self.random.permille(scenario.disk_loss) {
            self.lose_disk(id);
        }
        self.shut_down_removed();
        Ok(())
    }

    /// A member loses its disk for good, if the others are still a majority. An operator replaces
    /// it.
    fn lose_disk(&mut self, id: u64) {
        let Some(newest) = self.newest_position() else {
            return;
        };
        // A change that is still under way, or committed and applied by no running member, may
        // need the member.
        if !self.pending_changes.is_empty() || newest.index < self.newest_change_index {
            return;
        }
        let voters = &newest.conf_state.voters;
        let is_lost =
            |it: &&u64| **it == id || self.members.get(*it).is_some_and(|it| it.has_lost_disk);
        let lost = voters.iter().filter(is_lost).count();
        if 2 * lost >= voters.len() || !newest.members().any(|it| it == id) {
            return;
        }
        // Every member must know the configuration of which the rest is a majority.
        let all_know = voters.iter().all(|it| {
            let member = self.members.get(it);
            member.is_some_and(|it| it.has_lost_disk || it.durable.conf_state == newest.conf_state)
        });
        if !all_know {
            return;
        }
        self.crash(id, "and its disk");
        let rejoins = self.bug == Some(PlantedBug::RejoinsWithEmptyDirectory);
        if let Some(member) = self.members.get_mut(&id) {
            member.lose_disk();
            member.has_lost_disk = !rejoins;
            member.is_shut_down = !rejoins;
            self.report.disks_lost += 1;
        }
    }

    /// Chooses version and flags for the next start.
    fn choose_start(&mut self, id: u64) {
        let lowest = self
            .members
            .get(&id)
            .and_then(|it| it.durable.cluster_version);
        let start = Start::any(&mut self.random, lowest);
        self.note(|| format!("{id:x} starts as {start:?}"));
        if let Some(member) = self.members.get_mut(&id) {
            member.start = start;
        }
    }

    /// Members publish their attributes and leaders propose decisions; each with this probability.
    pub(super) fn propose_feature_changes(&mut self, permille: u64) -> Result<(), Violation> {
        for id in self.running_ids() {
            if !self.random.permille(permille) {
                continue;
            }
            for request in [self.announcement(id), self.decision(id)]
                .into_iter()
                .flatten()
            {
                self.note(|| format!("{id:x} proposes {}", wire::show(&request)));
                self.with_member(id, |member, around| member.propose_own(request, around))?;
            }
        }
        Ok(())
    }

    pub(super) fn announcement(&self, id: u64) -> Option<InternalRaftRequest> {
        let member = self.members.get(&id)?;
        let membership = member.running.as_ref()?.replica.machine.membership();
        let is_founder = matches!(member.origin, Origin::Founder { .. });
        let specs = &self.features.specs;
        member.start.announcement(specs, membership, id, is_founder)
    }

    /// Returns the decision that a current or former leader would propose.
    pub(super) fn decision(&self, id: u64) -> Option<InternalRaftRequest> {
        let member = self.members.get(&id)?;
        let running = member.running.as_ref()?;
        if !running.is_leader() {
            return None;
        }
        let membership = running.replica.machine.membership();
        let ids = membership.iter().map(|record| record.id);
        let versions: Option<BTreeMap<u64, MajorMinor>> = ids
            .map(|other| Some((other, self.version_of_peer(id, other)?)))
            .collect();
        let versions = versions.filter(|it| !it.is_empty())?;
        let specs = &self.features.specs;
        member
            .start
            .decision(specs, membership, id, Some(&versions))
    }

    /// Returns the version of a peer if the two can reach each other.
    fn version_of_peer(&self, id: u64, other: u64) -> Option<MajorMinor> {
        let asked = self.members.get(&other).filter(|it| it.running.is_some())?;
        let is_cut = self.is_blocked(id, other) || self.is_blocked(other, id);
        (!is_cut).then_some(asked.start.version)
    }

    /// Returns the newest state of all members.
    pub(super) fn newest_position(&self) -> Option<Position> {
        let members = self.members.values();
        let positions = members.map(|it| match &it.running {
            Some(running) => running.replica.position(),
            None => it.durable.clone(),
        });
        positions.max_by_key(|position| position.index)
    }

    /// An operator changes the members, at the leader. Of two voters none is removed: a leader
    /// that removes itself may be the only one to know the commit, and the other needs its vote.
    fn change_members(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else {
            return Ok(());
        };
        let running = self.members.get(&leader).and_then(|it| it.running.as_ref());
        let Some(conf_state) = running.map(|it| it.replica.position().conf_state) else {
            return Ok(());
        };
        let mut all = conf_state.voters.clone();
        all.extend(&conf_state.learners);
        let lost = all
            .iter()
            .copied()
            .find(|id| self.members.get(id).is_some_and(|it| it.has_lost_disk));
        let may_grow = self.ever < self.scenario.members_ever_max && all.len() < 6;
        let about = match self.random.below(6) {
            _ if lost.is_some() => lost.map(Change::Remove),
            0 | 1 if may_grow => Some(Change::AddLearner(self.newcomer())),
            2 if may_grow => Some(Change::AddVoter(self.newcomer())),
            3 => {
                let learner = self.random.choose(&conf_state.learners);
                learner.map(|id| Change::Promote(*id))
            }
            4 => Some(Change::Remove(leader)),
            _ => self.random.choose(&all).map(|id| Change::Remove(*id)),
        };
        let Some(about) = about else {
            return Ok(());
        };
        let is_voter = |id: u64| conf_state.voters.contains(&id);
        if matches!(about, Change::Remove(id) if is_voter(id) && conf_state.voters.len() <= 2) {
            return Ok(());
        }
        self.propose_change(leader, about)
    }

    pub(super) fn propose_change(&mut self, leader: u64, about: Change) -> Result<(), Violation> {
        self.note(|| format!("{about:x?} at {leader:x}"));
        let number = self.number();
        let change = about.encode(number);
        self.pending_changes.insert(number);
        self.with_member(leader, |member, around| {
            member.submit(Some(number), Proposal::ConfChange(change), around)
        })
    }

    fn newcomer(&mut self) -> u64 {
        self.ever += 1;
        let url = format!("http://m{}:2380", self.ever);
        let id = bootstrap::added_member_id(&[url], self.ever);
        self.candidates.insert(id);
        self.names
            .push((format!("{id:x}"), format!("m{}", self.ever)));
        id
    }

    pub(super) fn leader(&self) -> Option<u64> {
        let running = self.members.values().filter_map(|it| it.running.as_ref());
        let leaders = running.filter(|it| it.is_leader());
        let newest = leaders.max_by_key(|it| it.core().current_leadership().term);
        newest.map(|it| it.core().id())
    }

    fn transfer(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else {
            return Ok(());
        };
        let ids = self.ids();
        let to = self.random.choose(&ids).copied().unwrap_or(leader);
        self.note(|| format!("{leader:x} transfers leadership to {to:x}"));
        self.with_member(leader, |member, around| {
            member
                .act(around, |engine| engine.transfer_leader(to))
                .map(drop)
        })
    }

    /// Shuts down removed members. A removed member runs until all others have applied its
    /// removal durably, because they may need its vote before.
    pub(super) fn shut_down_removed(&mut self) {
        let Some(newest) = self.newest_position() else {
            return;
        };
        for removed in &newest.removed {
            let is_known = newest.members().all(|id| {
                let member = self.members.get(&id);
                member.is_some_and(|it| it.has_lost_disk || it.durable.removed.contains(removed))
            });
            if let Some(member) = self.members.get_mut(removed)
                && is_known
                && !member.is_shut_down
            {
                member.is_shut_down = true;
                member.running = None;
                self.report.members_gone += 1;
                self.note(|| format!("{removed:x} was shut down"));
                self.lose_requests(*removed);
            }
        }
    }
}

/// A change of membership.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    AddVoter(u64),
    AddLearner(u64),
    Promote(u64),
    Remove(u64),
}

impl Change {
    fn encode(self, number: u64) -> ConfChange {
        let (kind, id, is_promote) = match self {
            Self::AddVoter(id) => (ConfChangeType::ConfChangeAddNode, id, false),
            Self::AddLearner(id) => (ConfChangeType::ConfChangeAddLearnerNode, id, false),
            Self::Promote(id) => (ConfChangeType::ConfChangeAddNode, id, true),
            Self::Remove(id) => (ConfChangeType::ConfChangeRemoveNode, id, false),
        };
        let context =
            format!(r#"{{"id":{id},"peerURLs":["http://{id:x}:2380"],"isPromote":{is_promote}}}"#);
        ConfChange {
            id: number,
            r#type: kind.into(),
            node_id: id,
            context: context.into(),
        }
    }
}
