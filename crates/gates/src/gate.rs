//! The gates in force: immutable, passed explicitly, never a global.
//!
//! ```text
//!  Registry ─┐
//!  Versions ─┼─▶ GateSetBuilder ──build()──▶ GateSet ──▶ checks, explain, help, metrics
//!  flags    ─┘    (checks syntax only)         │
//!                                              └─ with / without / at ──▶ another GateSet
//! ```
//!
//! Every change makes a new set from the raw assignments, or is refused and changes nothing.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;

use crate::assignments::{Assignments, FlagError, Origin};
use crate::bits::Bits;
use crate::feature::{FeatureSet, MemberOf};
use crate::registry::{
    RegisterError, Registered, Registry, RegistryBuilder, UnknownFeature, toggled_stage,
};
use crate::resolve::{SetErrors, State, Warning, check_value, resolve};
use crate::spec::Versions;

/// Collects raw values. [`GateSetBuilder::build`] validates them, so flags may be added
/// before the version is known.
#[derive(Debug, Clone)]
pub struct GateSetBuilder {
    registry: Arc<Registry>,
    versions: Versions,
    assignments: Assignments,
    warnings: Vec<Warning>,
}

impl GateSetBuilder {
    /// Sets the versions.
    #[must_use]
    pub fn versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Adds `A=true,B=false` from the command line and checks only the syntax.
    pub fn flag(mut self, text: &str) -> Result<Self, FlagError> {
        self.assignments
            .merge(&Assignments::parse(Origin::Flag, text)?);
        Ok(self)
    }

    /// Adds parsed assignments.
    #[must_use]
    pub fn stage(mut self, assignments: &Assignments) -> Self {
        self.assignments.merge(assignments);
        self
    }

    /// Adds one variable per feature, such as `KUBE_FEATURE_Name=true`. Processes with other
    /// features inherit the same environment, so a refused variable is left out with a
    /// warning.
    #[must_use]
    pub fn environment<'a>(
        mut self,
        prefix: &str,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let (mut assigned, ignored) = Assignments::from_environment(prefix, variables);
        let mut reasons: Vec<(String, String)> = ignored
            .into_iter()
            .map(|error| (format!("{prefix}*"), error.to_string()))
            .collect();
        for (name, value) in assigned.to_map() {
            if toggled_stage(&name).is_some() {
                continue;
            }
            let refused = match self.registry.get(&name) {
                None => Some(self.registry.unknown(&name).to_string()),
                Some(feature) => {
                    let checked =
                        check_value(&name, value, self.versions, feature.at(self.versions));
                    checked.err().map(|error| error.to_string())
                }
            };
            if let Some(reason) = refused {
                assigned.remove(&name);
                reasons.push((format!("{prefix}{name}"), reason));
            }
        }
        self.warnings.extend(
            reasons
                .into_iter()
                .map(|(variable, reason)| Warning::EnvironmentIgnored { variable, reason }),
        );
        self.assignments.merge(&assigned);
        self
    }

    /// Validates all values and resolves the gates, or returns all errors.
    pub fn build(self) -> Result<GateSet, SetErrors> {
        let resolution = resolve(&self.registry, self.versions, &self.assignments);
        if !resolution.errors.is_empty() {
            return Err(SetErrors(resolution.errors));
        }
        let bits = Bits::collect(resolution.states.iter().map(|state| state.value));
        let mut warnings = self.warnings;
        warnings.extend(resolution.warnings);
        Ok(GateSet {
            registry: self.registry,
            versions: self.versions,
            assignments: self.assignments,
            states: resolution.states.into(),
            bits,
            warnings,
        })
    }
}

/// The gates of one process, checked by name. For checks by handle see [`Gates`].
#[derive(Debug, Clone)]
pub struct GateSet {
    registry: Arc<Registry>,
    versions: Versions,
    assignments: Assignments,
    states: Box<[State]>,
    /// The values by position, for checks by handle.
    bits: Bits,
    warnings: Vec<Warning>,
}

impl GateSet {
    /// Creates a builder without values.
    pub fn builder(registry: Arc<Registry>, versions: Versions) -> GateSetBuilder {
        GateSetBuilder {
            registry,
            versions,
            assignments: Assignments::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns the value of a feature by name; an error for an unknown name.
    pub fn try_enabled(&self, name: &str) -> Result<bool, UnknownFeature> {
        self.state(name).map(|(_, state)| state.value)
    }

    /// Returns whether the feature is set by name, not by AllAlpha or AllBeta.
    pub fn explicitly_set(&self, name: &str) -> bool {
        self.assignments.get(name).is_some()
    }

    /// Returns the versions at which the values were resolved.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// Returns the raw values.
    pub fn assignments(&self) -> &Assignments {
        &self.assignments
    }

    /// Returns the registry of the features.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the warnings to log once.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns this set with more values, or all errors.
    pub fn with(&self, assignments: &Assignments) -> Result<GateSet, SetErrors> {
        self.rebuilt(|builder| builder.stage(assignments))
    }

    /// Returns this set without the values of a name. Without a toggle, the values that it
    /// set go back to their defaults too.
    pub fn without(&self, name: &str) -> Result<GateSet, SetErrors> {
        self.rebuilt(|mut builder| {
            builder.assignments.remove(name);
            builder
        })
    }

    /// Returns a set of the same registry and versions without values.
    pub fn reset(&self) -> Result<GateSet, SetErrors> {
        GateSet::builder(self.registry.clone(), self.versions).build()
    }

    /// Returns this set at other versions, with every value that differs.
    pub fn at(&self, versions: Versions) -> Result<(GateSet, Vec<ValueChange>), SetErrors> {
        let next = self.rebuilt(|builder| builder.versions(versions))?;
        let changes = self
            .features()
            .zip(next.features())
            .filter(|((_, before), (_, after))| before.value != after.value)
            .map(|((feature, before), (_, after))| ValueChange {
                name: feature.name.clone(),
                before: before.value,
                after: after.value,
            })
            .collect();
        Ok((next, changes))
    }

    fn rebuilt(
        &self,
        change: impl FnOnce(GateSetBuilder) -> GateSetBuilder,
    ) -> Result<GateSet, SetErrors> {
        let builder = GateSet::builder(self.registry.clone(), self.versions);
        change(builder.stage(&self.assignments)).build()
    }

    pub(crate) fn state(&self, name: &str) -> Result<(&Registered, &State), UnknownFeature> {
        match self.registry.position(name) {
            Some(index) => Ok((&self.registry.features()[index], &self.states[index])),
            None => Err(self.registry.unknown(name)),
        }
    }

    /// Iterates over all features with their states, sorted by name.
    pub(crate) fn features(&self) -> impl Iterator<Item = (&Registered, &State)> {
        self.registry.sorted().filter_map(|feature| {
            let index = self.registry.position(&feature.name)?;
            Some((feature, &self.states[index]))
        })
    }
}

/// Formats `A=true,B=false`: every value set by name or by a toggle, sorted.
impl std::fmt::Display for GateSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::resolve::Source;
        let mut shown: BTreeMap<&str, bool> = BTreeMap::new();
        for (name, value, _) in self.assignments.iter() {
            shown.insert(name, value);
        }
        for (feature, state) in self.features() {
            if matches!(state.source, Source::AllAlpha(_) | Source::AllBeta(_)) {
                shown.insert(&feature.name, state.value);
            }
        }
        for (i, (name, value)) in shown.into_iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

/// A value that changes with the version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    /// The feature's name.
    pub name: String,
    /// The value at the old versions.
    pub before: bool,
    /// The value at the new versions.
    pub after: bool,
}

/// A [`registry!`](crate::registry!) with legal declarations, from which typed gates are
/// made.
#[derive(Debug, Clone)]
pub struct Features<Set: FeatureSet> {
    registry: Arc<Registry>,
    set: PhantomData<Set>,
}

impl<Set: FeatureSet> Features<Set> {
    /// Checks the declarations.
    pub fn declared() -> Result<Features<Set>, RegisterError> {
        Features::declared_with(|_| Ok(()))
    }

    /// Checks the declarations after `change` overrode defaults or appended features.
    pub fn declared_with<E: From<RegisterError>>(
        change: impl FnOnce(&mut RegistryBuilder) -> Result<(), E>,
    ) -> Result<Features<Set>, E> {
        let mut builder = Registry::builder_of::<Set>()?;
        change(&mut builder)?;
        Ok(Features {
            registry: Arc::new(builder.build()),
            set: PhantomData,
        })
    }

    /// Returns the features by name.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the gates in force at these versions with these values, or all errors.
    pub fn gates(
        &self,
        versions: Versions,
        assignments: &Assignments,
    ) -> Result<Gates<Set>, SetErrors> {
        let builder = GateSet::builder(self.registry.clone(), versions);
        Ok(Gates {
            set: builder.stage(assignments).build()?,
            registry: PhantomData,
        })
    }
}

/// Gates checked by handle with one array access.
///
/// ```
/// use portunus_gates::{Assignments, Features, MajorMinor, Origin, Versions, feature, registry};
///
/// feature! {
///     /// Prints in colour.
///     pub Colour {
///         level: Server, owner: "printer", touches: Nothing, reversible: Free,
///         specs: [Spec::alpha("1.1"), Spec::beta("1.2").on()],
///     }
/// }
/// registry! {
///     /// The features of the printer.
///     pub Printer: Server = [Colour]
/// }
///
/// let versions = Versions::emulating(MajorMinor::new(1, 2));
/// let flags = Assignments::parse(Origin::Flag, "Colour=false")?;
/// let gates = Features::<Printer>::declared()?.gates(versions, &flags)?;
/// assert!(!gates.enabled(Colour));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handle of another registry does not compile:
///
/// ```compile_fail
/// # use portunus_gates::{feature, registry, Gates};
/// feature! {
///     /// In no registry.
///     pub Lost {
///         level: Server, owner: "none", touches: Nothing, reversible: Free,
///         specs: [Spec::alpha("1.1")],
///     }
/// }
/// registry! {
///     /// Empty.
///     pub Empty: Server = []
/// }
/// fn check(gates: &Gates<Empty>) -> bool {
///     gates.enabled(Lost)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Gates<Set: FeatureSet> {
    set: GateSet,
    registry: PhantomData<Set>,
}

impl<Set: FeatureSet> Gates<Set> {
    /// Returns whether a feature is on.
    #[inline]
    pub fn enabled<F: MemberOf<Set>>(&self, _feature: F) -> bool {
        self.set.bits.get(F::INDEX)
    }
}

impl<Set: FeatureSet> Deref for Gates<Set> {
    type Target = GateSet;

    fn deref(&self) -> &GateSet {
        &self.set
    }
}
