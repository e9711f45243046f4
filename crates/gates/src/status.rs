//! What people and programs see of a feature: one row for lists, one story for "why".
//!
//! The same shape answers every surface: command line, RPC, HTTP, metrics.

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

/// One row about one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The name users write.
    pub name: String,
    /// Who decides it.
    pub level: Level,
    /// Whether it is on.
    pub enabled: bool,
    /// The stage at the version used.
    pub stage: Stage,
    /// The default at the version used.
    pub default: bool,
    /// Whether the default is fixed at the version used.
    pub locked: bool,
    /// Whether somebody named it.
    pub explicit: bool,
    /// Where the value comes from.
    pub source: Source,
    /// The same in words.
    pub reason: String,
    /// The version that selected the spec.
    pub version_used: MajorMinor,
    /// The log index that set the value; absent for what is fixed at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_index: Option<u64>,
    /// Why it guards nothing here, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inert: Option<String>,
}

/// Somebody's word about a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    /// Who: an origin of this process, or a member of the cluster.
    pub by: String,
    /// What.
    pub value: bool,
    /// Whether it is the word that counts.
    pub counts: bool,
}

/// Something a feature needs, or that needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Related {
    /// Which feature.
    pub name: String,
    /// Whether that one is on.
    pub enabled: bool,
}

/// Why a feature is as it is, and what would change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The row.
    #[serde(flatten)]
    pub status: Status,
    /// What the feature does.
    pub doc: String,
    /// Who answers questions about it.
    pub owner: String,
    /// The most lasting thing it changes.
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
    /// The pair of versions that selected it.
    pub versions: Versions,
    /// Who set what.
    pub said: Vec<Said>,
    /// What it needs.
    pub needs: Vec<Related>,
    /// What needs it.
    pub needed_by: Vec<Related>,
    /// What a person could do to change the value, the likeliest first.
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
    /// The story as a person reads it in a terminal.
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
        for said in &self.said {
            let counts = if said.counts { "" } else { " (does not count)" };
            writeln!(f, "  said      {} by {}{counts}", said.value, said.by)?;
        }
        for (word, related) in [("needs", &self.needs), ("needed by", &self.needed_by)] {
            for other in related {
                let on = if other.enabled { "on" } else { "off" };
                writeln!(f, "  {word:<10}{} ({on})", other.name)?;
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
    /// One row per feature that exists at these versions, sorted by name.
    pub fn statuses(&self) -> Vec<Status> {
        self.features()
            .filter(|(_, state)| state.selected.spec.stage.exists())
            .map(|(feature, state)| self.status(feature, state))
            .collect()
    }

    /// Why a feature is as it is.
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
        let said = |(origin, value): (Origin, bool)| Said {
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
            said: self.assignments().all(name).into_iter().map(said).collect(),
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
            to_change: self.ways_to_change(feature, state),
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
                    "{} sets every {} feature nobody named",
                    state.source, spec.stage
                )
            }
            Source::Lock => format!("locked to {} since {}", spec.default, spec.version),
            Source::Absent => absence(feature, self.versions().emulation),
            _ => format!(
                "the default of its {} stage since {}",
                spec.stage, spec.version
            ),
        }
    }

    fn ways_to_change(&self, feature: &Registered, state: &State) -> Vec<String> {
        let wanted = !state.value;
        let name = &feature.name;
        let mut ways = version_ways(feature, state.selected.spec, self.versions(), wanted);
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

/// Why a feature does not exist at a version.
pub(crate) fn absence(feature: &Registered, version: MajorMinor) -> String {
    match feature.removed_in() {
        Some(removed) if removed <= version => format!("it was removed in {removed}"),
        _ => format!("it does not exist before {}", feature.since()),
    }
}

/// Versions at which the value could be had, as advice.
pub(crate) fn version_ways(
    feature: &Registered,
    spec: Spec,
    versions: Versions,
    wanted: bool,
) -> Vec<String> {
    let mut ways = Vec::new();
    // An entry that only the minimum compatibility version hides.
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
        ways.push(other_version_way(feature, spec, versions.emulation, wanted));
    }
    ways
}

/// The nearest version at which the feature can have the wanted value.
fn other_version_way(
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
