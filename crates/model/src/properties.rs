//! What must hold in every state, and what must be possible at all.
//!
//! | property | says |
//! | --- | --- |
//! | [`AGREE`] | whoever has applied an entry has the same params, members and effects of it |
//! | [`TOGETHER`] | the values in force were decided at the version in force |
//! | [`HEED`] | what a leader proposes is what the voters it knows of want, by the rule of the seed: locks and missing features beat flags, one explicit false beats a default true, a default false needs all, a member without a proposal beats everything; and that params go with every version |
//! | [`SETTLED`] | when nothing is left to do, the values are those the machines' flags ask for |
//! | [`TRACELESS`] | whoever proposes nothing makes no first decision |
//!
//! The rule of the seed is written here a second time, from the text and not from the code.
//! The properties that say "sometimes" keep the others from being empty.

use portunus_gates::{MajorMinor, Stage};
use stateright::Property;

use crate::agreement::{Agreement, forget_features};
use crate::features::{FEATURES, Flags, SINCE};
use crate::replica::{Entry, Params, Record, Replica, Said};
use crate::state::{Machine, State};

/// Members agree at every index.
pub const AGREE: &str = "members agree at every index";
/// Version and values move together.
pub const TOGETHER: &str = "version and values move together";
/// A decision heeds the voters.
pub const HEED: &str = "a decision heeds the voters";
/// What has settled is right.
pub const SETTLED: &str = "what has settled is right";
/// A leader with the mechanism off leaves no trace where nothing was decided.
pub const TRACELESS: &str = "whoever proposes nothing makes no first decision";

/// A weakness of the protocol as it is: a decision that was under way while another leader
/// raised the version takes it back, until the next decision raises it again. Members that
/// come in between may be older than data that was written.
pub const VERSION_GOES_BACK: &str = "an old decision takes the version back";
/// A weakness of the protocol as it is: a member says that it has gone back to an older
/// version while the cluster version rises, and all others stop at that entry, for good.
pub const ALL_STOP: &str = "a word of an older version stops everybody";

/// All of them.
#[must_use]
pub fn all() -> Vec<Property<Agreement>> {
    vec![
        Property::always(AGREE, members_agree),
        Property::always(TOGETHER, version_and_values_move_together),
        Property::always(HEED, decisions_heed_the_voters),
        Property::always(SETTLED, what_has_settled_is_right),
        Property::always(TRACELESS, silent_leaders_begin_nothing),
        Property::sometimes(
            "a leader with the mechanism off turns everything off",
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
        Property::sometimes("a feature is on because all want it", |_, state| {
            has_value(state, 1, true)
        }),
        Property::sometimes("a feature is off because not all want it", |_, state| {
            has_value(state, 1, false)
        }),
        Property::sometimes("a write meets a feature that is on", |_, state: &State| {
            let effect = state.base.effect;
            effect.is_some_and(|effect| effect.contains(&true))
        }),
        Property::sometimes("a write meets no feature that is on", |_, state: &State| {
            let effect = state.base.effect;
            effect.is_some_and(|effect| !effect.contains(&true))
        }),
        Property::sometimes(
            "a lock is stronger than a voter's flag",
            |_, state: &State| {
                let mut voters = state.base.voters();
                let objects =
                    |voter: &Record| matches!(voter.said, Said::Proposal(_, [Some(false), _]));
                let is_locked = state
                    .base
                    .params
                    .is_some_and(|params| params.version > SINCE);
                is_locked && has_value(state, 0, true) && voters.any(objects)
            },
        ),
        Property::sometimes(
            "a foreign voter turns everything off",
            |_, state: &State| {
                let mut voters = state.base.voters();
                has_value(state, 0, false) && voters.any(|voter| voter.said == Said::Foreign)
            },
        ),
        Property::sometimes(
            "a write meets a version without params",
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
            "a decision lands that was made from older words",
            some_decision_is_old,
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
    let prescribed = state.prescribed(model.rules());
    state.running().all(|(_, machine)| {
        let mut expected = prescribed[machine.applied].clone();
        if machine.config.is_foreign {
            // It has no features; that none is on around it is asked elsewhere.
            forget_features(&mut expected);
        }
        machine.replica == expected
    })
}

fn version_and_values_move_together(_: &Agreement, state: &State) -> bool {
    state.running().all(|(_, machine)| {
        let replica = &machine.replica;
        replica.params.is_none_or(|params| {
            Some(params.version) == replica.cluster_version && params.version >= SINCE
        })
    })
}

fn decisions_heed_the_voters(model: &Agreement, state: &State) -> bool {
    state.running().all(|(place, machine)| {
        let decision = model.decision(state, place, true);
        decision.iter().all(|entry| match entry {
            Entry::Decide {
                version,
                params: Some(params),
            } => is_by_the_rule(model, &machine.replica, *version, params),
            // Params that exist go with every version that has them.
            Entry::Decide {
                version,
                params: None,
            } => *version < SINCE || machine.replica.params.is_none(),
            _ => true,
        })
    })
}

fn silent_leaders_begin_nothing(model: &Agreement, state: &State) -> bool {
    let mut silent = state.running().filter(|(_, it)| !it.config.proposes);
    silent.all(|(place, machine)| {
        let decision = model.decision(state, place, true);
        let brings = |entry: &Entry| {
            matches!(
                entry,
                Entry::Decide {
                    params: Some(_),
                    ..
                }
            )
        };
        machine.replica.params.is_some() || !decision.iter().any(brings)
    })
}

/// Whether params are what the members of a replica want.
fn is_by_the_rule(
    model: &Agreement,
    replica: &Replica,
    version: MajorMinor,
    params: &Params,
) -> bool {
    let members: Vec<&Record> = replica.records.iter().flatten().collect();
    params.version == version && params.values == by_the_rule(model, version, &members)
}

/// The values by the words of the seed, where learners do not count; but one that could not
/// obey keeps everything off.
fn by_the_rule(
    model: &Agreement,
    version: MajorMinor,
    members: &[&Record],
) -> [Option<bool>; FEATURES] {
    let is_foreign = members.iter().any(|it| it.said == Said::Foreign);
    let published = |it: &&Record| match it.said {
        Said::Proposal(_, flags) if it.is_voter => Some(flags),
        _ => None,
    };
    let flags: Vec<Flags> = members.iter().filter_map(published).collect();
    let mut values = [None; FEATURES];
    for (feature, value) in values.iter_mut().enumerate() {
        let Some(spec) = model.rules().spec(feature, version) else {
            continue;
        };
        let words = || flags.iter().map(|flags| flags[feature]);
        *value = match spec.stage {
            // It does not exist: whatever they say.
            Stage::PreAlpha | Stage::Removed => None,
            _ if is_foreign => Some(false),
            _ if spec.locked => Some(spec.default),
            // On, unless one says false.
            _ if spec.default => Some(words().all(|word| word != Some(false))),
            // Off, unless all say true.
            _ => Some(!flags.is_empty() && words().all(|word| word == Some(true))),
        };
    }
    values
}

fn what_has_settled_is_right(model: &Agreement, state: &State) -> bool {
    if !is_settled(model, state) {
        return true;
    }
    let tip = &state.base;
    let Some(version) = tip.cluster_version.filter(|version| *version >= SINCE) else {
        return tip.params.is_none();
    };
    // What the machines were started with, not what the log says of them.
    let word = |(place, machine): (usize, &Machine)| {
        let record = tip.records[place]?;
        let said = if machine.config.proposes {
            Said::Proposal(machine.config.version, machine.config.flags)
        } else {
            Said::Foreign
        };
        Some(Record { said, ..record })
    };
    let words: Vec<Record> = state.running().filter_map(word).collect();
    let members: Vec<&Record> = words.iter().collect();
    let is_foreign = members.iter().any(|it| it.said == Said::Foreign);
    match tip.params {
        Some(params) => params.values == by_the_rule(model, version, &members),
        None => is_foreign,
    }
}

/// Everything is applied, everybody runs and has said what it is, and nobody who leads would
/// decide anything else.
fn is_settled(model: &Agreement, state: &State) -> bool {
    let is_idle = |(place, machine): (usize, &Machine)| {
        let record = machine.replica.records[place];
        let wants = model.wants_to_say(place, machine);
        !machine.is_halted
            && record.is_none_or(|record| record.said == wants)
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

/// A committed decision says other than the rule says at its place in the log.
fn some_decision_is_old(model: &Agreement, state: &State) -> bool {
    let prescribed = state.prescribed(model.rules());
    let mut placed = state.log.iter().zip(&prescribed);
    placed.any(|(entry, before)| match entry {
        Entry::Decide {
            version,
            params: Some(params),
        } => !is_by_the_rule(model, before, *version, params),
        _ => false,
    })
}

/// A committed entry lowers the version, in a way that is asked for.
fn some_version_falls(
    model: &Agreement,
    state: &State,
    is_meant: fn(&Replica, MajorMinor) -> bool,
) -> bool {
    let prescribed = state.prescribed(model.rules());
    let mut placed = state.log.iter().zip(&prescribed);
    placed.any(|(entry, before)| match entry {
        Entry::Decide { version, .. } => {
            Some(*version) < before.cluster_version && is_meant(before, *version)
        }
        _ => false,
    })
}
