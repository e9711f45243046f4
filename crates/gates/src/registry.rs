//! All features of one level, checked as a whole.
//!
//! A [`RegistryBuilder`] takes features, dependencies and overridden defaults, refusing
//! what breaks a rule and then keeping what it had. [`RegistryBuilder::build`] closes it;
//! the [`Registry`] never changes and is shared by everything that reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dependency::{self, DependencyError};
use crate::error::{Classified, ErrorClass, quoted};
use crate::feature::{Declaration, FeatureSet, Level, Reversibility, Touches};
use crate::spec::{RawSpec, Selected, Spec, SpecError, Versions, complete, select};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// The toggle for every alpha feature nobody named.
pub const ALL_ALPHA: &str = "AllAlpha";
/// The toggle for every beta feature nobody named.
pub const ALL_BETA: &str = "AllBeta";

/// The stage a toggle stands for, if the name is one.
pub(crate) fn toggled_stage(name: &str) -> Option<Stage> {
    match name {
        ALL_ALPHA => Some(Stage::Alpha),
        ALL_BETA => Some(Stage::Beta),
        _ => None,
    }
}

/// A feature on its way into a registry; its history is not yet checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFeature {
    /// The name users write.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub doc: String,
    /// Who answers questions about it.
    #[serde(default)]
    pub owner: String,
    /// The most lasting thing it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// Its history, oldest first.
    pub specs: Vec<RawSpec>,
    /// What must be on for it to be on.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Why it guards nothing here, if so.
    #[serde(default)]
    pub inert: Option<String>,
    /// The first version that can read what is written with it.
    #[serde(default)]
    pub readable_since: Option<MajorMinor>,
}

impl NewFeature {
    /// The least there is to say: a name and a history.
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

    /// Needs these to be on.
    #[must_use]
    pub fn depending_on<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.depends_on = names.into_iter().map(Into::into).collect();
        self
    }

    /// Writes what only `version` and later can read.
    #[must_use]
    pub fn readable_since(mut self, version: MajorMinor) -> Self {
        self.readable_since = Some(version);
        self
    }

    /// Can be turned off again only so.
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

/// A registered feature: legal, complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Registered {
    /// The name users write.
    pub name: String,
    /// Who decides it.
    pub level: Level,
    /// What it does.
    pub doc: String,
    /// Who answers questions about it.
    pub owner: String,
    /// The most lasting thing it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// Its history with inherited values filled in.
    pub specs: Vec<Spec>,
    /// Names of what must be on, sorted.
    pub depends_on: Vec<String>,
    /// Why it guards nothing here, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inert: Option<String>,
    /// The first version that can read what is written with it, if not every version can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readable_since: Option<MajorMinor>,
}

impl Registered {
    /// The spec in force at these versions.
    pub fn at(&self, versions: Versions) -> Selected {
        select(&self.specs, versions)
    }

    /// Since which version it exists.
    pub fn since(&self) -> MajorMinor {
        // A registered history cannot be empty; 0.0 means "always" anyway.
        self.specs
            .first()
            .map_or(MajorMinor::ZERO, |spec| spec.version)
    }

    /// From which version on it is gone, if it ever is.
    pub fn removed_in(&self) -> Option<MajorMinor> {
        self.specs
            .iter()
            .find(|spec| spec.stage == Stage::Removed)
            .map(|spec| spec.version)
    }

    /// The first line of its documentation.
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
    /// An empty registry of this level. The toggles AllAlpha and AllBeta are always known.
    pub fn new(level: Level) -> RegistryBuilder {
        RegistryBuilder {
            level,
            features: Vec::new(),
            by_name: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            closed: false,
        }
    }

    /// Adds one feature. What it depends on must be there already.
    pub fn add(&mut self, feature: NewFeature) -> Result<(), RegisterError> {
        self.add_all([feature])
    }

    /// Adds all of them, or none. They may depend on each other in any order. A
    /// feature that is there already with the same history is accepted silently.
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

    /// Adds dependencies between features that are there, or none of them. The given
    /// map is only read; lists are merged with what is known, sorted, without repeats.
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
    /// theirs, explicit values still win. Returns what to tell the operator.
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

    /// [`RegistryBuilder::override_default`] at a version and one minor below it.
    pub fn override_default_at(
        &mut self,
        name: &str,
        value: bool,
        version: MajorMinor,
    ) -> Result<Option<Stage>, OverrideError> {
        self.override_default(name, value, Versions::emulating(version))
    }

    /// Names of another registry, so that a feature set at the wrong level is answered
    /// with the flag to use.
    pub fn know_elsewhere(&mut self, other: &Registry) {
        for feature in other.features() {
            self.elsewhere.insert(feature.name.clone(), feature.level);
        }
    }

    /// No more features from here on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The finished registry.
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

/// All features of one level. Never changes.
#[derive(Debug, Clone)]
pub struct Registry {
    level: Level,
    features: Vec<Registered>,
    by_name: BTreeMap<String, usize>,
    /// For each feature, the positions of what it needs.
    edges: Vec<Vec<usize>>,
    /// Positions such that what a feature needs comes before it.
    order: Vec<usize>,
    elsewhere: BTreeMap<String, Level>,
}

impl Registry {
    /// The registry behind a [`registry!`](crate::registry!) type.
    pub fn of<Set: FeatureSet>() -> Result<Registry, RegisterError> {
        Ok(Registry::builder_of::<Set>()?.build())
    }

    /// The same, still open: for overridden defaults or further features. Features
    /// added later come behind, so that the handles keep their positions.
    pub fn builder_of<Set: FeatureSet>() -> Result<RegistryBuilder, RegisterError> {
        let mut builder = RegistryBuilder::new(Set::LEVEL);
        builder.add_all(Set::DECLARATIONS.iter().map(NewFeature::from))?;
        Ok(builder)
    }

    /// Who decides these features.
    pub fn level(&self) -> Level {
        self.level
    }

    /// In order of registration; the position is what handles carry.
    pub fn features(&self) -> &[Registered] {
        &self.features
    }

    /// Sorted by name.
    pub fn sorted(&self) -> impl Iterator<Item = &Registered> {
        self.by_name.values().map(|&index| &self.features[index])
    }

    /// By name.
    pub fn get(&self, name: &str) -> Option<&Registered> {
        self.position(name).map(|index| &self.features[index])
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Names with positions, sorted by name.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (&String, &usize)> {
        self.by_name.iter()
    }

    pub(crate) fn dependencies(&self, index: usize) -> &[usize] {
        &self.edges[index]
    }

    pub(crate) fn dependency_order(&self) -> &[usize] {
        &self.order
    }

    /// What to answer to a name this registry does not have.
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
                None => format!(
                    "known {} features are listed by `gates list`",
                    self.level.text()
                ),
            },
        }
    }
}

/// A name that no feature has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown feature {name}: {hint}")]
pub struct UnknownFeature {
    /// The name as given, shortened for display.
    pub name: String,
    /// What the person may have meant.
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
    /// Too late.
    #[error("the registry is closed: register features before flags are added")]
    Closed,
    /// A name that could not be written in a flag, or is a toggle's.
    #[error(
        "{name} cannot name a feature: use letters and digits, without = , : or blanks, and not AllAlpha or AllBeta"
    )]
    BadName { name: String },
    /// An illegal history.
    #[error("feature {name} has an illegal history")]
    Spec { name: String, source: SpecError },
    /// Registered before with another history.
    #[error("feature {name} is registered with another history: use a new feature name")]
    Conflict { name: String },
    /// An illegal dependency.
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
    /// Too late.
    #[error("the registry is closed: override defaults before flags are added")]
    Closed,
    /// No such feature.
    #[error("unknown feature {name}: a default can only be overridden for a registered feature")]
    Unknown { name: String },
    /// Fixed.
    #[error("the default of {name} is locked to {value} at this version")]
    Locked { name: String, value: bool },
    /// Not there yet.
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
