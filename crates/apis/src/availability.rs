//! The filters by lifecycle: which of the enabled resources the emulated release has.
//!
//! First what was removed is dropped, then what is introduced later. Names are those of
//! resources and of subresources (`things/status`); dropping a resource drops its
//! subresources.

use std::collections::{BTreeMap, BTreeSet};

use portunus_gates::MajorMinor;

use crate::declare::{Declarations, Group};
use crate::enablement::Enablement;
use crate::lifecycle::Releases;
use crate::names::{GroupVersion, GroupVersionResource, Stability, VersionName};
use crate::options::Options;
use crate::resolve::StartError;
use crate::served::{Basis, NotServed};

/// The outcome of the filters for one group.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    /// What is served, by version and name.
    pub(crate) kept: BTreeMap<VersionName, BTreeMap<String, Basis>>,
    /// What is not served although it is known.
    pub(crate) dropped: BTreeMap<VersionName, BTreeMap<String, NotServed>>,
    /// Explicit choices of APIs that are too new.
    pub(crate) errors: Vec<StartError>,
}

/// Filters the resources of one group.
pub(crate) fn filter(
    declarations: &Declarations,
    group: &Group,
    enablement: &Enablement,
    options: &Options,
) -> Filtered {
    let mut filter = Filter {
        group,
        enablement,
        options,
        entries: BTreeMap::new(),
        outcome: Filtered::default(),
    };
    filter.collect_enabled(declarations);
    filter.drop_removed();
    filter.drop_future();
    filter.outcome
}

struct Filter<'a> {
    group: &'a Group,
    enablement: &'a Enablement,
    options: &'a Options,
    /// The names that are left, with their lifecycles; none where the kind is not declared.
    entries: BTreeMap<VersionName, BTreeMap<String, Option<Releases>>>,
    outcome: Filtered,
}

impl Filter<'_> {
    /// Collects the resources that are on, with their subresources.
    fn collect_enabled(&mut self, declarations: &Declarations) {
        for version in &self.group.versions {
            let stability = version.name.stability();
            for resource in &version.resources {
                let name = self.name(&version.name, &resource.plural);
                let switch = self.enablement.resource(&name);
                let subresources = resource.subresources.iter().map(|sub| {
                    let releases = match &sub.kind {
                        None => Some(resource.lifecycle.at(stability)),
                        Some(kind) => declarations.releases_of_kind(kind),
                    };
                    (format!("{}/{}", resource.plural, sub.name), releases)
                });
                let own = (
                    resource.plural.clone(),
                    Some(resource.lifecycle.at(stability)),
                );
                for (name, releases) in std::iter::once(own).chain(subresources) {
                    if switch.on {
                        let entries = self.entries.entry(version.name.clone()).or_default();
                        entries.insert(name, releases);
                    } else {
                        let reason = NotServed::Disabled { by: switch.by };
                        self.drop_name(&version.name, name, reason);
                    }
                }
            }
        }
    }

    /// Drops what the emulated release removed.
    fn drop_removed(&mut self) {
        for (version, names) in std::mem::take(&mut self.entries) {
            let mut reasons = BTreeMap::new();
            for (name, releases) in &names {
                match releases {
                    None => drop(reasons.insert(name.clone(), NotServed::KindNotDeclared)),
                    Some(releases) => {
                        if let Err(reason) = check_removal(self.options, releases) {
                            reasons.insert(name.clone(), reason);
                        }
                    }
                }
            }
            self.keep_or_drop(&version, names, &reasons);
        }
    }

    /// Drops what is introduced after the emulated release. Versions go from the least to
    /// the most preferred one: a resource that is kept makes its higher versions eligible for
    /// forward compatibility.
    fn drop_future(&mut self) {
        let mut kept_below = BTreeSet::new();
        for (version, names) in std::mem::take(&mut self.entries) {
            let mut reasons = BTreeMap::new();
            let mut bases = BTreeMap::new();
            let mut explicit_errors = Vec::new();
            for (name, releases) in &names {
                let introduced = releases.as_ref().map_or(MajorMinor::ZERO, |r| r.introduced);
                let is_kept_below = kept_below.contains(name);
                let resource = self.name(&version, name);
                match self.check_introduction(&resource, introduced, is_kept_below) {
                    Ok(basis) => {
                        let grace = releases
                            .as_ref()
                            .and_then(|releases| check_removal(self.options, releases).ok());
                        bases.insert(name.clone(), grace.flatten().unwrap_or(basis));
                    }
                    Err(reason) => {
                        reasons.insert(name.clone(), reason);
                        if self.enablement.is_resource_explicit(&resource) {
                            explicit_errors.push(StartError::FutureResource {
                                resource,
                                introduced,
                                current: self.options.current(),
                            });
                        }
                    }
                }
            }
            if version.stability() != Stability::Alpha {
                kept_below.extend(bases.keys().cloned());
            }
            let is_explicit = self
                .enablement
                .is_version_explicit(&GroupVersion::new(&*self.group.name, version.clone()));
            let is_emptied = !names.is_empty()
                && names
                    .keys()
                    .all(|name| reason_for(&reasons, name).is_some());
            if is_emptied && is_explicit && explicit_errors.is_empty() {
                explicit_errors.push(StartError::FutureVersion {
                    version: GroupVersion::new(&*self.group.name, version.clone()),
                    current: self.options.current(),
                });
            }
            self.outcome.errors.extend(explicit_errors);
            self.keep_or_drop(&version, names, &reasons);
            if let Some(names) = self.entries.remove(&version) {
                bases.retain(|name, _| names.contains_key(name));
                self.outcome.kept.insert(version, bases);
            }
        }
    }

    /// Returns the basis on which a resource is served at the emulated release although it
    /// may be introduced later.
    fn check_introduction(
        &self,
        name: &GroupVersionResource,
        introduced: MajorMinor,
        is_kept_below: bool,
    ) -> Result<Basis, NotServed> {
        let current = self.options.current();
        if current >= introduced {
            return Ok(Basis::Release);
        }
        if self.options.forward.emulation && is_kept_below {
            return Ok(Basis::ForwardCompatible);
        }
        let is_explicit = self.enablement.is_resource_explicit(name);
        let is_version_explicit = self.enablement.is_version_explicit(&name.group_version());
        if self.options.forward.runtime_config && (is_explicit || is_version_explicit) {
            return Ok(Basis::RuntimeConfig);
        }
        Err(NotServed::NotIntroduced {
            introduced,
            current,
        })
    }

    /// Sorts names into dropped ones and ones to consider further.
    fn keep_or_drop(
        &mut self,
        version: &VersionName,
        names: BTreeMap<String, Option<Releases>>,
        reasons: &BTreeMap<String, NotServed>,
    ) {
        for (name, releases) in names {
            match reason_for(reasons, &name) {
                Some(reason) => {
                    let reason = reason.clone();
                    self.drop_name(version, name, reason);
                }
                None => {
                    let entries = self.entries.entry(version.clone()).or_default();
                    entries.insert(name, releases);
                }
            }
        }
    }

    fn drop_name(&mut self, version: &VersionName, name: String, reason: NotServed) {
        let dropped = self.outcome.dropped.entry(version.clone()).or_default();
        dropped.insert(name, reason);
    }

    fn name(&self, version: &VersionName, resource: &str) -> GroupVersionResource {
        GroupVersionResource::new(&*self.group.name, version.clone(), resource)
    }
}

/// Returns the reason against a name, or against the resource of a subresource.
fn reason_for<'a>(reasons: &'a BTreeMap<String, NotServed>, name: &str) -> Option<&'a NotServed> {
    let resource = name.split('/').next().unwrap_or(name);
    reasons.get(resource).or_else(|| reasons.get(name))
}

/// Decides whether the removal of a type counts at the emulated release. Where the removal is
/// in exactly that release, an alpha build and the one-more-release switch keep the type; the
/// pre-release is the one of the binary.
fn check_removal(options: &Options, releases: &Releases) -> Result<Option<Basis>, NotServed> {
    let current = options.current();
    let Some(removed) = releases.removed.filter(|removed| *removed <= current) else {
        return Ok(None);
    };
    let refusal = || NotServed::Removed {
        removed,
        current,
        replacement: releases.replacement.clone(),
    };
    if removed < current {
        return Err(refusal());
    }
    let pre_release = options.versions.binary().pre_release();
    let is_alpha = pre_release.contains("alpha");
    let is_alpha_zero = pre_release.contains("alpha.0");
    if is_alpha && !is_alpha_zero && options.strict_removal_in_alpha {
        return Err(refusal());
    }
    if is_alpha {
        return Ok(Some(Basis::AlphaBuild));
    }
    if options.serve_removed_one_more_release {
        return Ok(Some(Basis::OneMoreRelease));
    }
    Err(refusal())
}
