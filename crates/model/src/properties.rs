//! The invariants of every state, and the examples that some state must show.
//!
//! | property | meaning |
//! | --- | --- |
//! | [`MEMBERS_AGREE`] | all members that have applied an entry have the same params, members and effects |
//! | [`VERSION_AND_VALUES_TOGETHER`] | the values in force were decided at the version in force |
//! | [`DECISION_FOLLOWS_FLAGS`] | a leader proposes what follows from the flags of the voters it knows, by the specified rule: locks and missing features override flags, one explicit false overrides a default of true, a default of false needs all, a member without a proposal turns all features off; and params are part of every version entry |
//! | [`SETTLED_VALUES`] | when no step is left, the values follow from the flags of the machines |
//! | [`NO_DECISION_WITHOUT_PROPOSAL`] | a leader without a proposal makes no first decision |
//!
//! The specified rule is implemented here a second time, from its text and not from the code
//! of the gates. The `sometimes` properties show that the others are not vacuous.

use portunus_gates::{MajorMinor, Stage};
use stateright::Property;

use crate::agreement::{Agreement, forget_features};
use crate::features::{FEATURES, Flags, SINCE};
use crate::replica::{Attributes, Entry, Params, Record, Replica};
use crate::state::{Machine, State};

/// Members agree at every index.
pub const MEMBERS_AGREE: &str = "members agree at every index";
/// The values in force were decided at the version in force.
pub const VERSION_AND_VALUES_TOGETHER: &str = "version and values change together";
/// A decision follows from the flags of the voters.
pub const DECISION_FOLLOWS_FLAGS: &str = "a decision follows from the flags of the voters";
/// A settled cluster has the values that follow from its flags.
pub const SETTLED_VALUES: &str = "a settled cluster has the specified values";
/// A leader with ClusterFeatureGate off makes no first decision.
pub const NO_DECISION_WITHOUT_PROPOSAL: &str =
    "a leader without a proposal makes no first decision";

/// A known weakness of the protocol: a decision that was pending while another leader raised
/// the version lowers it again, until the next decision raises it. A member that is added in
/// between may be older than data that was written.
pub const VERSION_GOES_BACK: &str = "a stale decision lowers the version";
/// A known weakness of the protocol: a member publishes that it was restarted with an older
/// version while the cluster version rises, and all others stop at that entry permanently.
pub const ALL_STOP: &str = "published attributes with an older version stop all machines";

/// Returns all properties.
#[must_use]
pub fn all() -> Vec<Property<Agreement>> {
    vec![
        Property::always(MEMBERS_AGREE, members_agree),
        Property::always(
            VERSION_AND_VALUES_TOGETHER,
            version_and_values_change_together,
        ),
        Property::always(DECISION_FOLLOWS_FLAGS, decisions_follow_from_voter_flags),
        Property::always(SETTLED_VALUES, settled_values_are_specified),
        Property::always(
            NO_DECISION_WITHOUT_PROPOSAL,
            silent_leaders_make_no_first_decision,
        ),
        Property::sometimes(
            "a leader with the mechanism off turns all features off",
            |model: &Agreement, state: &State| {
                let mut silent = state.running().filter(|(_, it)| !it.config.proposes);
                silent.any(|(place, machine)| {
                    let is_on = model
                        .rules()
                        .enabled(machine.replica.params)
                        .contains(&true);
                    is_on && !model.decision(state, place, true).is_empty()
                })
            },
        ),
        Property::sometimes("a veto turns a feature off", |_, state| {
            has_value(state, 0, false)
        }),
        Property::sometimes("a feature is on by default", |_, state| {
            has_value(state, 0, true)
        }),
        Property::sometimes("a feature is on because all set it to true", |_, state| {
            has_value(state, 1, true)
        }),
        Property::sometimes("a feature is off because not all set it", |_, state| {
            has_value(state, 1, false)
        }),
        Property::sometimes("a write applies with a feature on", |_, state: &State| {
            let effect = state.base.effect;
            effect.is_some_and(|effect| effect.contains(&true))
        }),
        Property::sometimes(
            "a write applies with all features off",
            |_, state: &State| {
                let effect = state.base.effect;
                effect.is_some_and(|effect| !effect.contains(&true))
            },
        ),
        Property::sometimes("a lock overrides a voter's flag", |_, state: &State| {
            let mut voters = state.base.voters();
            let vetoes = |voter: &Record| {
                matches!(voter.attributes, Attributes::Proposal(_, [Some(false), _]))
            };
            let is_locked = state
                .base
                .params
                .is_some_and(|params| params.version > SINCE);
            is_locked && has_value(state, 0, true) && voters.any(vetoes)
        }),
        Property::sometimes(
            "a foreign voter turns all features off",
            |_, state: &State| {
                let mut voters = state.base.voters();
                has_value(state, 0, false)
                    && voters.any(|voter| voter.attributes == Attributes::Foreign)
            },
        ),
        Property::sometimes(
            "a write applies at a version without params",
            |_, state: &State| {
                let version = state.base.cluster_version;
                version.is_some_and(|version| version < SINCE) && state.base.effect.is_some()
            },
        ),
        Property::sometimes(
            "a machine stops because of a version",
            |_, state: &State| state.running().any(|(_, machine)| machine.is_halted),
        ),
        Property::sometimes("a downgrade lowers the version", |model, state| {
            some_version_falls(model, state, |before, version| {
                before.downgrade == Some(version)
            })
        }),
        Property::sometimes(
            "a decision is committed that was made from older flags",
            some_decision_is_stale,
        ),
        Property::sometimes(VERSION_GOES_BACK, |model, state| {
            some_version_falls(model, state, |before, version| {
                before.downgrade != Some(version)
            })
        }),
        Property::sometimes(ALL_STOP, |_, state: &State| {
            let waits_at = state.log.first();
            waits_at.is_some_and(|entry| matches!(entry, Entry::Publish { .. }))
                && state.base.cluster_version.is_some()
                && state.running().all(|(_, machine)| machine.is_halted)
        }),
    ]
}

fn has_value(state: &State, feature: usize, value: bool) -> bool {
    let params = state.base.params;
    params.is_some_and(|params| params.values[feature] == Some(value))
}

fn members_agree(model: &Agreement, state: &State) -> bool {
    let expected_replicas = state.expected_replicas(model.rules());
    state.running().all(|(_, machine)| {
        let mut expected = expected_replicas[machine.applied].clone();
        if machine.config.is_foreign {
            // A foreign machine has no features; SETTLED_VALUES checks that none is on beside it.
            forget_features(&mut expected);
        }
        machine.replica == expected
    })
}

fn version_and_values_change_together(_: &Agreement, state: &State) -> bool {
    state.running().all(|(_, machine)| {
        let replica = &machine.replica;
        replica.params.is_none_or(|params| {
            Some(params.version) == replica.cluster_version && params.version >= SINCE
        })
    })
}

fn decisions_follow_from_voter_flags(model: &Agreement, state: &State) -> bool {
    state.running().all(|(place, machine)| {
        let decision = model.decision(state, place, true);
        decision.iter().all(|entry| match entry {
            Entry::Decide {
                version,
                params: Some(params),
            } => is_by_the_rule(model, &machine.replica, *version, params),
            // Where params are in force, every version entry has them.
            Entry::Decide {
                version,
                params: None,
            } => *version < SINCE || machine.replica.params.is_none(),
            _ => true,
        })
    })
}

fn silent_leaders_make_no_first_decision(model: &Agreement, state: &State) -> bool {
    let mut silent = state.running().filter(|(_, it)| !it.config.proposes);
    silent.all(|(place, machine)| {
        let decision = model.decision(state, place, true);
        let has_params = |entry: &Entry| {
            matches!(
                entry,
                Entry::Decide {
                    params: Some(_),
                    ..
                }
            )
        };
        machine.replica.params.is_some() || !decision.iter().any(has_params)
    })
}

/// Returns whether params follow from the members of a replica by the specified rule.
fn is_by_the_rule(
    model: &Agreement,
    replica: &Replica,
    version: MajorMinor,
    params: &Params,
) -> bool {
    let members: Vec<&Record> = replica.records.iter().flatten().collect();
    params.version == version && params.values == by_the_rule(model, version, &members)
}

/// Returns the values by the specified rule. Learners do not count, but a foreign one keeps
/// all features off.
fn by_the_rule(
    model: &Agreement,
    version: MajorMinor,
    members: &[&Record],
) -> [Option<bool>; FEATURES] {
    let is_foreign = members
        .iter()
        .any(|it| it.attributes == Attributes::Foreign);
    let published = |it: &&Record| match it.attributes {
        Attributes::Proposal(_, flags) if it.is_voter => Some(flags),
        _ => None,
    };
    let flags: Vec<Flags> = members.iter().filter_map(published).collect();
    let mut values = [None; FEATURES];
    for (feature, value) in values.iter_mut().enumerate() {
        let Some(spec) = model.rules().spec(feature, version) else {
            continue;
        };
        let votes = || flags.iter().map(|flags| flags[feature]);
        *value = match spec.stage {
            // The feature does not exist, so flags have no effect.
            Stage::PreAlpha | Stage::Removed => None,
            _ if is_foreign => Some(false),
            _ if spec.locked => Some(spec.default),
            // On, unless one voter sets it to false.
            _ if spec.default => Some(votes().all(|vote| vote != Some(false))),
            // Off, unless all voters set it to true.
            _ => Some(!flags.is_empty() && votes().all(|vote| vote == Some(true))),
        };
    }
    values
}

fn settled_values_are_specified(model: &Agreement, state: &State) -> bool {
    if !is_settled(model, state) {
        return true;
    }
    let newest = &state.base;
    let Some(version) = newest.cluster_version.filter(|version| *version >= SINCE) else {
        return newest.params.is_none();
    };
    // The flags of the machines, not the published ones.
    let from_config = |(place, machine): (usize, &Machine)| {
        let record = newest.records[place]?;
        let attributes = if machine.config.proposes {
            Attributes::Proposal(machine.config.version, machine.config.flags)
        } else {
            Attributes::Foreign
        };
        Some(Record {
            attributes,
            ..record
        })
    };
    let records: Vec<Record> = state.running().filter_map(from_config).collect();
    let members: Vec<&Record> = records.iter().collect();
    let is_foreign = members
        .iter()
        .any(|it| it.attributes == Attributes::Foreign);
    match newest.params {
        Some(params) => params.values == by_the_rule(model, version, &members),
        None => is_foreign,
    }
}

/// Returns whether all entries are applied, all members run and have published their
/// attributes, and no leader would propose anything.
fn is_settled(model: &Agreement, state: &State) -> bool {
    let is_idle = |(place, machine): (usize, &Machine)| {
        let record = machine.replica.records[place];
        let due = model.due_attributes(place, machine);
        !machine.is_halted
            && record.is_none_or(|record| record.attributes == due)
            && model.decision(state, place, true).is_empty()
    };
    let mut members = state.base.records.iter().zip(&state.machines);
    let can_lead = |(place, machine): (usize, &Machine)| {
        let record = machine.replica.records[place];
        !machine.config.is_foreign && record.is_some_and(|record| record.is_voter)
    };
    state.log.is_empty()
        && state.pending.is_empty()
        && members.all(|(record, machine)| record.is_none() || machine.is_some())
        && state.running().any(can_lead)
        && state.running().all(is_idle)
}

/// Returns whether a committed decision differs from the rule at its index.
fn some_decision_is_stale(model: &Agreement, state: &State) -> bool {
    let expected_replicas = state.expected_replicas(model.rules());
    let mut placed = state.log.iter().zip(&expected_replicas);
    placed.any(|(entry, before)| match entry {
        Entry::Decide {
            version,
            params: Some(params),
        } => !is_by_the_rule(model, before, *version, params),
        _ => false,
    })
}

/// Returns whether a committed entry lowers the version and `is_wanted` holds for it.
fn some_version_falls(
    model: &Agreement,
    state: &State,
    is_wanted: fn(&Replica, MajorMinor) -> bool,
) -> bool {
    let expected_replicas = state.expected_replicas(model.rules());
    let mut placed = state.log.iter().zip(&expected_replicas);
    placed.any(|(entry, before)| match entry {
        Entry::Decide { version, .. } => {
            Some(*version) < before.cluster_version && is_wanted(before, *version)
        }
        _ => false,
    })
}
