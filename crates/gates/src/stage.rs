//! The stages of a feature: alpha, beta, GA, deprecated, removed.

use serde::{Deserialize, Serialize};

/// The maturity of a feature at a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// The feature does not exist yet at the version in force. Never declared: it is the
    /// stage before the first spec.
    PreAlpha,
    /// May change or be removed; normally off.
    Alpha,
    /// Well tested; not removed without deprecation.
    Beta,
    /// Generally available. The gate itself will be removed.
    #[serde(rename = "GA")]
    Ga,
    /// The gate has no use any more and will be removed.
    Deprecated,
    /// The gate reads as off; setting it is refused with the version of the removal.
    Removed,
}

impl Stage {
    /// Returns the text in metrics and on the wire; empty for GA, as in Kubernetes.
    pub const fn wire_text(self) -> &'static str {
        match self {
            Stage::PreAlpha => "PRE-ALPHA",
            Stage::Alpha => "ALPHA",
            Stage::Beta => "BETA",
            Stage::Ga => "",
            Stage::Deprecated => "DEPRECATED",
            Stage::Removed => "REMOVED",
        }
    }

    /// Returns the text for messages: [`Stage::wire_text`], but `GA` for GA.
    pub const fn text(self) -> &'static str {
        match self {
            Stage::Ga => "GA",
            other => other.wire_text(),
        }
    }

    /// Returns the rank for dependencies. A feature depends only on equal or higher ranks;
    /// an alpha may depend on a feature that does not exist yet.
    pub(crate) const fn stability_rank(self) -> u8 {
        match self {
            Stage::Removed | Stage::Deprecated => 0,
            Stage::PreAlpha | Stage::Alpha => 1,
            Stage::Beta => 2,
            Stage::Ga => 3,
        }
    }

    /// Returns whether the feature exists in this stage.
    pub const fn exists(self) -> bool {
        !matches!(self, Stage::PreAlpha | Stage::Removed)
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}
