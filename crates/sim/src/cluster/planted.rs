//! Deliberate bugs of the simulated driver and its disk, to show that a run detects them.
//!
//! The code under test has no switches for them.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Messages are sent before the state they depend on is persisted.
    SendsBeforePersisting,
    /// Writes count as durable although the disk was not synced.
    NeverSyncs,
    /// A batch is reported as persisted before it is written.
    AcknowledgesBeforeWriting,
    /// A restart keeps the term and loses the vote.
    ForgetsVote,
    /// Hard states without entries are not written.
    SkipsHardState,
    /// The last record of the log is cut off although it is complete.
    CutsWholeRecord,
    /// Entries after a snapshot are applied to the state before it.
    AppliesBeforeInstalling,
    /// The applied index becomes durable before the state.
    PositionBeforeContent,
    /// Every member answers reads without the leader.
    AnswersReadsAlone,
    /// The log is compacted beyond the durable applied index.
    CompactsTooFar,
    /// Some members skip some membership changes.
    SkipsConfChange,
    /// Apply reads the newest feature values that were received, not those bound to the entry.
    ReadsNewestFeatures,
    /// A snapshot contains no feature values.
    SnapshotWithoutFeatures,
}

impl PlantedBug {
    /// All planted bugs.
    pub const ALL: [PlantedBug; 13] = [
        Self::SendsBeforePersisting,
        Self::NeverSyncs,
        Self::AcknowledgesBeforeWriting,
        Self::ForgetsVote,
        Self::SkipsHardState,
        Self::CutsWholeRecord,
        Self::AppliesBeforeInstalling,
        Self::PositionBeforeContent,
        Self::AnswersReadsAlone,
        Self::CompactsTooFar,
        Self::SkipsConfChange,
        Self::ReadsNewestFeatures,
        Self::SnapshotWithoutFeatures,
    ];
}
