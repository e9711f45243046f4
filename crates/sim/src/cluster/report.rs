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
    /// Requests of clients.
    pub requests: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Installs of snapshots that began.
    pub installs_begun: u64,
    /// Installed snapshots.
    pub installs: u64,
    /// Leaders lost while another member installed a snapshot.
    pub leaders_lost_during_install: u64,
    /// Members that lost their disks.
    pub disks_lost: u64,
    /// Events that watchers received.
    pub watch_events: u64,
    /// Watches cancelled by a compaction.
    pub watches_compacted: u64,
    /// Progress notices.
    pub progress_notices: u64,
    /// Renewed leases.
    pub leases_renewed: u64,
    /// Expired leases.
    pub leases_expired: u64,
    /// Requests refused because a required feature was off.
    pub refused_by_feature: u64,
    /// Requests that were refused because of the permissions of their users.
    pub refused_by_permission: u64,
    /// Compared hashes.
    pub hashes_compared: u64,
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
        self.requests += other.requests;
        self.timeouts += other.timeouts;
        self.installs_begun += other.installs_begun;
        self.installs += other.installs;
        self.leaders_lost_during_install += other.leaders_lost_during_install;
        self.disks_lost += other.disks_lost;
        self.watch_events += other.watch_events;
        self.watches_compacted += other.watches_compacted;
        self.progress_notices += other.progress_notices;
        self.leases_renewed += other.leases_renewed;
        self.leases_expired += other.leases_expired;
        self.refused_by_feature += other.refused_by_feature;
        self.refused_by_permission += other.refused_by_permission;
        self.hashes_compared += other.hashes_compared;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            events,
            requests,
            committed,
            acknowledged,
            timeouts,
            ..
        } = self;
        writeln!(
            f,
            "{events} events, {requests} requests ({acknowledged} acknowledged, {timeouts} timed \
             out), {committed} entries committed"
        )?;
        writeln!(
            f,
            "  faults: {} crashes ({} while writing, {} while starting), {} disks lost, \
             {} partitions, {} messages lost",
            self.crashes,
            self.crashes_in_write,
            self.crashes_in_start,
            self.disks_lost,
            self.partitions,
            self.lost_messages,
        )?;
        writeln!(
            f,
            "  raft: {} elections, {} read indexes, {} log compactions, {} snapshots sent, \
             {} installed ({} with the loss of the leader), {} members added, {} gone",
            self.elections,
            self.reads,
            self.compactions,
            self.snapshots_sent,
            self.installs,
            self.leaders_lost_during_install,
            self.members_added,
            self.members_gone,
        )?;
        write!(
            f,
            "  state: {} watch events, {} progress notices, {} watches compacted, {} leases \
             renewed, {} expired, {} feature decisions, {} requests refused by features, \
             {} by permissions, {} hashes compared",
            self.watch_events,
            self.progress_notices,
            self.watches_compacted,
            self.leases_renewed,
            self.leases_expired,
            self.switches,
            self.refused_by_feature,
            self.refused_by_permission,
            self.hashes_compared,
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
