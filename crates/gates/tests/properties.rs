//! Property tests of decision, resolution, plans and registration.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::generated::*;
use common::v;
use portunus_gates::cluster::*;
use portunus_gates::plan::*;
use portunus_gates::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn publication() -> impl Strategy<Value = Publication> {
    prop_oneof![
        1 => Just(Publication::Nothing),
        1 => Just(Publication::Foreign),
        8 => (version(), flag_map())
            .prop_map(|(version, flags)| Publication::Proposal(Proposal { version, flags })),
    ]
}

fn member() -> impl Strategy<Value = Member> {
    (
        0u64..6,
        proptest::bool::weighted(0.8),
        any::<bool>(),
        publication(),
    )
        .prop_map(|(id, voter, started, publication)| Member {
            id: MemberId(id),
            name: format!("m{id}"),
            voter,
            started,
            publication,
        })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    vec(member(), 0..7)
}

fn previous() -> impl Strategy<Value = Previous> {
    (0..3, version(), flag_map()).prop_map(|(kind, version, features)| {
        let params = ClusterParams { version, features };
        match kind {
            0 => Previous::Absent,
            1 => Previous::Bootstrap(params),
            _ => Previous::Decided(params),
        }
    })
}

fn specs(registry: &Arc<Registry>) -> ClusterSpecs {
    ClusterSpecs::new(registry.clone(), v("3.6"), v("3.0"))
}

/// Returns the published flags of voters.
fn ballots(members: &[Member]) -> Vec<&BTreeMap<String, bool>> {
    members
        .iter()
        .filter(|member| member.voter)
        .filter_map(|member| match &member.publication {
            Publication::Proposal(proposal) => Some(&proposal.flags),
            _ => None,
        })
        .collect()
}

/// Decides a feature by the specified rule, without dependencies: explicit values, the
/// toggles of the stage, "any false" where the default is true, "all true" where it is false.
fn naive(feature: &Registered, version: MajorMinor, members: &[Member]) -> Option<bool> {
    let spec = feature.at(Versions::exactly(version)).spec;
    if !spec.stage.exists() {
        return None;
    }
    if spec.locked {
        return Some(spec.default);
    }
    let explicit: Vec<Option<bool>> = ballots(members)
        .into_iter()
        .map(|flags| {
            let toggle = match spec.stage {
                Stage::Alpha => flags.get("AllAlpha"),
                Stage::Beta => flags.get("AllBeta"),
                _ => None,
            };
            flags.get(&feature.name).or(toggle).copied()
        })
        .collect();
    Some(if spec.default {
        !explicit.contains(&Some(false))
    } else {
        !explicit.is_empty() && explicit.iter().all(|value| *value == Some(true))
    })
}

/// Turns off features whose dependency is off, until nothing changes.
fn naive_dependencies(registry: &Registry, values: &mut BTreeMap<String, bool>) {
    loop {
        let off: Vec<String> = registry
            .features()
            .iter()
            .filter(|feature| values.get(&feature.name) == Some(&true))
            .filter(|feature| {
                feature
                    .depends_on
                    .iter()
                    .any(|needed| values.get(needed) != Some(&true))
            })
            .map(|feature| feature.name.clone())
            .collect();
        if off.is_empty() {
            return;
        }
        for name in off {
            values.insert(name, false);
        }
    }
}

fn without_foreign(mut members: Vec<Member>) -> Vec<Member> {
    members.retain(|member| member.publication != Publication::Foreign);
    members
}

fn values(decision: &Decision) -> BTreeMap<String, bool> {
    let value = |f: &FeatureDecision| Some((f.name.clone(), f.value?));
    decision.features.iter().filter_map(value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Proves: S0-27, S0-A1, X5, X6
    #[test]
    fn decide_equals_the_specified_rule(
        registry in registry(Level::Cluster),
        version in version(),
        members in members(),
    ) {
        let specs = specs(&registry);
        let members = without_foreign(members);
        let previous = Previous::Decided(ClusterParams { version, features: BTreeMap::new() });
        let decision = decide(&specs, Some(version), &members, &previous);
        if version < v("3.6") {
            prop_assert_eq!(decision.outcome, Outcome::Delete);
            return Ok(());
        }
        let mut expected: BTreeMap<String, bool> = registry
            .features()
            .iter()
            .filter_map(|f| Some((f.name.clone(), naive(f, version, &members)?)))
            .collect();
        naive_dependencies(&registry, &mut expected);
        prop_assert_eq!(values(&decision), expected);
    }

    /// Proves: X2
    #[test]
    fn decide_is_total_idempotent_and_independent_of_the_order_of_members(
        registry in registry(Level::Cluster),
        version in proptest::option::of(version()),
        members in members(),
        previous in previous(),
        seed in any::<u64>(),
    ) {
        let specs = specs(&registry);
        let decision = decide(&specs, version, &members, &previous);
        let mut shuffled = members;
        let len = shuffled.len().max(1);
        for i in 0..shuffled.len() {
            shuffled.swap(i, (seed as usize).wrapping_add(i * 7) % len);
        }
        let again = decide(&specs, version, &shuffled, &previous);
        prop_assert_eq!(&decision.outcome, &again.outcome);
        prop_assert_eq!(values(&decision), values(&again));
        // Deciding again after the decision changes nothing.
        if let Outcome::Set(params) = decision.outcome {
            let next = decide(&specs, version, &shuffled, &Previous::Decided(params));
            prop_assert_eq!(next.outcome, Outcome::Unchanged);
        }
    }

    /// Proves: S0-11, S0-A25
    #[test]
    fn raising_and_lowering_the_version_restores_the_decision(
        registry in registry(Level::Cluster),
        low in version(),
        high in version(),
        members in members(),
    ) {
        let specs = specs(&registry);
        let at = |version, previous: &Previous| {
            let decision = decide(&specs, Some(version), &members, previous);
            match decision.outcome.params(previous) {
                Some(params) => Previous::Decided(params.clone()),
                None => Previous::Absent,
            }
        };
        let start = Previous::Decided(ClusterParams { version: v("3.5"), features: BTreeMap::new() });
        let first = at(low, &start);
        let second = at(low, &at(high, &first));
        // With a foreign or waiting member nothing is decided after the params were deleted.
        let foreign = members.iter().any(|m| m.publication == Publication::Foreign);
        let waiting = members.iter().any(|m| m.voter && m.started && m.publication == Publication::Nothing);
        let deleted = low < v("3.6") || high < v("3.6");
        if !(deleted && (foreign || waiting)) {
            prop_assert_eq!(first, second);
        }
    }

    /// Proves: S0-5, S0-27
    #[test]
    fn one_explicit_false_keeps_an_unlocked_feature_off(
        registry in registry(Level::Cluster),
        version in version(),
        mut members in members(),
        which in 0..NAMES.len(),
    ) {
        let specs = specs(&registry);
        let veto = [(NAMES[which].to_owned(), false)].into();
        members.push(Member {
            id: MemberId(99),
            name: String::new(),
            voter: true,
            started: true,
            publication: Publication::Proposal(Proposal { version, flags: veto }),
        });
        let decision = decide(&specs, Some(version), &members, &Previous::Absent);
        if let Some(feature) = registry.get(NAMES[which])
            && !feature.at(Versions::exactly(version)).spec.locked
        {
            prop_assert!(values(&decision).get(NAMES[which]) != Some(&true));
        }
    }

    /// Proves: X6
    #[test]
    fn decision_never_turns_on_a_feature_whose_dependency_is_off(
        registry in registry(Level::Cluster),
        version in version(),
        members in members(),
        previous in previous(),
    ) {
        let decision = decide(&specs(&registry), Some(version), &members, &previous);
        let values = values(&decision);
        for feature in registry.features() {
            if values.get(&feature.name) == Some(&true) {
                for needed in &feature.depends_on {
                    prop_assert_eq!(values.get(needed), Some(&true), "{} needs {}", feature.name, needed);
                }
            }
        }
    }

    /// Proves: G28, G31, G35
    #[test]
    fn resolution_never_depends_on_earlier_calls(
        registry in registry(Level::Server),
        emulation in version(),
        other in version(),
        first in flag_map(),
        second in flag_map(),
    ) {
        let versions = Versions::emulating(emulation);
        let assigned = |map: &BTreeMap<String, bool>| Assignments::from_map(Origin::Flag, map.clone());
        let mut together = assigned(&first);
        together.merge(&assigned(&second));
        let fresh = GateSet::builder(registry.clone(), versions).stage(&together).build();
        let Ok(step) = GateSet::builder(registry.clone(), versions).stage(&assigned(&first)).build() else {
            return Ok(());
        };
        let before: Vec<Status> = step.statuses();
        let stepped = step.with(&assigned(&second));
        prop_assert_eq!(
            stepped.as_ref().map(|gates| gates.statuses()).map_err(Clone::clone),
            fresh.map(|gates| gates.statuses())
        );
        // Refused or not, the original set is unchanged.
        prop_assert_eq!(step.statuses(), before.clone());
        // Going to another version and back restores the set.
        if let Ok((away, _)) = step.at(Versions::emulating(other)) {
            prop_assert_eq!(away.at(versions).unwrap().0.statuses(), before);
        }
    }

    /// Proves: G24, G29
    #[test]
    fn built_gates_keep_locks_and_have_their_dependencies_on(
        registry in registry(Level::Server),
        emulation in version(),
        flags in flag_map(),
    ) {
        let flags = Assignments::from_map(Origin::Flag, flags);
        let built = GateSet::builder(registry.clone(), Versions::emulating(emulation)).stage(&flags).build();
        let Ok(gates) = built else { return Ok(()) };
        for status in gates.statuses() {
            if status.locked {
                prop_assert_eq!(status.enabled, status.default);
            }
            for needed in gates.explain(&status.name).unwrap().needs {
                prop_assert!(!status.enabled || needed.enabled);
            }
        }
    }

    /// Proves: C28, C29
    #[test]
    fn plan_equals_the_outcome_of_the_change(
        server in registry(Level::Server),
        cluster in registry(Level::Cluster),
        fleet_members in vec((any::<bool>(), flag_map(), flag_map()), 1..5),
        version in 6u64..9,
        change in 0..6,
        target in 0usize..5,
        new_flags in flag_map(),
    ) {
        let cluster = specs(&cluster);
        let version = MajorMinor::new(3, version);
        let known = |map: BTreeMap<String, bool>| Assignments::from_map(Origin::Flag, map);
        let members: Vec<FleetMember> = (0..)
            .zip(fleet_members)
            .map(|(id, (voter, server, cluster))| FleetMember {
                member: Member {
                    id: MemberId(id),
                    name: format!("m{id}"),
                    voter: voter || id == 0,
                    started: true,
                    publication: Publication::Proposal(Proposal { version, flags: cluster.clone() }),
                },
                server_version: version,
                min_compat: None,
                server_flags: known(server),
                cluster_flags: known(cluster),
            })
            .collect();
        let target_id = members[target % members.len()].member.id;
        let mut fleet = Fleet {
            downgrade_target: None,
            cluster_version: Some(version),
            previous: Previous::Absent,
            members,
            used: BTreeSet::new(),
        };
        let all: Vec<Member> = fleet.members.iter().map(|m| m.member.clone()).collect();
        if let Outcome::Set(params) = decide(&cluster, Some(version), &all, &Previous::Absent).outcome {
            fleet.previous = Previous::Decided(params);
        }
        let change = match change {
            0 => Change::Upgrade(version.plus_minors(1)),
            1 => Change::Downgrade(version.minus_minors(1)),
            2 => Change::Restart {
                member: target_id,
                version: None,
                min_compat: None,
                server_flags: Some(known(new_flags.clone())),
                cluster_flags: Some(known(new_flags)),
            },
            3 => Change::Remove(target_id),
            4 => Change::Promote(target_id),
            _ => Change::Add(FleetMember {
                member: Member {
                    id: MemberId(77),
                    name: "new".to_owned(),
                    voter: true,
                    started: false,
                    publication: Publication::Nothing,
                },
                server_version: version,
                min_compat: None,
                server_flags: Assignments::new(),
                cluster_flags: known(new_flags),
            }),
        };
        // Dropping the flags that are to be dropped leads to the planned state.
        let dropping = plan_dropping_flags(&server, &cluster, &fleet, &change);
        let mut without = fleet.clone();
        for it in &dropping.flags_to_drop {
            let mut members = without.members.iter_mut();
            let member = members.find(|member| member.member.id == it.member).unwrap();
            let flags = match it.flag == Level::Cluster.flag() {
                true => &mut member.cluster_flags,
                false => &mut member.server_flags,
            };
            prop_assert!(flags.remove(it.feature.as_ref().unwrap()));
        }
        let dropped = plan(&server, &cluster, &without, &change);
        prop_assert_eq!(dropped.rows.len(), dropping.rows.len());
        for (done, planned) in dropped.rows.iter().zip(&dropping.rows) {
            prop_assert_eq!((&done.feature, done.after), (&planned.feature, planned.after));
            // Only what the change sets can still keep a member from starting.
            let stops_start = [Some(Block::Unknown), Some(Block::Removed), Some(Block::Locked)];
            let sets = matches!(change, Change::Restart { .. } | Change::Add(_));
            prop_assert!(sets || !stops_start.contains(&planned.block), "{:?}", planned);
        }
        let plan = plan(&server, &cluster, &fleet, &change);
        let Some((done, cluster_version)) = by_hand(&fleet, &change) else {
            prop_assert!(plan.is_blocked());
            return Ok(());
        };
        prop_assert_eq!(plan.cluster_version, cluster_version);
        // Compare cluster features: members publish, the leader decides.
        let publishes = cluster_version >= Some(v("3.6"));
        let all: Vec<Member> = done
            .iter()
            .map(|m| Member {
                started: true,
                publication: if publishes {
                    Publication::Proposal(Proposal {
                        version: m.server_version,
                        flags: m.cluster_flags.to_map(),
                    })
                } else {
                    Publication::Nothing
                },
                ..m.member.clone()
            })
            .collect();
        let outcome = decide(&cluster, cluster_version, &all, &fleet.previous).outcome;
        let params = outcome.params(&fleet.previous);
        for row in plan.rows.iter().filter(|row| row.level == Level::Cluster && row.member.is_none()) {
            let now = params.is_some_and(|params| params.enabled(cluster.registry(), &row.feature));
            prop_assert_eq!(row.after.unwrap_or(false), now, "{}", &row.feature);
        }
        // Compare server features: start each member.
        for member in &done {
            let rows = || plan.rows.iter().filter(|row| {
                row.level == Level::Server && row.member == Some(member.member.id)
            });
            let versions = Versions::emulating(member.server_version);
            let started = GateSet::builder(server.clone(), versions).stage(&member.server_flags).build();
            let refused = |row: &&PlanRow| row.block.is_some_and(|block| block != Block::OneWay);
            prop_assert_eq!(started.is_err(), rows().any(|row| refused(&row)));
            if let Ok(gates) = started {
                for row in rows() {
                    let value = gates.try_enabled(&row.feature).unwrap();
                    prop_assert_eq!(row.after.unwrap_or(false), value, "{}", &row.feature);
                }
            }
        }
    }

    /// Proves: G16, G18
    #[test]
    fn registered_features_round_trip_through_json_and_resolve(registry in registry(Level::Server), emulation in version()) {
        let documented = from_json(&to_json([&*registry])).unwrap();
        for feature in documented {
            prop_assert_eq!(&registry.get(&feature.name).unwrap().specs, &feature.specs);
        }
        // Without flags only a disabled dependency can be refused.
        let built = GateSet::builder(registry.clone(), Versions::emulating(emulation)).build();
        if let Err(errors) = built {
            for error in errors.0 {
                prop_assert_eq!(error.id(), "E-DEP-DISABLED");
            }
        }
    }
}

/// Applies a change without the library: returns the members and the cluster version after
/// it, or `None` where the change is impossible.
fn by_hand(fleet: &Fleet, change: &Change) -> Option<(Vec<FleetMember>, Option<MajorMinor>)> {
    let mut members = fleet.members.clone();
    let current = fleet.cluster_version?;
    let mut cluster_version = current;
    match change {
        Change::Upgrade(target) => {
            members
                .iter_mut()
                .for_each(|member| member.server_version = *target);
            cluster_version = *target;
        }
        Change::Downgrade(target) => {
            members
                .iter_mut()
                .for_each(|member| member.server_version = *target);
            cluster_version = *target;
        }
        Change::Restart {
            member,
            server_flags,
            cluster_flags,
            ..
        } => {
            let member = members.iter_mut().find(|m| m.member.id == *member)?;
            member.server_flags = server_flags.clone()?;
            member.cluster_flags = cluster_flags.clone()?;
        }
        Change::Remove(id) => members.retain(|member| member.member.id != *id),
        Change::Promote(id) => {
            let member = members.iter_mut().find(|m| m.member.id == *id)?;
            if member.member.voter {
                return None;
            }
            member.member.voter = true;
        }
        Change::Add(member) => members.push(member.clone()),
        // No downgrade is enabled that could be cancelled.
        Change::CancelDowngrade => return None,
    }
    Some((members, Some(cluster_version)))
}
