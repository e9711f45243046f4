//! How far the model goes, and from where.

use portunus_gates::MajorMinor;

/// The lower of the two versions that have params.
const LOW: MajorMinor = MajorMinor::literal("3.7");
const HIGH: MajorMinor = MajorMinor::literal("3.8");
/// One without params.
const BEFORE: MajorMinor = MajorMinor::literal("3.6");

/// How the cluster is when the model begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Founded a moment ago, nothing said and nothing decided.
    Founding,
    /// The same, and one founder has the first of the versions, the others the last.
    FoundingMixed,
    /// Decided. All members have the last of the versions, but one has the first.
    OneBehind,
    /// Decided. All members have the last of the versions.
    Level,
}

/// What bounds the number of states. Within it every order of events is tried.
#[derive(Debug, Clone)]
pub struct Limits {
    /// In what it is about, for people.
    pub about: &'static str,
    /// Members the cluster has; the remaining places are for those that are added.
    pub founders: usize,
    /// How it begins.
    pub start: Start,
    /// The versions members may be restarted with, the lowest first.
    pub versions: Vec<MajorMinor>,
    /// Members are added, promoted and removed.
    pub membership: bool,
    /// Downgrades are begun and cancelled.
    pub downgrades: bool,
    /// Members that know nothing of cluster features may be added.
    pub foreign: bool,
    /// Machines may have the mechanism off, and turn it on and off by restarts.
    pub mechanism: bool,
    /// Restarts with other flags or another version, changes of membership, downgrades
    /// begun or cancelled.
    pub changes: u8,
    /// Restarts from a backend that is behind.
    pub crashes: u8,
    /// Entries whose effect depends on a feature.
    pub writes: u8,
    /// Proposals under way at once.
    pub pending_max: usize,
    /// Entries the slowest machine may be behind.
    pub log_max: usize,
}

impl Limits {
    /// The explorations that together cover the protocol. A `depth` of one takes seconds; each
    /// further step allows one more change and a longer log, and takes ten times as long.
    #[must_use]
    pub fn all(depth: u8) -> Vec<Limits> {
        let more = depth.saturating_sub(1);
        let basis = Limits {
            about: "",
            founders: 3,
            start: Start::Level,
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
                about: "an upgrade that is taken back",
                founders: 2,
                start: Start::OneBehind,
                versions: vec![LOW, HIGH],
                writes: more,
                ..basis.clone()
            },
            Limits {
                about: "members that come and go",
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
