//! The parameters of a run, drawn from its seed.
//!
//! Seeds differ in their faults: some lose many messages, some crash often, some have a slow
//! disk, some change members often. `without` disables classes of faults and leaves the other
//! parameters unchanged, to reproduce a failure with fewer faults.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::random::Random;

/// Time units between two ticks of an exact clock.
pub const TICK: u64 = 100;

/// A class of faults or actions that can be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Messages are lost.
    Loss,
    /// Messages are duplicated.
    Repetition,
    /// Messages are delayed and reordered.
    Delay,
    /// Members cannot reach each other, in one or both directions.
    Partition,
    /// Members lose power between two steps.
    Crash,
    /// Members lose their disks and are replaced.
    DiskLoss,
    /// Members lose power during a write.
    CrashInWrite,
    /// All members lose power at once.
    CrashOfAll,
    /// Clocks run at different speeds.
    Skew,
    /// Disks are slow.
    SlowDisk,
    /// State machines are slow.
    SlowApply,
    /// Members are added, promoted and removed.
    Membership,
    /// Leadership is transferred.
    Transfer,
    /// Logs are compacted, so members that lag need snapshots.
    Compaction,
    /// Snapshots take long to install.
    SlowInstall,
    /// Watchers.
    Watches,
    /// Members are restarted with other cluster features or another version.
    Features,
    /// Clients are users, and their permissions change.
    Users,
}

impl Class {
    /// All classes, with their names on the command line.
    pub const ALL: [(Class, &'static str); 18] = [
        (Class::Loss, "loss"),
        (Class::Repetition, "repetition"),
        (Class::Delay, "delay"),
        (Class::Partition, "partition"),
        (Class::Crash, "crash"),
        (Class::DiskLoss, "disk-loss"),
        (Class::CrashInWrite, "crash-in-write"),
        (Class::CrashOfAll, "crash-of-all"),
        (Class::Skew, "skew"),
        (Class::SlowDisk, "slow-disk"),
        (Class::SlowApply, "slow-apply"),
        (Class::Membership, "membership"),
        (Class::Transfer, "transfer"),
        (Class::Compaction, "compaction"),
        (Class::SlowInstall, "slow-install"),
        (Class::Watches, "watches"),
        (Class::Features, "features"),
        (Class::Users, "users"),
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(class, _)| class == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

/// A name that is not a class of faults.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a class of faults; see --help for the classes")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found
            .map(|(class, _)| *class)
            .ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

/// The parameters of a run. Rates are per thousand.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The seed of all random choices.
    pub seed: u64,
    /// Initial members.
    pub members: u64,
    /// Ticks with faults.
    pub fault_ticks: u64,
    /// The most members over the whole run, including removed ones.
    pub members_ever_max: u64,
    pub(super) loss: u64,
    pub(super) repetition: u64,
    pub(super) delay_max: u64,
    pub(super) long_delay: u64,
    pub(super) partition: u64,
    pub(super) crash: u64,
    pub(super) crash_in_write: u64,
    pub(super) crash_of_all: u64,
    pub(super) disk_loss: u64,
    pub(super) skew: u64,
    pub(super) disk_delay_max: u64,
    pub(super) apply_delay_max: u64,
    pub(super) backend_commit: u64,
    pub(super) clients: u64,
    pub(super) think_time_max: u64,
    pub(super) watchers: u64,
    pub(super) watch_delay_max: u64,
    pub(super) watch_responses_max: usize,
    pub(super) install_delay_max: u64,
    pub(super) snapshot_count: u64,
    pub(super) awaits_expiry: bool,
    pub(super) membership: u64,
    pub(super) transfer: u64,
    pub(super) compaction: u64,
    pub(super) features: u64,
    pub(super) payload_bytes_max: u64,
    pub(super) segment_bytes: u64,
    pub(super) catch_up_entries: u64,
    pub(super) message_bytes_max: u64,
    pub(super) inflight_messages_max: usize,
    pub(super) committed_bytes_max: u64,
    pub(super) pre_vote: bool,
    pub(super) has_users: bool,
}

impl Scenario {
    /// Draws the parameters from a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::from_seed(seed ^ 0x5ce4_a210);
        // Half of the rates are 0, so that each fault also occurs without the others.
        let mut rate = |max: u64| match random.below(4) {
            0 | 1 => 0,
            2 => 1 + max / 4,
            _ => max,
        };
        let (loss, repetition, long_delay) = (rate(200), rate(200), rate(150));
        let (partition, crash, crash_in_write, crash_of_all) =
            (rate(60), rate(60), rate(80), rate(12));
        let disk_loss = rate(8);
        let (skew, membership, transfer, compaction) = (rate(40), rate(240), rate(40), rate(600));
        Self {
            seed,
            members: *random.choose(&[1, 2, 3, 3, 3, 3, 3, 4, 5]).unwrap_or(&3),
            members_ever_max: 8,
            fault_ticks: random.between(90, 320),
            loss,
            repetition,
            delay_max: *random.choose(&[2, 20, 60, 150]).unwrap_or(&20),
            long_delay,
            partition,
            crash,
            crash_in_write,
            crash_of_all,
            disk_loss,
            skew,
            disk_delay_max: *random.choose(&[1, 10, 60, 400]).unwrap_or(&10),
            apply_delay_max: *random.choose(&[1, 1, 30, 100, 1000]).unwrap_or(&1),
            backend_commit: *random.choose(&[20, 100, 400]).unwrap_or(&100),
            clients: random.between(9, 23),
            think_time_max: *random.choose(&[10, 60, 150]).unwrap_or(&60),
            watchers: random.between(1, 4),
            watch_delay_max: *random.choose(&[20, 200, 1500]).unwrap_or(&200),
            watch_responses_max: *random.choose(&[1, 4, 64]).unwrap_or(&4),
            install_delay_max: *random.choose(&[1, 300, 3000]).unwrap_or(&300),
            snapshot_count: *random.choose(&[20, 100, 10_000]).unwrap_or(&100),
            awaits_expiry: random.below(4) == 0,
            membership,
            transfer,
            compaction,
            payload_bytes_max: *random.choose(&[8, 40, 700, 2500]).unwrap_or(&40),
            segment_bytes: *random.choose(&[2048, 4096, 16_384]).unwrap_or(&4096),
            catch_up_entries: *random.choose(&[0, 0, 2, 10]).unwrap_or(&2),
            message_bytes_max: *random.choose(&[0, 200, 1 << 20]).unwrap_or(&200),
            inflight_messages_max: *random.choose(&[1, 4, 512]).unwrap_or(&4),
            committed_bytes_max: *random.choose(&[0, 300, 1 << 20]).unwrap_or(&300),
            pre_vote: random.below(8) > 0,
            features: *random.choose(&[4, 15, 40]).unwrap_or(&15),
            has_users: random.below(3) == 0,
        }
    }

    /// Disables classes of faults.
    #[must_use]
    pub fn without(mut self, classes: &[Class]) -> Self {
        for class in classes {
            match class {
                Class::Loss => self.loss = 0,
                Class::Repetition => self.repetition = 0,
                Class::Delay => (self.delay_max, self.long_delay) = (1, 0),
                Class::Partition => self.partition = 0,
                Class::Crash => self.crash = 0,
                Class::DiskLoss => self.disk_loss = 0,
                Class::CrashInWrite => self.crash_in_write = 0,
                Class::CrashOfAll => self.crash_of_all = 0,
                Class::Skew => self.skew = 0,
                Class::SlowDisk => self.disk_delay_max = 1,
                Class::SlowApply => self.apply_delay_max = 1,
                Class::Membership => self.membership = 0,
                Class::Transfer => self.transfer = 0,
                Class::Compaction => self.compaction = 0,
                Class::SlowInstall => self.install_delay_max = 1,
                Class::Watches => self.watchers = 0,
                Class::Features => self.features = 0,
                Class::Users => self.has_users = false,
            }
        }
        self
    }
}
