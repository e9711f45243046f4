//! Shrinks a failing scenario.

use super::planted::PlantedBug;
use super::run;
use super::scenario::{Class, Scenario};

/// Removes classes of faults and ticks while the scenario still violates an invariant. Returns
/// the scenario and the removed classes.
#[must_use]
pub fn shrink(scenario: &Scenario, bug: Option<PlantedBug>) -> (Scenario, Vec<Class>) {
    let fails = |scenario: &Scenario| run(scenario, bug).is_err();
    let mut smallest = scenario.clone();
    let mut removed = Vec::new();
    for (class, _) in Class::ALL {
        let simpler = smallest.clone().without(&[class]);
        if simpler != smallest && fails(&simpler) {
            smallest = simpler;
            removed.push(class);
        }
    }
    // Faults after a failure cannot be its cause.
    let (mut passes, mut fails_at) = (0, smallest.fault_ticks);
    while passes + 1 < fails_at {
        let middle = passes + (fails_at - passes) / 2;
        let shorter = Scenario {
            fault_ticks: middle,
            ..smallest.clone()
        };
        if fails(&shorter) {
            fails_at = middle;
        } else {
            passes = middle;
        }
    }
    smallest.fault_ticks = fails_at;
    (smallest, removed)
}
