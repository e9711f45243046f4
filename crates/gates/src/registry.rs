//! All features of one level, checked as a whole.
//!
//! A [`RegistryBuilder`] takes features, dependencies and overridden defaults; a call that
//! breaks a rule is refused and changes nothing. [`RegistryBuilder::build`] closes it;
//! the [`Registry`] never changes and is shared by its readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dependency::{self, DependencyError};
use crate::error::{Classified, ErrorClass, quoted};
use crate::feature::{Declaration, FeatureSet, Level, Reversibility, Touches};
use crate::spec::{RawSpec, Selected, Spec, SpecError, Versions, complete, select};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// The toggle for every alpha feature that is not set by name.
pub const ALL_ALPHA: &str = "AllAlpha";
/// The toggle for every beta feature that is not set by name.
pub const ALL_BETA: &str = "AllBeta";

/// Returns the stage that a toggle sets, if the name is a toggle.
pub(crate) fn toggled_stage(name: &str) -> Option<Stage> {
    match name {
        ALL_ALPHA => Some(Stage::Alpha),
        ALL_BETA => Some(Stage::Beta),
        _ => None,
    }
}

/// A feature to register; its history is not yet checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFeature {
    /// The name users write.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub doc: String,
    /// The team or module that maintains it.
    #[serde(default)]
    pub owner: String,
    /// What it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// Its history, oldest first.
    pub specs: Vec<RawSpec>,
    /// The features that must be on for it to be on.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Why it has no effect in this program, if so.
    #[serde(default)]
    pub inert: Option<String>,
    /// The first version that can read what is written with it.
    #[serde(default)]
    pub readable_since: Option<MajorMinor>,
}

impl NewFeature {
    /// Creates a feature from a name and a history, with defaults for the rest.
    pub fn new(name: impl Into<String>, specs: impl IntoIterator<Item = Spec>) -> NewFeature {
        NewFeature {
            name: name.into(),
            doc: String::new(),
            owner: String::new(),
            touches: Touches::Nothing,
            reversible: Reversibility::Free,
            specs: specs.into_iter().map(RawSpec::from).collect(),
            depends_on: Vec::new(),
            inert: None,
            readable_since: None,
        }
    }

    /// Sets the features that must be on for it to be on.
    #[must_use]
    pub fn depending_on<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.depends_on = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the first version that can read what is written with it.
    #[must_use]
    pub fn readable_since(mut self, version: MajorMinor) -> Self {
        self.readable_since = Some(version);
        self
    }

    /// Sets whether it can be turned off again.
    #[must_use]
    pub fn reversible(mut self, reversible: Reversibility) -> Self {
        self.reversible = reversible;
        self
    }
}

impl From<&Declaration> for NewFeature {
    fn from(declaration: &Declaration) -> NewFeature {
        NewFeature {
            name: declaration.name.to_owned(),
            doc: declaration.doc.trim().to_owned(),
            owner: declaration.owner.to_owned(),
            touches: declaration.touches,
            reversible: declaration.reversible,
            specs: declaration
                .specs
                .iter()
                .copied()
                .map(RawSpec::from)
                .collect(),
            depends_on: declaration
                .depends_on
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            inert: declaration.inert.map(str::to_owned),
            readable_since: declaration.readable_since,
        }
    }
}

/// A registered feature, whose history is legal and complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Registered {
    /// The name users write.
    pub name: String,
    /// The level that decides its value.
    pub level: Level,
    /// What it does.
    pub doc: String,
    /// The team or module that maintains it.
    pub owner: String,
    /// What it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// Its history with inherited values filled in.
    pub specs: Vec<Spec>,
    /// The names of the features that must be on, sorted.
    pub depends_on: Vec<String>,
    /// Why it has no effect in this program, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inert: Option<String>,
    /// The first version that can read what is written with it, if not every version can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readable_since: Option<MajorMinor>,
}

impl Registered {
    /// Returns the spec in force at these versions.
    pub fn at(&self, versions: Versions) -> Selected {
        select(&self.specs, versions)
    }

    /// Returns the first version at which it exists.
    pub fn since(&self) -> MajorMinor {
        // A registered history cannot be empty; 0.0 means "always" anyway.
        self.specs
            .first()
            .map_or(MajorMinor::ZERO, |spec| spec.version)
    }

    /// Returns the version that removed it, if any.
    pub fn removed_in(&self) -> Option<MajorMinor> {
        self.specs
            .iter()
            .find(|spec| spec.stage == Stage::Removed)
            .map(|spec| spec.version)
    }

    /// Returns the first line of its documentation.
    pub fn summary(&self) -> &str {
        self.doc.lines().next().unwrap_or_default().trim()
    }
}

/// Collects features until it is closed.
#[derive(Debug, Clone)]
pub struct RegistryBuilder {
    level: Level,
    features: Vec<Registered>,
    by_name: BTreeMap<String, usize>,
    elsewhere: BTreeMap<String, Level>,
    closed: bool,
}

impl RegistryBuilder {
    /// Creates an empty registry of this level. The toggles AllAlpha and AllBeta are always
    /// known.
    pub fn new(level: Level) -> RegistryBuilder {
        RegistryBuilder {
            level,
            features: Vec::new(),
            by_name: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            closed: false,
        }
    }

    /// Adds one feature. The features it depends on must be registered already.
    pub fn add(&mut self, feature: NewFeature) -> Result<(), RegisterError> {
        self.add_all([feature])
    }

    /// Adds all features, or none. They may depend on each other in any order. A feature
    /// that is registered already with the same history is accepted and ignored.
    pub fn add_all(
        &mut self,
        features: impl IntoIterator<Item = NewFeature>,
    ) -> Result<(), RegisterError> {
        self.refuse_if_closed()?;
        let mut next = self.clone();
        let mut dependencies = BTreeMap::new();
        for feature in features {
            if !feature.depends_on.is_empty() {
                dependencies.insert(feature.name.clone(), feature.depends_on.clone());
            }
            next.insert(feature)?;
        }
        next.merge_dependencies(&dependencies)?;
        *self = next;
        Ok(())
    }

    /// Adds all dependencies between registered features, or none. Each list is merged
    /// with the known dependencies, sorted, without repeats.
    pub fn add_dependencies(
        &mut self,
        dependencies: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), RegisterError> {
        self.refuse_if_closed()?;
        let mut next = self.clone();
        next.merge_dependencies(dependencies)?;
        *self = next;
        Ok(())
    }

    /// Changes the default of the entry in force at `versions`; other entries keep
    /// theirs, explicit values still win. Returns the stage to warn about if it is GA or
    /// deprecated.
    pub fn override_default(
        &mut self,
        name: &str,
        value: bool,
        versions: Versions,
    ) -> Result<Option<Stage>, OverrideError> {
        if self.closed {
            return Err(OverrideError::Closed);
        }
        let Some(&index) = self.by_name.get(name) else {
            return Err(OverrideError::Unknown { name: quoted(name) });
        };
        let feature = &mut self.features[index];
        let selected = feature.at(versions);
        let Some(entry) = selected.entry else {
            return Err(OverrideError::PreAlpha {
                name: name.to_owned(),
                versions,
            });
        };
        if selected.spec.locked {
            return Err(OverrideError::Locked {
                name: name.to_owned(),
                value: selected.spec.default,
            });
        }
        feature.specs[entry].default = value;
        let frozen = matches!(selected.spec.stage, Stage::Ga | Stage::Deprecated);
        Ok(frozen.then_some(selected.spec.stage))
    }

    /// Calls [`RegistryBuilder::override_default`] with a version and, as minimum
    /// compatibility version, one minor below it.
    pub fn override_default_at(
        &mut self,
        name: &str,
        value: bool,
        version: MajorMinor,
    ) -> Result<Option<Stage>, OverrideError> {
        self.override_default(name, value, Versions::emulating(version))
    }

    /// Adds the names of another registry, so that the error for a feature set at the wrong
    /// level names the flag to use.
    pub fn add_other_level(&mut self, other: &Registry) {
        for feature in other.features() {
            self.elsewhere.insert(feature.name.clone(), feature.level);
        }
    }

    /// Closes the registry: later calls that change it are refused.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Closes the builder and returns the registry.
    pub fn build(mut self) -> Registry {
        self.close();
        let edges: Vec<Vec<usize>> = self
            .features
            .iter()
            .map(|feature| {
                let position = |name: &String| self.by_name.get(name).copied();
                feature.depends_on.iter().filter_map(position).collect()
            })
            .collect();
        Registry {
            level: self.level,
            // Cycles were refused when the dependencies were added.
            order: dependency::topological_order(&edges).unwrap_or_default(),
            edges,
            features: self.features,
            by_name: self.by_name,
            elsewhere: self.elsewhere,
        }
    }

    fn refuse_if_closed(&self) -> Result<(), RegisterError> {
        if self.closed {
            return Err(RegisterError::Closed);
        }
        Ok(())
    }

    fn insert(&mut self, feature: NewFeature) -> Result<(), RegisterError> {
        let name = feature.name;
        if name.is_empty()
            || toggled_stage(&name).is_some()
            || name
                .chars()
                .any(|c| matches!(c, '=' | ',' | ':') || c.is_whitespace() || c.is_control())
        {
            return Err(RegisterError::BadName {
                name: quoted(&name),
            });
        }
        let specs = complete(&feature.specs).map_err(|source| RegisterError::Spec {
            name: name.clone(),
            source,
        })?;
        if let Some(&index) = self.by_name.get(&name) {
            return if self.features[index].specs == specs {
                Ok(())
            } else {
                Err(RegisterError::Conflict { name })
            };
        }
        self.by_name.insert(name.clone(), self.features.len());
        self.features.push(Registered {
            name,
            level: self.level,
            doc: feature
                .doc
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("\n"),
            owner: feature.owner,
            touches: feature.touches,
            reversible: feature.reversible,
            specs,
            depends_on: Vec::new(),
            inert: feature.inert,
            readable_since: feature.readable_since,
        });
        Ok(())
    }

    fn merge_dependencies(
        &mut self,
        dependencies: &BTreeMap<String, Vec<String>>,
    ) -> Result<(), RegisterError> {
        for (name, needs) in dependencies {
            let Some(&from) = self.by_name.get(name) else {
                return Err(DependencyError::UnknownFrom {
                    feature: quoted(name),
                }
                .into());
            };
            for need in needs {
                let Some(&to) = self.by_name.get(need) else {
                    return Err(DependencyError::UnknownTo {
                        feature: name.clone(),
                        dependency: quoted(need),
                    }
                    .into());
                };
                dependency::check(&self.features[from], &self.features[to], self.level)?;
            }
            let known = &mut self.features[from].depends_on;
            known.extend(needs.iter().cloned());
            known.sort();
            known.dedup();
        }
        dependency::refuse_cycles(&self.features, &self.by_name)?;
        Ok(())
    }
}

/// All features of one level; immutable.
#[derive(Debug, Clone)]
pub struct Registry {
    level: Level,
    features: Vec<Registered>,
    by_name: BTreeMap<String, usize>,
    /// For each feature, the positions of its dependencies.
    edges: Vec<Vec<usize>>,
    /// Positions in topological order: dependencies first.
    order: Vec<usize>,
    elsewhere: BTreeMap<String, Level>,
}

impl Registry {
    /// Builds the registry of a [`registry!`](crate::registry!) type.
    pub fn of<Set: FeatureSet>() -> Result<Registry, RegisterError> {
        Ok(Registry::builder_of::<Set>()?.build())
    }

    /// Returns the builder of a [`registry!`](crate::registry!) type, for overridden
    /// defaults or further features. Features added later are appended, so that handles
    /// keep their positions.
    pub fn builder_of<Set: FeatureSet>() -> Result<RegistryBuilder, RegisterError> {
        let mut builder = RegistryBuilder::new(Set::LEVEL);
        builder.add_all(Set::DECLARATIONS.iter().map(NewFeature::from))?;
        Ok(builder)
    }

    /// Returns the level of these features.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the features in order of registration, which is the position of handles.
    pub fn features(&self) -> &[Registered] {
        &self.features
    }

    /// Iterates over the features sorted by name.
    pub fn sorted(&self) -> impl Iterator<Item = &Registered> {
        self.by_name.values().map(|&index| &self.features[index])
    }

    /// Returns the feature of this name.
    pub fn get(&self, name: &str) -> Option<&Registered> {
        self.position(name).map(|index| &self.features[index])
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Iterates over names with positions, sorted by name.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&String, &usize)> {
        self.by_name.iter()
    }

    pub(crate) fn dependencies(&self, index: usize) -> &[usize] {
        &self.edges[index]
    }

    pub(crate) fn dependency_order(&self) -> &[usize] {
        &self.order
    }

    /// Returns the error for a name that is not in this registry, with a hint.
    pub fn unknown(&self, name: &str) -> UnknownFeature {
        let shown = quoted(name);
        if let Some(&level) = self.elsewhere.get(name) {
            return UnknownFeature {
                name: shown,
                hint: format!(
                    "it is a {} feature: set it with {}",
                    level.text(),
                    level.flag()
                ),
            };
        }
        UnknownFeature {
            name: shown,
            hint: match crate::suggest::nearest(name, self.by_name.keys()) {
                Some(nearest) => match self.get(nearest).and_then(Registered::removed_in) {
                    Some(version) => {
                        format!("did you mean {nearest} (removed in {version})?")
                    }
                    None => format!("did you mean {nearest}?"),
                },
                None => self.known_hint(),
            },
        }
    }
}

/// How many known names the error for an unknown one lists.
const NAMES_SHOWN_MAX: usize = 8;

impl Registry {
    /// Returns where the known features can be seen; of a component, which has no command for
    /// that, their names.
    fn known_hint(&self) -> String {
        if self.level != Level::Component {
            let level = self.level.text();
            return format!("known {level} features are listed by `portctl gate list`");
        }
        let is_special = |name: &str| name == ALL_ALPHA || name == ALL_BETA;
        let names = self.by_name.keys().map(String::as_str);
        let names: Vec<&str> = names.filter(|name| !is_special(name)).collect();
        let shown = names.iter().take(NAMES_SHOWN_MAX).copied();
        let shown: Vec<&str> = shown.collect();
        let more = if names.len() > NAMES_SHOWN_MAX {
            ", ..."
        } else {
            ""
        };
        format!("known features are {}{more}", shown.join(", "))
    }
}

/// The error for a name that no feature has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown feature {name}: {hint}")]
pub struct UnknownFeature {
    /// The name as given, shortened for display.
    pub name: String,
    /// The name or flag that was probably meant.
    pub hint: String,
}

impl Classified for UnknownFeature {
    fn id(&self) -> &'static str {
        "E-UNKNOWN"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Unknown
    }
}

/// Why a feature was not registered.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum RegisterError {
    /// The registry is closed.
    #[error("the registry is closed: register features before flags are added")]
    Closed,
    /// The name cannot be written in a flag, or is a toggle's.
    #[error(
        "{name} cannot name a feature: use letters and digits, without = , : or blanks, and not AllAlpha or AllBeta"
    )]
    BadName { name: String },
    /// The history is illegal.
    #[error("feature {name} has an illegal history")]
    Spec { name: String, source: SpecError },
    /// The feature is already registered with another history.
    #[error("feature {name} is registered with another history: use a new feature name")]
    Conflict { name: String },
    /// A dependency is illegal.
    #[error("a dependency is not allowed")]
    Dependency(#[from] DependencyError),
}

impl Classified for RegisterError {
    fn id(&self) -> &'static str {
        match self {
            RegisterError::Closed => "E-CLOSED",
            RegisterError::BadName { .. } => "E-BAD-NAME",
            RegisterError::Spec { source, .. } => source.id(),
            RegisterError::Conflict { .. } => "E-CONFLICT",
            RegisterError::Dependency(source) => source.id(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            RegisterError::Closed => ErrorClass::Closed,
            RegisterError::BadName { .. } => ErrorClass::Invalid,
            RegisterError::Spec { source, .. } => source.class(),
            RegisterError::Conflict { .. } => ErrorClass::Duplicate,
            RegisterError::Dependency(source) => source.class(),
        }
    }
}

/// Why a default was not overridden.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum OverrideError {
    /// The registry is closed.
    #[error("the registry is closed: override defaults before flags are added")]
    Closed,
    /// The registry has no such feature.
    #[error("unknown feature {name}: a default can only be overridden for a registered feature")]
    Unknown { name: String },
    /// The default is locked.
    #[error("the default of {name} is locked to {value} at this version")]
    Locked { name: String, value: bool },
    /// The feature does not exist yet at these versions.
    #[error("{name} does not exist at {versions}: override its default at a later version")]
    PreAlpha { name: String, versions: Versions },
}

impl Classified for OverrideError {
    fn id(&self) -> &'static str {
        match self {
            OverrideError::Closed => "E-CLOSED",
            OverrideError::Unknown { .. } => "E-UNKNOWN",
            OverrideError::Locked { .. } => "E-LOCKED",
            OverrideError::PreAlpha { .. } => "E-PREALPHA",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            OverrideError::Closed => ErrorClass::Closed,
            OverrideError::Unknown { .. } => ErrorClass::Unknown,
            OverrideError::Locked { .. } => ErrorClass::Locked,
            OverrideError::PreAlpha { .. } => ErrorClass::PreAlpha,
        }
    }
}
