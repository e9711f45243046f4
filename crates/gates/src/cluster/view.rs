//! Reads of the cluster's values: by handle in code, by name where a request or a person names
//! the feature.
//!
//! A [`ClusterView`] is the one type that code reads a cluster feature from. The apply path has the
//! view of the entries before the one being applied; everything else has the newest view.

use std::marker::PhantomData;
use std::sync::Arc;

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
    registry: Arc<Registry>,
    params: Option<ClusterParams>,
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
        self.params.as_ref().map(|params| params.version)
    }

    /// Returns whether a feature is on, by name; false for an unknown one.
    pub fn enabled_by_name(&self, name: &str) -> bool {
        let params = self.params.as_ref();
        params.is_some_and(|params| params.enabled(&self.registry, name))
    }

    /// Refuses a request that needs features which are off.
    pub fn require<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), NotEnabled> {
        let off: Vec<String> = names
            .into_iter()
            .filter(|name| !self.enabled_by_name(name))
            .map(crate::error::quoted)
            .collect();
        if off.is_empty() {
            Ok(())
        } else {
            Err(NotEnabled { features: off })
        }
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
            registry: Arc::clone(self.registry()),
            params: params.cloned(),
            set: PhantomData,
        }
    }
}

/// Returns the value of a feature of either level: the cluster's value of a cluster
/// feature, else this server's value.
pub fn enabled_at_either_level<Set: FeatureSet>(
    server: &GateSet,
    cluster: &ClusterView<Set>,
    name: &str,
) -> Result<bool, UnknownFeature> {
    match cluster.registry.get(name) {
        Some(_) => Ok(cluster.enabled_by_name(name)),
        None => server.try_enabled(name),
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
