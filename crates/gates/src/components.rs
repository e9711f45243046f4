//! Several components in one process, each with its versions and gates.
//!
//! A process calls [`Components`] in this order:
//!
//! ```text
//!  register (gates, versions) ─▶ map versions ─▶ add_flags (closes) ─▶ set ─▶ validate ─▶ metrics
//! ```
//!
//! A call that fails changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::assignments::Assignments;
use crate::component_flags::{ComponentFlagError, ComponentFlags};
use crate::effective::{EffectiveVersion, VersionRangeErrors};
use crate::error::{Classified, ErrorClass, quoted};
use crate::gate::GateSet;
use crate::help::known_features;
use crate::metrics::{Sample, version_sample};
use crate::registry::Registry;
use crate::resolve::{SetErrors, Warning};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// Maps one component's version to another's; `None` where the mapping has no version.
pub type VersionMapping = Arc<dyn Fn(MajorMinor) -> Option<MajorMinor> + Send + Sync>;

#[derive(Clone)]
struct Component {
    version: EffectiveVersion,
    gates: Option<GateSet>,
    mappings: BTreeMap<String, VersionMapping>,
    /// The component whose version sets this one's; flags may not set it.
    mapped_from: Option<String>,
}

impl Component {
    /// Resolves the gates at the component's versions.
    fn resolve_gates(&mut self) -> Result<(), SetErrors> {
        if let Some(gates) = &self.gates {
            self.gates = Some(gates.at(self.version.versions())?.0);
        }
        Ok(())
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
            .field("version", &self.version)
            .field("maps_to", &self.mappings.keys().collect::<Vec<_>>())
            .field("mapped_from", &self.mapped_from)
            .finish_non_exhaustive()
    }
}

/// All components of a process.
#[derive(Debug, Clone, Default)]
pub struct Components {
    by_name: BTreeMap<String, Component>,
    closed: bool,
    set: bool,
}

impl Components {
    /// Creates an empty set of components.
    pub fn new() -> Components {
        Components::default()
    }

    /// Adds a component and resolves its gates at its versions.
    pub fn register(
        &mut self,
        name: &str,
        version: EffectiveVersion,
        features: Option<Arc<Registry>>,
    ) -> Result<(), ComponentError> {
        if self.closed {
            return Err(ComponentError::Closed);
        }
        if self.by_name.contains_key(name) {
            return Err(ComponentError::Duplicate { name: quoted(name) });
        }
        let gates = match features {
            None => None,
            Some(registry) => Some(GateSet::builder(registry, version.versions()).build()?),
        };
        let component = Component {
            version,
            gates,
            mappings: BTreeMap::new(),
            mapped_from: None,
        };
        self.by_name.insert(name.to_owned(), component);
        Ok(())
    }

    /// Adds a component unless it is registered. Returns the registered component's version.
    pub fn get_or_register(
        &mut self,
        name: &str,
        version: EffectiveVersion,
        features: Option<Arc<Registry>>,
    ) -> Result<EffectiveVersion, ComponentError> {
        if let Some(found) = self.version(name) {
            return Ok(found.clone());
        }
        self.register(name, version.clone(), features)?;
        Ok(version)
    }

    /// Returns a component's versions; `None` for an unknown one.
    pub fn version(&self, name: &str) -> Option<&EffectiveVersion> {
        self.by_name.get(name).map(|component| &component.version)
    }

    /// Returns a component's gates; `None` for an unknown one or one without gates.
    pub fn gates(&self, name: &str) -> Option<&GateSet> {
        self.by_name.get(name)?.gates.as_ref()
    }

    /// Makes `from`'s emulation version set `to`'s, now and whenever flags set it. A
    /// mapped version that `to` cannot emulate becomes the nearest one that it can.
    pub fn map_version(
        &mut self,
        from: &str,
        to: &str,
        mapping: VersionMapping,
    ) -> Result<(), ComponentError> {
        let mut next = self.clone();
        let Some(source) = next.by_name.get_mut(from) else {
            return Err(ComponentError::Unknown { name: quoted(from) });
        };
        let emulation = source.version.emulation();
        source.mappings.insert(to.to_owned(), mapping);
        let Some(target) = next.by_name.get_mut(to) else {
            return Err(ComponentError::Unknown { name: quoted(to) });
        };
        if let Some(other) = target.mapped_from.replace(from.to_owned()) {
            return Err(ComponentError::MapMulti {
                name: to.to_owned(),
                from: other,
            });
        }
        // Expanding from the source follows the new mapping and detects a cycle.
        let mut versions = next.expand(BTreeMap::from([(from.to_owned(), emulation)]))?;
        versions.remove(from);
        next.apply_emulation(&versions);
        for name in versions.keys() {
            if let Some(component) = next.by_name.get_mut(name) {
                component.resolve_gates()?;
            }
        }
        *self = next;
        Ok(())
    }

    /// Returns the help lines of the three flags and closes registration. May be called
    /// for several flag sets.
    pub fn add_flags(&mut self) -> FlagsHelp {
        self.closed = true;
        let settable = || {
            self.by_name
                .iter()
                .filter(|(_, component)| component.mapped_from.is_none())
        };
        FlagsHelp {
            emulated_version: settable()
                .map(|(name, component)| format!("{name}={}", component.version.emulation_help()))
                .collect(),
            min_compatibility_version: settable()
                .map(|(name, component)| format!("{name}={}", component.version.min_compat_help()))
                .collect(),
            feature_gates: self
                .by_name
                .iter()
                .filter_map(|(name, component)| Some((name, component.gates.as_ref()?)))
                .flat_map(|(name, gates)| {
                    known_features(gates.registry(), gates.versions())
                        .into_iter()
                        .map(move |line| format!("{name}:{line}"))
                })
                .collect(),
        }
    }

    /// Applies the flags: versions through the mappings, then the gate values. Meant to be
    /// called once, right after flags were parsed.
    pub fn set(&mut self, flags: &ComponentFlags) -> Result<(), ComponentError> {
        let mut next = self.clone();
        next.refuse_foreign(flags.emulation.keys().chain(flags.min_compat.keys()))?;
        if let Some(unknown) = flags
            .gates
            .keys()
            .find(|name| !next.by_name.contains_key(*name))
        {
            return Err(ComponentError::Unknown {
                name: quoted(unknown),
            });
        }
        let emulation = next.expand(flags.emulation.clone())?;
        next.apply_emulation(&emulation);
        for (name, version) in next.expand(flags.min_compat.clone())? {
            if let Some(component) = next.by_name.get_mut(&name) {
                component.version.set_min_compat(version);
            }
        }
        for (name, component) in &mut next.by_name {
            let nothing = Assignments::new();
            let given = flags.gates.get(name).unwrap_or(&nothing);
            match &component.gates {
                Some(gates) => {
                    let mut all = gates.assignments().clone();
                    all.merge(given);
                    let builder =
                        GateSet::builder(gates.registry().clone(), component.version.versions());
                    component.gates = Some(builder.stage(&all).build()?);
                }
                None if given.is_empty() => {}
                None => return Err(ComponentError::NoGates { name: name.clone() }),
            }
        }
        next.set = true;
        *self = next;
        Ok(())
    }

    /// Applies the defaults unless [`Components::set`] was called, for callers that may run
    /// before flags are parsed. Returns whether it did; the caller then logs a warning.
    pub fn set_fallback(&mut self) -> Result<bool, ComponentError> {
        if self.set {
            return Ok(false);
        }
        self.set(&ComponentFlags::default())?;
        Ok(true)
    }

    /// Returns an error for every version out of range, and a warning for each alpha feature
    /// that is on under emulation; with `strict_emulation` those are errors.
    pub fn validate(&self, strict_emulation: bool) -> Result<Vec<Warning>, Vec<ValidateError>> {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        for (name, component) in &self.by_name {
            if let Err(source) = component.version.validate() {
                errors.push(ValidateError::Range {
                    component: name.clone(),
                    source,
                });
            }
            let Some(gates) = component
                .gates
                .as_ref()
                .filter(|_| component.version.is_emulating())
            else {
                continue;
            };
            for status in gates.statuses() {
                if !status.enabled || status.stage != Stage::Alpha {
                    continue;
                }
                if strict_emulation {
                    errors.push(ValidateError::AlphaUnderEmulation {
                        component: name.clone(),
                        name: status.name,
                    });
                } else {
                    warnings.push(Warning::AlphaUnderEmulation {
                        name: status.name,
                        emulation: component.version.emulation(),
                    });
                }
            }
        }
        if errors.is_empty() {
            Ok(warnings)
        } else {
            Err(errors)
        }
    }

    /// Returns the metric samples of the versions and gates of all components.
    pub fn samples(&self, feature_metric: &'static str) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (name, component) in &self.by_name {
            samples.push(version_sample(name, &component.version));
            if let Some(gates) = &component.gates {
                samples.extend(gates.samples(feature_metric));
            }
        }
        samples
    }

    fn refuse_foreign<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
    ) -> Result<(), ComponentError> {
        for name in names {
            match self.by_name.get(name) {
                None => return Err(ComponentError::Unknown { name: quoted(name) }),
                Some(Component {
                    mapped_from: Some(from),
                    ..
                }) => {
                    return Err(ComponentError::MapFlag {
                        name: name.clone(),
                        from: from.clone(),
                    });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Follows the mappings breadth-first from the given versions.
    fn expand(
        &self,
        given: BTreeMap<String, MajorMinor>,
    ) -> Result<BTreeMap<String, MajorMinor>, ComponentError> {
        let mut reached: BTreeSet<String> = given.keys().cloned().collect();
        let mut queue: VecDeque<(String, MajorMinor)> = given.clone().into_iter().collect();
        let mut versions = given;
        while let Some((from, version)) = queue.pop_front() {
            let Some(component) = self.by_name.get(&from) else {
                continue;
            };
            for (to, mapping) in &component.mappings {
                if !reached.insert(to.clone()) {
                    return Err(ComponentError::MapLoop { name: to.clone() });
                }
                let mapped = mapping(version).ok_or_else(|| ComponentError::MapNil {
                    from: from.clone(),
                    to: to.clone(),
                    version,
                })?;
                let mapped = self
                    .by_name
                    .get(to)
                    .map_or(mapped, |target| target.version.clamped(mapped));
                versions.insert(to.clone(), mapped);
                queue.push_back((to.clone(), mapped));
            }
        }
        Ok(versions)
    }

    fn apply_emulation(&mut self, versions: &BTreeMap<String, MajorMinor>) {
        for (name, version) in versions {
            if let Some(component) = self.by_name.get_mut(name) {
                component.version.set_emulation(*version);
            }
        }
    }
}

/// The `--help` lines of the flags. They describe the binary, since nothing is set yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagsHelp {
    /// `component=lowest..highest(default:current)`; mapped components are not offered.
    pub emulated_version: Vec<String>,
    /// The same form for the minimum compatibility version.
    pub min_compatibility_version: Vec<String>,
    /// `component:Name=true|false (...)`
    pub feature_gates: Vec<String>,
}

/// Why a component or its flags were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ComponentError {
    /// Registration is closed.
    #[error("flags were already added: register components before that")]
    Closed,
    /// A component of this name is registered.
    #[error("component {name} is already registered")]
    Duplicate { name: String },
    /// No component of this name is registered.
    #[error("there is no component {name}: see --help for the ones there are")]
    Unknown { name: String },
    /// Flags set gates of a component that has none.
    #[error("component {name} has no feature gates")]
    NoGates { name: String },
    /// Two components are mapped to the same one.
    #[error("the version of {name} already follows {from}: a component follows at most one")]
    MapMulti { name: String, from: String },
    /// Version mappings form a cycle.
    #[error("version mappings lead back to {name}: they must not form a circle")]
    MapLoop { name: String },
    /// The mapping returned no version.
    #[error("the mapping from {from} {version} to {to} gives no version")]
    MapNil {
        from: String,
        to: String,
        version: MajorMinor,
    },
    /// A flag sets the version of a mapped component.
    #[error("the version of {name} follows {from}: set that one instead")]
    MapFlag { name: String, from: String },
    /// Gate values are refused.
    #[error(transparent)]
    Gates(#[from] SetErrors),
    /// The flags cannot be parsed.
    #[error(transparent)]
    Flags(#[from] ComponentFlagError),
}

impl Classified for ComponentError {
    fn id(&self) -> &'static str {
        match self {
            ComponentError::Closed => "E-CLOSED",
            ComponentError::Duplicate { .. } => "E-COMP-DUP",
            ComponentError::Unknown { .. } => "E-COMP-UNKNOWN",
            ComponentError::NoGates { .. } => "E-COMP-NOGATE",
            ComponentError::MapMulti { .. } => "E-MAP-MULTI",
            ComponentError::MapLoop { .. } => "E-MAP-LOOP",
            ComponentError::MapNil { .. } => "E-MAP-NIL",
            ComponentError::MapFlag { .. } => "E-MAP-FLAG",
            ComponentError::Gates(errors) => errors.0.first().map_or("E-GATES", Classified::id),
            ComponentError::Flags(source) => source.id(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            ComponentError::Closed => ErrorClass::Closed,
            ComponentError::Duplicate { .. } => ErrorClass::Duplicate,
            ComponentError::Unknown { .. } | ComponentError::NoGates { .. } => {
                ErrorClass::ComponentUnknown
            }
            ComponentError::Gates(errors) => errors
                .0
                .first()
                .map_or(ErrorClass::Invalid, Classified::class),
            ComponentError::Flags(source) => source.class(),
            _ => ErrorClass::Invalid,
        }
    }
}

/// Why the components are not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ValidateError {
    /// A version is out of range.
    #[error("versions of component {component} are not allowed")]
    Range {
        component: String,
        source: VersionRangeErrors,
    },
    /// An alpha feature is on under strict emulation.
    #[error(
        "alpha feature {name} of component {component} is on under emulation: turn it off or drop --strict-emulation"
    )]
    AlphaUnderEmulation { component: String, name: String },
}
