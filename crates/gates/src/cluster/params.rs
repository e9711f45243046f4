//! The cluster params: the feature values that all members share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::ClusterSpecs;
use crate::error::{Classified, ErrorClass};
use crate::registry::Registry;
use crate::spec::Versions;
use crate::stage::Stage;
use crate::version::MajorMinor;

/// The feature values in force from one log index on, and the version they were decided at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterParams {
    /// The cluster version. Encoded as `major.minor`; decoding accepts `3.7.0`.
    pub version: MajorMinor,
    /// The feature values by name.
    pub features: BTreeMap<String, bool>,
}

impl ClusterParams {
    /// Returns the value of a feature on a member with this registry: the decided value;
    /// else, for a feature that is locked at that version, its locked default (a newer
    /// leader may no longer know it); else off.
    pub fn enabled(&self, registry: &Registry, name: &str) -> bool {
        if let Some(&value) = self.features.get(name) {
            return value;
        }
        registry.get(name).is_some_and(|feature| {
            let spec = feature.at(Versions::exactly(self.version)).spec;
            spec.locked && spec.default
        })
    }
}

impl ClusterParams {
    /// Returns the same features at a version, all of them off.
    fn all_off(&self, version: MajorMinor) -> ClusterParams {
        let names = self.features.keys();
        ClusterParams {
            version,
            features: names.map(|name| (name.clone(), false)).collect(),
        }
    }
}

impl ClusterSpecs {
    /// Returns the params a new cluster starts with before the first decision: defaults at
    /// the server's version, with alpha and beta features off, because a patch release may
    /// change those defaults. Absent for versions that have no params.
    pub fn bootstrap(&self, server_version: MajorMinor) -> Option<ClusterParams> {
        if server_version < self.since() {
            return None;
        }
        let versions = Versions::exactly(server_version);
        let features = self
            .registry()
            .features()
            .iter()
            .filter_map(|feature| {
                let spec = feature.at(versions).spec;
                let value = match spec.stage {
                    Stage::PreAlpha | Stage::Removed => return None,
                    Stage::Alpha | Stage::Beta => false,
                    Stage::Ga | Stage::Deprecated => spec.default,
                };
                Some((feature.name.clone(), value))
            })
            .collect();
        Some(ClusterParams {
            version: server_version,
            features,
        })
    }

    /// Returns stored params for an offline downgrade: features that do not exist at the
    /// target are dropped; below the first version with params there are none.
    pub fn pruned(&self, params: &ClusterParams, target: MajorMinor) -> Option<ClusterParams> {
        if target < self.since() {
            return None;
        }
        let exists = |name: &str| {
            self.registry()
                .get(name)
                .is_some_and(|feature| feature.at(Versions::exactly(target)).spec.stage.exists())
        };
        Some(ClusterParams {
            version: target,
            features: params
                .features
                .iter()
                .filter(|(name, _)| exists(name))
                .map(|(name, &value)| (name.clone(), value))
                .collect(),
        })
    }

    /// Returns what applying a version request does to the `stored` params.
    ///
    /// A request without params that changes the version comes from a leader that does not know
    /// cluster features, or from one that had not applied the first decision yet. The values
    /// were not decided for that version, so all of them go off until the next decision.
    pub fn applied(
        &self,
        version: MajorMinor,
        params: Option<ClusterParams>,
        stored: Option<&ClusterParams>,
    ) -> Result<AppliedParams, ParamsError> {
        match params {
            _ if version < self.since() => Ok(AppliedParams::Delete),
            None => Ok(match stored.filter(|stored| stored.version != version) {
                Some(stored) => AppliedParams::Replace(stored.all_off(version)),
                None => AppliedParams::Keep,
            }),
            Some(params) if params.version == version => Ok(AppliedParams::Replace(params)),
            Some(params) => Err(ParamsError::VersionMismatch {
                params: params.version,
                version,
            }),
        }
    }
}

/// The effect of a version request on the stored params.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppliedParams {
    /// Delete the params: the version has none.
    Delete,
    /// Keep the params: the request has none, and the version is theirs or none are stored.
    Keep,
    /// Replace the params by these.
    Replace(ClusterParams),
}

/// Why params in a log entry are refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ParamsError {
    /// The version of the params is not the cluster version of the request.
    #[error(
        "cluster params for version {params} came with cluster version {version}: the sender is broken, the entry has no effect"
    )]
    VersionMismatch {
        params: MajorMinor,
        version: MajorMinor,
    },
}

impl Classified for ParamsError {
    fn id(&self) -> &'static str {
        "E-PARAMS-VERSION"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Invalid
    }
}
