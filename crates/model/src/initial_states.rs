//! The initial states of the model.

use portunus_gates::MajorMinor;

use crate::agreement::Agreement;
use crate::limits::Start;
use crate::replica::{Attributes, Entry, PLACES, Record, Replica};
use crate::state::{Config, Machine, RemainingSteps, State, apply_entry};

impl Agreement {
    /// Returns one state for each mixture of flags. One founder may differ from the others;
    /// by symmetry it is always the last one.
    pub(crate) fn initial_states(&self) -> Vec<State> {
        let of = |version: Option<MajorMinor>| {
            let fits = move |config: &&Config| Some(config.version) == version;
            self.configs.iter().filter(fits)
        };
        let versions = &self.limits.versions;
        let (low, high) = (versions.first().copied(), versions.last().copied());
        let last = match self.limits.start {
            Start::OneBehind | Start::FoundingMixed => low,
            Start::Founding | Start::SameVersion => high,
        };
        let mut states = Vec::new();
        for first in of(high) {
            for last in of(last) {
                let mut configs = vec![*first; self.limits.founders];
                configs[self.limits.founders - 1] = *last;
                states.push(match self.limits.start {
                    Start::Founding | Start::FoundingMixed => self.founded(&configs),
                    Start::OneBehind | Start::SameVersion => self.decided(&configs),
                });
            }
        }
        states
    }

    /// Returns a cluster of machines with these configs that have published nothing yet.
    fn founded(&self, configs: &[Config]) -> State {
        let founder = Record {
            is_voter: true,
            attributes: Attributes::Nothing,
        };
        let mut base = Replica::default();
        base.records[..configs.len()].fill(Some(founder));
        let mut state = State {
            base,
            log: Vec::new(),
            pending: Vec::new(),
            machines: [const { None }; PLACES],
            remaining: RemainingSteps {
                changes: self.limits.changes,
                crashes: self.limits.crashes,
                writes: self.limits.writes,
            },
        };
        for (place, config) in configs.iter().enumerate() {
            state.machines[place] = Some(Machine {
                config: *config,
                applied: 0,
                replica: state.base.clone(),
                is_halted: false,
            });
        }
        state
    }

    /// Returns such a cluster after all members have published and a decision was made.
    fn decided(&self, configs: &[Config]) -> State {
        let mut state = self.founded(configs);
        for round in 0.. {
            let mut entries: Vec<Entry> = state
                .running()
                .filter(|(place, machine)| {
                    let due = self.due_attributes(*place, machine);
                    machine.replica.records[*place].is_some_and(|it| it.attributes != due)
                })
                .map(|(place, machine)| Entry::Publish {
                    place,
                    attributes: self.due_attributes(place, machine),
                })
                .collect();
            if round > 0 {
                entries.extend(self.decision(&state, 0, true));
            }
            if round > 0 && entries.is_empty() {
                break;
            }
            for entry in entries {
                apply_entry(&self.rules, &mut state.base, &entry);
            }
            for machine in state.machines.iter_mut().flatten() {
                machine.replica = state.base.clone();
            }
        }
        state
    }
}
