//! Features that are decided for all members through the log.
//!
//! ```text
//!  member's flags ──raft──▶ Member.publication ─┐
//!  cluster version ─────────────────────────────┼─▶ decide ──▶ Decision ──raft──▶ ClusterParams
//!  previous params ─────────────────────────────┘   (leader)                          │
//!                                                                  ClusterView ◀──────┘ (every member)
//! ```
//!
//! There is no mutable gate object: there are specs, published flags, and the pure function
//! [`decide`]. Only the leader calls it, so its rules may change between releases; its
//! result is in the same log entry as the cluster version, and from that entry on every
//! member reads the same values. This module does no I/O and does not wait.

mod admission;
mod decide;
mod downgrade;
mod explain;
mod founding;
mod params;
mod version;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::registry::Registry;
use crate::version::MajorMinor;

pub use admission::*;
pub use decide::*;
pub use downgrade::*;
pub use explain::InForce;
pub(crate) use explain::{find_feature, reason};
pub use founding::*;
pub use params::*;
pub use view::*;

/// A cluster's features, the first version with params and the undecided version.
#[derive(Debug, Clone)]
pub struct ClusterSpecs {
    registry: Arc<Registry>,
    since: MajorMinor,
    undecided: MajorMinor,
}

impl ClusterSpecs {
    /// Creates specs. `since` is the first cluster version that has params; `undecided` is
    /// the version that stands for "not decided yet" (3.0 in etcd).
    pub fn new(registry: Arc<Registry>, since: MajorMinor, undecided: MajorMinor) -> ClusterSpecs {
        ClusterSpecs {
            registry,
            since,
            undecided,
        }
    }

    /// Returns the features.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the first cluster version that has params.
    pub fn since(&self) -> MajorMinor {
        self.since
    }

    /// Returns whether a cluster version is decided.
    pub fn is_decided(&self, version: Option<MajorMinor>) -> bool {
        self.decided(version).is_some()
    }

    /// Returns the cluster version if it is above the undecided one.
    pub(crate) fn decided(&self, version: Option<MajorMinor>) -> Option<MajorMinor> {
        version.filter(|&version| version > self.undecided)
    }
}

/// The id of a member.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemberId(pub u64);

impl MemberId {
    /// The id that means "no member", such as the leader while there is none.
    pub const NONE: MemberId = MemberId(0);
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A member as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The member's id.
    pub id: MemberId,
    /// The member's name, for messages.
    pub name: String,
    /// Whether it is a voter. The decision applies to learners, but they have no vote.
    pub voter: bool,
    /// Whether it ever started.
    pub started: bool,
    /// The flags it published, if any.
    pub publication: Publication,
}

impl Member {
    /// Returns the name, or the id where there is none.
    pub fn display_name(&self) -> String {
        if self.name.is_empty() {
            self.id.to_string()
        } else {
            self.name.clone()
        }
    }
}

/// The state of a member's published attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    /// The member has not published yet; it has no vote.
    Nothing,
    /// Attributes without a proposal: ClusterFeatureGate is off on the member, or it does not
    /// know cluster features. While there is such a member, voter or learner, no feature is on.
    Foreign,
    /// The member's version and raw flags.
    Proposal(Proposal),
}

/// A member's version and raw flags, never resolved, so that a later decision can still
/// distinguish set values from defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The member's server version.
    pub version: MajorMinor,
    /// The member's flags as given, unknown names and toggles included.
    pub flags: BTreeMap<String, bool>,
}
