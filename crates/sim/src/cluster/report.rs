//! What a run did, and how it failed.

use std::fmt;
use std::ops::AddAssign;

use thiserror::Error;

use super::violation::Violation;

/// What happened in a run. A fault that never happens proves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps of the simulation.
    pub events: u64,
    /// Entries committed.
    pub committed: u64,
    /// Proposals whose proposer heard of them.
    pub acknowledged: u64,
    /// Reads answered.
    pub reads: u64,
    /// Leaders elected.
    pub elections: u64,
    /// Members that lost power.
    pub crashes: u64,
    /// Of these, in the middle of a write.
    pub crashes_in_write: u64,
    /// Of these, while they were starting.
    pub crashes_in_start: u64,
    /// Times the network fell apart.
    pub partitions: u64,
    /// Messages that never arrived.
    pub lost_messages: u64,
    /// Snapshots for members that lagged.
    pub snapshots_sent: u64,
    /// Logs shortened.
    pub compactions: u64,
    /// Members added.
    pub members_added: u64,
    /// Members removed.
    pub members_gone: u64,
    /// Entries that changed the value of a feature.
    pub switches: u64,
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.committed += other.committed;
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.elections += other.elections;
        self.crashes += other.crashes;
        self.crashes_in_write += other.crashes_in_write;
        self.crashes_in_start += other.crashes_in_start;
        self.partitions += other.partitions;
        self.lost_messages += other.lost_messages;
        self.snapshots_sent += other.snapshots_sent;
        self.compactions += other.compactions;
        self.members_added += other.members_added;
        self.members_gone += other.members_gone;
        self.switches += other.switches;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, {} entries committed, {} acknowledged, {} reads, {} elections, \
             {} crashes ({} while writing, {} while starting), {} partitions, {} messages lost, \
             {} snapshots sent, {} compactions, {} members added, {} gone, {} switches of features",
            self.events,
            self.committed,
            self.acknowledged,
            self.reads,
            self.elections,
            self.crashes,
            self.crashes_in_write,
            self.crashes_in_start,
            self.partitions,
            self.lost_messages,
            self.snapshots_sent,
            self.compactions,
            self.members_added,
            self.members_gone,
            self.switches,
        )
    }
}

/// A run that broke a rule.
#[derive(Debug, Error)]
#[error("seed {seed}, event {event}, tick {tick}")]
pub struct Failure {
    /// Whose run.
    pub seed: u64,
    /// How many events came before.
    pub event: u64,
    /// When.
    pub tick: u64,
    /// What.
    #[source]
    pub violation: Violation,
}
