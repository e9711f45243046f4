//! Virtual time, the network, the workload and the faults.
//!
//! One queue of events. Each event is handled completely before the next one, and every choice
//! comes from one generator, so a run is a function of its scenario.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use portunus_consensus::bootstrap::{self, Identity, InitialMember};
use portunus_gates::MajorMinor;
use portunus_gates::cluster::ClusterSpecs;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::{ConfChange, ConfChangeType, Message, MessageType};
use prost::Message as _;

use super::gates::{self, Start};
use super::invariants::Invariants;
use super::member::{Member, Origin, Surroundings, founder, founder_id};
use super::planted::PlantedBug;
use super::report::{Failure, Report};
use super::scenario::{Scenario, TICK};
use super::state::Image;
use super::violation::Violation;
use crate::random::Random;

/// The time limit for convergence without faults. More than an election, an aborted leadership
/// transfer and the longest backlog take.
const CONVERGENCE_TICKS_MAX: u64 = 600;
/// The last proposal of a run is repeated after this time.
const PROPOSAL_RETRY_TICKS: u64 = 25;
/// Per thousand ticks: how often a member checks whether to propose a feature change.
const FEATURES_RATE: u64 = 300;
const FEATURES_RATE_WITHOUT_FAULTS: u64 = 400;

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
    CommitBackend {
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
    /// Clients act and faults occur, once per tick.
    Workload,
}

struct Packet {
    message: Message,
    /// The state that a snapshot message transfers.
    image: Option<Image>,
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
struct Pending {
    write: bool,
    apply: bool,
}

pub(super) struct World<'a> {
    scenario: Scenario,
    bug: Option<PlantedBug>,
    trace: Option<Trace<'a>>,
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    founders: Vec<InitialMember>,
    cluster_id: u64,
    members: BTreeMap<u64, Member>,
    pending: BTreeMap<u64, Pending>,
    /// Blocked pairs of sender and receiver, by the number of the partition.
    blocked: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    invariants: Invariants,
    specs: ClusterSpecs,
    faults_stopped: bool,
    next_number: u64,
    ever: u64,
    /// Ids of proposed new members that were not added yet.
    candidates: BTreeSet<u64>,
    report: Report,
    last_leader_term: u64,
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
            (id, Member::new(id, origin))
        });
        Self {
            scenario: scenario.clone(),
            bug,
            trace,
            random: Random::from_seed(scenario.seed ^ 0x0d15_ea5e),
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            cluster_id: bootstrap::cluster_id(&ids),
            members: members.collect(),
            founders,
            pending: BTreeMap::new(),
            blocked: BTreeMap::new(),
            invariants: Invariants::default(),
            specs: gates::specs(),
            faults_stopped: false,
            next_number: 1,
            ever: scenario.members,
            candidates: BTreeSet::new(),
            report: Report::default(),
            last_leader_term: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Failure> {
        match self.run_events() {
            Ok(()) => {
                self.report.committed = self.invariants.commit();
                self.report.acknowledged = self.invariants.acknowledged.len() as u64;
                self.report.reads = self.invariants.reads_answered;
                self.report.switches = self.invariants.switches;
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

    fn run_events(&mut self) -> Result<(), Violation> {
        let scenario = self.scenario.clone();
        self.note(|| format!("{scenario:?}"));
        for id in self.ids() {
            let delay = self.random.below(3 * TICK);
            self.after(delay, Event::Start { id });
        }
        self.after(TICK, Event::Workload);
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
        self.report.events += 1;
        self.handle(next.event)?;
        Ok(true)
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let (tick, rest) = (self.now / TICK, self.now % TICK);
            trace(format!("{tick:>4}.{rest:02} {}", text()));
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
            scenario: &self.scenario,
            founders: &self.founders,
            bug: self.bug,
            invariants: &mut self.invariants,
            specs: &self.specs,
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
        self.collect_effects(id);
        Ok(result)
    }

    /// Sends a member's messages and schedules its writes and applies.
    fn collect_effects(&mut self, id: u64) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let incarnation = member.incarnation;
        let Some(running) = &mut member.running else {
            return;
        };
        let outbox = std::mem::take(&mut running.outbox);
        let (has_work, has_to_apply) = (running.disk_has_work(), running.has_to_apply());
        let image = &running.image;
        let leadership = running.core().current_leadership();
        let is_new_leader = running.is_leader() && leadership.term > self.last_leader_term;
        let newcomers: Vec<u64> = image
            .members()
            .filter(|it| self.candidates.contains(it))
            .collect();
        let snapshot = outbox
            .iter()
            .any(|message| message.r#type() == MessageType::MsgSnap)
            .then(|| image.clone());
        if is_new_leader {
            self.last_leader_term = leadership.term;
            self.report.elections += 1;
            self.note(|| format!("{id:x} became leader at term {}", leadership.term));
        }
        let pending = self.pending.entry(id).or_default();
        let start_write = has_work && !std::mem::replace(&mut pending.write, has_work);
        let start_apply = has_to_apply && !std::mem::replace(&mut pending.apply, has_to_apply);
        if start_write {
            let delay = self.random.below(self.scenario.disk_delay_max);
            self.after(delay, Event::Write { id, incarnation });
        }
        if start_apply {
            let delay = self.apply_delay();
            self.after(delay, Event::Apply { id, incarnation });
        }
        for message in outbox {
            self.send(message, snapshot.as_ref());
        }
        for newcomer in newcomers {
            self.start_newcomer(newcomer);
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

    fn send(&mut self, message: Message, snapshot: Option<&Image>) {
        let mut packet = Packet {
            message,
            image: None,
        };
        if packet.message.r#type() == MessageType::MsgSnap {
            // The transferred state is at least as new as the announced one.
            if let (Some(image), Some(announced)) = (snapshot, &mut packet.message.snapshot)
                && let Some(metadata) = &mut announced.metadata
            {
                metadata.index = image.applied_index;
                metadata.term = image.applied_term;
                metadata.conf_state = Some(image.conf_state.clone());
                packet.image = Some(image.clone());
            }
            self.report.snapshots_sent += 1;
        }
        if self.random.permille(self.scenario.loss) {
            self.lose(&packet.message);
            return;
        }
        if self.random.permille(self.scenario.repetition) {
            let delay = self.message_delay();
            let copy = Packet {
                message: packet.message.clone(),
                image: packet.image.clone(),
            };
            self.after(delay, Event::Deliver(Box::new(copy)));
        }
        let delay = self.message_delay();
        self.after(delay, Event::Deliver(Box::new(packet)));
    }

    fn message_delay(&mut self) -> u64 {
        let delay = 1 + self.random.below(self.scenario.delay_max);
        if self.random.permille(self.scenario.long_delay) {
            delay + self.random.below(20 * TICK)
        } else {
            delay
        }
    }

    /// Drops a message. The sender of a snapshot gets a report, other senders sometimes.
    fn lose(&mut self, message: &Message) {
        self.report.lost_messages += 1;
        let (id, about) = (message.from, message.to);
        self.note(|| format!("lost: {}", show(message)));
        if message.r#type() == MessageType::MsgSnap {
            let delay = self.random.below(3 * TICK);
            let delivered = false;
            self.after(
                delay,
                Event::SnapshotReport {
                    id,
                    about,
                    delivered,
                },
            );
        } else if self.random.below(4) == 0 {
            let delay = self.random.below(TICK);
            self.after(delay, Event::Unreachable { id, about });
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick { id, incarnation } if self.is_current(id, incarnation) => {
                let interval = self.members.get(&id).map_or(TICK, |it| it.tick_interval);
                self.after(interval, Event::Tick { id, incarnation });
                self.with_member(id, |member, around| {
                    member.act(around, |engine| engine.tick()).map(drop)
                })
            }
            Event::Deliver(packet) => self.deliver(*packet),
            Event::Write { id, incarnation } if self.is_current(id, incarnation) => {
                self.pending.entry(id).or_default().write = false;
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
                self.pending.entry(id).or_default().apply = false;
                self.with_member(id, Member::apply_next).map(drop)
            }
            Event::CommitBackend { id, incarnation } if self.is_current(id, incarnation) => {
                let interval = self.scenario.backend_commit;
                let delay = self.random.between(1, 2 * interval);
                self.after(delay, Event::CommitBackend { id, incarnation });
                let bug = self.bug;
                self.with_member(id, |member, _| {
                    member.commit_backend(bug);
                    Ok(())
                })
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
            Event::Workload if !self.faults_stopped => {
                self.after(TICK, Event::Workload);
                self.workload_and_faults()
            }
            // Events of an earlier incarnation, or workload after the faults stopped.
            _ => Ok(()),
        }
    }

    fn deliver(&mut self, packet: Packet) -> Result<(), Violation> {
        let Packet { message, image } = packet;
        let (from, to) = (message.from, message.to);
        let is_blocked = self.blocked.values().any(|it| it.contains(&(from, to)));
        let receiver = self.members.get(&to).and_then(|it| it.running.as_ref());
        // A server refuses messages of a removed member.
        let is_refused = receiver.is_none_or(|it| it.image.removed.contains(&from));
        if is_blocked || is_refused {
            self.lose(&message);
            return Ok(());
        }
        self.note(|| format!("delivered: {}", show(&message)));
        if message.r#type() == MessageType::MsgSnap {
            let delay = self.random.below(TICK);
            let report = Event::SnapshotReport {
                id: from,
                about: to,
                delivered: true,
            };
            self.after(delay, report);
        }
        self.with_member(to, |member, around| {
            let applied = member.running.as_ref().map(|it| it.image.applied_index);
            if let Some(image) = image
                && applied.is_some_and(|applied| image.applied_index > applied)
            {
                member.incoming.insert(image.applied_index, image);
            }
            // Encoded and decoded, as on the network.
            let Ok(message) = Message::decode(Bytes::from(message.encode_to_vec())) else {
                return Ok(());
            };
            // Refusals are part of the game: proposals without a leader, answers from
            // members that were removed.
            member.act(around, |engine| engine.step(message)).map(drop)
        })
    }

    fn start(&mut self, id: u64) -> Result<(), Violation> {
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
        let applied = member.backend.applied_index;
        self.note(|| format!("{id:x} started, applied {applied}"));
        let delay = self.random.below(TICK);
        self.after(delay, Event::Tick { id, incarnation });
        let delay = self.random.between(1, 2 * self.scenario.backend_commit);
        self.after(delay, Event::CommitBackend { id, incarnation });
        Ok(())
    }

    fn crash(&mut self, id: u64, when: &'static str) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        member.running = None;
        member.disk.lose_power(&mut self.random);
        self.pending.remove(&id);
        self.report.crashes += 1;
        self.note(|| format!("{id:x} lost power {when}"));
        let delay = if self.faults_stopped {
            TICK
        } else {
            self.random.below(40 * TICK)
        };
        self.after(delay, Event::Start { id });
    }

    fn start_newcomer(&mut self, id: u64) {
        self.candidates.remove(&id);
        let identity = Identity {
            member_id: id,
            cluster_id: self.cluster_id,
        };
        self.members
            .insert(id, Member::new(id, Origin::Joiner { identity }));
        self.report.members_added += 1;
        self.note(|| format!("{id:x} was added"));
        let delay = self.random.below(10 * TICK);
        self.after(delay, Event::Start { id });
    }

    /// Once per tick: actions of clients and operators, and faults.
    fn workload_and_faults(&mut self) -> Result<(), Violation> {
        let running = self.running_ids();
        let Some(&id) = self.random.choose(&running) else {
            return Ok(());
        };
        let scenario = self.scenario.clone();
        let mut proposals = scenario.proposals / 1000;
        proposals += u64::from(self.random.permille(scenario.proposals % 1000));
        for _ in 0..proposals {
            let at = self.random.choose(&running).copied().unwrap_or(id);
            self.propose(at)?;
        }
        if self.random.permille(scenario.reads) {
            let context = self.number();
            self.note(|| format!("read {context} at {id:x}"));
            self.with_member(id, |member, around| member.read(context, around))?;
        }
        if scenario.features > 0 {
            self.propose_feature_changes(FEATURES_RATE)?;
            if self.random.permille(scenario.features) {
                self.crash(id, "to be started again");
            }
        }
        if self.random.permille(scenario.membership) {
            self.change_members(id)?;
        }
        if self.random.permille(scenario.transfer) {
            self.transfer()?;
        }
        if self.random.permille(scenario.compaction) {
            let compacted = self.with_member(id, Member::compact)?;
            self.report.compactions += u64::from(compacted);
            self.note(|| format!("{id:x} compacts: {compacted}"));
        }
        if self.random.permille(scenario.skew) {
            let interval = *self
                .random
                .choose(&[30, 70, 100, 140, 400])
                .unwrap_or(&TICK);
            if let Some(member) = self.members.get_mut(&id) {
                member.tick_interval = interval;
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
        self.shut_down_removed();
        Ok(())
    }

    /// Chooses version and flags for the next start.
    fn choose_start(&mut self, id: u64) {
        let lowest = self
            .members
            .get(&id)
            .and_then(|it| it.backend.gates.cluster_version);
        let start = Start::any(&mut self.random, lowest);
        self.note(|| format!("{id:x} starts as {start:?}"));
        if let Some(member) = self.members.get_mut(&id) {
            member.start = start;
        }
    }

    /// Members publish their params and leaders propose decisions; each with this probability.
    fn propose_feature_changes(&mut self, permille: u64) -> Result<(), Violation> {
        for id in self.running_ids() {
            if !self.random.permille(permille) {
                continue;
            }
            for request in [self.announcement(id), self.decision(id)]
                .into_iter()
                .flatten()
            {
                let payload = gates::payload(self.number(), &request);
                self.note(|| format!("{id:x} proposes {request:?}"));
                self.with_member(id, |member, around| {
                    let proposed = member.act(around, |engine| engine.propose(vec![payload]));
                    proposed.map(drop)
                })?;
            }
        }
        Ok(())
    }

    fn announcement(&self, id: u64) -> Option<InternalRaftRequest> {
        let member = self.members.get(&id)?;
        let image = &member.running.as_ref()?.image;
        if !image.members().any(|known| known == id) {
            return None;
        }
        let is_founder = matches!(member.origin, Origin::Founder { .. });
        image
            .gates
            .announcement(&self.specs, id, is_founder, &member.start)
    }

    /// Returns the feature decision that a current or former leader would propose.
    fn decision(&self, id: u64) -> Option<InternalRaftRequest> {
        let member = self.members.get(&id)?;
        let running = member.running.as_ref()?;
        if !running.is_leader() {
            return None;
        }
        let image = &running.image;
        let versions: Vec<Option<MajorMinor>> = image
            .members()
            .map(|other| self.version_of_peer(id, other))
            .collect();
        image.gates.decision(
            &self.specs,
            &image.conf_state,
            &versions,
            member.start.proposes,
        )
    }

    /// Returns the version of a peer if the two can reach each other.
    fn version_of_peer(&self, id: u64, other: u64) -> Option<MajorMinor> {
        let asked = self.members.get(&other).filter(|it| it.running.is_some())?;
        let is_cut = |pair| self.blocked.values().any(|it| it.contains(&pair));
        (!is_cut((id, other)) && !is_cut((other, id))).then_some(asked.start.version)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn propose(&mut self, id: u64) -> Result<u64, Violation> {
        let proposal = self.number();
        let bytes = 8 + self.random.below(self.scenario.payload_bytes_max);
        // Zeros look like a lost sector, so some payloads consist of them.
        let filling = if self.random.below(4) == 0 {
            0
        } else {
            proposal as u8
        };
        let mut payload = proposal.to_le_bytes().to_vec();
        payload.resize(usize::try_from(bytes).unwrap_or(8), filling);
        self.note(|| format!("proposal {proposal} at {id:x}"));
        self.with_member(id, |member, around| {
            let proposed = member.act(around, |engine| engine.propose(vec![payload.into()]))?;
            if proposed.is_some_and(|it| it.is_ok())
                && let Some(running) = &mut member.running
            {
                running.waiting.insert(proposal);
            }
            Ok(())
        })?;
        Ok(proposal)
    }

    /// Returns the newest state of all members.
    fn newest_image(&self) -> Option<&Image> {
        let members = self.members.values();
        let images = members.map(|it| it.running.as_ref().map_or(&it.backend, |it| &it.image));
        images.max_by_key(|image| image.applied_index)
    }

    fn change_members(&mut self, id: u64) -> Result<(), Violation> {
        let Some(conf_state) = self.newest_image().map(|it| it.conf_state.clone()) else {
            return Ok(());
        };
        let mut all = conf_state.voters.clone();
        all.extend(&conf_state.learners);
        let may_grow = self.ever < self.scenario.members_ever_max && all.len() < 6;
        let (change_type, about) = match self.random.below(6) {
            0 | 1 if may_grow => (ConfChangeType::ConfChangeAddLearnerNode, self.newcomer()),
            2 if may_grow => (ConfChangeType::ConfChangeAddNode, self.newcomer()),
            3 => match self.random.choose(&conf_state.learners) {
                Some(learner) => (ConfChangeType::ConfChangeAddNode, *learner),
                None => return Ok(()),
            },
            4 => match self.leader() {
                Some(leader) => (ConfChangeType::ConfChangeRemoveNode, leader),
                None => return Ok(()),
            },
            _ => match self.random.choose(&all) {
                Some(member) => (ConfChangeType::ConfChangeRemoveNode, *member),
                None => return Ok(()),
            },
        };
        let change = ConfChange {
            id: self.number(),
            r#type: change_type.into(),
            node_id: about,
            ..Default::default()
        };
        self.note(|| format!("{change_type:?} {about:x} at {id:x}"));
        self.with_member(id, |member, around| {
            member
                .act(around, |engine| engine.propose_conf_change(&change))
                .map(drop)
        })
    }

    fn newcomer(&mut self) -> u64 {
        self.ever += 1;
        let url = format!("http://m{}:2380", self.ever);
        let id = bootstrap::added_member_id(&[url], self.ever);
        self.candidates.insert(id);
        id
    }

    fn leader(&self) -> Option<u64> {
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

    fn partition(&mut self) {
        let ids = self.ids();
        let Some(&one) = self.random.choose(&ids) else {
            return;
        };
        let kind = self.random.below(4);
        let halves: BTreeSet<u64> = ids
            .iter()
            .copied()
            .filter(|_| self.random.below(2) == 0)
            .collect();
        let is_cut = |from: u64, to: u64| match kind {
            0 => from == one || to == one,
            1 => from == one,
            2 => to == one,
            _ => halves.contains(&from) != halves.contains(&to),
        };
        let pairs = ids
            .iter()
            .flat_map(|from| ids.iter().map(|to| (*from, *to)));
        let cut = pairs.filter(|(from, to)| is_cut(*from, *to)).collect();
        let number = self.number();
        self.blocked.insert(number, cut);
        self.report.partitions += 1;
        self.note(|| format!("partition {number} of kind {kind} around {one:x}, {halves:x?}"));
        let delay = self.random.below(40 * TICK);
        self.after(delay, Event::Heal { number });
    }

    /// Shuts down removed members. A removed member runs until all others have applied its
    /// removal durably, because they may need its vote before.
    fn shut_down_removed(&mut self) {
        let Some(newest) = self.newest_image().cloned() else {
            return;
        };
        for removed in newest.removed.iter() {
            let is_known = newest.members().all(|id| {
                let member = self.members.get(&id);
                member.is_some_and(|it| it.backend.removed.contains(removed))
            });
            if let Some(member) = self.members.get_mut(removed)
                && is_known
                && !member.is_shut_down
            {
                member.is_shut_down = true;
                member.running = None;
                self.report.members_gone += 1;
                self.note(|| format!("{removed:x} was shut down"));
            }
        }
    }

    fn stop_faults(&mut self) {
        self.faults_stopped = true;
        self.note(|| "no more faults".to_owned());
        self.scenario = Scenario {
            delay_max: 5,
            disk_delay_max: 5,
            apply_delay_max: 1,
            ..self.scenario.clone().without(&[
                super::scenario::Class::Loss,
                super::scenario::Class::Repetition,
                super::scenario::Class::Delay,
                super::scenario::Class::CrashInWrite,
            ])
        };
        self.blocked.clear();
        for id in self.ids() {
            if let Some(member) = self.members.get_mut(&id) {
                member.disk.cancel_power_loss();
                member.tick_interval = TICK;
                self.after(TICK, Event::Start { id });
            }
        }
    }

    /// Runs without faults until all members agree and a new proposal is acknowledged.
    fn converge(&mut self, faults_end: u64) -> Result<(), Violation> {
        let mut proposed: Option<(u64, u64)> = None;
        let mut why = String::new();
        for tick in 1..=CONVERGENCE_TICKS_MAX {
            while self.step(faults_end + tick * TICK)? {}
            match self.agreed() {
                Err(reason) => why = reason,
                Ok(leader) => {
                    let is_in = proposed
                        .and_then(|(proposal, _)| self.invariants.acknowledged.get(&proposal))
                        .is_some();
                    if is_in {
                        return self.features_follow_from_flags();
                    }
                    why = "the last proposal was not acknowledged".to_owned();
                    let is_due = proposed.is_none_or(|(_, at)| at + PROPOSAL_RETRY_TICKS < tick);
                    if is_due {
                        proposed = Some((self.propose(leader)?, tick));
                    }
                }
            }
            self.shut_down_removed();
            if self.scenario.features > 0 {
                self.propose_feature_changes(FEATURES_RATE_WITHOUT_FAULTS)?;
            }
        }
        Err(Violation::NotLive {
            ticks: CONVERGENCE_TICKS_MAX,
            why,
        })
    }

    /// Returns the leader if all members follow it and have applied every committed entry.
    fn agreed(&self) -> Result<u64, String> {
        let leader = self.leader().ok_or("no leader")?;
        let newest = self.newest_image().ok_or("no state")?;
        let commit = self.invariants.commit();
        for id in newest.members() {
            let running = self.members.get(&id).and_then(|it| it.running.as_ref());
            let running = running.ok_or_else(|| format!("{id:x} does not run"))?;
            let follows = running.core().current_leadership().leader;
            let applied = running.image.applied_index;
            if follows != leader || applied != commit {
                return Err(format!(
                    "{id:x} follows {follows:x} and has applied {applied}, not {leader:x} and {commit}"
                ));
            }
        }
        if !newest.members().any(|id| id == leader) {
            return Err(format!("the leader {leader:x} is not a member"));
        }
        if self.scenario.features > 0 {
            if let Some(id) = newest.members().find(|id| self.announcement(*id).is_some()) {
                return Err(format!("{id:x} has not published its params"));
            }
            if self.decision(leader).is_some() {
                return Err("the features are not decided".to_owned());
            }
        }
        Ok(leader)
    }

    fn features_follow_from_flags(&self) -> Result<(), Violation> {
        let Some(image) = self.newest_image().filter(|_| self.scenario.features > 0) else {
            return Ok(());
        };
        let start = |id: &u64| Some(&self.members.get(id)?.start);
        let voters = image.conf_state.voters.iter().filter_map(start);
        let learners = image.conf_state.learners.iter().filter_map(start);
        if image.gates.follow_from_flags(&self.specs, voters, learners) {
            return Ok(());
        }
        Err(Violation::FeaturesNotFromFlags {
            what: format!("{:?}", image.gates),
        })
    }
}

fn show(message: &Message) -> String {
    let Message {
        from,
        to,
        term,
        log_term,
        index,
        commit,
        reject,
        ..
    } = message;
    let entries = message.entries.len();
    let snapshot = message
        .snapshot
        .as_ref()
        .and_then(|it| it.metadata.as_ref());
    let snapshot = snapshot.map_or(String::new(), |it| format!(" snapshot {}", it.index));
    format!(
        "{:?} {from:x} → {to:x} term {term} log ({log_term}, {index}) +{entries} \
         commit {commit} reject {reject}{snapshot}",
        message.r#type()
    )
}
