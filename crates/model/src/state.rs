//! The whole of a moment: the log, what is on its way into it, and the machines.

use portunus_gates::MajorMinor;

use crate::features::Flags;
use crate::replica::{Entry, PLACES, Replica};
use crate::rules::Rules;

/// What a machine was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Config {
    /// The version it behaves as.
    pub version: MajorMinor,
    /// Its cluster flags.
    pub flags: Flags,
    /// It publishes a proposal: the mechanism is on.
    pub proposes: bool,
    /// It does not know cluster features, and so does not obey params either.
    pub is_foreign: bool,
}

/// A machine that runs, or stopped itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its start.
    pub config: Config,
    /// Of the entries in [`State::log`], how many it has applied.
    pub applied: usize,
    /// What they made.
    pub replica: Replica,
    /// It ended in a controlled way, because a version does not fit.
    pub is_halted: bool,
}

/// What may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    pub(crate) changes: u8,
    pub(crate) crashes: u8,
    pub(crate) writes: u8,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// What every machine has applied at least, and has on disk.
    pub base: Replica,
    /// Committed entries after that.
    pub log: Vec<Entry>,
    /// Proposed and not committed; sorted, because any may be next.
    pub pending: Vec<Entry>,
    /// By place; absent where nothing was started, or is gone.
    pub machines: [Option<Machine>; PLACES],
    pub(crate) left: Left,
}

impl State {
    /// The replica that the log prescribes after each number of entries, from none to all.
    #[must_use]
    pub fn prescribed(&self, rules: &Rules) -> Vec<Replica> {
        let mut all = vec![self.base.clone()];
        let mut replica = self.base.clone();
        for entry in &self.log {
            apply_bound(rules, &mut replica, entry);
            all.push(replica.clone());
        }
        all
    }

    /// What the log prescribes after all of it.
    #[must_use]
    pub fn tip(&self, rules: &Rules) -> Replica {
        let mut replica = self.base.clone();
        for entry in &self.log {
            apply_bound(rules, &mut replica, entry);
        }
        replica
    }

    /// Machines with their places.
    pub fn running(&self) -> impl Iterator<Item = (usize, &Machine)> {
        let machines = self.machines.iter().enumerate();
        machines.filter_map(|(place, machine)| Some((place, machine.as_ref()?)))
    }

    pub(crate) fn propose(&mut self, entry: Entry) {
        self.pending.push(entry);
        self.pending.sort();
    }

    /// What was pending no longer is.
    pub(crate) fn take(&mut self, entry: &Entry) -> Option<()> {
        let at = self.pending.iter().position(|it| it == entry)?;
        self.pending.remove(at);
        Some(())
    }

    /// Forgets entries that nobody needs any more.
    pub(crate) fn forget(&mut self, rules: &Rules) {
        while !self.log.is_empty() && self.running().all(|(_, machine)| machine.applied > 0) {
            let entry = self.log.remove(0);
            apply_bound(rules, &mut self.base, &entry);
            for machine in self.machines.iter_mut().flatten() {
                machine.applied -= 1;
            }
        }
    }
}

/// Applies an entry with the values that hold where it is in the log.
pub fn apply_bound(rules: &Rules, replica: &mut Replica, entry: &Entry) {
    replica.apply(rules, entry, |replica| rules.enabled(replica.params));
}
