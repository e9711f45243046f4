//! Mistakes a driver could make, made on purpose, to show that they would be found.
//!
//! They are mistakes of the simulated driver and its disk; the code under test has no switch.

/// One mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Answers go out before what they promise is on disk.
    SendsBeforePersisting,
    /// What was written counts as durable although the disk was never told to sync.
    NeverSyncs,
    /// Raft hears that a batch is on disk when it has only been handed to the disk.
    AcknowledgesBeforeWriting,
    /// The term survives a restart, the vote does not.
    ForgetsVote,
    /// Hard states without entries are not written.
    SkipsHardState,
    /// The last record of the log counts as torn though it is whole.
    CutsWholeRecord,
    /// What follows a snapshot is applied to the state from before it.
    AppliesBeforeInstalling,
    /// The state machine's position becomes durable before its content.
    PositionBeforeContent,
    /// Reads are answered at once, by whoever is asked.
    AnswersReadsAlone,
    /// The log is compacted beyond what the state machine has durably.
    CompactsTooFar,
    /// Some members leave out some membership changes.
    SkipsConfChange,
    /// Apply asks for the newest values of features that have arrived, not for those bound to
    /// the entry.
    ReadsNewestFeatures,
    /// A snapshot brings no values of features along.
    SnapshotWithoutFeatures,
}

impl PlantedBug {
    /// All of them.
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
