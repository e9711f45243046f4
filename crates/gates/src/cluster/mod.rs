//! Features decided by all members together.
//!
//! ```text
//!  member's flags ──raft──▶ Member.publication ─┐
//!  cluster version ─────────────────────────────┼─▶ decide ──▶ Decision ──raft──▶ ClusterParams
//!  previous params ─────────────────────────────┘   (leader)                          │
//!                                                                  ClusterView ◀──────┘ (every member)
//! ```
//!
//! There is no live gate object: there are specs, published flags, and the pure function
//! [`decide`]. Only the leader calls it, so its rules may change between releases; its
//! result travels in the same log entry as the cluster version, and from that entry on
//! every member reads the same values. Nothing here sends, stores or waits.

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
pub(crate) use explain::{find, reason};
pub use founding::*;
pub use params::*;
pub use view::*;

/// A cluster's features and the two versions that bound the mechanism.
#[derive(Debug, Clone)]
pub struct ClusterSpecs {
    registry: Arc<Registry>,
    since: MajorMinor,
    undecided: MajorMinor,
}

impl ClusterSpecs {
    /// `since` is the first cluster version that has params at all; `undecided` the one
    /// that stands for "not known yet" (etcd says 3.0 before the members agree).
    pub fn new(registry: Arc<Registry>, since: MajorMinor, undecided: MajorMinor) -> ClusterSpecs {
        ClusterSpecs {
            registry,
            since,
            undecided,
        }
    }

    /// The features.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The first cluster version that has params.
    pub fn since(&self) -> MajorMinor {
        self.since
    }

    /// Whether a cluster version is one that the members agreed on.
    pub fn is_decided(&self, version: Option<MajorMinor>) -> bool {
        self.decided(version).is_some()
    }

    /// The cluster version, if it is really decided.
    pub(crate) fn decided(&self, version: Option<MajorMinor>) -> Option<MajorMinor> {
        version.filter(|&version| version > self.undecided)
    }
}

/// A member of the cluster.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemberId(pub u64);

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// What is known of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its name, for messages.
    pub name: String,
    /// Whether it votes. A learner obeys but does not count.
    pub voter: bool,
    /// Whether it ever started.
    pub started: bool,
    /// What it published.
    pub publication: Publication,
}

impl Member {
    /// The name, or the id where there is none.
    pub fn shown(&self) -> String {
        if self.name.is_empty() {
            self.id.to_string()
        } else {
            self.name.clone()
        }
    }
}

/// What a member published about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    /// Nothing so far. It is not counted.
    Nothing,
    /// Attributes without a proposal: a member with the mechanism off, or one that does not
    /// know cluster features. While there is such a member, voter or learner, no feature is on.
    Foreign,
    /// Its version and its raw flags.
    Proposal(Proposal),
}

/// A member's own word: never resolved, so that a later version can still tell what
/// was said from what was a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its server version.
    pub version: MajorMinor,
    /// Its flags as given, unknown names and toggles included.
    pub flags: BTreeMap<String, bool>,
}
