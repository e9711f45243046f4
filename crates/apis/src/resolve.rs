//! From declarations and options to what is served, stored and warned about.
//!
//! ```text
//!  declarations ──┬─> Enablement::merge ──> availability::filter ──> ServedApis
//!  options ───────┘    what is switched on   what the release has     + storage versions
//!                                                                     + deprecations, warnings
//! ```
//!
//! A server, [`explain`](crate::explain()) and [`plan`](crate::plan()) all call [`resolve`],
//! so that none of them can disagree with the others.

use std::collections::{BTreeMap, BTreeSet};

use portunus_gates::{
    Classified, ErrorClass, ForwardCompatibilityError, MajorMinor, Version, VersionRangeErrors,
};
use thiserror::Error;

use crate::availability::{self, Filtered};
use crate::declare::{Declarations, Group};
use crate::deprecation::deprecation;
use crate::enablement::{Enablement, SetBy};
use crate::names::{GroupResource, GroupVersion, GroupVersionResource};
use crate::options::Options;
use crate::runtime_config::RuntimeConfigError;
use crate::served::{NotServed, ServedApis, ServedGroup, ServedResource, ServedVersion};
use crate::storage::{self, StorageVersion};
use crate::warnings::StartWarning;

/// A reason not to start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum StartError {
    /// The emulation or minimum compatibility version is out of range.
    #[error(transparent)]
    Versions(#[from] VersionRangeErrors),
    /// A forward-compatible switch without emulation.
    #[error(transparent)]
    Forward(#[from] ForwardCompatibilityError),
    /// A key or value of runtime-config.
    #[error(transparent)]
    RuntimeConfig(#[from] RuntimeConfigError),
    /// Runtime-config names a version that the emulated release does not have yet.
    #[error(
        "cannot enable version {version} in runtime-config because all the resources have been \
         introduced after the current version {current}. Consider setting \
         --runtime-config-emulation-forward-compatible=true"
    )]
    FutureVersion {
        version: GroupVersion,
        current: MajorMinor,
    },
    /// Runtime-config names a resource that the emulated release does not have yet.
    #[error(
        "cannot enable resource {resource} in runtime-config because it is introduced at \
         {introduced} after the current version {current}. Consider setting \
         --runtime-config-emulation-forward-compatible=true"
    )]
    FutureResource {
        resource: GroupVersionResource,
        introduced: MajorMinor,
        current: MajorMinor,
    },
    /// Runtime-config enables an alpha API under emulation, and the process is strict.
    #[error(
        "cannot enable alpha api {version} with emulated version {emulation} instead of the \
         binary's version {binary}: remove it from runtime-config or remove --strict-emulation"
    )]
    AlphaUnderEmulation {
        version: GroupVersion,
        emulation: MajorMinor,
        binary: Version,
    },
    /// A storage version fixed by hand that the resource does not have.
    #[error("cannot store {resource} as {version}: this binary has no such version of it")]
    StorageOverride {
        resource: GroupResource,
        version: String,
    },
}

impl Classified for StartError {
    fn id(&self) -> &'static str {
        match self {
            StartError::Versions(errors) => errors.0.first().map_or("E-EMU-RANGE", |e| e.id()),
            StartError::Forward(error) => error.id(),
            StartError::RuntimeConfig(error) => error.id(),
            StartError::FutureVersion { .. } => "E-API-FUTURE-VERSION",
            StartError::FutureResource { .. } => "E-API-FUTURE-RESOURCE",
            StartError::AlphaUnderEmulation { .. } => "E-API-ALPHA-EMULATION",
            StartError::StorageOverride { .. } => "E-API-STORAGE-OVERRIDE",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            StartError::Versions(_) | StartError::Forward(_) => ErrorClass::Range,
            StartError::RuntimeConfig(error) => error.class(),
            StartError::FutureVersion { .. } | StartError::FutureResource { .. } => {
                ErrorClass::PreAlpha
            }
            StartError::AlphaUnderEmulation { .. } => ErrorClass::Invalid,
            StartError::StorageOverride { .. } => ErrorClass::Unknown,
        }
    }
}

/// Every reason not to start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct StartErrors(pub Vec<StartError>);

/// Derives what a process with these options serves, stores and warns about.
pub fn resolve(declarations: &Declarations, options: &Options) -> Result<ServedApis, StartErrors> {
    let mut errors = check_options(declarations, options);
    let enablement = Enablement::merge(declarations, options).map_err(|found| {
        let found = found.into_iter().map(StartError::from);
        StartErrors(errors.drain(..).chain(found).collect())
    })?;
    let mut filtered: Vec<(&Group, Filtered)> = Vec::new();
    for group in declarations.groups() {
        let mut outcome = availability::filter(declarations, group, &enablement, options);
        errors.append(&mut outcome.errors);
        filtered.push((group, outcome));
    }
    let storage = storage_versions(declarations, options);
    let mut apis = ServedApis {
        groups: Vec::new(),
        not_served: BTreeMap::new(),
        storage,
        warnings: Vec::new(),
    };
    for (group, outcome) in filtered {
        let served = served_group(group, &outcome, &enablement, options, &apis.storage);
        apis.groups.extend(served);
        apis.not_served.insert(group.name.clone(), outcome.dropped);
    }
    let (alpha_warnings, alpha_errors) = alpha_under_emulation(&apis, &enablement, options);
    errors.extend(alpha_errors);
    if !errors.is_empty() {
        return Err(StartErrors(errors));
    }
    apis.warnings = alpha_warnings;
    apis.warnings
        .extend(runtime_config_warnings(declarations, &apis, &enablement));
    let unreadable = storage_warnings(&apis);
    apis.warnings.extend(unreadable);
    Ok(apis)
}

/// Checks what does not depend on runtime-config.
fn check_options(declarations: &Declarations, options: &Options) -> Vec<StartError> {
    let mut errors = Vec::new();
    errors.extend(options.versions.validate().err().map(StartError::from));
    let forward = options.forward.validate(&options.versions);
    errors.extend(forward.err().map(StartError::from));
    for (resource, version) in &options.storage_overrides {
        let name =
            GroupVersionResource::new(&*resource.group, version.clone(), &*resource.resource);
        if declarations.resource(&name).is_none() {
            errors.push(StartError::StorageOverride {
                resource: resource.clone(),
                version: version.to_string(),
            });
        }
    }
    errors
}

fn storage_versions(
    declarations: &Declarations,
    options: &Options,
) -> BTreeMap<GroupResource, StorageVersion> {
    declarations
        .resources()
        .map(|(name, _)| name.group_resource())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter_map(|name| {
            let version = storage::choose(declarations, options, &name)?;
            Some((name, version))
        })
        .collect()
}

/// Returns the served part of a group; none where nothing is served.
fn served_group(
    group: &Group,
    outcome: &Filtered,
    enablement: &Enablement,
    options: &Options,
    storage: &BTreeMap<GroupResource, StorageVersion>,
) -> Option<ServedGroup> {
    let mut versions = Vec::new();
    for version in &group.versions {
        let Some(kept) = outcome.kept.get(&version.name) else {
            continue;
        };
        let name = GroupVersion::new(&*group.name, version.name.clone());
        let mut resources: Vec<ServedResource> = version
            .resources
            .iter()
            .filter_map(|resource| {
                let mut served = ServedResource {
                    name: name.resource(&*resource.plural),
                    resource: resource.clone(),
                    releases: resource.lifecycle.at(version.name.stability()),
                    storage: storage
                        .get(&GroupResource::new(&*group.name, &*resource.plural))?
                        .clone(),
                    deprecation: None,
                    switch: enablement.resource(&name.resource(&*resource.plural)),
                    basis: *kept.get(&resource.plural)?,
                };
                served
                    .resource
                    .subresources
                    .retain(|sub| kept.contains_key(&format!("{}/{}", resource.plural, sub.name)));
                served.deprecation =
                    deprecation(&served.kind(), &served.releases, options.current());
                Some(served)
            })
            .collect();
        resources.sort_by(|left, right| left.name.resource.cmp(&right.name.resource));
        if !resources.is_empty() {
            versions.push(ServedVersion { name, resources });
        }
    }
    (!versions.is_empty()).then(|| ServedGroup {
        name: group.name.clone(),
        versions,
    })
}

/// Returns one warning, or one error where the process is strict, per alpha version that
/// runtime-config enables while an older release is emulated.
fn alpha_under_emulation(
    apis: &ServedApis,
    enablement: &Enablement,
    options: &Options,
) -> (Vec<StartWarning>, Vec<StartError>) {
    if !options.versions.is_emulating() {
        return (Vec::new(), Vec::new());
    }
    let explicit_versions = enablement.explicit_versions().filter(|(_, on)| *on);
    let explicit_resources = enablement.explicit_resources().filter(|(_, on)| *on);
    let by_class = apis
        .resources()
        .filter(|served| matches!(served.switch.by, SetBy::Class(_)))
        .map(|served| served.name.group_version());
    let alphas: BTreeSet<GroupVersion> = explicit_versions
        .map(|(version, _)| version.clone())
        .chain(explicit_resources.map(|(resource, _)| resource.group_version()))
        .chain(by_class)
        .filter(|version| version.version.contains_alpha())
        .collect();
    let emulation = options.versions.emulation();
    let binary = || options.versions.binary().clone();
    if options.strict_emulation {
        let refuse = |version| StartError::AlphaUnderEmulation {
            version,
            emulation,
            binary: binary(),
        };
        return (Vec::new(), alphas.into_iter().map(refuse).collect());
    }
    let warn = |version| StartWarning::AlphaUnderEmulation {
        version,
        emulation,
        binary: binary(),
    };
    (alphas.into_iter().map(warn).collect(), Vec::new())
}

/// Returns the warnings about keys of runtime-config that have no effect.
fn runtime_config_warnings(
    declarations: &Declarations,
    apis: &ServedApis,
    enablement: &Enablement,
) -> Vec<StartWarning> {
    let mut warnings = Vec::new();
    for (name, _) in enablement.explicit_resources() {
        if declarations.resource(name).is_none() {
            warnings.push(StartWarning::UnknownResource(name.clone()));
        }
    }
    for (name, reason) in apis.not_served() {
        let is_explicit = enablement.is_resource_explicit(&name)
            || enablement.is_version_explicit(&name.group_version());
        if let NotServed::Removed {
            removed, current, ..
        } = reason
            && is_explicit
            && !name.resource.contains('/')
        {
            warnings.push(StartWarning::EnabledButRemoved {
                name,
                removed: *removed,
                current: *current,
            });
        }
    }
    warnings
}

/// Returns the warnings about served resources whose objects a release in the window cannot
/// read.
fn storage_warnings(apis: &ServedApis) -> Vec<StartWarning> {
    let served: BTreeSet<GroupResource> = apis
        .resources()
        .map(|served| served.name.group_resource())
        .collect();
    let unreadable = apis
        .storage
        .iter()
        .filter(|(name, version)| served.contains(*name) && !version.unreadable_in.is_empty());
    unreadable
        .map(|(name, version)| StartWarning::StorageUnreadable {
            resource: name.clone(),
            version: version.version.clone(),
            releases: version.unreadable_in.clone(),
        })
        .collect()
}
