//! The end of a run: without faults the cluster has to converge.

use std::collections::BTreeSet;

use portunus_gates::Versions;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::ConfState;

use super::super::client::Request;
use super::super::member::Start;
use super::super::scenario::{Class, Scenario, TICK};
use super::super::violation::Violation;
use super::operator::Change;
use super::{Event, World};
use crate::wire;

/// The time limit for convergence without faults. More than an election, an aborted leadership
/// transfer, the longest backlog and the longest lease take.
const CONVERGENCE_TICKS_MAX: u64 = 700;
/// Without faults and with a majority, some member leads after this time.
const LEADERLESS_TICKS_MAX: u64 = 100;
/// Without pre-votes, candidates that cannot win disturb the others.
const LEADERLESS_TICKS_MAX_WITHOUT_PRE_VOTE: u64 = 400;
/// Without pre-votes, operators stop removed members after this time.
const STOP_REMOVED_TICK: u64 = 200;
/// How long a snapshot is being installed while the leader is down, in some runs.
const HOLD_TICKS: u64 = 150;
/// Per thousand ticks: how often a member checks whether to propose a feature change.
const FEATURES_RATE: u64 = 400;

impl World<'_> {
    pub(super) fn stop_faults(&mut self) {
        self.faults_stopped = true;
        self.note(|| "no more faults".to_owned());
        self.scenario = Scenario {
            delay_max: 5,
            disk_delay_max: 5,
            apply_delay_max: 1,
            install_delay_max: 1,
            watch_delay_max: TICK,
            ..self.scenario.clone().without(&[
                Class::Loss,
                Class::Repetition,
                Class::Delay,
                Class::CrashInWrite,
            ])
        };
        self.blocked.clear();
        self.last_leader_at = self.now;
        let held = self.lose_leader_during_install();
        for id in self.ids() {
            if let Some(member) = self.members.get_mut(&id) {
                member.disk.cancel_power_loss();
                member.tick_interval = TICK;
                let delay = if held == Some(id) {
                    HOLD_TICKS * TICK
                } else {
                    TICK
                };
                self.after(delay, Event::Start { id });
            }
        }
    }

    /// If a member installs a snapshot, the install takes long and the leader goes down for as
    /// long: the others, with the vote of that member, have to elect another one. Returns the
    /// former leader.
    fn lose_leader_during_install(&mut self) -> Option<u64> {
        let is_installing = |id: &u64| {
            let running = self.members.get(id).and_then(|it| it.running.as_ref());
            running.is_some_and(|it| it.installing.is_some())
        };
        let leader = self.leader()?;
        let newest = self.newest_position()?;
        if newest.index < self.newest_change_index {
            return None;
        }
        let newest = newest.conf_state;
        let voters = &newest.voters;
        // A member takes part in elections with the configuration that it has applied, and does not
        // campaign while it has not applied a committed change, even a refused one.
        let can_vote = |id: &&u64| {
            let running = self.members.get(*id).and_then(|it| it.running.as_ref());
            **id != leader
                && running.is_some_and(|it| {
                    let installing = it.installing.as_ref().map(|snapshot| snapshot.index);
                    let index = installing.unwrap_or_else(|| it.replica.position().index);
                    index >= self.newest_change_index
                        && same_members(&it.core().conf_state(), &newest)
                })
        };
        let left = voters.iter().filter(can_vote).count();
        let installs = voters.iter().any(is_installing);
        let changes = !self.pending_changes.is_empty();
        if !installs || changes || 2 * left <= voters.len() {
            return None;
        }
        self.report.leaders_lost_during_install += 1;
        self.hold_installs_until = self.now + HOLD_TICKS * TICK;
        let member = self.members.get_mut(&leader)?;
        member.running = None;
        member.disk.lose_power(&mut self.random);
        self.scheduling.remove(&leader);
        self.lose_requests(leader);
        self.note(|| format!("{leader:x} lost power while another member installs a snapshot"));
        Some(leader)
    }

    /// Runs without faults until all members agree and a new request is acknowledged.
    pub(super) fn converge(&mut self, faults_end: u64) -> Result<(), Violation> {
        let mut acknowledged: Option<u64> = None;
        let mut why = String::new();
        for tick in 1..=CONVERGENCE_TICKS_MAX {
            while self.step(faults_end + tick * TICK)? {}
            self.check_leader()?;
            match self.agreed() {
                Err(reason) => why = reason,
                Ok(leader) => {
                    let is_answered = acknowledged.is_some_and(|it| it < self.oracle.acknowledged);
                    if is_answered {
                        return self.check_end();
                    }
                    why = "the last request was not acknowledged".to_owned();
                    if self.clients[0].pending.is_none() {
                        acknowledged = Some(self.oracle.acknowledged);
                        self.request_at(leader)?;
                    }
                }
            }
            self.shut_down_removed();
            if tick == STOP_REMOVED_TICK && !self.scenario.pre_vote {
                self.stop_removed();
            }
            self.propose_feature_changes(FEATURES_RATE)?;
            if tick % 20 == 0 {
                self.remove_lost()?;
            }
        }
        Err(Violation::NotLive {
            ticks: CONVERGENCE_TICKS_MAX,
            why,
        })
    }

    /// Stops members that the newest configuration does not have. A removed member that does not
    /// know of its removal campaigns, and without pre-votes it raises the terms of members that do
    /// not know of it either.
    fn stop_removed(&mut self) {
        let Some(newest) = self.newest_position() else {
            return;
        };
        for removed in &newest.removed {
            if let Some(member) = self.members.get_mut(removed) {
                member.is_shut_down = true;
                member.running = None;
                self.lose_requests(*removed);
            }
        }
    }

    fn request_at(&mut self, leader: u64) -> Result<(), Violation> {
        let number = self.number();
        let request = Request::Write {
            request: Box::new(InternalRaftRequest {
                put: Some(wire::put("a", &number.to_string(), 0)),
                ..InternalRaftRequest::default()
            }),
            required: Vec::new(),
        };
        self.submit(0, number, leader, request)
    }

    /// An operator removes the members that lost their disks.
    fn remove_lost(&mut self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else {
            return Ok(());
        };
        let Some(newest) = self.newest_position() else {
            return Ok(());
        };
        let is_lost = |id: &u64| self.members.get(id).is_some_and(|it| it.has_lost_disk);
        let lost = newest.members().find(is_lost);
        match lost {
            Some(lost) => self.propose_change(leader, Change::Remove(lost)),
            None => Ok(()),
        }
    }

    /// Checks that some member has led within the limit.
    fn check_leader(&self) -> Result<(), Violation> {
        let ticks = (self.now - self.last_leader_at) / TICK;
        let ticks_max = match self.scenario.pre_vote {
            true => LEADERLESS_TICKS_MAX,
            false => LEADERLESS_TICKS_MAX_WITHOUT_PRE_VOTE,
        };
        if ticks <= ticks_max || self.leader().is_some() {
            return Ok(());
        }
        Err(Violation::NotLive {
            ticks,
            why: "no member leads".to_owned(),
        })
    }

    /// Returns the leader if all members follow it and have applied every committed entry, all
    /// watchers have all events, and all leases have expired.
    fn agreed(&self) -> Result<u64, String> {
        let leader = self.leader().ok_or("no leader")?;
        let newest = self.newest_position().ok_or("no state")?;
        let commit = self.invariants.commit();
        for id in newest.members() {
            let running = self.members.get(&id).and_then(|it| it.running.as_ref());
            let running = running.ok_or_else(|| format!("{id:x} does not run"))?;
            let follows = running.core().current_leadership().leader.0;
            let applied = running.replica.applied_index();
            if follows != leader || applied != commit {
                return Err(format!(
                    "{id:x} follows {follows:x} and has applied {applied}, not {leader:x} and {commit}"
                ));
            }
            if running.replica.compaction_work {
                return Err(format!("{id:x} has not finished a compaction"));
            }
        }
        if !newest.members().any(|id| id == leader) {
            return Err(format!("the leader {leader:x} is not a member"));
        }
        if let Some(id) = newest.members().find(|id| self.announcement(*id).is_some()) {
            return Err(format!("{id:x} has not published its attributes"));
        }
        if self.decision(leader).is_some() {
            return Err("the features are not decided".to_owned());
        }
        let late = self.watchers.iter();
        let mut late = late.filter(|watcher| !watcher.is_caught_up(&self.oracle));
        if late.next().is_some() {
            return Err("a watcher has not received all events".to_owned());
        }
        if self.scenario.awaits_expiry && self.oracle.has_leases() {
            return Err("leases have not expired".to_owned());
        }
        Ok(leader)
    }

    /// Compares the contents and hashes of all members.
    fn check_end(&mut self) -> Result<(), Violation> {
        self.features_follow_from_flags()?;
        let Some(newest) = self.newest_position() else {
            return Ok(());
        };
        for id in newest.members() {
            let running = self.members.get(&id).and_then(|it| it.running.as_ref());
            let Some(running) = running else {
                continue;
            };
            if running.replica.applied_index() != newest.index {
                continue;
            }
            self.invariants.compare_content(id, &running.replica)?;
            let hash = running.replica.machine.reader().hash_kv(0);
            match hash {
                Ok(hash) => self.invariants.hashes(id, hash)?,
                Err(error) => {
                    let why = error.to_string();
                    return Err(Violation::Open { id, why });
                }
            }
        }
        Ok(())
    }

    /// Checks that a feature is on if it is on for every voter, by flag or else by default, and
    /// that all are off while a member, also a learner, publishes no proposed params.
    fn features_follow_from_flags(&self) -> Result<(), Violation> {
        let Some(leader) = self.leader() else {
            return Ok(());
        };
        let running = self.members.get(&leader).and_then(|it| it.running.as_ref());
        let Some(membership) = running.map(|it| it.replica.machine.membership()) else {
            return Ok(());
        };
        let start = |id: u64| self.members.get(&id).map(|it| &it.start);
        let all: Vec<(bool, &Start)> = membership
            .iter()
            .filter_map(|record| Some((record.is_learner, start(record.id)?)))
            .collect();
        let all_propose = all.iter().all(|(_, start)| start.proposes);
        let is_right = match &membership.params {
            None => !all_propose,
            Some(params) => {
                let registry = self.features.specs.registry();
                registry.features().iter().all(|feature| {
                    let spec = feature.at(Versions::exactly(params.version)).spec;
                    let is_on = |start: &Start| {
                        let flag = start.flags.get(&feature.name).copied();
                        flag.unwrap_or(spec.default)
                    };
                    let mut voters = all.iter().filter(|(is_learner, _)| !is_learner);
                    let expected = spec
                        .stage
                        .exists()
                        .then(|| all_propose && voters.all(|(_, start)| is_on(start)));
                    params.features.get(&feature.name).copied() == expected
                })
            }
        };
        if is_right {
            return Ok(());
        }
        Err(Violation::FeaturesNotFromFlags {
            what: format!("{:?} from {all:?}", membership.params),
        })
    }
}

fn same_members(one: &ConfState, other: &ConfState) -> bool {
    let sorted = |of: &ConfState| -> (BTreeSet<u64>, BTreeSet<u64>) {
        let voters = of.voters.iter().copied().collect();
        (voters, of.learners.iter().copied().collect())
    };
    sorted(one) == sorted(other)
}
