//! The rule by which the founders of a new cluster verify that they share one minor version
//! before one of them publishes attributes or serves a client.
//!
//! ```text
//!             quorum of the own version            quorum is ready
//!  Checking ───────────────────────────▶ Ready ───────────────────▶ Serving
//!     │                                    │                           ▲
//!     │ another version,                   │ no quorum is left         │ a founder of the
//!     │ no founder of the own is ready     │                           │ own version serves
//!     └──────────────▶ Stopping ◀──────────┘                           │
//!                          └───────────────────────────────────────────┘
//! ```
//!
//! A founder that is `Ready` stops only when no quorum of its version is possible any more. So
//! a founder that serves belongs to a quorum whose founders serve as well, and either all
//! founders of a version serve or none does. Each founder requests version and phase of the
//! others, calls [`next_founding_phase`] with the answers, and answers the others with its new
//! phase. A founder that stops keeps answering until the others have seen it, or for a bounded
//! time.

use std::str::FromStr;

use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::version::MajorMinor;

/// The phase of a founder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FoundingPhase {
    /// The founder requests the versions of the others.
    Checking,
    /// The founder saw a quorum of its own version.
    Ready,
    /// The founder publishes its attributes and then serves clients.
    Serving,
    /// The founder saw another version and is about to end.
    Stopping,
}

impl FoundingPhase {
    const ALL: [FoundingPhase; 4] = [
        FoundingPhase::Checking,
        FoundingPhase::Ready,
        FoundingPhase::Serving,
        FoundingPhase::Stopping,
    ];

    /// Returns the name that founders exchange.
    pub fn text(self) -> &'static str {
        match self {
            FoundingPhase::Checking => "checking",
            FoundingPhase::Ready => "ready",
            FoundingPhase::Serving => "serving",
            FoundingPhase::Stopping => "stopping",
        }
    }
}

/// The error for a text that names no phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no phase of founding has this name")]
pub struct UnknownPhase;

impl FromStr for FoundingPhase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<FoundingPhase, UnknownPhase> {
        let mut phases = FoundingPhase::ALL.into_iter();
        phases
            .find(|phase| phase.text() == text)
            .ok_or(UnknownPhase)
    }
}

/// The answer of another founder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FounderAnswer {
    /// The founder did not answer.
    Silent,
    /// The founder takes no part in deciding cluster features, so only etcd's rule applies.
    Exempt,
    /// The founder takes part in deciding cluster features.
    Participant {
        /// The version it emulates.
        version: MajorMinor,
        /// Its phase.
        phase: FoundingPhase,
    },
}

/// Returns the next phase of a founder; `others` has one answer for each other founder.
pub fn next_founding_phase(
    version: MajorMinor,
    phase: FoundingPhase,
    others: &[FounderAnswer],
) -> FoundingPhase {
    use FoundingPhase::{Checking, Ready, Serving, Stopping};
    let founders = others.len() + 1;
    let quorum = founders / 2 + 1;
    let of_own = |wanted: FoundingPhase| {
        let same = FounderAnswer::Participant {
            version,
            phase: wanted,
        };
        others.iter().filter(|answer| **answer == same).count()
    };
    let count = |wanted| others.iter().filter(|answer| **answer == wanted).count();
    let sees_other_version = others.iter().any(|answer| {
        matches!(answer, FounderAnswer::Participant { version: theirs, .. } if *theirs != version)
    });
    if of_own(Serving) > 0 {
        return Serving;
    }
    let exempt = count(FounderAnswer::Exempt);
    let ready = 1 + of_own(Ready) + exempt;
    let present = ready + of_own(Checking);
    let is_hopeless = sees_other_version && present + count(FounderAnswer::Silent) < quorum;
    match phase {
        Serving | Stopping => phase,
        Checking if sees_other_version && of_own(Ready) == 0 => Stopping,
        Checking if present >= quorum => Ready,
        Ready if ready >= quorum => Serving,
        Checking | Ready if is_hopeless => Stopping,
        Checking | Ready => phase,
    }
}

/// The error for founders of different minor versions. The process ends with this message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MixedFounders {
    /// No founder serves yet.
    #[error(
        "members of this new cluster have different versions ({}): start all of them with one version, or with one --emulated-version, and upgrade afterwards, one by one; no version was written, so their data directories can stay",
        versions.join(", ")
    )]
    NoneServes {
        /// Each founder that answered, with its version.
        versions: Vec<String>,
    },
    /// A quorum of another version has founded the cluster.
    #[error(
        "this member has version {own}, but the members of this new cluster serve as {theirs} ({}): start it with that version, or with --emulated-version={theirs}; its data directory can stay",
        serving.join(", ")
    )]
    OthersServe {
        /// This member's version.
        own: MajorMinor,
        /// The version of the founders that serve.
        theirs: MajorMinor,
        /// The names of the founders that serve.
        serving: Vec<String>,
    },
}

impl MixedFounders {
    /// Creates the error of a founder that stops from the last answers of the others.
    pub fn new(own: (&str, MajorMinor), others: &[(String, FounderAnswer)]) -> MixedFounders {
        let (own_name, own_version) = own;
        let participants = others.iter().filter_map(|(name, answer)| match answer {
            FounderAnswer::Participant { version, phase } => Some((name, *version, *phase)),
            FounderAnswer::Silent | FounderAnswer::Exempt => None,
        });
        let serving = participants.clone().filter(|(_, version, phase)| {
            let has_quorum = matches!(phase, FoundingPhase::Ready | FoundingPhase::Serving);
            *version != own_version && has_quorum
        });
        let serving: Vec<_> = serving.collect();
        if let Some((_, theirs, _)) = serving.first() {
            let mut names: Vec<String> = serving.iter().map(|it| it.0.clone()).collect();
            names.sort();
            return MixedFounders::OthersServe {
                own: own_version,
                theirs: *theirs,
                serving: names,
            };
        }
        let mut versions = vec![format!("{own_name} {own_version}")];
        versions.extend(participants.map(|(name, version, _)| format!("{name} {version}")));
        versions.sort();
        MixedFounders::NoneServes { versions }
    }
}

impl Classified for MixedFounders {
    fn id(&self) -> &'static str {
        "E-MIXED-FOUNDERS"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Range
    }
}
