//! The protocol as a model: the actions that a state allows, and the state after each.

use portunus_gates::{MajorMinor, RegisterError};
use stateright::{Model, Property};

use crate::features::{self, FEATURES, SINCE};
use crate::limits::Limits;
use crate::planted::PlantedBug;
use crate::properties;
use crate::replica::{Attributes, Entry, PLACES, Record, Replica};
use crate::rules::{ParamsProposal, Rules};
use crate::state::{Config, Machine, State};
use crate::symmetry;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A machine publishes its attributes, if those in its replica differ.
    Publish(usize),
    /// A voter decides from the entries it has applied, as the leader or a deposed leader.
    Decide {
        /// The place of the voter.
        place: usize,
        /// Whether the versions of all members are known to it.
        knows_versions: bool,
    },
    /// A proposal is committed.
    Commit(Entry),
    /// A proposal is lost.
    Lose(Entry),
    /// A machine applies its next entry.
    Apply(usize),
    /// A machine that is behind installs the state of another as a snapshot.
    Install {
        /// The place of the machine that installs it.
        to: usize,
        /// The place of the machine it comes from.
        from: usize,
    },
    /// A machine restarts.
    Restart {
        /// The place of the machine.
        place: usize,
        /// Its version and flags from then on.
        config: Config,
        /// Whether it starts from a backend that is behind.
        rewinds: bool,
    },
    /// A member that was added starts for the first time.
    Start {
        /// The place of the member.
        place: usize,
        /// Its version and flags.
        config: Config,
    },
    /// An entry of an operator or a client is committed.
    Order(Entry),
}

/// The model of the protocol.
pub struct Agreement {
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    bug: Option<PlantedBug>,
    /// The versions and flags with which machines can be started.
    pub(crate) configs: Vec<Config>,
}

impl Agreement {
    /// Creates the model, correct or with a planted bug.
    ///
    /// # Errors
    /// The features of the model are not legal; the tests show that they are.
    pub fn new(limits: Limits, bug: Option<PlantedBug>) -> Result<Self, RegisterError> {
        let rules = Rules::new()?;
        Ok(Self {
            configs: features::configs(rules.specs(), &limits.versions, limits.mechanism),
            rules,
            limits,
            bug,
        })
    }

    /// Returns the features and their rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the attributes a machine has to publish, according to its own replica.
    #[must_use]
    pub fn due_attributes(&self, place: usize, machine: &Machine) -> Attributes {
        let version = machine.replica.cluster_version;
        let is_new = place < self.limits.founders && version.is_none();
        if machine.config.proposes && self.rules.specs().publishes(version, is_new) {
            Attributes::Proposal(machine.config.version, machine.config.flags)
        } else {
            Attributes::Foreign
        }
    }

    /// Returns what a machine would propose as leader, from the entries it has applied.
    #[must_use]
    pub fn decision(&self, state: &State, place: usize, knows_versions: bool) -> Vec<Entry> {
        let Some(machine) = &state.machines[place] else {
            return Vec::new();
        };
        let replica = &machine.replica;
        let may_lead = replica.records[place].is_some_and(|record| record.is_voter);
        if machine.is_halted || machine.config.is_foreign || !may_lead {
            return Vec::new();
        }
        let versions = versions(state, replica);
        let next = if knows_versions {
            let current = replica.cluster_version;
            let specs = self.rules.specs();
            specs.next_cluster_version(current, &versions, replica.downgrade)
        } else {
            None
        };
        let Some(version) = next.or(replica.cluster_version) else {
            return Vec::new();
        };
        let mut records = replica.records;
        if self.bug == Some(PlantedBug::DecidesAlone) {
            records = [None; PLACES];
            records[place] = replica.records[place];
        }
        let proposes = machine.config.proposes || self.bug == Some(PlantedBug::SilentLeaderBegins);
        let decided = match self.bug {
            Some(PlantedBug::SilentLeaderIdles) if !proposes => ParamsProposal::Nothing,
            _ => self
                .rules
                .decide(version, &records, replica.params, proposes),
        };
        let (params, is_changed) = match decided {
            ParamsProposal::Propose(params) => (params, true),
            ParamsProposal::Nothing => (None, false),
        };
        if next.is_none() && !is_changed {
            return Vec::new();
        }
        let entry = Entry::Decide { version, params };
        if self.bug == Some(PlantedBug::TwoEntries) && next.is_some() && params.is_some() {
            let version_alone = Entry::Decide {
                version,
                params: None,
            };
            return vec![version_alone, entry];
        }
        vec![entry]
    }

    /// Applies a machine's next entry, or halts the machine if a version is incompatible.
    fn apply(&self, state: &mut State, place: usize) -> Option<()> {
        let State { machines, log, .. } = state;
        let machine = machines[place].as_mut()?;
        let entry = log.get(machine.applied)?;
        let is_refused = match entry {
            Entry::Decide { version, .. } => *version > machine.config.version,
            Entry::Publish { place, attributes } if !machine.config.is_foreign => {
                machine.replica.records[*place].is_some_and(|record| {
                    let record = Record {
                        attributes: *attributes,
                        ..record
                    };
                    let Replica {
                        cluster_version,
                        downgrade,
                        ..
                    } = machine.replica;
                    let own = machine.config.version;
                    !self
                        .rules
                        .accepts_version(own, cluster_version, downgrade, *place, &record)
                })
            }
            _ => false,
        };
        if is_refused {
            machine.is_halted = true;
            return Some(());
        }
        let newest = log.iter().rev().find_map(|entry| match entry {
            Entry::Decide { params, .. } => *params,
            _ => None,
        });
        machine.replica.apply(&self.rules, entry, |replica| {
            let bound = replica.params;
            let seen = match self.bug {
                Some(PlantedBug::ReadsNewest) => newest.or(bound),
                _ => bound,
            };
            self.rules.enabled(seen)
        });
        machine.applied += 1;
        if machine.config.is_foreign {
            forget_features(&mut machine.replica);
        }
        if *entry == Entry::Remove(place) {
            machines[place] = None;
        }
        Some(())
    }

    fn restart_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (place, machine) in state.running() {
            let is_behind = machine.applied > 0;
            if state.remaining.crashes > 0 && is_behind {
                actions.push(Action::Restart {
                    place,
                    config: machine.config,
                    rewinds: true,
                });
            }
            if state.remaining.changes == 0 || machine.config.is_foreign {
                continue;
            }
            for config in self.configs.iter().filter(|it| **it != machine.config) {
                for rewinds in [false, true] {
                    let from = if rewinds {
                        &state.base
                    } else {
                        &machine.replica
                    };
                    // A start below the cluster version is refused.
                    let fits = from.cluster_version.is_none_or(|it| it <= config.version);
                    if fits && (is_behind || !rewinds) {
                        actions.push(Action::Restart {
                            place,
                            config: *config,
                            rewinds,
                        });
                    }
                }
            }
        }
    }

    fn order_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let newest = state.newest(&self.rules);
        let mut order = |entry| actions.push(Action::Order(entry));
        if state.remaining.writes > 0 {
            order(Entry::Write);
        }
        if state.remaining.changes == 0 {
            return;
        }
        if let Some(current) = newest.cluster_version {
            let target = current.minus_minors(1);
            match newest.downgrade {
                Some(_) => order(Entry::Downgrade(None)),
                None if self.limits.downgrades && self.limits.versions.contains(&target) => {
                    order(Entry::Downgrade(Some(target)));
                }
                None => {}
            }
        }
        if !self.limits.membership {
            return;
        }
        let voters = newest.voters().count();
        for (place, record) in newest.records.iter().enumerate() {
            match record {
                None if place >= self.limits.founders && !newest.removed[place] => {
                    for is_voter in [true, false] {
                        order(Entry::Add { place, is_voter });
                    }
                }
                None => {}
                Some(record) => {
                    if !record.is_voter {
                        order(Entry::Promote(place));
                    }
                    if voters > 1 {
                        order(Entry::Remove(place));
                    }
                }
            }
        }
    }

    fn start_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for place in self.limits.founders..PLACES {
            let is_added = state.base.records[place].is_some();
            if !is_added || state.machines[place].is_some() {
                continue;
            }
            let version = state.base.cluster_version;
            let fits = |config: &&Config| version.is_none_or(|it| it <= config.version);
            for config in self.configs.iter().filter(fits) {
                actions.push(Action::Start {
                    place,
                    config: *config,
                });
            }
            if self.limits.foreign {
                actions.push(Action::Start {
                    place,
                    config: Config {
                        version: version.unwrap_or(SINCE),
                        flags: [None; FEATURES],
                        proposes: false,
                        is_foreign: true,
                    },
                });
            }
        }
    }

    fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Publish(place) => {
                let machine = state.machines[place].as_ref()?;
                let attributes = self.due_attributes(place, machine);
                state.propose(Entry::Publish { place, attributes });
            }
            Action::Decide {
                place,
                knows_versions,
            } => {
                for entry in self.decision(state, place, knows_versions) {
                    state.propose(entry);
                }
            }
            Action::Commit(entry) => {
                state.take(&entry)?;
                state.log.push(entry);
            }
            Action::Lose(entry) => state.take(&entry)?,
            Action::Apply(place) => self.apply(state, place)?,
            Action::Install { to, from } => {
                let source = state.machines[from].clone()?;
                let machine = state.machines[to].as_mut()?;
                (machine.applied, machine.replica) = (source.applied, source.replica);
                if machine.replica.records[to].is_none() {
                    // The snapshot shows that the member was removed.
                    state.machines[to] = None;
                }
            }
            Action::Restart {
                place,
                config,
                rewinds,
            } => {
                let machine = state.machines[place].as_mut()?;
                if config == machine.config {
                    state.remaining.crashes = state.remaining.crashes.checked_sub(1)?;
                } else {
                    state.remaining.changes = state.remaining.changes.checked_sub(1)?;
                }
                machine.config = config;
                machine.is_halted = false;
                if rewinds {
                    machine.applied = 0;
                    machine.replica = state.base.clone();
                    if config.is_foreign {
                        forget_features(&mut machine.replica);
                    }
                }
            }
            Action::Start { place, config } => {
                let mut replica = state.base.clone();
                if config.is_foreign {
                    forget_features(&mut replica);
                }
                state.machines[place] = Some(Machine {
                    config,
                    applied: 0,
                    replica,
                    is_halted: false,
                });
            }
            Action::Order(entry) => {
                let left = match entry {
                    Entry::Write => &mut state.remaining.writes,
                    _ => &mut state.remaining.changes,
                };
                *left = left.checked_sub(1)?;
                state.log.push(entry);
            }
        }
        state.compact(&self.rules);
        Some(())
    }
}

/// Returns the version of each member, `None` for one that does not run.
fn versions(state: &State, replica: &Replica) -> Vec<Option<MajorMinor>> {
    let known = (0..PLACES).filter(|place| replica.records[*place].is_some());
    known
        .map(|place| {
            let machine = state.machines[place].as_ref();
            let answering = machine.filter(|machine| !machine.is_halted);
            answering.map(|machine| machine.config.version)
        })
        .collect()
}

/// Removes the state that a program without cluster features does not keep.
pub fn forget_features(replica: &mut Replica) {
    replica.params = None;
    replica.effect = None;
}

impl Model for Agreement {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.initial_states()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let has_room = state.pending.len() < self.limits.pending_max;
        for (place, machine) in state.running() {
            if machine.is_halted {
                continue;
            }
            if machine.applied < state.log.len() {
                actions.push(Action::Apply(place));
            }
            for (from, other) in state.running() {
                let is_alike = other.config.is_foreign == machine.config.is_foreign;
                if is_alike && other.applied > machine.applied + 1 {
                    actions.push(Action::Install { to: place, from });
                }
            }
            if !has_room {
                continue;
            }
            let attributes = self.due_attributes(place, machine);
            let own = machine.replica.records[place];
            let publish = Entry::Publish { place, attributes };
            if own.is_some_and(|own| own.attributes != attributes)
                && !state.pending.contains(&publish)
            {
                actions.push(Action::Publish(place));
            }
            for knows_versions in [true, false] {
                let entries = self.decision(state, place, knows_versions);
                let is_new = entries.iter().any(|it| !state.pending.contains(it));
                if is_new {
                    actions.push(Action::Decide {
                        place,
                        knows_versions,
                    });
                }
            }
        }
        if state.log.len() < self.limits.log_max {
            let mut pending = state.pending.clone();
            pending.dedup();
            for entry in pending {
                actions.push(Action::Commit(entry.clone()));
                actions.push(Action::Lose(entry));
            }
            self.order_actions(state, actions);
        }
        self.start_actions(state, actions);
        self.restart_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action)?;
        Some(symmetry::ordered(next, self.limits.founders))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
