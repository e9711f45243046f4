//! Bugs planted in the protocol, to show that the model finds them.

/// A planted bug. All are in how the model calls the gates, not in the gates themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Apply reads the newest committed values, not those in force at the entry.
    ReadsNewest,
    /// The leader decides from its own flags only.
    DecidesAlone,
    /// The version is in one entry and the values in the next.
    TwoEntries,
    /// A leader that publishes no proposal never decides.
    SilentLeaderIdles,
    /// A leader that publishes no proposal makes the first decision.
    SilentLeaderBegins,
}

impl PlantedBug {
    /// All planted bugs.
    pub const ALL: [PlantedBug; 5] = [
        Self::ReadsNewest,
        Self::DecidesAlone,
        Self::TwoEntries,
        Self::SilentLeaderIdles,
        Self::SilentLeaderBegins,
    ];
}
