//! Gate sets with changed values, for tests of code that checks gates.
//!
//! Nothing is shared or restored, because gates are values: a test makes its own set and
//! passes it on, so tests do not affect each other.

use thiserror::Error;

use crate::assignments::{Assignments, FlagError, Origin};
use crate::gate::GateSet;
use crate::registry::toggled_stage;
use crate::resolve::{SetError, SetErrors};
use crate::version::MajorMinor;

impl GateSet {
    /// Returns this set with `A=true,B=false` on top. AllAlpha and AllBeta set every
    /// unlocked feature of that stage. Turning a feature off also turns off its dependents
    /// that are on by default, so that a test names only the features it is about.
    pub fn with_for_test(&self, text: &str) -> Result<GateSet, TestGatesError> {
        let given = Assignments::parse(Origin::Code, text)?;
        let mut wanted = Assignments::new();
        for (name, value, _) in given.iter() {
            let Some(stage) = toggled_stage(name) else {
                continue;
            };
            for (feature, state) in self.features() {
                if state.selected.spec.stage == stage && !state.selected.spec.locked {
                    wanted.set(Origin::Code, &feature.name, value);
                }
            }
        }
        for (name, value, _) in given
            .iter()
            .filter(|(name, ..)| toggled_stage(name).is_none())
        {
            wanted.set(Origin::Code, name, value);
        }
        let off: Vec<String> = wanted
            .iter()
            .filter(|(_, value, _)| !value)
            .map(|(name, ..)| name.to_owned())
            .collect();
        for name in off {
            self.turn_off_dependents(&name, &mut wanted);
        }
        self.with(&wanted).map_err(|errors| TestGatesError::Set {
            hint: self.unlocked_at(&errors),
            source: errors,
        })
    }

    fn turn_off_dependents(&self, name: &str, wanted: &mut Assignments) {
        for (feature, state) in self.features() {
            if feature.depends_on.iter().any(|needed| needed == name)
                && state.value
                && !self.explicitly_set(&feature.name)
                && wanted.get(&feature.name).is_none()
            {
                wanted.set(Origin::Code, &feature.name, false);
                self.turn_off_dependents(&feature.name, wanted);
            }
        }
    }

    /// Formats the versions at which the locked features could be switched.
    fn unlocked_at(&self, errors: &SetErrors) -> String {
        let unlocked = |name: &str| -> Option<MajorMinor> {
            let specs = &self.registry().get(name)?.specs;
            Some(specs.iter().rev().find(|spec| !spec.locked)?.version)
        };
        errors
            .0
            .iter()
            .filter_map(|error| match error {
                SetError::Locked { name, .. } => Some(format!(
                    "; {name} can be switched when emulating {}",
                    unlocked(name)?
                )),
                _ => None,
            })
            .collect()
    }
}

/// Why gates for a test were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum TestGatesError {
    /// The text cannot be parsed.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The values are refused.
    #[error("these gate values are refused{hint}")]
    Set { hint: String, source: SetErrors },
}
