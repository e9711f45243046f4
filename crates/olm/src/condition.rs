//! The condition GatesValid of the object's status.

use portunus_gates::FeatureSet;
use portunus_objects::{metadata, timestamp};
use serde_json::{Value, json};

use crate::live::{ProblemKind, Snapshot};

/// The type of the condition.
pub const GATES_VALID: &str = "GatesValid";

/// The most letters of a condition's message.
const MESSAGE_LENGTH_MAX: usize = 32_768;

/// Returns the condition for a state of the gates. Its time changes only with its status.
#[must_use]
pub fn gates_condition<Set: FeatureSet>(
    snapshot: &Snapshot<Set>,
    object: &Value,
    now_unix_s: i64,
) -> Value {
    let problems = snapshot.problems();
    let reason = match problems.iter().map(|problem| problem.kind).min() {
        None => "AllGatesValid",
        Some(ProblemKind::Unknown) => "UnknownGate",
        Some(ProblemKind::Locked) => "LockedGate",
        Some(ProblemKind::Dependency) => "DependencyDisabled",
        Some(ProblemKind::Refused) => "GatesRefused",
    };
    let texts: Vec<&str> = problems
        .iter()
        .map(|problem| problem.text.as_str())
        .collect();
    let mut message = match texts.is_empty() {
        true => "all gates are in force".to_owned(),
        false => texts.join("; "),
    };
    while message.len() > MESSAGE_LENGTH_MAX {
        message.pop();
    }
    let status = if problems.is_empty() { "True" } else { "False" };
    let since = condition(object, GATES_VALID)
        .filter(|condition| condition["status"] == status)
        .and_then(|condition| condition["lastTransitionTime"].as_str().map(str::to_owned))
        .or_else(|| timestamp::format(now_unix_s));
    json!({
        "type": GATES_VALID,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": metadata::generation(object),
        "lastTransitionTime": since,
    })
}

/// Returns a condition of an object's status.
#[must_use]
pub fn condition<'object>(object: &'object Value, kind: &str) -> Option<&'object Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

/// Sets a condition of an object's status. Other conditions stay.
pub fn set_condition(object: &mut Value, condition: Value) {
    if !object.is_object() {
        return;
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else {
        return;
    };
    let same_type = |other: &&mut Value| other["type"] == condition["type"];
    match conditions.iter_mut().find(same_type) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}
