//! Plans compared with outcomes.
//!
//! A small cluster is simulated step by step: members start or are refused, publish, the
//! leader decides, entries are applied, members are restarted one by one. The simulation does
//! not use the plan; the two are compared at the end.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use common::generated::*;
use common::v;
use portunus_gates::cluster::*;
use portunus_gates::plan::*;
use portunus_gates::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// The process of a member, running or not.
#[derive(Debug, Clone)]
struct Machine {
    version: MajorMinor,
    server_flags: Assignments,
    cluster_flags: Assignments,
    is_foreign: bool,
    is_founder: bool,
    runs: bool,
}

/// The record of a member in the log.
#[derive(Debug, Clone)]
struct Record {
    is_voter: bool,
    publication: Publication,
}

#[derive(Debug, Clone)]
struct Cluster {
    server: Arc<Registry>,
    specs: ClusterSpecs,
    machines: BTreeMap<u64, Machine>,
    records: BTreeMap<u64, Record>,
    cluster_version: Option<MajorMinor>,
    downgrade: Option<MajorMinor>,
    params: Option<ClusterParams>,
}

/// Why a change failed: a member did not start, or one stopped.
type Stuck = String;

impl Cluster {
    fn members(&self) -> Vec<Member> {
        let member = |(id, record): (&u64, &Record)| Member {
            id: MemberId(*id),
            name: format!("m{id}"),
            voter: record.is_voter,
            started: record.publication != Publication::Nothing,
            publication: record.publication.clone(),
        };
        self.records.iter().map(member).collect()
    }

    /// Starts a member with the version and flags of its machine.
    fn start(&mut self, id: u64) -> Result<(), Stuck> {
        let machine = self.machines.get_mut(&id).unwrap();
        machine.runs = false;
        if self.cluster_version > Some(machine.version) {
            return Err(format!("{id} is older than the cluster"));
        }
        if !machine.is_foreign {
            let versions = Versions::emulating(machine.version);
            GateSet::builder(self.server.clone(), versions)
                .stage(&machine.server_flags)
                .build()
                .map_err(|error| error.to_string())?;
            self.specs
                .check_flags(
                    machine.version,
                    self.cluster_version,
                    &machine.cluster_flags,
                )
                .map_err(|error| error.to_string())?;
        }
        machine.runs = true;
        self.settle()
    }

    /// Returns what a running member has to publish and has not.
    fn unpublished(&self, id: u64) -> Option<Publication> {
        let machine = self.machines.get(&id).filter(|it| it.runs)?;
        let record = self.records.get(&id)?;
        let is_new = machine.is_founder && self.cluster_version.is_none();
        let publishes = self.specs.publishes(self.cluster_version, is_new);
        let publication = if !machine.is_foreign && publishes {
            Publication::Proposal(Proposal {
                version: machine.version,
                flags: machine.cluster_flags.to_map(),
            })
        } else {
            Publication::Foreign
        };
        (record.publication != publication).then_some(publication)
    }

    /// Applies an entry with a member's attributes on all members.
    fn publish(&mut self, id: u64, publication: Publication) -> Result<(), Stuck> {
        let record = self.records.get_mut(&id).unwrap();
        record.publication = publication;
        let members = self.members();
        let member = members.iter().find(|it| it.id == MemberId(id)).unwrap();
        for machine in self
            .machines
            .values()
            .filter(|it| it.runs && !it.is_foreign)
        {
            self.specs
                .check_member_version(
                    machine.version,
                    self.cluster_version,
                    self.downgrade,
                    member,
                )
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Lets the leader decide once. Returns whether it proposed an entry.
    fn decide(&mut self) -> Result<bool, Stuck> {
        let version_of = |id| {
            let machine = self.machines.get(id).filter(|it| it.runs)?;
            Some(machine.version)
        };
        let versions: Vec<Option<MajorMinor>> = self.records.keys().map(version_of).collect();
        let next = self
            .specs
            .next_cluster_version(self.cluster_version, &versions, self.downgrade);
        let Some(version) = next.or(self.cluster_version) else {
            return Ok(false);
        };
        let previous = match &self.params {
            Some(params) => Previous::Decided(params.clone()),
            None => Previous::Absent,
        };
        let decision = decide(&self.specs, Some(version), &self.members(), &previous);
        let (params, is_changed) = match decision.outcome {
            Outcome::Set(params) => (Some(params), true),
            Outcome::Delete => (None, true),
            Outcome::Hold(_) | Outcome::Unchanged => (None, false),
        };
        if next.is_none() && !is_changed {
            return Ok(false);
        }
        // All members apply the entry.
        if self
            .machines
            .values()
            .any(|it| it.runs && it.version < version)
        {
            return Err(format!("a running member is older than {version}"));
        }
        match self
            .specs
            .applied(version, params, self.params.as_ref())
            .unwrap()
        {
            AppliedParams::Keep => {}
            AppliedParams::Delete => self.params = None,
            AppliedParams::Replace(params) => self.params = Some(params),
        }
        self.cluster_version = Some(version);
        Ok(true)
    }

    /// Lets members publish and the leader decide, until nothing changes.
    fn settle(&mut self) -> Result<(), Stuck> {
        for _ in 0..100 {
            let ids: Vec<u64> = self.records.keys().copied().collect();
            let pending = ids
                .iter()
                .find_map(|id| Some((*id, self.unpublished(*id)?)));
            let has_published = pending.is_some();
            if let Some((id, publication)) = pending {
                self.publish(id, publication)?;
            }
            if !self.decide()? && !has_published {
                return Ok(());
            }
        }
        panic!("the cluster does not settle: {self:?}");
    }

    fn restart(&mut self, id: u64, change: impl FnOnce(&mut Machine)) -> Result<(), Stuck> {
        let machine = self.machines.get_mut(&id).unwrap();
        machine.runs = false;
        change(machine);
        // The leader decides while the member is down.
        self.settle()?;
        self.start(id)
    }

    /// Restarts all running members one by one.
    fn restart_all(&mut self, version: MajorMinor) -> Result<(), Stuck> {
        let running = self.machines.iter().filter(|(_, it)| it.runs);
        for id in running.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.restart(id, |machine| machine.version = version)?;
        }
        Ok(())
    }

    /// Makes a change as an operator does.
    fn carry_out(&mut self, change: &Change) -> Result<(), Stuck> {
        match change {
            Change::Upgrade(target) => self.restart_all(*target),
            Change::Downgrade(target) => {
                self.downgrade = Some(*target);
                self.settle()?;
                if self.cluster_version != Some(*target) {
                    return Err("the version does not fall".to_owned());
                }
                self.restart_all(*target)?;
                self.downgrade = None;
                self.settle()
            }
            Change::CancelDowngrade => {
                self.downgrade = None;
                self.settle()
            }
            Change::Restart {
                member,
                version,
                min_compat: _,
                server_flags,
                cluster_flags,
            } => self.restart(member.0, |machine| {
                machine.version = version.unwrap_or(machine.version);
                machine.server_flags = server_flags.clone().unwrap_or(machine.server_flags.clone());
                let flags = cluster_flags.clone();
                machine.cluster_flags = flags.unwrap_or(machine.cluster_flags.clone());
            }),
            Change::Add(member) => {
                let id = member.member.id.0;
                self.records.insert(
                    id,
                    Record {
                        is_voter: member.member.voter,
                        publication: Publication::Nothing,
                    },
                );
                self.settle()?;
                self.machines.insert(
                    id,
                    Machine {
                        version: member.server_version,
                        server_flags: member.server_flags.clone(),
                        cluster_flags: member.cluster_flags.clone(),
                        is_foreign: member.member.publication == Publication::Foreign,
                        is_founder: false,
                        runs: false,
                    },
                );
                self.start(id)
            }
            Change::Remove(id) => {
                self.records.remove(&id.0);
                self.machines.remove(&id.0);
                self.settle()
            }
            Change::Promote(id) => {
                self.records.get_mut(&id.0).unwrap().is_voter = true;
                self.settle()
            }
        }
    }

    /// Returns the input of the plan.
    fn fleet(&self) -> Fleet {
        let member = |mut member: Member| {
            let machine = &self.machines[&member.id.0];
            // Below the first version with params no member publishes flags.
            if member.publication == Publication::Foreign && !machine.is_foreign {
                member.publication = Publication::Nothing;
            }
            FleetMember {
                server_version: machine.version,
                min_compat: None,
                server_flags: machine.server_flags.clone(),
                cluster_flags: machine.cluster_flags.clone(),
                member,
            }
        };
        Fleet {
            downgrade_target: None,
            cluster_version: self.cluster_version,
            previous: match &self.params {
                Some(params) => Previous::Decided(params.clone()),
                None => Previous::Absent,
            },
            members: self.members().into_iter().map(member).collect(),
            used: BTreeSet::new(),
        }
    }
}

/// A generated change, before it is bound to a cluster.
#[derive(Debug, Clone)]
struct Idea {
    kind: u8,
    member: usize,
    up: u64,
    server_flags: BTreeMap<String, bool>,
    cluster_flags: BTreeMap<String, bool>,
    is_voter: bool,
    is_foreign: bool,
}

fn idea() -> impl Strategy<Value = Idea> {
    let flags = || prop_oneof![Just(BTreeMap::new()), flag_map()];
    (
        prop_oneof![8 => 0u8..8, 2 => Just(5u8)],
        0usize..8,
        prop_oneof![4 => Just(1u64), 3 => Just(0), 1 => Just(2), 1 => Just(9)],
        flags(),
        flags(),
        any::<bool>(),
        proptest::bool::weighted(0.1),
    )
        .prop_map(
            |(kind, member, up, server_flags, cluster_flags, is_voter, is_foreign)| Idea {
                kind,
                member,
                up,
                server_flags,
                cluster_flags,
                is_voter,
                is_foreign,
            },
        )
}

fn assigned(flags: &BTreeMap<String, bool>) -> Assignments {
    Assignments::from_map(Origin::Flag, flags.clone())
}

impl Idea {
    /// Returns the change for this cluster; `None` where it is impossible.
    fn change(&self, cluster: &Cluster) -> Option<Change> {
        let ids: Vec<u64> = cluster.records.keys().copied().collect();
        let id = *ids.get(self.member % ids.len().max(1))?;
        let machine = &cluster.machines[&id];
        let around = cluster.cluster_version.unwrap_or(machine.version);
        // Nine stands for one below.
        let version = match self.up {
            9 => around.minus_minors(1),
            up => around.plus_minors(up),
        };
        Some(match self.kind {
            0 | 1 => {
                if cluster.cluster_version > Some(version) {
                    return None;
                }
                Change::Upgrade(version)
            }
            2 => Change::Downgrade(cluster.cluster_version?.minus_minors(1)),
            3 | 4 if machine.runs => Change::Restart {
                member: MemberId(id),
                version: (self.kind == 4).then_some(version),
                min_compat: None,
                server_flags: (!machine.is_foreign).then(|| assigned(&self.server_flags)),
                cluster_flags: (!machine.is_foreign).then(|| assigned(&self.cluster_flags)),
            },
            // No member is added before the cluster version is decided.
            5 if cluster.cluster_version.is_some() => {
                let new = ids.last()? + 1;
                let (server_flags, cluster_flags) = if self.is_foreign {
                    Default::default()
                } else {
                    (assigned(&self.server_flags), assigned(&self.cluster_flags))
                };
                Change::Add(FleetMember {
                    member: Member {
                        id: MemberId(new),
                        name: format!("m{new}"),
                        voter: self.is_voter,
                        started: false,
                        publication: if self.is_foreign {
                            Publication::Foreign
                        } else {
                            Publication::Nothing
                        },
                    },
                    server_version: version,
                    min_compat: None,
                    server_flags,
                    cluster_flags,
                })
            }
            6 if ids.len() > 1 => Change::Remove(MemberId(id)),
            7 => {
                let mut learners = cluster.records.iter().filter(|(_, it)| !it.is_voter);
                Change::Promote(MemberId(*learners.next()?.0))
            }
            _ => return None,
        })
    }
}

/// Creates a cluster from founders with flags, after some changes.
fn cluster_of(
    server: Arc<Registry>,
    cluster: Arc<Registry>,
    version: MajorMinor,
    founders: &[Idea],
    history: &[Idea],
) -> Cluster {
    let mut founded = Cluster {
        server,
        specs: ClusterSpecs::new(cluster, v("3.7"), v("3.0")),
        machines: BTreeMap::new(),
        records: BTreeMap::new(),
        cluster_version: None,
        downgrade: None,
        params: None,
    };
    for (id, founder) in (1..).zip(founders) {
        let machine = Machine {
            version,
            server_flags: Assignments::new(),
            cluster_flags: Assignments::new(),
            is_foreign: founder.is_foreign,
            is_founder: true,
            runs: false,
        };
        let record = Record {
            is_voter: true,
            publication: Publication::Nothing,
        };
        founded.machines.insert(id, machine);
        founded.records.insert(id, record);
    }
    for (id, founder) in (1..).zip(founders) {
        // One in eight is not started.
        if founder.kind > 0 {
            let flagged = Machine {
                server_flags: assigned(&founder.server_flags),
                cluster_flags: assigned(&founder.cluster_flags),
                ..founded.machines[&id].clone()
            };
            let plain = founded.clone();
            if !founder.is_foreign {
                founded.machines.insert(id, flagged);
            }
            if founded.start(id).is_err() {
                founded = plain;
                // The defaults of generated features may contradict each other.
                if founded.start(id).is_err() {
                    founded.machines.get_mut(&id).unwrap().runs = false;
                }
            }
        }
    }
    for idea in history {
        let before = founded.clone();
        let done = idea
            .change(&founded)
            .map(|change| founded.carry_out(&change));
        if !matches!(done, Some(Ok(()))) {
            founded = before;
        }
    }
    founded
}

/// Returns whether a plan predicts that the change fails, and does not only give advice. Rows
/// of members that are not running, or are foreign, are advice too.
fn is_refused(plan: &Plan, before: &Cluster, after: &Cluster) -> bool {
    let skew = "one minor at a time";
    let is_idle = |id: MemberId| {
        let (now, then) = (before.machines.get(&id.0), after.machines.get(&id.0));
        now.is_some_and(|it| !it.runs) || then.is_some_and(|it| it.is_foreign)
    };
    let refuses_start = |row: &PlanRow| match row.block {
        _ if row.member.is_some_and(is_idle) => false,
        Some(Block::Unknown | Block::Removed | Block::Locked) => true,
        Some(Block::DependencyLost) => row.member.is_some(),
        _ => false,
    };
    plan.obstacles.iter().any(|it| !it.contains(skew)) || plan.rows.iter().any(refuses_start)
}

/// Compares the plan with the outcome. Returns whether the change succeeded.
fn check(cluster: &Cluster, change: &Change) -> Result<bool, TestCaseError> {
    let plan = plan(&cluster.server, &cluster.specs, &cluster.fleet(), change);
    let mut after = cluster.clone();
    let done = after.carry_out(change);
    prop_assert_eq!(
        done.is_err(),
        is_refused(&plan, cluster, &after),
        "{:?}: {:?} became {:?}; {:?} {:?}",
        change,
        cluster.fleet(),
        done,
        plan.obstacles,
        plan.notable().collect::<Vec<_>>()
    );
    if done.is_err() {
        return Ok(false);
    }
    prop_assert_eq!(plan.cluster_version, after.cluster_version);
    for row in &plan.rows {
        let value = match row.member {
            None => {
                let params = after.params.as_ref();
                params.is_some_and(|it| it.enabled(after.specs.registry(), &row.feature))
            }
            Some(id) => {
                let machine = &after.machines[&id.0];
                if machine.is_foreign || !machine.runs {
                    continue;
                }
                let versions = Versions::emulating(machine.version);
                let gates = GateSet::builder(after.server.clone(), versions)
                    .stage(&machine.server_flags)
                    .build()
                    .unwrap();
                gates.try_enabled(&row.feature).unwrap()
            }
        };
        prop_assert_eq!(
            row.after.unwrap_or(false),
            value,
            "{:?} of {:?}",
            row,
            change
        );
    }
    Ok(true)
}

/// Proves: S0-14, S0-34, S0-36, S0-37, C28, C29
#[test]
fn plan_equals_the_outcome_in_a_simulated_cluster() {
    let generated = (
        registry(Level::Server),
        registry(Level::Cluster),
        (6u64..=8).prop_map(|minor| MajorMinor::new(3, minor)),
        vec(idea(), 1..4),
        vec(idea(), 0..4),
        vec(idea(), 1..4),
    );
    // By kind of change: how many succeeded and how many failed.
    let counts: RefCell<HashMap<Discriminant<Change>, [u32; 2]>> = RefCell::default();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(10_000));
    let result = runner.run(
        &generated,
        |(server, cluster, version, founders, history, last)| {
            let cluster = cluster_of(server, cluster, version, &founders, &history);
            for change in last.iter().filter_map(|idea| idea.change(&cluster)) {
                let succeeded = check(&cluster, &change)?;
                let mut counts = counts.borrow_mut();
                counts.entry(discriminant(&change)).or_default()[usize::from(!succeeded)] += 1;
            }
            Ok(())
        },
    );
    result.unwrap_or_else(|failure| panic!("{failure}"));
    // Enough of all six kinds; only removals and promotions always succeed.
    let counts: Vec<[u32; 2]> = counts.into_inner().into_values().collect();
    assert_eq!(counts.len(), 6);
    assert!(counts.iter().all(|[done, _]| *done > 100), "{counts:?}");
    assert!(
        counts.iter().filter(|[_, refused]| *refused > 20).count() >= 4,
        "{counts:?}"
    );
}
