//! The statistics of a run, and its failure.

use std::fmt;
use std::ops::AddAssign;

use thiserror::Error;

use super::violation::Violation;

/// The statistics of a run, which show that the faults occurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Handled events.
    pub events: u64,
    /// Committed entries.
    pub committed: u64,
    /// Proposals that were acknowledged to their client.
    pub acknowledged: u64,
    /// Answered reads.
    pub reads: u64,
    /// Elected leaders.
    pub elections: u64,
    /// Power losses of members.
    pub crashes: u64,
    /// Power losses during a write.
    pub crashes_in_write: u64,
    /// Power losses during a start.
    pub crashes_in_start: u64,
    /// Network partitions.
    pub partitions: u64,
    /// Lost messages.
    pub lost_messages: u64,
    /// Snapshots sent to lagging members.
    pub snapshots_sent: u64,
    /// Log compactions.
    pub compactions: u64,
    /// Added members.
    pub members_added: u64,
    /// Members shut down after their removal.
    pub members_gone: u64,
    /// Entries that changed a feature value.
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

/// A run that violated an invariant.
#[derive(Debug, Error)]
#[error("seed {seed}, event {event}, tick {tick}")]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the event.
    pub event: u64,
    /// The tick of the event.
    pub tick: u64,
    /// The violation.
    #[source]
    pub violation: Violation,
}
