//! The replicated state of one machine.
//!
//! It follows the server's apply, reduced to members, version, params and writes.
//! [`Replica::apply`] is deterministic: its effect depends only on the replica, the entry and,
//! for a write, on the values passed in. A machine may halt instead of applying an entry.

use portunus_gates::MajorMinor;

use crate::features::{FEATURES, Flags};
use crate::rules::{ParamsEffect, Rules};

/// The number of places for members.
pub const PLACES: usize = 3;

/// The records of the members, by place.
pub type Records = [Option<Record>; PLACES];

/// A log entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// A member publishes its attributes.
    Publish {
        /// The place of the member.
        place: usize,
        /// Its attributes.
        attributes: Attributes,
    },
    /// A leader's decision: version and values in one entry.
    Decide {
        /// The cluster version.
        version: MajorMinor,
        /// The values; absent in an entry for the version alone.
        params: Option<Params>,
    },
    /// An operator enables or cancels a downgrade.
    Downgrade(Option<MajorMinor>),
    /// A member is added.
    Add {
        /// The place of the member.
        place: usize,
        /// Whether it is a voter, not a learner.
        is_voter: bool,
    },
    /// A learner becomes a voter.
    Promote(usize),
    /// A member is removed.
    Remove(usize),
    /// A client's write, whose effect depends on the features.
    Write,
}

/// The published attributes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attributes {
    /// None: the member never started.
    Nothing,
    /// Attributes without flags.
    Foreign,
    /// The member's version and raw flags.
    Proposal(MajorMinor, Flags),
}

/// The record of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Whether it is a voter, not a learner.
    pub is_voter: bool,
    /// Its published attributes.
    pub attributes: Attributes,
}

/// The feature values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Params {
    /// The version at which they were decided.
    pub version: MajorMinor,
    /// The values by position of the feature; absent where it does not exist.
    pub values: [Option<bool>; FEATURES],
}

/// The content of a state machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Replica {
    /// The records of the members.
    pub records: Records,
    /// The places of removed members; a place is not used again.
    pub removed: [bool; PLACES],
    /// The cluster version, once decided.
    pub cluster_version: Option<MajorMinor>,
    /// The target of an enabled downgrade.
    pub downgrade: Option<MajorMinor>,
    /// The values in force.
    pub params: Option<Params>,
    /// The effect of the newest write: whether each feature was on for it.
    pub effect: Option<[bool; FEATURES]>,
}

impl Replica {
    /// Applies the next entry. `seen` returns the features that are on for a write.
    pub fn apply(
        &mut self,
        rules: &Rules,
        entry: &Entry,
        seen: impl FnOnce(&Replica) -> [bool; FEATURES],
    ) {
        match entry {
            Entry::Publish { place, attributes } => {
                if let Some(record) = &mut self.records[*place] {
                    record.attributes = *attributes;
                }
            }
            Entry::Decide { version, params } => {
                match rules.effect_of_version(*version, *params, self.params) {
                    // Every member refuses the entry alike.
                    ParamsEffect::Refused => return,
                    ParamsEffect::Keep => {}
                    ParamsEffect::Replace(params) => self.params = params,
                }
                self.cluster_version = Some(*version);
            }
            Entry::Downgrade(target) => self.downgrade = *target,
            Entry::Add { place, is_voter } => {
                let record = Record {
                    is_voter: *is_voter,
                    attributes: Attributes::Nothing,
                };
                if !self.removed[*place] {
                    self.records[*place].get_or_insert(record);
                }
            }
            Entry::Promote(place) => {
                if let Some(record) = &mut self.records[*place] {
                    record.is_voter = true;
                }
            }
            Entry::Remove(place) => {
                self.records[*place] = None;
                self.removed[*place] = true;
            }
            Entry::Write => self.effect = Some(seen(self)),
        }
    }

    /// Iterates over the records of the voters.
    pub fn voters(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flatten().filter(|it| it.is_voter)
    }
}
