//! The rules for dependencies between features, and the order of decision.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::feature::Level;
use crate::registry::Registered;
use crate::spec::Versions;
use crate::stage::Stage;
use crate::version::MajorMinor;

/// Checks one dependency over the whole history of the dependent feature: at no version
/// may it have a more stable stage than the needed feature, be on by default while that is
/// off, or be locked while that is not.
pub(crate) fn check(
    feature: &Registered,
    needed: &Registered,
    level: Level,
) -> Result<(), DependencyError> {
    for spec in feature.specs.iter().rev() {
        if spec.stage == Stage::Removed {
            continue;
        }
        let versions = match (level, spec.min_compat) {
            (Level::Cluster, _) => Versions::exactly(spec.version),
            (_, Some(min_compat)) => Versions::new(spec.version, min_compat),
            (_, None) => Versions::emulating(spec.version),
        };
        let other = needed.at(versions).spec;
        let pair = || Pair {
            feature: feature.name.clone(),
            dependency: needed.name.clone(),
            version: spec.version,
        };
        if other.stage.stability_rank() < spec.stage.stability_rank() {
            return Err(DependencyError::Stage {
                pair: pair(),
                stage: spec.stage,
                dependency_stage: other.stage,
            });
        }
        if spec.default && !other.default {
            return Err(DependencyError::Default { pair: pair() });
        }
        if spec.locked && !other.locked {
            return Err(DependencyError::Lock { pair: pair() });
        }
    }
    Ok(())
}

pub(crate) fn refuse_cycles(
    features: &[Registered],
    by_name: &BTreeMap<String, usize>,
) -> Result<(), DependencyError> {
    let edges: Vec<Vec<usize>> = features
        .iter()
        .map(|feature| {
            let position = |name: &String| by_name.get(name).copied();
            feature.depends_on.iter().filter_map(position).collect()
        })
        .collect();
    match topological_order(&edges) {
        Ok(_) => Ok(()),
        Err(stuck) => Err(DependencyError::Cycle {
            features: stuck
                .into_iter()
                .map(|index| features[index].name.clone())
                .collect(),
        }),
    }
}

/// Returns the positions in topological order, dependencies first, or as an error those on
/// a cycle or dependent on one. `edges[i]` are the positions that `i` needs.
pub(crate) fn topological_order(edges: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> = edges.iter().map(Vec::len).collect();
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, needs) in edges.iter().enumerate() {
        for &to in needs {
            needed_by[to].push(from);
        }
    }
    let mut order: Vec<usize> = (0..edges.len()).filter(|&i| missing[i] == 0).collect();
    let mut done = 0;
    while let Some(&next) = order.get(done) {
        done += 1;
        for &from in &needed_by[next] {
            missing[from] -= 1;
            if missing[from] == 0 {
                order.push(from);
            }
        }
    }
    if order.len() == edges.len() {
        Ok(order)
    } else {
        Err((0..edges.len()).filter(|&i| missing[i] > 0).collect())
    }
}

/// A dependency at the version where it breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The dependent feature.
    pub feature: String,
    /// The needed feature.
    pub dependency: String,
    /// The version at which the rule is broken.
    pub version: MajorMinor,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} cannot depend on {} at {}",
            self.feature, self.dependency, self.version
        )
    }
}

/// Why a dependency is illegal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DependencyError {
    /// The dependent feature is not registered.
    #[error("dependencies of {feature} were given, which is not registered")]
    UnknownFrom { feature: String },
    /// The needed feature is not registered.
    #[error("{feature} depends on {dependency}, which is not registered")]
    UnknownTo { feature: String, dependency: String },
    /// The needed feature has a less stable stage.
    #[error("{pair}: {stage} cannot be built on {dependency_stage}")]
    Stage {
        pair: Pair,
        stage: Stage,
        dependency_stage: Stage,
    },
    /// The dependent feature is on by default, the needed one off.
    #[error("{pair}: it is on by default, the other is off by default")]
    Default { pair: Pair },
    /// The dependent feature is locked, the needed one is not.
    #[error("{pair}: it is locked, the other can be switched")]
    Lock { pair: Pair },
    /// The dependencies form a cycle.
    #[error("features depend on each other in a circle: {}", features.join(", "))]
    Cycle { features: Vec<String> },
}

impl Classified for DependencyError {
    fn id(&self) -> &'static str {
        match self {
            DependencyError::UnknownFrom { .. } => "E-DEP-UNKNOWN-FROM",
            DependencyError::UnknownTo { .. } => "E-DEP-UNKNOWN-TO",
            DependencyError::Stage { .. } => "E-DEP-STAGE",
            DependencyError::Default { .. } => "E-DEP-DEFAULT",
            DependencyError::Lock { .. } => "E-DEP-LOCK",
            DependencyError::Cycle { .. } => "E-DEP-CYCLE",
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Dependency
    }
}
