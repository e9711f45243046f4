//! Reads of the cluster's values: by handle in the apply path, by name elsewhere.

use std::marker::PhantomData;

use thiserror::Error;

use crate::bits::Bits;
use crate::cluster::ClusterParams;
use crate::error::{Classified, ErrorClass};
use crate::feature::{FeatureSet, MemberOf};
use crate::gate::{Features, GateSet};
use crate::registry::{Registry, UnknownFeature};
use crate::version::MajorMinor;

/// The cluster's values at one log index, checked by handle with one array access. Make one
/// whenever params change and share it; inside apply use the one bound to the entry.
#[derive(Debug, Clone)]
pub struct ClusterView<Set: FeatureSet> {
    bits: Bits,
    version: Option<MajorMinor>,
    set: PhantomData<Set>,
}

impl<Set: FeatureSet> ClusterView<Set> {
    /// Returns whether a feature is on. Without params none is.
    #[inline]
    pub fn enabled<F: MemberOf<Set>>(&self, _feature: F) -> bool {
        self.bits.get(F::INDEX)
    }

    /// Returns the version at which the values were decided; absent without params. Where a
    /// feature works differently since a version, its code chooses by this version.
    pub fn version(&self) -> Option<MajorMinor> {
        self.version
    }
}

impl<Set: FeatureSet> Features<Set> {
    /// Returns the cluster's values for these features.
    pub fn view(&self, params: Option<&ClusterParams>) -> ClusterView<Set> {
        let features = self.registry().features();
        ClusterView {
            bits: match params {
                None => Bits::default(),
                Some(params) => Bits::collect(
                    features
                        .iter()
                        .map(|feature| params.enabled(self.registry(), &feature.name)),
                ),
            },
            version: params.map(|params| params.version),
            set: PhantomData,
        }
    }
}

/// Returns the value of a feature of either level: the cluster's value of a cluster
/// feature, else this server's value.
pub fn enabled_at_either_level(
    server: &GateSet,
    cluster: &Registry,
    params: Option<&ClusterParams>,
    name: &str,
) -> Result<bool, UnknownFeature> {
    if cluster.get(name).is_some() {
        return Ok(params.is_some_and(|params| params.enabled(cluster, name)));
    }
    server.try_enabled(name)
}

/// Refuses a request that needs features which are off.
pub fn require<'a>(
    registry: &Registry,
    params: Option<&ClusterParams>,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<(), NotEnabled> {
    let off: Vec<String> = names
        .into_iter()
        .filter(|name| !params.is_some_and(|params| params.enabled(registry, name)))
        .map(crate::error::quoted)
        .collect();
    if off.is_empty() {
        Ok(())
    } else {
        Err(NotEnabled { features: off })
    }
}

/// The error for a request that needs features which are off.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the request requires cluster features that are off: {}; see `gate explain` for why", features.join(", "))]
pub struct NotEnabled {
    /// The features that are off.
    pub features: Vec<String>,
}

impl Classified for NotEnabled {
    fn id(&self) -> &'static str {
        "E-NOT-ENABLED"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::NotEnabled
    }
}
