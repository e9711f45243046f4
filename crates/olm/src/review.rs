//! The gates of a request: what is refused, and what the client is warned about.

use portunus_gates::{Registry, Stage, Versions};
use portunus_objects::field::{FieldError, Path};
use portunus_objects::metadata;
use serde_json::Value;

use crate::api::{GROUP, V2ALPHA1};
use crate::conversion::GATES_ANNOTATION;
use crate::gate_list::{COPIED_CSVS_GATE, GateEntry, gates, old_field};

/// The result of a review.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Review {
    /// Why the request is refused.
    pub errors: Vec<FieldError>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// What is to say about one entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateFinding {
    /// The gate is unknown, or does not exist at this version; it has no effect.
    Unknown(String),
    /// The gate is locked to the other value.
    Locked {
        /// The value in force.
        locked: bool,
        /// The text for people.
        text: String,
    },
    /// The gate is GA or deprecated and will be removed.
    GoingAway(Stage),
}

/// Judges one entry against the registry.
#[must_use]
pub fn judge(
    registry: &Registry,
    versions: Versions,
    name: &str,
    value: bool,
) -> Option<GateFinding> {
    let Some(feature) = registry.get(name) else {
        return Some(GateFinding::Unknown(registry.unknown(name).to_string()));
    };
    let spec = feature.at(versions).spec;
    match spec.stage {
        Stage::PreAlpha => {
            let since = feature.since();
            let text = format!("{name} does not exist before {since}");
            Some(GateFinding::Unknown(text))
        }
        Stage::Removed => {
            let text = format!("{name} was removed in {}", spec.version);
            Some(GateFinding::Unknown(text))
        }
        _ if spec.locked && value != spec.default => Some(GateFinding::Locked {
            locked: spec.default,
            text: format!(
                "locked to {} since {}: remove the entry",
                spec.default, spec.version
            ),
        }),
        stage @ (Stage::Ga | Stage::Deprecated) => Some(GateFinding::GoingAway(stage)),
        Stage::Alpha | Stage::Beta => None,
    }
}

/// Reviews the gates of a normalized object in v2alpha1. `before` is the stored object, `None` for
/// a create.
///
/// Unknown gates are accepted with a warning: refusing them would break a downgrade. A locked gate
/// with the other value is refused, unless the stored object has the same entry: an upgrade that
/// locks a gate must not block every write to the object.
#[must_use]
pub fn review(
    registry: &Registry,
    versions: Versions,
    after: &Value,
    before: Option<&Value>,
) -> Review {
    let mut review = Review::default();
    if old_field(after).is_some() {
        review.warnings.push(format!(
            "spec.features.{COPIED_CSVS_GATE} is deprecated: use the gate {COPIED_CSVS_GATE} of spec.features.gates in {GROUP}/{V2ALPHA1}"
        ));
    }
    if let Some(text) = metadata::annotation(after, GATES_ANNOTATION) {
        let path = Path::new("metadata")
            .child("annotations")
            .key(GATES_ANNOTATION);
        let detail = "must be a JSON list of gates, each with a name and a boolean value";
        review.errors.push(FieldError::invalid(&path, text, detail));
    }
    let entries_before = before.map(gates).unwrap_or_default();
    for entry in gates(after) {
        let is_unchanged = entries_before
            .iter()
            .any(|before| before.name == entry.name && before.value == entry.value);
        if let Some(finding) = judge(registry, versions, &entry.name, entry.value) {
            report(&mut review, &entry, finding, is_unchanged);
        } else if entry.value {
            let off = disabled_dependencies(registry, versions, &entry, &gates(after));
            review.warnings.extend(off);
        }
    }
    review
}

/// Warns about a gate that stays off because a gate that it needs is off.
fn disabled_dependencies(
    registry: &Registry,
    versions: Versions,
    entry: &GateEntry,
    entries: &[GateEntry],
) -> Option<String> {
    let is_off = |name: &&String| {
        let default = registry
            .get(name)
            .is_some_and(|feature| feature.at(versions).spec.default);
        let set = entries.iter().find(|entry| entry.name == **name);
        !set.map_or(default, |entry| entry.value)
    };
    let needed = &registry.get(&entry.name)?.depends_on;
    let off: Vec<&str> = needed.iter().filter(is_off).map(String::as_str).collect();
    let path = gates_path().index(entry.index);
    let (name, off) = (&entry.name, off.join(", "));
    (!off.is_empty())
        .then(|| format!("{path}: the gate {name} stays off: it needs {off}, which is off"))
}

fn gates_path() -> Path {
    Path::new("spec").child("features").child("gates")
}

fn report(review: &mut Review, entry: &GateEntry, finding: GateFinding, is_unchanged: bool) {
    let path = gates_path().index(entry.index);
    let name = &entry.name;
    match finding {
        GateFinding::Unknown(text) => review
            .warnings
            .push(format!("{path}: the gate has no effect: {text}")),
        GateFinding::GoingAway(stage) => {
            let stage = if stage == Stage::Ga {
                "GA"
            } else {
                "deprecated"
            };
            review.warnings.push(format!(
                "{path}: the gate {name} is {stage} and will be removed in a later release: remove the entry"
            ));
        }
        GateFinding::Locked { text, .. } if is_unchanged => {
            review
                .warnings
                .push(format!("{path}: the gate {name} is {text}"));
        }
        GateFinding::Locked { text, .. } => {
            let path = path.child("value");
            review
                .errors
                .push(FieldError::invalid(&path, entry.value, &text));
        }
    }
}
