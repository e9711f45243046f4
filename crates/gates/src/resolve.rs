//! Resolution of server gates: from raw assignments and specs to values.
//!
//! [`resolution`] always starts from the raw assignments and the specs, never from an earlier
//! result. So the order of flags, of calls and of version changes cannot matter, and a
//! refused change leaves nothing behind.

use serde::Serialize;
use thiserror::Error;

use crate::assignments::{Assignments, Origin};
use crate::error::{Classified, ErrorClass};
use crate::registry::{ALL_ALPHA, ALL_BETA, Registry, UnknownFeature, toggled_stage};
use crate::spec::{Selected, Versions};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "origin")]
#[non_exhaustive]
pub enum Source {
    /// This origin set the feature by name.
    Explicit(Origin),
    /// This origin set AllAlpha, and the feature is alpha.
    AllAlpha(Origin),
    /// This origin set AllBeta, and the feature is beta.
    AllBeta(Origin),
    /// The default of the spec in force; no origin set a value.
    Default,
    /// The spec in force locks the value.
    Lock,
    /// Off because a dependency is off.
    Dependency,
    /// The members decided the value.
    Consensus,
    /// The feature does not exist at the version in force.
    Absent,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Explicit(origin) => f.write_str(origin.text()),
            Source::AllAlpha(origin) => write!(f, "{ALL_ALPHA} ({})", origin.text()),
            Source::AllBeta(origin) => write!(f, "{ALL_BETA} ({})", origin.text()),
            Source::Default => f.write_str("default"),
            Source::Lock => f.write_str("lock"),
            Source::Dependency => f.write_str("dependency"),
            Source::Consensus => f.write_str("consensus"),
            Source::Absent => f.write_str("absent"),
        }
    }
}

/// The resolved value of one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub value: bool,
    pub source: Source,
    pub selected: Selected,
}

/// The result of a resolution, with errors instead of an early return: plans show both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// By position in the registry. A refused assignment leaves the value unset.
    pub states: Vec<State>,
    /// All refused assignments sorted by name, or else all disabled dependencies.
    pub errors: Vec<SetError>,
    pub warnings: Vec<Warning>,
}

/// Resolves all features of a registry.
pub(crate) fn resolve(
    registry: &Registry,
    versions: Versions,
    assignments: &Assignments,
) -> Resolution {
    let mut states: Vec<State> = registry
        .features()
        .iter()
        .map(|feature| unset(feature.at(versions)))
        .collect();
    let mut errors = Vec::new();
    let mut warnings = Vec::new();

    for (name, value, origin) in assignments.iter() {
        if toggled_stage(name).is_some() {
            continue;
        }
        let Some(index) = registry.position(name) else {
            errors.push(SetError::Unknown(registry.unknown(name)));
            continue;
        };
        let state = &mut states[index];
        match check_value(name, value, versions, state.selected) {
            Err(error) => errors.push(error),
            Ok(warning) => {
                warnings.extend(warning);
                let inert = &registry.features()[index].inert;
                warnings.extend(inert.as_ref().map(|reason| Warning::Inert {
                    name: name.to_owned(),
                    reason: reason.clone(),
                }));
                state.value = value;
                state.source = Source::Explicit(origin);
            }
        }
    }
    for (toggle, source) in [
        (ALL_ALPHA, Source::AllAlpha as fn(Origin) -> Source),
        (ALL_BETA, Source::AllBeta),
    ] {
        let Some((value, origin)) = assignments.get(toggle) else {
            continue;
        };
        let stage = toggled_stage(toggle);
        for state in &mut states {
            // Locked features keep their value: a toggle sets only what a flag could set.
            if state.source == Source::Default && Some(state.selected.spec.stage) == stage {
                state.value = value;
                state.source = source(origin);
            }
        }
    }
    // A refused assignment can itself disable a dependency; report only the cause.
    if errors.is_empty() {
        errors.extend(disabled_dependencies(registry, &states));
    }
    Resolution {
        states,
        errors,
        warnings,
    }
}

fn unset(selected: Selected) -> State {
    let spec = selected.spec;
    State {
        value: spec.default,
        source: if !spec.stage.exists() {
            Source::Absent
        } else if spec.locked {
            Source::Lock
        } else {
            Source::Default
        },
        selected,
    }
}

/// Checks whether one explicit value may be set, and returns a warning if it is due.
pub(crate) fn check_value(
    name: &str,
    value: bool,
    versions: Versions,
    selected: Selected,
) -> Result<Option<Warning>, SetError> {
    let spec = selected.spec;
    let name = || name.to_owned();
    match spec.stage {
        Stage::PreAlpha => Err(SetError::PreAlpha {
            name: name(),
            value,
            versions,
        }),
        Stage::Removed => Err(SetError::Removed {
            name: name(),
            version: spec.version,
        }),
        _ if spec.locked && value != spec.default => Err(SetError::Locked {
            name: name(),
            value,
            locked: spec.default,
            since: spec.version,
        }),
        Stage::Ga | Stage::Deprecated => Ok(Some(Warning::GoingAway {
            name: name(),
            value,
            stage: spec.stage,
        })),
        Stage::Alpha | Stage::Beta => Ok(None),
    }
}

fn disabled_dependencies<'a>(
    registry: &'a Registry,
    states: &'a [State],
) -> impl Iterator<Item = SetError> + 'a {
    let features = registry.features();
    (0..states.len())
        .filter(|&index| states[index].value)
        .filter_map(move |index| {
            let disabled: Vec<String> = registry
                .dependencies(index)
                .iter()
                .filter(|&&needed| !states[needed].value)
                .map(|&needed| features[needed].name.clone())
                .collect();
            (!disabled.is_empty()).then(|| SetError::DependencyDisabled {
                name: features[index].name.clone(),
                disabled,
            })
        })
}

/// A notice for the operator that is no error. The caller logs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum Warning {
    /// A GA or deprecated gate was set; it will be removed in a later release.
    GoingAway {
        name: String,
        value: bool,
        stage: Stage,
    },
    /// A gate was set that has no effect in this program.
    Inert { name: String, reason: String },
    /// An alpha feature is on while an older version is emulated.
    AlphaUnderEmulation { name: String, emulation: MajorMinor },
    /// An environment variable was ignored.
    EnvironmentIgnored { variable: String, reason: String },
    /// The value has no effect at the present cluster version.
    NotYetHeeded {
        name: String,
        value: bool,
        cluster_version: MajorMinor,
        why: String,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::GoingAway { name, value, stage } => write!(
                f,
                "{name}={value} sets a {stage} gate, which will be removed in a later release: drop it from the flags"
            ),
            Warning::Inert { name, reason } => write!(f, "{name} has no effect here: {reason}"),
            Warning::AlphaUnderEmulation { name, emulation } => write!(
                f,
                "alpha feature {name} is on while version {emulation} is emulated: alpha features are not promised to work as they did then"
            ),
            Warning::EnvironmentIgnored { variable, reason } => {
                write!(f, "environment variable {variable} is ignored: {reason}")
            }
            Warning::NotYetHeeded {
                name,
                value,
                cluster_version,
                why,
            } => write!(
                f,
                "{name}={value} does not count at cluster version {cluster_version}: {why}"
            ),
        }
    }
}

/// Why one value cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum SetError {
    /// The registry has no such feature.
    #[error(transparent)]
    Unknown(#[from] UnknownFeature),
    /// The feature is locked to the other value.
    #[error(
        "cannot set {name} to {value}: it is locked to {locked} since {since}; remove it from the flags"
    )]
    Locked {
        name: String,
        value: bool,
        locked: bool,
        since: MajorMinor,
    },
    /// The feature does not exist yet at these versions.
    #[error(
        "cannot set {name} to {value}: it does not exist at {versions}; remove it or raise the version"
    )]
    PreAlpha {
        name: String,
        value: bool,
        versions: Versions,
    },
    /// The feature was removed.
    #[error("cannot set {name}: it was removed in {version}; remove it from the flags")]
    Removed { name: String, version: MajorMinor },
    /// The feature is on, but a dependency is off.
    #[error("{name} is on but needs {}, which is off: turn that on or {name} off", disabled.join(", "))]
    DependencyDisabled { name: String, disabled: Vec<String> },
}

impl Classified for SetError {
    fn id(&self) -> &'static str {
        match self {
            SetError::Unknown(unknown) => unknown.id(),
            SetError::Locked { .. } => "E-LOCKED",
            SetError::PreAlpha { .. } => "E-PREALPHA",
            SetError::Removed { .. } => "E-REMOVED",
            SetError::DependencyDisabled { .. } => "E-DEP-DISABLED",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            SetError::Unknown(unknown) => unknown.class(),
            SetError::Locked { .. } => ErrorClass::Locked,
            SetError::PreAlpha { .. } => ErrorClass::PreAlpha,
            SetError::Removed { .. } => ErrorClass::Removed,
            SetError::DependencyDisabled { .. } => ErrorClass::Dependency,
        }
    }
}

/// All errors of a set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetErrors(pub Vec<SetError>);

impl std::fmt::Display for SetErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SetErrors {}
