//! Mistakes one could make in the protocol, made on purpose, to show that they are found.

/// One mistake. The code of the gates has no switch; these are in how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Apply asks the newest values that have arrived, not those bound to the entry.
    ReadsNewest,
    /// The leader heeds nobody's flags but its own.
    DecidesAlone,
    /// The version goes into one entry and the values into the next.
    TwoEntries,
    /// A leader that proposes nothing itself decides nothing either.
    SilentLeaderIdles,
    /// A leader that proposes nothing itself makes the first decision.
    SilentLeaderBegins,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [PlantedBug; 5] = [
        Self::ReadsNewest,
        Self::DecidesAlone,
        Self::TwoEntries,
        Self::SilentLeaderIdles,
        Self::SilentLeaderBegins,
    ];
}
