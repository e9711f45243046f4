//! A state of the model: the log, the pending proposals and the machines.

use portunus_gates::MajorMinor;

use crate::features::Flags;
use crate::replica::{Entry, PLACES, Replica};
use crate::rules::Rules;

/// The version and flags of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Config {
    /// The version it emulates.
    pub version: MajorMinor,
    /// Its cluster flags.
    pub flags: Flags,
    /// Whether it publishes a proposal: ClusterFeatureGate is on.
    pub proposes: bool,
    /// Whether it does not know cluster features and so does not apply params.
    pub is_foreign: bool,
}

/// The process of a member, running or halted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its version and flags.
    pub config: Config,
    /// How many entries of [`State::log`] it has applied.
    pub applied: usize,
    /// Its state after these entries.
    pub replica: Replica,
    /// Whether it ended in a controlled way because of an incompatible version.
    pub is_halted: bool,
}

/// The remaining numbers of changes, crashes and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemainingSteps {
    pub(crate) changes: u8,
    pub(crate) crashes: u8,
    pub(crate) writes: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The state that every machine has applied at least, and has on disk.
    pub base: Replica,
    /// The committed entries after `base`.
    pub log: Vec<Entry>,
    /// The proposals that are not committed; sorted, because any may be committed next.
    pub pending: Vec<Entry>,
    /// The machines by place; absent where none was started, or it was removed.
    pub machines: [Option<Machine>; PLACES],
    pub(crate) remaining: RemainingSteps,
}

impl State {
    /// Returns the replica after each prefix of the log, from none to all entries.
    #[must_use]
    pub fn expected_replicas(&self, rules: &Rules) -> Vec<Replica> {
        let mut all = vec![self.base.clone()];
        let mut replica = self.base.clone();
        for entry in &self.log {
            apply_entry(rules, &mut replica, entry);
            all.push(replica.clone());
        }
        all
    }

    /// Returns the replica after the whole log.
    #[must_use]
    pub fn newest(&self, rules: &Rules) -> Replica {
        let mut replica = self.base.clone();
        for entry in &self.log {
            apply_entry(rules, &mut replica, entry);
        }
        replica
    }

    /// Iterates over the machines with their places, halted ones included.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Machine)> {
        let machines = self.machines.iter().enumerate();
        machines.filter_map(|(place, machine)| Some((place, machine.as_ref()?)))
    }

    pub(crate) fn propose(&mut self, entry: Entry) {
        self.pending.push(entry);
        self.pending.sort();
    }

    /// Removes a pending proposal; `None` if it is not pending.
    pub(crate) fn take(&mut self, entry: &Entry) -> Option<()> {
        let at = self.pending.iter().position(|it| it == entry)?;
        self.pending.remove(at);
        Some(())
    }

    /// Moves entries that every machine has applied from the log into `base`.
    pub(crate) fn compact(&mut self, rules: &Rules) {
        while !self.log.is_empty() && self.running().all(|(_, machine)| machine.applied > 0) {
            let entry = self.log.remove(0);
            apply_entry(rules, &mut self.base, &entry);
            for machine in self.machines.iter_mut().flatten() {
                machine.applied -= 1;
            }
        }
    }
}

/// Applies an entry with the values in force at its index.
pub fn apply_entry(rules: &Rules, replica: &mut Replica, entry: &Entry) {
    replica.apply(rules, entry, |replica| rules.enabled(replica.params));
}
