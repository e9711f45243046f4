//! Features that had a flag of their own before they were gates.
//!
//! etcd 3.6 accepts both names, 3.7 only the gate. A member that emulates 3.6 does the same, so
//! that one command line works before and after an upgrade's first step. The gate's rules hold
//! for the old name as well.

use portunus_gates::{Assignments, EffectiveVersion, MajorMinor, Origin};

use super::flags::{FLAGS, Support};
use super::{ConfigError, Values, ValuesError, boolean};

/// The first version without the old names.
const GONE_SINCE: MajorMinor = MajorMinor::literal("3.7");

/// Adds the values of old names to the gates of the flag with this name. Returns the old names.
pub(super) fn add(
    values: &Values,
    version: &EffectiveVersion,
    flag: &'static str,
    gates: &mut Assignments,
) -> Result<Vec<&'static str>, ConfigError> {
    let mut used = Vec::new();
    for known in FLAGS {
        let Support::OldGate(old) = known.support else {
            continue;
        };
        if old.flag != flag || !values.is_set(known.name) {
            continue;
        }
        if version.emulation() >= GONE_SINCE {
            return Err(ConfigError::Values(ValuesError::Removed {
                flag: known.name,
                instead: old.instead,
            }));
        }
        if gates.get(old.gate).is_some() {
            return Err(ConfigError::BothNames {
                old: known.name,
                flag,
                gate: old.gate,
            });
        }
        gates.set(Origin::Flag, old.gate, boolean(values, known.name)?);
        used.push(known.name);
    }
    Ok(used)
}
