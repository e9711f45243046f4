//! Deliberate bugs around the code under test, to show that a run detects them.
//!
//! The code under test has no switches for them. A bug changes what the simulated driver, apply
//! loop, disk or services do with it, or what they give to it.

macro_rules! planted_bugs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PlantedBug {
            $($(#[$doc])* $name,)*
        }

        impl PlantedBug {
            /// All planted bugs.
            pub const ALL: &'static [PlantedBug] = &[$(Self::$name,)*];
        }
    };
}

planted_bugs! {
    // The engine, the log and its disk.
    /// Messages are sent before the state they depend on is persisted.
    SendsBeforePersisting,
    /// Writes count as durable although the disk was not synced.
    NeverSyncs,
    /// A batch is reported as persisted before it is written (etcd issue 14370).
    AcknowledgesBeforeWriting,
    /// A restart keeps the term and loses the vote.
    ForgetsVote,
    /// Hard states without entries are not written.
    SkipsHardState,
    /// Entries are written without the hard state that comes with them, so that they can be
    /// durable before their term.
    AppendsBeforeTerm,
    /// The last record of the log is cut off although it is complete.
    CutsWholeRecord,
    /// Every member answers reads without the leader.
    AnswersReadsAlone,
    /// The log is compacted beyond the durable applied index.
    CompactsTooFar,
    /// A member that lost its disk starts again with the same id.
    RejoinsWithEmptyDirectory,
    /// A queued proposal is proposed after its client received a timeout.
    ProposesAfterTimeout,

    // The state machine and the store.
    /// Some members skip some membership changes.
    SkipsConfChange,
    /// Apply reads the newest feature values that were received, not those bound to the entry.
    ReadsNewestFeatures,
    /// The applied index becomes durable before the state (etcd issue 13766).
    PositionBeforeContent,
    /// The state becomes durable before the applied index (etcd issue 14685).
    ContentBeforePosition,
    /// A crash after a compaction loses the newest tombstone, so that the revision goes back (etcd
    /// issue 17780).
    LosesNewestTombstone,
    /// A transaction fails where a compaction is not finished (etcd issue 18667).
    ReadsDependOnCompaction,
    /// The promotion of a learner is not stored (etcd issue 19557).
    ForgetsPromotion,
    /// A restart skips the first entry after the durable applied index.
    SkipsEntryAtRestart,
    /// A restart loses the record of a lease.
    LosesLeaseRecord,

    // Snapshots.
    /// Entries after a snapshot are applied to the state before it.
    AppliesBeforeInstalling,
    /// A snapshot contains no feature values.
    SnapshotWithoutFeatures,
    /// A snapshot contains no leases.
    SnapshotWithoutLeases,
    /// A snapshot announces a later index than its content has.
    SnapshotAheadOfContent,
    /// A snapshot that arrives while another one is installed replaces its file.
    SecondSnapshotReplacesFirst,
    /// A member handles no message while it installs a snapshot.
    DeafWhileInstalling,
    /// A linearizable read uses the reader of the time of its request.
    ReaderBeforeBarrier,

    /// A snapshot contains no users.
    SnapshotWithoutUsers,
    /// A member keeps its users and roles when it installs a snapshot (etcd issue 14571).
    InstallKeepsOldUsers,

    // Users.
    /// A member proposes requests of users as `root`.
    ProposesAsRoot,
    /// A member answers reads without looking at permissions.
    ReadsWithoutPermission,

    // Leases.
    /// The leader answers a keep-alive before it has applied what was committed.
    KeepAliveBeforeApply,
    /// A renewal does not extend the lease.
    IgnoresRenewals,
    /// A member that lost leadership goes on revoking leases with the clock of its term (etcd
    /// issue 15247).
    RevokesAfterLosingLeadership,
    /// A new leader gives leases less than their TTL.
    ShortensLeases,
    /// A leader never starts the clocks of leases.
    NeverExpires,

    // Watches.
    /// A progress notice overtakes events (etcd issue 15220).
    ProgressOvertakesEvents,
    /// Watches are not informed of an installed snapshot.
    WatchesMissInstalls,
    /// The delete at the compact revision is missing in the history (etcd issues 18089, 19179).
    LosesDeleteAtCompactRevision,
    /// Events are delivered a second time (etcd issue 17247).
    RepeatsEvents,
    /// An installed snapshot sends watches back to an earlier revision (etcd issue 15271).
    InstallsTurnWatchesBack,
    /// A transaction's events are split over two revisions.
    SplitsRevision,
    /// A watch of a future revision gets events before it (etcd issue 20221).
    FutureWatchStartsEarly,
    /// A watch that catches up skips a revision (etcd issue 17529).
    CatchUpSkipsRevision,
    /// A watch of a compacted revision goes on at the compact revision.
    CompactedWatchGoesOn,
}
