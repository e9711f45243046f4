//! How far a client's version is from the server's, and whether that is allowed.
//!
//! Servers count it, so that an operator sees who has to be upgraded before the next step.
//! Nothing is refused for it.

use crate::effective::EffectiveVersion;
use crate::version::{MajorMinor, Version};

/// How many minors a client may be ahead of what the server behaves as.
const MINORS_AHEAD_MAX: u64 = 1;

/// A client's version, as its server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Skew {
    /// The version the server behaves as.
    Same,
    /// Older, but not older than what the server stays compatible with.
    Older,
    /// Newer by no more than a rolling upgrade needs.
    Newer,
    /// Too old or too new.
    Outside,
}

impl Skew {
    /// The word for metrics.
    pub const fn text(self) -> &'static str {
        match self {
            Skew::Same => "same",
            Skew::Older => "older",
            Skew::Newer => "newer",
            Skew::Outside => "outside",
        }
    }
}

impl EffectiveVersion {
    /// Judges a client: from the minimum compatibility version up to one minor above the
    /// emulated version is allowed.
    pub fn skew_of(&self, client: MajorMinor) -> Skew {
        let own = self.emulation();
        if client == own {
            Skew::Same
        } else if client < own && client >= self.min_compat() {
            Skew::Older
        } else if client > own && client <= own.plus_minors(MINORS_AHEAD_MAX) {
            Skew::Newer
        } else {
            Skew::Outside
        }
    }
}

/// The component and version a user agent begins with, if it is of the form `name/vX.Y.Z`.
/// Libraries write their own version without the `v`; they are no component.
pub fn component_of(user_agent: &str) -> Option<(&str, MajorMinor)> {
    let (name, version) = user_agent
        .split_ascii_whitespace()
        .next()?
        .split_once('/')?;
    let version = version.strip_prefix('v')?;
    let version = Version::parse_semantic(version).ok()?;
    (!name.is_empty()).then(|| (name, version.major_minor()))
}
