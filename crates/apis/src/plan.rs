//! Plans: the effect of a change on every API, computed before the change is made.
//!
//! [`plan`] resolves the options before and after with the function that a starting server
//! calls, and compares; there is no second set of rules, so a plan cannot differ from the
//! outcome.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::declare::Declarations;
use crate::names::{GroupResource, GroupVersionResource, VersionName};
use crate::options::Options;
use crate::resolve::{StartErrors, resolve};
use crate::served::ServedApis;

/// The state of a resource or subresource on one side of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApiState {
    /// The binary does not know it.
    Unknown,
    /// The binary knows it, but does not serve it.
    NotServed,
    /// It is served, perhaps with a deprecation warning.
    Served {
        /// The warning that clients receive.
        warning: Option<String>,
    },
}

impl ApiState {
    fn is_served(&self) -> bool {
        matches!(self, ApiState::Served { .. })
    }
}

/// One resource or subresource before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanRow {
    /// The resource, or the subresource as `things/status`.
    pub name: GroupVersionResource,
    /// Its state before.
    pub before: ApiState,
    /// Its state after.
    pub after: ApiState,
    /// The reason for the state after.
    pub why: String,
}

/// The storage version of a resource before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageRow {
    /// The resource.
    pub name: GroupResource,
    /// The version before; none where the binary does not know the resource.
    pub before: Option<VersionName>,
    /// The version after.
    pub after: Option<VersionName>,
}

/// The preferred version of a group before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreferredRow {
    /// The group.
    pub group: String,
    /// The version before; none where the group is not served.
    pub before: Option<VersionName>,
    /// The version after.
    pub after: Option<VersionName>,
}

/// The effect of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Why the process would not start after the change. The other fields are empty then.
    pub obstacles: Vec<String>,
    /// One row per resource and subresource that either side knows, by name.
    pub rows: Vec<PlanRow>,
    /// One row per resource.
    pub storage: Vec<StorageRow>,
    /// One row per group that either side serves.
    pub preferred: Vec<PreferredRow>,
    /// The warnings at start that the change brings.
    pub new_warnings: Vec<String>,
}

impl Plan {
    /// Returns whether the process would not start after the change.
    pub fn is_blocked(&self) -> bool {
        !self.obstacles.is_empty()
    }

    /// Iterates over the rows whose state changes.
    pub fn notable(&self) -> impl Iterator<Item = &PlanRow> {
        self.rows.iter().filter(|row| row.before != row.after)
    }

    /// Iterates over the resources whose storage version changes.
    pub fn notable_storage(&self) -> impl Iterator<Item = &StorageRow> {
        self.storage.iter().filter(|row| row.before != row.after)
    }

    /// Iterates over the groups whose preferred version changes.
    pub fn notable_preferred(&self) -> impl Iterator<Item = &PreferredRow> {
        self.preferred.iter().filter(|row| row.before != row.after)
    }
}

/// One side of a plan: a binary's declarations and a process's options.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What the binary knows.
    pub declarations: &'a Declarations,
    /// The flags of the process.
    pub options: &'a Options,
}

/// Computes the effect of a change from one side to the other. The error is that of a
/// process that does not start before the change.
pub fn plan(before: Side<'_>, after: Side<'_>) -> Result<Plan, StartErrors> {
    let before = resolve(before.declarations, before.options)?;
    Ok(match resolve(after.declarations, after.options) {
        Ok(after) => compare(&before, &after),
        Err(errors) => Plan {
            obstacles: errors.0.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            storage: Vec::new(),
            preferred: Vec::new(),
            new_warnings: Vec::new(),
        },
    })
}

/// Compares two outcomes.
fn compare(before: &ServedApis, after: &ServedApis) -> Plan {
    let old = states(before);
    let new = states(after);
    let rows = union(&old, &new).map(|(name, old, new)| {
        let unknown = (ApiState::Unknown, "the binary does not know it".to_owned());
        let (after, why) = new.cloned().unwrap_or(unknown);
        PlanRow {
            name: name.clone(),
            before: old.map_or(ApiState::Unknown, |(state, _)| state.clone()),
            after,
            why,
        }
    });
    let storage = union(&before.storage, &after.storage).map(|(name, old, new)| StorageRow {
        name: name.clone(),
        before: old.map(|storage| storage.version.clone()),
        after: new.map(|storage| storage.version.clone()),
    });
    let (old_preferred, new_preferred) = (preferred(before), preferred(after));
    let preferred = union(&old_preferred, &new_preferred).map(|(group, old, new)| PreferredRow {
        group: group.clone(),
        before: old.cloned(),
        after: new.cloned(),
    });
    let is_new = |warning: &&crate::StartWarning| !before.warnings().contains(warning);
    let new_warnings = after.warnings().iter().filter(is_new);
    Plan {
        obstacles: Vec::new(),
        rows: rows.collect(),
        storage: storage.collect(),
        preferred: preferred.collect(),
        new_warnings: new_warnings.map(ToString::to_string).collect(),
    }
}

/// Returns the state of everything that one side knows, and why.
fn states(apis: &ServedApis) -> BTreeMap<GroupVersionResource, (ApiState, String)> {
    let mut states = BTreeMap::new();
    for (name, reason) in apis.not_served() {
        states.insert(name, (ApiState::NotServed, reason.to_string()));
    }
    for served in apis.resources() {
        let warning = served.deprecation.as_ref().map(|it| it.warning.clone());
        let state = ApiState::Served { warning };
        let why = format!("switched on by {}", served.switch.by);
        for sub in &served.resource.subresources {
            let mut name = served.name.clone();
            name.resource = format!("{}/{}", name.resource, sub.name);
            states.insert(name, (state.clone(), why.clone()));
        }
        states.insert(served.name.clone(), (state, why));
    }
    states
}

fn preferred(apis: &ServedApis) -> BTreeMap<String, VersionName> {
    let groups = apis.groups().iter();
    groups
        .filter_map(|group| Some((group.name.clone(), group.preferred_version()?.clone())))
        .collect()
}

/// Iterates over the keys of either map with both values.
fn union<'a, K: Ord, V>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, Option<&'a V>, Option<&'a V>)> {
    let keys: std::collections::BTreeSet<&K> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .map(|key| (key, old.get(key), new.get(key)))
}

impl fmt::Display for PlanRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, detail) = match (&self.before, &self.after) {
            (before, ApiState::Served { warning: None }) if before.is_served() => {
                ('~', "no longer deprecated".to_owned())
            }
            (before, ApiState::Served { warning }) => {
                let sign = if before.is_served() { '~' } else { '+' };
                let why = warning.as_ref().unwrap_or(&self.why);
                (sign, why.clone())
            }
            (before, _) if before.is_served() => ('-', self.why.clone()),
            _ => (' ', self.why.clone()),
        };
        write!(f, "{sign} {}: {detail}", self.name.dotted())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for obstacle in &self.obstacles {
            writeln!(f, "blocked: {obstacle}")?;
        }
        for row in self.notable() {
            writeln!(f, "{row}")?;
        }
        let text = |version: &Option<VersionName>| match version {
            Some(version) => version.to_string(),
            None => "none".to_owned(),
        };
        for row in self.notable_preferred() {
            let (before, after) = (text(&row.before), text(&row.after));
            writeln!(
                f,
                "~ group {:?}: preferred version {before} -> {after}",
                row.group
            )?;
        }
        for row in self.notable_storage() {
            let (before, after) = (text(&row.before), text(&row.after));
            writeln!(f, "~ {}: stored as {before} -> {after}", row.name)?;
        }
        for warning in &self.new_warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let is_quiet = self.obstacles.is_empty() && self.new_warnings.is_empty();
        let mut changes = self.notable_storage().count() + self.notable_preferred().count();
        changes += self.notable().count();
        if is_quiet && changes == 0 {
            writeln!(f, "nothing changes")?;
        }
        Ok(())
    }
}
