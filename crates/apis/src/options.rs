//! What the flags and the environment of a process say about its APIs.

use std::collections::BTreeMap;

use portunus_gates::{EffectiveVersion, ForwardCompatibility, MajorMinor, parse_bool};
use thiserror::Error;

use crate::names::{GroupResource, VersionName};
use crate::runtime_config::RuntimeConfig;

/// The variable that keeps removed APIs for one more release.
pub const ONE_MORE_RELEASE_VARIABLE: &str = "KUBE_APISERVER_SERVE_REMOVED_APIS_FOR_ONE_RELEASE";
/// The variable that makes an alpha build drop removed APIs.
pub const STRICT_IN_ALPHA_VARIABLE: &str = "KUBE_APISERVER_STRICT_REMOVED_API_HANDLING_IN_ALPHA";

/// Everything that selects what a process serves, beside the declarations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The binary version with its pre-release, the emulation version and the minimum
    /// compatibility version.
    pub versions: EffectiveVersion,
    /// `--runtime-config`
    pub runtime_config: RuntimeConfig,
    /// `--emulation-forward-compatible` and `--runtime-config-emulation-forward-compatible`
    pub forward: ForwardCompatibility,
    /// `--strict-emulation`: an alpha API that runtime-config enables under emulation is an
    /// error, not a warning.
    pub strict_emulation: bool,
    /// [`ONE_MORE_RELEASE_VARIABLE`]: what was removed in exactly the emulated release is
    /// still served.
    pub serve_removed_one_more_release: bool,
    /// [`STRICT_IN_ALPHA_VARIABLE`]: alpha builds from alpha.1 on drop what the release drops.
    pub strict_removal_in_alpha: bool,
    /// Storage versions that are fixed by hand.
    pub storage_overrides: BTreeMap<GroupResource, VersionName>,
}

impl Options {
    /// Creates the options of a process without flags beside its versions.
    pub fn new(versions: EffectiveVersion) -> Options {
        Options {
            versions,
            runtime_config: RuntimeConfig::default(),
            forward: ForwardCompatibility::default(),
            strict_emulation: false,
            serve_removed_one_more_release: false,
            strict_removal_in_alpha: false,
            storage_overrides: BTreeMap::new(),
        }
    }

    /// Returns the release whose APIs are served: the emulation version.
    pub fn current(&self) -> MajorMinor {
        self.versions.emulation()
    }

    /// Sets the two switches of the environment from the values of their variables.
    pub fn with_environment(
        mut self,
        one_more_release: Option<&str>,
        strict_in_alpha: Option<&str>,
    ) -> Result<Options, SwitchError> {
        if let Some(value) = one_more_release {
            self.serve_removed_one_more_release = switch(ONE_MORE_RELEASE_VARIABLE, value)?;
        }
        if let Some(value) = strict_in_alpha {
            self.strict_removal_in_alpha = switch(STRICT_IN_ALPHA_VARIABLE, value)?;
        }
        Ok(self)
    }
}

fn switch(variable: &'static str, value: &str) -> Result<bool, SwitchError> {
    parse_bool(value).ok_or_else(|| SwitchError {
        variable,
        value: value.to_owned(),
    })
}

/// The error for a variable that is no boolean.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{variable}={value:?} cannot be used: it takes true or false")]
pub struct SwitchError {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
}
