//! Version skew between a client and the server, and whether it is supported.
//!
//! Servers count requests by skew, so that an operator sees which clients need an upgrade
//! before the next step. No request is refused for its skew.

use crate::effective::EffectiveVersion;
use crate::version::{MajorMinor, Version};

/// How many minors a client may be ahead of the server's emulation version.
const MINORS_AHEAD_MAX: u64 = 1;

/// A client's version relative to the server's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Skew {
    /// The server's emulation version.
    Same,
    /// Older, but at least the server's minimum compatibility version.
    Older,
    /// Newer by no more than a rolling upgrade needs.
    Newer,
    /// Too old or too new to be supported.
    Outside,
}

impl Skew {
    /// Returns the label value for metrics.
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
    /// Classifies a client's version: from the minimum compatibility version up to one
    /// minor above the emulation version is supported.
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

/// Parses the component and version at the start of a user agent of the form
/// `name/vX.Y.Z`. Libraries write their own version without the `v` and are no component.
pub fn component_of(user_agent: &str) -> Option<(&str, MajorMinor)> {
    let (name, version) = user_agent
        .split_ascii_whitespace()
        .next()?
        .split_once('/')?;
    let version = version.strip_prefix('v')?;
    let version = Version::parse_semantic(version).ok()?;
    (!name.is_empty()).then(|| (name, version.major_minor()))
}
