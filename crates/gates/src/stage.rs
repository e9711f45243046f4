//! How mature a feature is.

use serde::{Deserialize, Serialize};

/// The stages of a feature's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Not there yet at the version in force. Never declared; it is what a feature
    /// is before its first spec.
    PreAlpha,
    /// May change or vanish; normally off.
    Alpha,
    /// Well tested; will not vanish without deprecation.
    Beta,
    /// Done. The gate itself will go.
    #[serde(rename = "GA")]
    Ga,
    /// The gate is no longer of use and will go.
    Deprecated,
    /// Gone: reads as off, and setting it says when it was removed.
    Removed,
}

impl Stage {
    /// The text in metrics and on the wire; empty for GA, as users of Kubernetes know it.
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

    /// The text for people: like [`Stage::wire_text`], but GA says so.
    pub const fn text(self) -> &'static str {
        match self {
            Stage::Ga => "GA",
            other => other.wire_text(),
        }
    }

    /// How much may be built on it. A feature depends only on equal or higher ranks;
    /// an alpha may depend on what does not exist yet.
    pub(crate) const fn stability_rank(self) -> u8 {
        match self {
            Stage::Removed | Stage::Deprecated => 0,
            Stage::PreAlpha | Stage::Alpha => 1,
            Stage::Beta => 2,
            Stage::Ga => 3,
        }
    }

    /// Whether the feature exists at all in this stage.
    pub const fn exists(self) -> bool {
        !matches!(self, Stage::PreAlpha | Stage::Removed)
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}
