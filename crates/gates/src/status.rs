//! The state of a feature for operators and programs: a row for lists, and an explanation.
//!
//! All surfaces use the same types: command line, RPC, HTTP, metrics.

use serde::Serialize;

use crate::assignments::Origin;
use crate::feature::{Level, Reversibility, Touches};
use crate::gate::GateSet;
use crate::registry::{Registered, UnknownFeature};
use crate::resolve::{Source, State};
use crate::spec::{Spec, Versions};
use crate::stage::Stage;
use crate::unwritten::Unwritten;
use crate::version::MajorMinor;

/// The state of one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The name users write.
    pub name: String,
    /// The level that decides its value.
    pub level: Level,
    /// Whether it is on.
    pub enabled: bool,
    /// The stage at the version used.
    pub stage: Stage,
    /// The default at the version used.
    pub default: bool,
    /// Whether the default is fixed at the version used.
    pub locked: bool,
    /// Whether it was set by name.
    pub explicit: bool,
    /// Where the value comes from.
    pub source: Source,
    /// The source as a sentence.
    pub reason: String,
    /// The version that selected the spec.
    pub version_used: MajorMinor,
    /// The log index that set the value; absent for a value fixed at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_index: Option<u64>,
    /// Why it has no effect in this program, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inert: Option<String>,
}

/// A value that was set for a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The origin in this process, or the member of the cluster, that set it.
    pub by: String,
    /// The value.
    pub value: bool,
    /// Whether the value counts; not if it is overridden or the feature is locked.
    pub counts: bool,
}

/// A dependency or a dependent of a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Related {
    /// The name of the other feature.
    pub name: String,
    /// Whether the other feature is on.
    pub enabled: bool,
}

/// The state of a feature, its reasons, and what would change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The state of the feature.
    #[serde(flatten)]
    pub status: Status,
    /// What the feature does.
    pub doc: String,
    /// The team or module that maintains it.
    pub owner: String,
    /// What it changes.
    pub touches: Touches,
    /// Whether it can be turned off again.
    pub reversible: Reversibility,
    /// The spec in force.
    pub spec: Spec,
    /// Its position in the history; absent before the first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_entry: Option<usize>,
    /// The whole history.
    pub history: Vec<Spec>,
    /// The pair of versions that selected the spec.
    pub versions: Versions,
    /// The values that origins or members set.
    #[serde(rename = "said")]
    pub settings: Vec<Setting>,
    /// The dependencies of the feature.
    pub needs: Vec<Related>,
    /// The dependents of the feature.
    pub needed_by: Vec<Related>,
    /// What an operator can do to change the value: flags before versions.
    pub to_change: Vec<String>,
    /// Why a member writes nothing with it even while it is on. Set by
    /// [`Explanation::written_with`]; whether it is on does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<Unwritten>,
}

impl Explanation {
    /// The same for a member with this minimum compatibility version.
    #[must_use]
    pub fn written_with(mut self, feature: &Registered, min_compat: MajorMinor) -> Explanation {
        self.unwritten = feature.unwritten(min_compat);
        self
    }
}

impl std::fmt::Display for Explanation {
    /// Formats the explanation for a terminal.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = &self.status;
        let on = if status.enabled { "on" } else { "off" };
        writeln!(
            f,
            "{} ({} feature) is {on}: {}",
            status.name,
            status.level.text(),
            status.reason
        )?;
        if let Some(summary) = self.doc.lines().next() {
            writeln!(f, "  what      {summary}")?;
        }
        let locked = if status.locked { ", locked" } else { "" };
        match self.spec_entry {
            Some(entry) => writeln!(
                f,
                "  spec      entry {} of {}: {} since {}, default {}{locked}",
                entry + 1,
                self.history.len(),
                status.stage,
                self.spec.version,
                status.default
            )?,
            None => writeln!(f, "  spec      none applies yet")?,
        }
        writeln!(f, "  at        {}", self.versions)?;
        if let Some(index) = status.since_index {
            writeln!(f, "  since     log index {index}")?;
        }
        if let Some(reason) = &status.inert {
            writeln!(f, "  note      it has no effect here: {reason}")?;
        }
        if let Some(unwritten) = &self.unwritten {
            writeln!(f, "  note      {unwritten}")?;
        }
        for Setting { by, value, counts } in &self.settings {
            let counts = if *counts { "" } else { " (does not count)" };
            writeln!(f, "  said      {value} by {by}{counts}")?;
        }
        for (label, related) in [("needs", &self.needs), ("needed by", &self.needed_by)] {
            for other in related {
                let on = if other.enabled { "on" } else { "off" };
                writeln!(f, "  {label:<10}{} ({on})", other.name)?;
            }
        }
        for hint in self.unwritten.iter().map(Unwritten::advice) {
            writeln!(f, "  change    {hint}")?;
        }
        for hint in &self.to_change {
            writeln!(f, "  change    {hint}")?;
        }
        Ok(())
    }
}

impl GateSet {
    /// Returns one row per feature that exists at these versions, sorted by name.
    pub fn statuses(&self) -> Vec<Status> {
        self.features()
            .filter(|(_, state)| state.selected.spec.stage.exists())
            .map(|(feature, state)| self.status(feature, state))
            .collect()
    }

    /// Explains the value of a feature.
    pub fn explain(&self, name: &str) -> Result<Explanation, UnknownFeature> {
        let (feature, state) = self.state(name)?;
        let value_of = |name: &str| Related {
            name: name.to_owned(),
            enabled: self.try_enabled(name).unwrap_or(false),
        };
        let counted = match state.source {
            Source::Explicit(origin) => Some(origin),
            _ => None,
        };
        let setting = |(origin, value): (Origin, bool)| Setting {
            by: origin.text().to_owned(),
            value,
            counts: Some(origin) == counted,
        };
        Ok(Explanation {
            status: self.status(feature, state),
            doc: feature.doc.clone(),
            owner: feature.owner.clone(),
            touches: feature.touches,
            reversible: feature.reversible,
            spec: state.selected.spec,
            spec_entry: state.selected.entry,
            history: feature.specs.clone(),
            versions: self.versions(),
            settings: self
                .assignments()
                .all(name)
                .into_iter()
                .map(setting)
                .collect(),
            needs: feature
                .depends_on
                .iter()
                .map(|name| value_of(name))
                .collect(),
            needed_by: self
                .registry()
                .sorted()
                .filter(|other| other.depends_on.contains(&feature.name))
                .map(|other| value_of(&other.name))
                .collect(),
            to_change: self.change_options(feature, state),
            unwritten: None,
        })
    }

    fn status(&self, feature: &Registered, state: &State) -> Status {
        let spec = state.selected.spec;
        Status {
            name: feature.name.clone(),
            level: feature.level,
            enabled: state.value,
            stage: spec.stage,
            default: spec.default,
            locked: spec.locked,
            explicit: self.explicitly_set(&feature.name),
            source: state.source,
            reason: self.reason(feature, state),
            version_used: self.versions().emulation,
            since_index: None,
            inert: feature.inert.clone(),
        }
    }

    fn reason(&self, feature: &Registered, state: &State) -> String {
        let spec = state.selected.spec;
        match state.source {
            Source::Explicit(origin) => format!("set to {} by {}", state.value, origin.text()),
            Source::AllAlpha(_) | Source::AllBeta(_) => {
                format!(
                    "{} sets every {} feature that is not set by name",
                    state.source, spec.stage
                )
            }
            Source::Lock => format!("locked to {} since {}", spec.default, spec.version),
            Source::Absent => absence_reason(feature, self.versions().emulation),
            _ => format!(
                "the default of its {} stage since {}",
                spec.stage, spec.version
            ),
        }
    }

    fn change_options(&self, feature: &Registered, state: &State) -> Vec<String> {
        let wanted = !state.value;
        let name = &feature.name;
        let mut ways = version_options(feature, state.selected.spec, self.versions(), wanted);
        let spec = state.selected.spec;
        if spec.stage.exists() && !spec.locked {
            let off: Vec<&str> = feature
                .depends_on
                .iter()
                .filter(|_| wanted)
                .filter(|needed| !self.try_enabled(needed).unwrap_or(false))
                .map(String::as_str)
                .collect();
            let mut flag = format!("{name}={wanted}");
            for needed in off {
                flag.push_str(&format!(",{needed}=true"));
            }
            ways.insert(0, format!("restart with {}={flag}", feature.level.flag()));
        }
        ways
    }
}

/// Returns why a feature does not exist at a version.
pub(crate) fn absence_reason(feature: &Registered, version: MajorMinor) -> String {
    match feature.removed_in() {
        Some(removed) if removed <= version => format!("it was removed in {removed}"),
        _ => format!("it does not exist before {}", feature.since()),
    }
}

/// Returns advice on versions at which the feature can have the wanted value.
pub(crate) fn version_options(
    feature: &Registered,
    spec: Spec,
    versions: Versions,
    wanted: bool,
) -> Vec<String> {
    let mut ways = Vec::new();
    // Find an entry that only the minimum compatibility version hides.
    if let Some(hidden) = feature.specs.iter().rev().find(|other| {
        other.version <= versions.emulation
            && other
                .min_compat
                .is_some_and(|min| min > versions.min_compat)
            && other.default == wanted
    }) && let Some(min_compat) = hidden.min_compat
    {
        ways.push(format!(
            "raise the minimum compatibility version to {min_compat}: its default is {wanted} there"
        ));
    }
    if !spec.stage.exists() || spec.locked {
        ways.push(nearest_version_option(
            feature,
            spec,
            versions.emulation,
            wanted,
        ));
    }
    ways
}

/// Returns advice on the nearest version at which the feature can have the wanted value.
fn nearest_version_option(
    feature: &Registered,
    spec: Spec,
    version: MajorMinor,
    wanted: bool,
) -> String {
    let allows = |other: &&Spec| {
        other.stage.exists() && other != &&spec && (!other.locked || other.default == wanted)
    };
    if let Some(later) = feature
        .specs
        .iter()
        .filter(allows)
        .find(|other| other.version > version)
    {
        return format!(
            "raise the version to {}, where it is {}",
            later.version, later.stage
        );
    }
    match feature.specs.iter().rev().find(allows) {
        Some(earlier) => {
            let go_back = match feature.level {
                Level::Cluster => "downgrade the cluster below",
                Level::Server | Level::Component => "emulate a version below",
            };
            format!(
                "{go_back} {}, where it was {} and can be {wanted}",
                spec.version, earlier.stage
            )
        }
        None => "nothing: no version of this program lets it differ".to_owned(),
    }
}
