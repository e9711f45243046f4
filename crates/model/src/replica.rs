//! What one machine has made of the log.
//!
//! The same as in the server's apply, reduced to what matters here. [`Replica::apply`] is
//! deterministic: what it does depends on the replica, the entry and, for a write, on the
//! values it is handed; who runs it may only stop.

use portunus_gates::MajorMinor;

use crate::features::{FEATURES, Flags};
use crate::rules::{Applied, Rules};

/// Places for members.
pub const PLACES: usize = 3;

/// What is known of the members, by place.
pub type Records = [Option<Record>; PLACES];

/// What the log carries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// A member says what it is.
    Publish {
        /// Whose word.
        place: usize,
        /// Which.
        said: Said,
    },
    /// A leader has decided: version and values in one.
    Decide {
        /// The cluster version.
        version: MajorMinor,
        /// The values; absent if there is nothing to say about them.
        params: Option<Params>,
    },
    /// An operator begins or cancels a downgrade.
    Downgrade(Option<MajorMinor>),
    /// Somebody new.
    Add {
        /// Where.
        place: usize,
        /// Or a learner.
        is_voter: bool,
    },
    /// A learner becomes a voter.
    Promote(usize),
    /// Somebody goes.
    Remove(usize),
    /// A client's write, whose effect depends on the features.
    Write,
}

/// What a member said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
    /// Nothing so far: it never started.
    Nothing,
    /// Attributes without flags.
    Foreign,
    /// Its version and raw flags.
    Proposal(MajorMinor, Flags),
}

/// What is known of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Or a learner.
    pub is_voter: bool,
    /// Its word.
    pub said: Said,
}

/// The values in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Params {
    /// What they were decided at.
    pub version: MajorMinor,
    /// By position of the feature; absent where it does not exist.
    pub values: [Option<bool>; FEATURES],
}

/// A state machine's content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Replica {
    /// The members.
    pub records: Records,
    /// Places whose members are gone; ids never come back.
    pub removed: [bool; PLACES],
    /// Once decided.
    pub cluster_version: Option<MajorMinor>,
    /// A downgrade in progress.
    pub downgrade: Option<MajorMinor>,
    /// The values in force.
    pub params: Option<Params>,
    /// What the newest write did: whether each feature was on for it.
    pub effect: Option<[bool; FEATURES]>,
}

impl Replica {
    /// Takes the next entry. A write finds the features as in `seen`.
    pub fn apply(
        &mut self,
        rules: &Rules,
        entry: &Entry,
        seen: impl FnOnce(&Replica) -> [bool; FEATURES],
    ) {
        match entry {
            Entry::Publish { place, said } => {
                if let Some(record) = &mut self.records[*place] {
                    record.said = *said;
                }
            }
            Entry::Decide { version, params } => {
                match rules.applied(*version, *params, self.params) {
                    // The same entry has no effect on any member.
                    Applied::Refused => return,
                    Applied::Keep => {}
                    Applied::Replace(params) => self.params = params,
                }
                self.cluster_version = Some(*version);
            }
            Entry::Downgrade(target) => self.downgrade = *target,
            Entry::Add { place, is_voter } => {
                let record = Record {
                    is_voter: *is_voter,
                    said: Said::Nothing,
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

    /// Voters.
    pub fn voters(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().flatten().filter(|it| it.is_voter)
    }
}
