//! Explanations: why an API is served or not, and what would change that.
//!
//! Every remedy is tried with [`resolve`] before it is named, so an explanation never
//! advises a flag that does not help.

use std::fmt;

use portunus_gates::{EMULATED_MINORS_MAX, EffectiveVersion, MajorMinor};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::change::Change;
use crate::declare::Declarations;
use crate::deprecation::Deprecation;
use crate::lifecycle::Releases;
use crate::names::GroupVersionResource;
use crate::options::Options;
use crate::resolve::{StartErrors, resolve};
use crate::served::{Lookup, NotServed, ServedApis};
use crate::storage::StorageVersion;

/// Why a resource is served or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The resource.
    pub name: GroupVersionResource,
    /// Whether it is served.
    pub served: bool,
    /// Why, in one sentence.
    pub why: String,
    /// Its lifecycle.
    pub releases: Releases,
    /// The emulated release.
    pub current: MajorMinor,
    /// Whether its version is the preferred one of its group.
    pub preferred: bool,
    /// Its deprecation at the emulated release.
    pub deprecation: Option<Deprecation>,
    /// The version in which its objects are stored.
    pub storage: Option<StorageVersion>,
    /// The sets of changes that would serve it or, where it is served, no longer serve it;
    /// each is enough alone.
    pub to_change: Vec<Remedy>,
}

/// Changes that together turn a resource on or off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy(pub Vec<Change>);

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&changes.join(" and "))
    }
}

impl Serialize for Remedy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The error for an explanation that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// The process would not start.
    #[error(transparent)]
    Start(#[from] StartErrors),
    /// No declaration has the resource.
    #[error("this binary does not know {}{}", name.dotted(), hint(known))]
    Unknown {
        /// The resource.
        name: GroupVersionResource,
        /// The versions that have a resource of this name.
        known: Vec<GroupVersionResource>,
    },
}

fn hint(known: &[GroupVersionResource]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let names: Vec<String> = known.iter().map(GroupVersionResource::dotted).collect();
    format!("; it knows {}", names.join(", "))
}

/// Explains why a resource is served or not, and what would change that.
pub fn explain(
    declarations: &Declarations,
    options: &Options,
    name: &GroupVersionResource,
) -> Result<Explanation, ExplainError> {
    let apis = resolve(declarations, options)?;
    let Some(resource) = declarations.resource(name) else {
        let is_similar = |other: &GroupVersionResource| other.resource == name.resource;
        let known = declarations.resources().map(|(other, _)| other);
        return Err(ExplainError::Unknown {
            name: name.clone(),
            known: known.filter(is_similar).collect(),
        });
    };
    let (is_served, why, deprecation) = match find(&apis, name) {
        Lookup::Served(served) => (
            true,
            format!(
                "it is switched on by {}, and {}",
                served.switch.by, served.basis
            ),
            served.deprecation.clone(),
        ),
        Lookup::NotServed(reason) => (false, reason.to_string(), None),
        Lookup::Unknown => (false, "no declaration has it".to_owned(), None),
    };
    let preferred = apis.group(&name.group).and_then(|g| g.preferred_version());
    Ok(Explanation {
        name: name.clone(),
        served: is_served,
        why,
        releases: resource.lifecycle.at(name.version.stability()),
        current: options.current(),
        preferred: is_served && preferred == Some(&name.version),
        deprecation,
        storage: apis.storage_version(&name.group, &name.resource).cloned(),
        to_change: remedies(declarations, options, name, !is_served),
    })
}

/// Returns the message of a 404 for a resource that the binary knows but does not serve: the
/// reason, and what would serve it. None where it is served or unknown. Every remedy is tried
/// with [`resolve`], which takes a while: a server keeps the message.
pub fn not_served_message(
    declarations: &Declarations,
    options: &Options,
    name: &GroupVersionResource,
) -> Option<String> {
    let explanation = explain(declarations, options, name).ok()?;
    if explanation.served {
        return None;
    }
    let mut message = format!(
        "{} is known to this server but not served: {}",
        name.dotted(),
        explanation.why
    );
    if !explanation.to_change.is_empty() {
        let remedies = explanation.to_change.iter().map(ToString::to_string);
        let remedies: Vec<String> = remedies.collect();
        message.push_str(&format!(
            ". It is served with {}",
            remedies.join(", or with ")
        ));
    }
    Some(message)
}

fn find<'a>(apis: &'a ServedApis, name: &GroupVersionResource) -> Lookup<'a> {
    apis.lookup(&name.group, name.version.as_str(), &name.resource)
}

/// Returns the smallest sets of changes after which a resource is served, or is not.
fn remedies(
    declarations: &Declarations,
    options: &Options,
    name: &GroupVersionResource,
    wanted: bool,
) -> Vec<Remedy> {
    let works = |changes: &Vec<Change>| {
        let after = resolve(declarations, &options.after(changes));
        after.is_ok_and(|apis| matches!(find(&apis, name), Lookup::Served(_)) == wanted)
    };
    let key = Change::set_key(
        format!("{}/{}/{}", name.group, name.version, name.resource),
        wanted,
    );
    if !wanted {
        let off = vec![key];
        return Some(off).filter(works).map(Remedy).into_iter().collect();
    }
    let bases = release_changes(options);
    let alone = bases.iter().map(|base| vec![base.clone()]);
    let alone = std::iter::once(vec![key.clone()]).chain(alone);
    let mut found: Vec<Vec<Change>> = alone.filter(&works).collect();
    if found.is_empty() {
        let pairs = bases.into_iter().map(|base| vec![base, key.clone()]);
        found = pairs.filter(&works).collect();
    }
    if found.is_empty() {
        return newer_binary(declarations, options, name)
            .into_iter()
            .collect();
    }
    // Of several releases the newest is enough.
    let is_emulation = |changes: &[Change]| matches!(changes, [Change::Emulation(_), ..]);
    let newest = found.iter().position(|changes| is_emulation(changes));
    let found = found.into_iter().enumerate();
    found
        .filter(|(index, changes)| !is_emulation(changes) || newest == Some(*index))
        .map(|(_, changes)| Remedy(changes))
        .collect()
}

/// Returns the changes that let another release's APIs be served, the newest release first.
fn release_changes(options: &Options) -> Vec<Change> {
    let binary = options.versions.binary().major_minor();
    let releases = (0..=EMULATED_MINORS_MAX).map(|by| binary.minus_minors(by));
    releases
        .filter(|release| *release != options.current())
        .map(Change::Emulation)
        .chain([
            Change::ForwardCompatible(true),
            Change::RuntimeConfigForwardCompatible(true),
            Change::OneMoreRelease(true),
        ])
        .collect()
}

/// Returns the change to the first binary that has the resource, where this one is too old.
fn newer_binary(
    declarations: &Declarations,
    options: &Options,
    name: &GroupVersionResource,
) -> Option<Remedy> {
    let apis = resolve(declarations, options).ok()?;
    let Lookup::NotServed(NotServed::NotIntroduced { introduced, .. }) = find(&apis, name) else {
        return None;
    };
    let versions = EffectiveVersion::new((*introduced).into());
    Some(Remedy(vec![Change::Binary(versions)]))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.served { "served" } else { "not served" };
        writeln!(f, "{}: {state}", self.name.dotted())?;
        writeln!(f, "  why:        {}", self.why)?;
        let step = |release: Option<MajorMinor>| {
            release.map_or_else(|| "never".to_owned(), |release| release.to_string())
        };
        let introduced = match self.releases.introduced {
            MajorMinor::ZERO => "always there".to_owned(),
            release => format!("introduced {release}"),
        };
        writeln!(
            f,
            "  lifecycle:  {introduced}, deprecated {}, removed {}; this server emulates {}",
            step(self.releases.deprecated),
            step(self.releases.removed),
            self.current
        )?;
        if self.preferred {
            writeln!(f, "  preferred:  yes")?;
        }
        if let Some(deprecation) = &self.deprecation {
            writeln!(f, "  deprecated: {}", deprecation.warning)?;
        }
        if let Some(storage) = &self.storage {
            writeln!(f, "  stored as:  {}", storage.version)?;
        }
        for remedy in &self.to_change {
            let verb = if self.served { "not served" } else { "served" };
            writeln!(f, "  {verb} with: {remedy}")?;
        }
        Ok(())
    }
}
