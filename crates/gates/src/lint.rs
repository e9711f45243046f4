//! The rules for changes of features between releases.
//!
//! A test runs the lint against the list of the last release. Resolution cannot check these
//! rules: they compare two versions of the source, or forbid legal histories that would
//! surprise users.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::document::{DocumentError, DocumentedFeature, from_json};
use crate::error::{Classified, ErrorClass};
use crate::feature::Level;
use crate::registry::Registry;
use crate::spec::Spec;
use crate::stage::Stage;
use crate::version::{MajorMinor, Version};

/// How many minors a locked server feature stays registered, so that emulating a version
/// that far back still finds it.
const SERVER_MINORS_KEPT: u64 = 3;

/// How many minors a cluster feature is deprecated and locked before its removal: members
/// differ by one minor at most.
const CLUSTER_MINORS_KEPT: u64 = 1;

/// Compares the present registries with the list of the last release. A `current` version
/// with a patch number is a patch release, which changes nothing about any feature.
pub fn lint<'a>(
    registries: impl IntoIterator<Item = &'a Registry>,
    previous_json: &str,
    current: impl Into<Version>,
) -> Result<(), Vec<LintError>> {
    let current = current.into();
    let mut errors = Vec::new();
    let mut present: BTreeMap<String, DocumentedFeature> = BTreeMap::new();
    for registry in registries {
        for feature in registry.sorted() {
            let feature = DocumentedFeature {
                name: feature.name.clone(),
                level: feature.level,
                specs: feature.specs.clone(),
            };
            check_feature(&feature, &mut errors);
            if let Some(other) = present.insert(feature.name.clone(), feature.clone()) {
                errors.push(LintError::TwoLevels {
                    name: feature.name,
                    levels: [other.level, feature.level],
                });
            }
        }
    }
    match from_json(previous_json) {
        Err(source) => errors.push(LintError::Document(source)),
        Ok(previous) if current.patch() > 0 => check_patch(&previous, &present, &mut errors),
        Ok(previous) => {
            check_against_release(&previous, &present, current.major_minor(), &mut errors);
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn check_feature(feature: &DocumentedFeature, errors: &mut Vec<LintError>) {
    // A cluster feature is deprecated at the value it had; see `check_removal`.
    let steps = feature.specs.iter().zip(feature.specs.iter().skip(1));
    for (before, after) in steps {
        let is_lost = after.stage == Stage::Deprecated && after.locked && !after.default;
        if feature.level != Level::Cluster
            && before.stage == Stage::Beta
            && before.default
            && is_lost
        {
            errors.push(LintError::DeprecatedAtOnce {
                name: feature.name.clone(),
                version: after.version,
            });
        }
    }
    for spec in &feature.specs {
        if spec.stage == Stage::Alpha && spec.default {
            errors.push(LintError::AlphaOn {
                name: feature.name.clone(),
                version: spec.version,
            });
        }
        // A cluster feature may be a permanent switch; a server gate graduates to on.
        if feature.level != Level::Cluster && spec.stage == Stage::Ga && !spec.default {
            errors.push(LintError::GaOff {
                name: feature.name.clone(),
                version: spec.version,
            });
        }
    }
}

/// Refuses features that were added, removed or changed in a patch release.
fn check_patch(
    previous: &[DocumentedFeature],
    present: &BTreeMap<String, DocumentedFeature>,
    errors: &mut Vec<LintError>,
) {
    let previous: BTreeMap<&str, &DocumentedFeature> = previous
        .iter()
        .map(|feature| (feature.name.as_str(), feature))
        .collect();
    let changed = |feature: &DocumentedFeature| {
        previous
            .get(feature.name.as_str())
            .is_none_or(|old| old.specs != feature.specs || old.level != feature.level)
    };
    let gone = previous.keys().filter(|name| !present.contains_key(**name));
    let changed = present.values().filter(|feature| changed(feature));
    let names = gone
        .map(|name| (*name).to_owned())
        .chain(changed.map(|feature| feature.name.clone()));
    errors.extend(names.map(|name| LintError::ChangedInPatch { name }));
}

fn check_against_release(
    previous: &[DocumentedFeature],
    present: &BTreeMap<String, DocumentedFeature>,
    current: MajorMinor,
    errors: &mut Vec<LintError>,
) {
    let mut seen: BTreeMap<&str, &DocumentedFeature> = BTreeMap::new();
    for old in previous {
        if let Some(other) = seen.insert(&old.name, old)
            && other.specs != old.specs
        {
            errors.push(LintError::DuplicateDisagrees {
                name: old.name.clone(),
            });
        }
        let Some(new) = present.get(&old.name) else {
            check_removal(&old.name, old.level, &old.specs, current, errors);
            continue;
        };
        if new.level != old.level {
            errors.push(LintError::LevelChanged {
                name: old.name.clone(),
                from: old.level,
                to: new.level,
            });
        }
        if let Some(at) = new
            .specs
            .iter()
            .position(|spec| spec.stage == Stage::Removed)
            && !old.specs.iter().any(|spec| spec.stage == Stage::Removed)
        {
            check_removal(
                &old.name,
                old.level,
                &new.specs[..at],
                new.specs[at].version,
                errors,
            );
        }
        // Entries of released versions are frozen; the current minor may still change.
        let released = |specs: &[Spec]| -> Vec<Spec> {
            specs
                .iter()
                .filter(|spec| spec.version < current)
                .copied()
                .collect()
        };
        if released(&old.specs) != released(&new.specs) {
            errors.push(LintError::HistoryRewritten {
                name: old.name.clone(),
            });
        }
    }
}

/// Checks whether a feature with this history may be removed at `current`.
fn check_removal(
    name: &str,
    level: Level,
    specs: &[Spec],
    current: MajorMinor,
    errors: &mut Vec<LintError>,
) {
    let name = name.to_owned();
    let Some(last) = specs.last() else {
        return;
    };
    let locked_since = specs
        .iter()
        .find(|spec| spec.locked)
        .map(|spec| spec.version);
    match (level, last.stage) {
        (_, Stage::Alpha | Stage::PreAlpha | Stage::Removed) => {}
        (Level::Cluster, _) => {
            if last.stage != Stage::Deprecated || !last.locked {
                errors.push(LintError::RemovedBeforeDeprecated { name });
                return;
            }
            let steady = specs.iter().rev().nth(1);
            if steady.is_some_and(|steady| steady.default != last.default) {
                errors.push(LintError::RemovedAfterFlip { name });
            } else if steady.is_some_and(|steady| last.version < steady.version.plus_minors(1)) {
                errors.push(LintError::RemovedUnsteady { name });
            } else if current < last.version.plus_minors(CLUSTER_MINORS_KEPT) {
                errors.push(LintError::RemovedTooEarly {
                    name,
                    earliest: last.version.plus_minors(CLUSTER_MINORS_KEPT),
                });
            }
        }
        (_, Stage::Beta) => errors.push(LintError::BetaRemoved { name }),
        (_, Stage::Ga | Stage::Deprecated) => match locked_since.filter(|_| last.locked) {
            None => errors.push(LintError::RemovedUnlocked { name }),
            Some(since) if current < since.plus_minors(SERVER_MINORS_KEPT) => {
                errors.push(LintError::RemovedTooEarly {
                    name,
                    earliest: since.plus_minors(SERVER_MINORS_KEPT),
                });
            }
            Some(_) => {}
        },
    }
}

/// The rule of the life cycle that a feature breaks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum LintError {
    /// The list of the last release cannot be parsed.
    #[error("the list of the last release cannot be compared with")]
    Document(#[from] DocumentError),
    /// An alpha feature is on by default.
    #[error("{name} is alpha and on by default from {version}: alpha features are off")]
    AlphaOn { name: String, version: MajorMinor },
    /// A server feature is GA and off by default.
    #[error(
        "{name} is a GA server feature and off by default from {version}: a switch that stays is an option, not a gate"
    )]
    GaOff { name: String, version: MajorMinor },
    /// A server feature goes from beta and on to locked off in one step.
    #[error(
        "{name} is beta and on, and deprecated and locked off from {version}: let it be off by default for a minor first"
    )]
    DeprecatedAtOnce { name: String, version: MajorMinor },
    /// A feature changed between two patch releases.
    #[error("{name} changes in a patch release: features come, change and go with minor releases")]
    ChangedInPatch { name: String },
    /// Two features of different levels have one name.
    #[error("{name} is registered as {} and as {} feature: a name has one level", levels[0].text(), levels[1].text())]
    TwoLevels { name: String, levels: [Level; 2] },
    /// The level of a feature changed.
    #[error("{name} was a {} feature and is now a {} feature: use a new name", from.text(), to.text())]
    LevelChanged {
        name: String,
        from: Level,
        to: Level,
    },
    /// The list has one name twice with different histories.
    #[error("the list of the last release has {name} twice with different histories")]
    DuplicateDisagrees { name: String },
    /// A released entry was changed.
    #[error(
        "{name} has another history than was released: entries of released versions stay as they are"
    )]
    HistoryRewritten { name: String },
    /// A beta feature was removed.
    #[error("{name} was removed while beta: deprecate it first")]
    BetaRemoved { name: String },
    /// A server feature was removed while it could still be switched.
    #[error("{name} was removed while it could still be switched: lock it first")]
    RemovedUnlocked { name: String },
    /// A feature was removed too early.
    #[error("{name} was removed too early: keep it until {earliest}")]
    RemovedTooEarly { name: String, earliest: MajorMinor },
    /// A cluster feature was removed that was not deprecated and locked.
    #[error(
        "cluster feature {name} was removed without being deprecated and locked: a member without its code could have to read its data"
    )]
    RemovedBeforeDeprecated { name: String },
    /// A cluster feature was locked to another value than its default before.
    #[error(
        "cluster feature {name} was removed after deprecation changed its default: it needs a minor with the value it is locked to"
    )]
    RemovedAfterFlip { name: String },
    /// A cluster feature was deprecated in the minor of its last change.
    #[error("cluster feature {name} was removed without a steady minor before deprecation")]
    RemovedUnsteady { name: String },
}

impl Classified for LintError {
    fn id(&self) -> &'static str {
        match self {
            LintError::Document(source) => source.id(),
            LintError::AlphaOn { .. } => "E-LINT-ALPHA-ON",
            LintError::GaOff { .. } => "E-LINT-GA-OFF",
            LintError::DeprecatedAtOnce { .. } => "E-LINT-DEPRECATED-AT-ONCE",
            LintError::ChangedInPatch { .. } => "E-LINT-PATCH",
            LintError::TwoLevels { .. } => "E-LINT-TWO-LEVELS",
            LintError::LevelChanged { .. } => "E-LINT-LEVEL-CHANGED",
            LintError::DuplicateDisagrees { .. } => "E-LINT-DUPLICATE",
            LintError::HistoryRewritten { .. } => "E-LINT-HISTORY",
            LintError::BetaRemoved { .. } => "E-LINT-BETA-REMOVED",
            LintError::RemovedUnlocked { .. } => "E-LINT-REMOVED-UNLOCKED",
            LintError::RemovedTooEarly { .. } => "E-LINT-REMOVED-EARLY",
            LintError::RemovedBeforeDeprecated { .. } => "E-LINT-REMOVED-NOT-DEPRECATED",
            LintError::RemovedAfterFlip { .. } => "E-LINT-REMOVED-FLIPPED",
            LintError::RemovedUnsteady { .. } => "E-LINT-REMOVED-UNSTEADY",
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Invalid
    }
}
