//! The initial states and bounds of each exploration.

use portunus_gates::MajorMinor;

/// The lower of the two versions that have params.
const LOW: MajorMinor = MajorMinor::literal("3.7");
const HIGH: MajorMinor = MajorMinor::literal("3.8");
/// A version without params.
const BEFORE: MajorMinor = MajorMinor::literal("3.6");

/// The initial state of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A new cluster: nothing is published or decided.
    Founding,
    /// A new cluster where one founder has the lowest version, the others the highest.
    FoundingMixed,
    /// After a decision; one member has the lowest version, the others the highest.
    OneBehind,
    /// After a decision; all members have the highest version.
    SameVersion,
}

/// The bounds of an exploration. Within them every order of events is tried.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The name of the exploration.
    pub about: &'static str,
    /// The number of initial members; the remaining places are for added ones.
    pub founders: usize,
    /// The initial state.
    pub start: Start,
    /// The versions members may be restarted with, the lowest first.
    pub versions: Vec<MajorMinor>,
    /// Whether members are added, promoted and removed.
    pub membership: bool,
    /// Whether downgrades are enabled and cancelled.
    pub downgrades: bool,
    /// Whether members that do not know cluster features may be added.
    pub foreign: bool,
    /// Whether machines may have ClusterFeatureGate off, and switch it by restarts.
    pub mechanism: bool,
    /// The number of restarts with another config, membership changes, and downgrades
    /// enabled or cancelled.
    pub changes: u8,
    /// The number of restarts from a backend that is behind.
    pub crashes: u8,
    /// The number of entries whose effect depends on a feature.
    pub writes: u8,
    /// The number of pending proposals at a time.
    pub pending_max: usize,
    /// The number of entries the slowest machine may be behind.
    pub log_max: usize,
}

impl Limits {
    /// Returns the explorations that together cover the protocol. A `depth` of one takes
    /// seconds; each further step allows one more change and a longer log, and takes ten times
    /// as long.
    #[must_use]
    pub fn all(depth: u8) -> Vec<Limits> {
        let more = depth.saturating_sub(1);
        let basis = Limits {
            about: "",
            founders: 3,
            start: Start::SameVersion,
            versions: vec![LOW],
            membership: false,
            downgrades: false,
            foreign: false,
            mechanism: false,
            changes: 2 + more,
            crashes: more,
            writes: 1,
            pending_max: 2,
            log_max: 2 + usize::from(more),
        };
        vec![
            Limits {
                about: "restarts with other flags, and crashes",
                crashes: 1 + more,
                ..basis.clone()
            },
            Limits {
                about: "founding",
                start: Start::Founding,
                changes: more,
                ..basis.clone()
            },
            Limits {
                about: "an upgrade",
                start: Start::OneBehind,
                versions: vec![LOW, HIGH],
                changes: 1 + more,
                log_max: 3 + usize::from(more),
                ..basis.clone()
            },
            Limits {
                about: "an upgrade to the first version with params",
                start: Start::OneBehind,
                versions: vec![BEFORE, LOW],
                changes: 1 + more,
                ..basis.clone()
            },
            Limits {
                about: "a downgrade",
                versions: vec![LOW, HIGH],
                downgrades: true,
                ..basis.clone()
            },
            Limits {
                about: "a downgrade to a version without params",
                founders: 2,
                versions: vec![BEFORE, LOW],
                downgrades: true,
                ..basis.clone()
            },
            Limits {
                about: "founding with two versions",
                founders: 2,
                start: Start::FoundingMixed,
                versions: vec![LOW, HIGH],
                changes: more,
                ..basis.clone()
            },
            Limits {
                about: "an upgrade that is reverted",
                founders: 2,
                start: Start::OneBehind,
                versions: vec![LOW, HIGH],
                writes: more,
                ..basis.clone()
            },
            Limits {
                about: "members that are added and removed",
                founders: 2,
                membership: true,
                foreign: true,
                ..basis.clone()
            },
            Limits {
                about: "the mechanism turned on and off, and crashes",
                founders: 2,
                mechanism: true,
                crashes: 1 + more,
                ..basis.clone()
            },
            Limits {
                about: "founding with the mechanism on and off",
                founders: 2,
                start: Start::Founding,
                mechanism: true,
                changes: more,
                ..basis.clone()
            },
            Limits {
                about: "an upgrade with the mechanism on and off",
                founders: 2,
                start: Start::OneBehind,
                versions: vec![LOW, HIGH],
                mechanism: true,
                changes: 1 + more,
                writes: more,
                ..basis.clone()
            },
            Limits {
                about: "a downgrade with the mechanism on and off",
                founders: 2,
                versions: vec![BEFORE, LOW],
                downgrades: true,
                mechanism: true,
                writes: more,
                ..basis.clone()
            },
            Limits {
                about: "one member grows to two, with the mechanism on and off",
                founders: 1,
                membership: true,
                mechanism: true,
                ..basis
            },
        ]
    }
}
