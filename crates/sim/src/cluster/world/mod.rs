//! Virtual time, the network, clients and faults.
//!
//! One queue of events. Each event is handled completely before the next one, and every choice
//! comes from one generator, so a run is a function of its scenario.

mod clients;
mod converge;
mod network;
mod operator;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use portunus_consensus::bootstrap::{self, InitialMember};
use portunus_proto::ClusterId;

use super::client::Client;
use super::invariants::Invariants;
use super::member::{Features, Member, Next, Origin, Start, Surroundings, founder, founder_id};
use super::oracle::Oracle;
use super::planted::PlantedBug;
use super::report::{Failure, Report};
use super::scenario::{Scenario, TICK};
use super::violation::Violation;
use super::watcher::Watcher;
use crate::random::Random;
use network::Packet;

/// Ticks between two looks at expired leases.
const LEASE_TICKS: u64 = 5;

type Trace<'a> = &'a mut dyn FnMut(String);

enum Event {
    Tick {
        id: u64,
        incarnation: u64,
    },
    Deliver(Box<Packet>),
    Write {
        id: u64,
        incarnation: u64,
    },
    Written {
        id: u64,
        incarnation: u64,
    },
    Apply {
        id: u64,
        incarnation: u64,
    },
    Installed {
        id: u64,
        incarnation: u64,
    },
    CommitBackend {
        id: u64,
        incarnation: u64,
    },
    /// The periodic work of a member: leases, watches, compaction of revisions.
    Upkeep {
        id: u64,
        incarnation: u64,
    },
    SnapshotReport {
        id: u64,
        about: u64,
        delivered: bool,
    },
    Unreachable {
        id: u64,
        about: u64,
    },
    Start {
        id: u64,
    },
    Heal {
        number: u64,
    },
    /// A client sends its next request.
    Request {
        client: usize,
    },
    /// A client gives up.
    Timeout {
        client: usize,
        number: u64,
    },
    /// A keep-alive arrives at the leader.
    Renewal {
        client: usize,
        number: u64,
        leader: u64,
    },
    /// A watcher reads its stream.
    Watch {
        watcher: usize,
    },
    /// Faults occur and operators act, once per tick.
    Faults,
}

struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Whether a write and an apply of a member are scheduled.
#[derive(Default)]
struct Scheduling {
    write: bool,
    apply: bool,
}

pub(super) struct World<'a> {
    scenario: Scenario,
    bug: Option<PlantedBug>,
    trace: Option<Trace<'a>>,
    /// The ids of members in hexadecimal digits, with the names that the trace has for them.
    names: Vec<(String, String)>,
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    founders: Vec<InitialMember>,
    cluster_id: ClusterId,
    members: BTreeMap<u64, Member>,
    scheduling: BTreeMap<u64, Scheduling>,
    /// Blocked pairs of sender and receiver, by the number of the partition.
    blocked: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    invariants: Invariants,
    oracle: Oracle,
    features: Features,
    clients: Vec<Client>,
    watchers: Vec<Watcher>,
    faults_stopped: bool,
    /// Until then a member that installs a snapshot goes on installing.
    hold_installs_until: u64,
    next_number: u64,
    ever: u64,
    /// Ids of proposed new members that were not added yet.
    candidates: BTreeSet<u64>,
    /// Proposed changes of membership whose outcome is unknown.
    pending_changes: BTreeSet<u64>,
    /// The index of the newest change of membership that some member has applied. All members
    /// that applied it may have crashed since, before it was durable in a backend.
    newest_change_index: u64,
    report: Report,
    last_leader_term: u64,
    last_leader_at: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        scenario: &Scenario,
        bug: Option<PlantedBug>,
        trace: Option<Trace<'a>>,
    ) -> Self {
        let founders: Vec<InitialMember> = (1..=scenario.members).map(founder).collect();
        let ids: Vec<u64> = founders.iter().map(founder_id).collect();
        let members = founders.iter().map(|it| {
            let id = founder_id(it);
            let origin = Origin::Founder {
                name: it.name.clone(),
            };
            (id, Member::new(id, origin, Start::first()))
        });
        let clients = (0..scenario.clients).map(|number| Client {
            administrations: (scenario.has_users && number == 0).then_some(0),
            ..Client::default()
        });
        Self {
            scenario: scenario.clone(),
            bug,
            trace,
            names: founders
                .iter()
                .map(|it| (format!("{:x}", founder_id(it)), it.name.clone()))
                .collect(),
            random: Random::from_seed(scenario.seed ^ 0x0d15_ea5e),
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            cluster_id: ClusterId(bootstrap::cluster_id(&ids)),
            members: members.collect(),
            founders,
            scheduling: BTreeMap::new(),
            blocked: BTreeMap::new(),
            invariants: Invariants::default(),
            oracle: Oracle::new(),
            features: Features::declared(),
            clients: clients.collect(),
            watchers: Vec::new(),
            faults_stopped: false,
            hold_installs_until: 0,
            next_number: 1,
            ever: scenario.members,
            candidates: BTreeSet::new(),
            pending_changes: BTreeSet::new(),
            newest_change_index: 0,
            report: Report::default(),
            last_leader_term: 0,
            last_leader_at: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Failure> {
        match self.run_events() {
            Ok(()) => {
                self.finish_report();
                Ok(self.report)
            }
            Err(violation) => {
                self.note(|| format!("VIOLATION: {}", violation.chain()));
                Err(Failure {
                    seed: self.scenario.seed,
                    event: self.report.events,
                    tick: self.now / TICK,
                    violation,
                })
            }
        }
    }

    fn finish_report(&mut self) {
        let report = &mut self.report;
        report.committed = self.invariants.commit();
        report.acknowledged = self.oracle.acknowledged;
        report.reads = self.invariants.reads_answered;
        report.switches = self.invariants.switches;
        report.hashes_compared = self.invariants.hashes_compared;
        report.leases_expired = self.oracle.expired;
        report.refused_by_feature = self.oracle.refused_by_feature;
        report.refused_by_permission = self.oracle.refused_by_permission;
        for watcher in &self.watchers {
            report.watch_events += watcher.events;
            report.watches_compacted += watcher.compacted;
            report.progress_notices += watcher.notices;
        }
    }

    fn run_events(&mut self) -> Result<(), Violation> {
        let scenario = self.scenario.clone();
        self.note(|| format!("{scenario:?}"));
        for id in self.ids() {
            let delay = self.random.below(3 * TICK);
            self.after(delay, Event::Start { id });
        }
        self.after(TICK, Event::Faults);
        for client in 0..self.clients.len() {
            let delay = self.random.below(20 * TICK);
            self.after(delay, Event::Request { client });
        }
        self.open_watchers();
        let faults_end = self.scenario.fault_ticks * TICK;
        while self.step(faults_end)? {}
        self.stop_faults();
        self.converge(faults_end)
    }

    /// Handles the next event, unless it is later than `until`.
    fn step(&mut self, until: u64) -> Result<bool, Violation> {
        match self.queue.peek() {
            Some(Reverse(next)) if next.at <= until => {}
            _ => {
                self.now = until;
                return Ok(false);
            }
        }
        let Some(Reverse(next)) = self.queue.pop() else {
            return Ok(false);
        };
        self.now = next.at;
        self.oracle.now = next.at;
        self.report.events += 1;
        self.handle(next.event)?;
        Ok(true)
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let (tick, rest) = (self.now / TICK, self.now % TICK);
            let mut text = text();
            for (id, name) in &self.names {
                text = text.replace(id, name);
            }
            trace(format!("{tick:>4}.{rest:02} {text}"));
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    fn running_ids(&self) -> Vec<u64> {
        let running = self.members.values().filter(|it| it.running.is_some());
        running.map(|it| it.id).collect()
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled {
            at: self.now + delay,
            number: self.scheduled,
            event,
        }));
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn is_current(&self, id: u64, incarnation: u64) -> bool {
        let member = self.members.get(&id);
        member.is_some_and(|it| it.incarnation == incarnation && it.running.is_some())
    }

    /// Calls a member, sends its messages, and handles a power loss of its disk.
    fn with_member<R: Default>(
        &mut self,
        id: u64,
        act: impl FnOnce(&mut Member, &mut Surroundings<'_>) -> Result<R, Violation>,
    ) -> Result<R, Violation> {
        let Some(member) = self.members.get_mut(&id) else {
            return Ok(R::default());
        };
        let mut around = Surroundings {
            now: self.now,
            scenario: &self.scenario,
            founders: &self.founders,
            bug: self.bug,
            invariants: &mut self.invariants,
            oracle: &mut self.oracle,
            features: &self.features,
        };
        let result = act(member, &mut around);
        if member.disk.is_off() && result.as_ref().err().is_none_or(Violation::is_of_disk) {
            // The power was lost during the call.
            self.report.crashes_in_write += 1;
            self.crash(id, "while writing");
            return Ok(R::default());
        }
        let result = result?;
        if std::mem::take(&mut member.is_version_too_low) {
            self.crash(id, "to be started with a later version");
            return Ok(result);
        }
        self.collect_effects(id)?;
        Ok(result)
    }

    /// Sends a member's messages and answers, and schedules its writes and applies.
    fn collect_effects(&mut self, id: u64) -> Result<(), Violation> {
        let Some(member) = self.members.get_mut(&id) else {
            return Ok(());
        };
        let incarnation = member.incarnation;
        let Some(running) = &mut member.running else {
            return Ok(());
        };
        let outbox = std::mem::take(&mut running.outbox);
        let replies = std::mem::take(&mut running.replies);
        let (has_work, next) = (running.disk_has_work(), running.next());
        let leadership = running.core().current_leadership();
        let is_leader = running.is_leader();
        let candidates = &self.candidates;
        let machine = &running.replica.machine;
        let newcomers: Vec<u64> = super::member::members_of(machine.conf_state())
            .filter(|it| candidates.contains(it))
            .collect();
        if is_leader {
            self.last_leader_at = self.now;
        }
        if is_leader && leadership.term.0 > self.last_leader_term {
            self.last_leader_term = leadership.term.0;
            self.report.elections += 1;
            self.note(|| format!("{id:x} became leader at term {}", leadership.term));
        }
        self.schedule(id, incarnation, has_work, next);
        for message in outbox {
            self.send(id, message);
        }
        for (number, reply) in replies {
            self.replied(number, reply)?;
        }
        for newcomer in newcomers {
            self.start_newcomer(newcomer);
        }
        Ok(())
    }

    fn schedule(&mut self, id: u64, incarnation: u64, has_work: bool, next: Next) {
        let scheduling = self.scheduling.entry(id).or_default();
        let start_write = has_work && !std::mem::replace(&mut scheduling.write, has_work);
        let is_next = next != Next::Idle;
        let start_apply = is_next && !std::mem::replace(&mut scheduling.apply, is_next);
        if start_write {
            let delay = self.random.below(self.scenario.disk_delay_max);
            self.after(delay, Event::Write { id, incarnation });
        }
        match next {
            Next::Apply if start_apply => {
                let delay = self.apply_delay();
                self.after(delay, Event::Apply { id, incarnation });
            }
            Next::Install if start_apply => {
                let delay = 1 + self.random.below(self.scenario.install_delay_max);
                self.report.installs_begun += 1;
                self.after(delay, Event::Installed { id, incarnation });
            }
            _ => {}
        }
    }

    /// Returns a delay: usually up to a tenth of the maximum.
    fn apply_delay(&mut self) -> u64 {
        let max = self.scenario.apply_delay_max;
        let max = if self.random.below(10) == 0 {
            max
        } else {
            max / 10
        };
        self.random.below(max + 1)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick { id, incarnation } if self.is_current(id, incarnation) => {
                let interval = self.members.get(&id).map_or(TICK, |it| it.tick_interval);
                self.after(interval, Event::Tick { id, incarnation });
                if self.is_deaf(id) {
                    return Ok(());
                }
                self.with_member(id, |member, around| {
                    member.act(around, |engine| engine.tick()).map(drop)
                })
            }
            Event::Deliver(packet) => self.deliver(*packet),
            Event::Write { id, incarnation } if self.is_current(id, incarnation) => {
                self.scheduling.entry(id).or_default().write = false;
                let wrote = self.with_member(id, Member::write)?;
                if wrote && self.is_current(id, incarnation) {
                    self.note(|| format!("{id:x} has written"));
                    let delay = self.random.below(self.scenario.disk_delay_max);
                    self.after(delay, Event::Written { id, incarnation });
                }
                Ok(())
            }
            Event::Written { id, incarnation } if self.is_current(id, incarnation) => {
                self.with_member(id, Member::finish_write)
            }
            Event::Apply { id, incarnation } if self.is_current(id, incarnation) => {
                self.scheduling.entry(id).or_default().apply = false;
                self.with_member(id, Member::apply_next).map(drop)
            }
            Event::Installed { id, incarnation } if self.is_current(id, incarnation) => {
                self.finish_install(id, incarnation)
            }
            Event::CommitBackend { id, incarnation } if self.is_current(id, incarnation) => {
                let interval = self.scenario.backend_commit;
                let delay = self.random.between(1, 2 * interval);
                self.after(delay, Event::CommitBackend { id, incarnation });
                let bug = self.bug;
                self.with_member(id, |member, _| member.commit_backend(bug))
            }
            Event::Upkeep { id, incarnation } if self.is_current(id, incarnation) => {
                self.after(TICK, Event::Upkeep { id, incarnation });
                self.upkeep(id)
            }
            Event::SnapshotReport {
                id,
                about,
                delivered,
            } => self.with_member(id, |member, around| {
                let report = member.act(around, |engine| engine.report_snapshot(about, delivered));
                report.map(drop)
            }),
            Event::Unreachable { id, about } => self.with_member(id, |member, around| {
                let report = member.act(around, |engine| engine.report_unreachable(about));
                report.map(drop)
            }),
            Event::Start { id } => self.start(id),
            Event::Heal { number } => {
                self.blocked.remove(&number);
                self.note(|| format!("partition {number} ends"));
                Ok(())
            }
            Event::Request { client } => self.request(client),
            Event::Timeout { client, number } => self.gives_up(client, number),
            Event::Renewal {
                client,
                number,
                leader,
            } => self.renew(client, number, leader),
            Event::Watch { watcher } => self.read_watch(watcher),
            Event::Faults if !self.faults_stopped => {
                self.after(TICK, Event::Faults);
                self.faults()
            }
            // Events of an earlier incarnation, or faults after they stopped.
            _ => Ok(()),
        }
    }

    fn finish_install(&mut self, id: u64, incarnation: u64) -> Result<(), Violation> {
        if self.now < self.hold_installs_until {
            let rest = self.hold_installs_until - self.now;
            self.after(rest, Event::Installed { id, incarnation });
            return Ok(());
        }
        self.scheduling.entry(id).or_default().apply = false;
        let installed = self.with_member(id, Member::finish_install)?;
        self.report.installs += u64::from(installed);
        self.note(|| format!("{id:x} installed a snapshot: {installed}"));
        Ok(())
    }

    /// Once per tick and member: leases, watches, compactions of revisions and of the log.
    fn upkeep(&mut self, id: u64) -> Result<(), Violation> {
        let tends_leases = (self.now / TICK).is_multiple_of(LEASE_TICKS);
        // Compactions are slow while there are faults, so that crashes interrupt them.
        let slices = if self.faults_stopped { 20 } else { 1 };
        self.with_member(id, |member, around| {
            if tends_leases {
                member.tend_leases(around)?;
            }
            member.sync_watches(around);
            for _ in 0..slices {
                if let Some(running) = &mut member.running
                    && let Some(hash) = running.replica.compaction_step(id)?
                {
                    around.invariants.hashes(id, hash)?;
                }
            }
            Ok(())
        })?;
        let is_due = self.members.get(&id).is_some_and(Member::must_shorten_log);
        if is_due {
            let compacted = self.with_member(id, Member::compact_log)?;
            self.report.compactions += u64::from(compacted);
        }
        Ok(())
    }

    /// For a planted bug: a member that installs a snapshot handles no message.
    fn is_deaf(&self, id: u64) -> bool {
        let running = self.members.get(&id).and_then(|it| it.running.as_ref());
        self.bug == Some(PlantedBug::DeafWhileInstalling)
            && running.is_some_and(|it| it.installing.is_some())
    }
}
