//! Changes of the options of a process, as plans and explanations name them.

use std::fmt;

use portunus_gates::{EffectiveVersion, MajorMinor};

use crate::options::{ONE_MORE_RELEASE_VARIABLE, Options};

/// One change of a flag, of the environment or of the binary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// `--emulated-version`. The minimum compatibility version becomes one minor below, as at
    /// start.
    Emulation(MajorMinor),
    /// `--min-compatibility-version`
    MinCompat(MajorMinor),
    /// Another binary, with the versions that it starts with.
    Binary(EffectiveVersion),
    /// One key of `--runtime-config`.
    SetKey {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// One key less in `--runtime-config`.
    RemoveKey(String),
    /// `--emulation-forward-compatible`
    ForwardCompatible(bool),
    /// `--runtime-config-emulation-forward-compatible`
    RuntimeConfigForwardCompatible(bool),
    /// `--strict-emulation`
    StrictEmulation(bool),
    /// Removed APIs are served for one more release.
    OneMoreRelease(bool),
}

impl Change {
    /// Creates the change of one key of runtime-config.
    pub fn set_key(key: impl Into<String>, on: bool) -> Change {
        Change::SetKey {
            key: key.into(),
            value: on.to_string(),
        }
    }

    /// Applies the change.
    pub fn apply(&self, options: &mut Options) {
        match self {
            Change::Emulation(version) => options.versions.set_emulation(*version),
            Change::MinCompat(version) => options.versions.set_min_compat(*version),
            Change::Binary(versions) => options.versions = versions.clone(),
            Change::SetKey { key, value } => options.runtime_config.set(key, value),
            Change::RemoveKey(key) => options.runtime_config.remove(key),
            Change::ForwardCompatible(on) => options.forward.emulation = *on,
            Change::RuntimeConfigForwardCompatible(on) => options.forward.runtime_config = *on,
            Change::StrictEmulation(on) => options.strict_emulation = *on,
            Change::OneMoreRelease(on) => options.serve_removed_one_more_release = *on,
        }
    }
}

impl Options {
    /// Returns these options after changes, in order.
    #[must_use]
    pub fn after<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Options {
        let mut options = self.clone();
        for change in changes {
            change.apply(&mut options);
        }
        options
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Emulation(version) => write!(f, "--emulated-version={version}"),
            Change::MinCompat(version) => write!(f, "--min-compatibility-version={version}"),
            Change::Binary(versions) => write!(f, "binary {}", versions.binary()),
            Change::SetKey { key, value } => write!(f, "{key}={value} in --runtime-config"),
            Change::RemoveKey(key) => write!(f, "no {key} in --runtime-config"),
            Change::ForwardCompatible(on) => write!(f, "--emulation-forward-compatible={on}"),
            Change::RuntimeConfigForwardCompatible(on) => {
                write!(f, "--runtime-config-emulation-forward-compatible={on}")
            }
            Change::StrictEmulation(on) => write!(f, "--strict-emulation={on}"),
            Change::OneMoreRelease(on) => {
                write!(f, "{ONE_MORE_RELEASE_VARIABLE}={on} in the environment")
            }
        }
    }
}
