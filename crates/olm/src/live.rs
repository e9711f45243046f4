//! Gates in memory that follow the object.
//!
//! [`LiveGates::follow`] builds the gates anew from the list and swaps them in one step; a removed
//! entry returns its gate to the default, because nothing of the gates before is kept. A check
//! loads a pointer and reads a bit: no lock, no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use portunus_gates::{
    Assignments, FeatureSet, Features, Gates, MemberOf, Origin, SetError, SetErrors, Versions,
};
use serde_json::Value;

use crate::gate_list::{COPIED_CSVS_GATE, gates, old_field};
use crate::review::{GateFinding, judge};

/// Why an entry of the list is not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The gate is unknown, or does not exist at this version.
    Unknown,
    /// The gate is locked to the other value.
    Locked,
    /// A gate that it needs is off.
    Dependency,
    /// The gates could not be built; those before stay in force.
    Refused,
}

/// An entry of the list that is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of the gate.
    pub name: String,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The text for people.
    pub text: String,
}

/// The gates of one state of the object, with what could not be applied.
#[derive(Debug)]
pub struct Snapshot<Set: FeatureSet> {
    gates: Gates<Set>,
    problems: Vec<Problem>,
}

impl<Set: FeatureSet> Snapshot<Set> {
    /// Returns the gates.
    #[must_use]
    pub fn gates(&self) -> &Gates<Set> {
        &self.gates
    }

    /// Returns the entries that are not in force.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// Gates that follow an OLMConfig. Share it in an `Arc`: one task follows, any number check.
#[derive(Debug)]
pub struct LiveGates<Set: FeatureSet> {
    features: Features<Set>,
    versions: Versions,
    /// Replaced as a whole by `follow`; read by every check.
    current: ArcSwap<Snapshot<Set>>,
}

impl<Set: FeatureSet> LiveGates<Set> {
    /// Creates the gates with their defaults: the state without an object.
    pub fn new(features: Features<Set>, versions: Versions) -> Result<LiveGates<Set>, SetErrors> {
        let gates = features.gates(versions, &Assignments::new())?;
        let problems = Vec::new();
        let current = ArcSwap::from_pointee(Snapshot { gates, problems });
        Ok(LiveGates {
            features,
            versions,
            current,
        })
    }

    /// Returns whether a feature is on.
    #[inline]
    pub fn enabled<F: MemberOf<Set>>(&self, feature: F) -> bool {
        self.current.load().gates.enabled(feature)
    }

    /// Returns the present state, for several checks that must agree.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot<Set>> {
        self.current.load_full()
    }

    /// Replaces the gates by those of the object, in v1 or v2alpha1 form; without an object every
    /// gate has its default. Entries that are unknown or locked are left out and reported.
    pub fn follow(&self, object: Option<&Value>) -> Arc<Snapshot<Set>> {
        let mut problems = Vec::new();
        let wanted = object
            .map(|object| self.wanted(object, &mut problems))
            .unwrap_or_default();
        let next = Arc::new(match self.build(wanted, &mut problems) {
            Ok(gates) => Snapshot { gates, problems },
            Err(errors) => {
                problems.push(Problem {
                    name: String::new(),
                    kind: ProblemKind::Refused,
                    text: errors.to_string(),
                });
                let gates = self.current.load().gates.clone();
                Snapshot { gates, problems }
            }
        });
        self.current.store(next.clone());
        next
    }

    /// Returns the values of the object that may be set.
    fn wanted(&self, object: &Value, problems: &mut Vec<Problem>) -> BTreeMap<String, bool> {
        let mut values: BTreeMap<String, bool> = gates(object)
            .into_iter()
            .map(|entry| (entry.name, entry.value))
            .collect();
        if let Some(value) = old_field(object) {
            values.entry(COPIED_CSVS_GATE.to_owned()).or_insert(value);
        }
        values.retain(|name, value| {
            let finding = judge(self.features.registry(), self.versions, name, *value);
            let (kind, text) = match finding {
                Some(GateFinding::Unknown(text)) => (ProblemKind::Unknown, text),
                Some(GateFinding::Locked { text, .. }) => {
                    (ProblemKind::Locked, format!("{name} is {text}"))
                }
                Some(GateFinding::GoingAway(_)) | None => return true,
            };
            problems.push(Problem {
                name: name.clone(),
                kind,
                text,
            });
            false
        });
        values
    }

    /// Builds the gates. A gate whose dependency is off is turned off and reported.
    fn build(
        &self,
        mut values: BTreeMap<String, bool>,
        problems: &mut Vec<Problem>,
    ) -> Result<Gates<Set>, SetErrors> {
        // Every round turns at least one more gate off, so there are no more rounds than gates.
        for _ in 0..=self.features.registry().features().len() {
            let assignments = Assignments::from_map(Origin::Config, values.clone());
            let errors = match self.features.gates(self.versions, &assignments) {
                Ok(gates) => return Ok(gates),
                Err(errors) => errors,
            };
            for error in &errors.0 {
                let SetError::DependencyDisabled { name, .. } = error else {
                    return Err(errors);
                };
                values.insert(name.clone(), false);
                problems.push(Problem {
                    name: name.clone(),
                    kind: ProblemKind::Dependency,
                    text: error.to_string(),
                });
            }
        }
        let assignments = Assignments::from_map(Origin::Config, values);
        self.features.gates(self.versions, &assignments)
    }
}
