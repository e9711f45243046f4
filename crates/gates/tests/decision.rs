//! The decision of cluster features, the checks of members and the stored params.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use common::*;
use portunus_gates::cluster::*;
use portunus_gates::*;

fn specs() -> ClusterSpecs {
    cluster([
        NewFeature::new("Off", [Spec::alpha("3.7")]),
        NewFeature::new("On", [Spec::beta("3.7").on()]),
        NewFeature::new("Locked", [Spec::ga("3.7").on().locked()]),
        NewFeature::new("LockedBeta", [Spec::beta("3.7").on().locked()]),
        NewFeature::new("Later", [Spec::alpha("3.8")]),
        NewFeature::new("Switch", [Spec::ga("3.7")]),
        NewFeature::new("Child", [Spec::alpha("3.7")]).depending_on(["On"]),
    ])
}

fn decided(
    specs: &ClusterSpecs,
    members: &[Member],
    previous: &Previous,
) -> BTreeMap<String, bool> {
    let decision = decide(specs, Some(v("3.7")), members, previous);
    let params = decision.outcome.params(previous).unwrap();
    params.features.clone()
}

fn value(members: &[Member], name: &str) -> bool {
    decided(&specs(), members, &Previous::Absent)[name]
}

fn reason_of(members: &[Member], name: &str) -> Reason {
    let decision = decide(&specs(), Some(v("3.7")), members, &Previous::Absent);
    let mut features = decision.features.into_iter();
    features
        .find(|feature| feature.name == name)
        .unwrap()
        .reason
}

/// Proves: S0-26, S0-27, S0-A1, X5
#[test]
fn unlocked_feature_is_off_after_one_veto_and_turned_on_only_by_every_voter() {
    let voters = |texts: &[&str]| -> Vec<Member> {
        (1..)
            .zip(texts)
            .map(|(id, text)| voter(id, "3.7", text))
            .collect()
    };
    assert!(value(&voters(&["", ""]), "On"));
    assert!(value(&voters(&["On=true", ""]), "On"));
    assert!(!value(&voters(&["On=true", "On=false"]), "On"));
    assert!(!value(&voters(&["", ""]), "Off"));
    assert!(!value(&voters(&["Off=true", ""]), "Off"));
    assert!(value(&voters(&["Off=true", "Off=true"]), "Off"));
    assert_eq!(
        reason_of(&voters(&["", "On=false", "On=false"]), "On"),
        Reason::Veto(vec![MemberId(2), MemberId(3)])
    );
    assert_eq!(
        reason_of(&voters(&["Off=true", "", ""]), "Off"),
        Reason::NotUnanimous(vec![MemberId(2), MemberId(3)])
    );
    // A `false` is a veto even if the default is off and no member sets the feature to true.
    for texts in [
        ["Off=true", "", "Off=false"],
        ["", "", "Off=false"],
        ["", "", "AllAlpha=false"],
    ] {
        assert_eq!(
            reason_of(&voters(&texts), "Off"),
            Reason::Veto(vec![MemberId(3)]),
            "{texts:?}"
        );
    }
    assert_eq!(reason_of(&voters(&["Off=true"]), "Off"), Reason::Unanimous);
    // No member published: the default.
    assert!(value(&[], "On"));
    assert_eq!(reason_of(&[], "On"), Reason::Default);
}

/// Proves: S0-10, S0-12, X2, X3, X4
#[test]
fn flags_do_not_change_features_that_are_locked_or_absent_at_the_cluster_version() {
    let all = [voter(1, "3.8", "Later=true,Locked=false,LockedBeta=false")];
    let at_3_7 = decided(&specs(), &all, &Previous::Absent);
    assert_eq!(at_3_7.get("Later"), None);
    assert!(at_3_7["Locked"] && at_3_7["LockedBeta"]);
    assert_eq!(reason_of(&all, "Later"), Reason::Absent);
    assert_eq!(reason_of(&all, "Locked"), Reason::Lock);
    let decision = decide(&specs(), Some(v("3.8")), &all, &Previous::Absent);
    let Outcome::Set(params) = decision.outcome else {
        panic!("{:?}", decision.outcome);
    };
    assert_eq!(params.version, v("3.8"));
    assert!(params.features["Later"]);
}

/// Proves: S0-A5
#[test]
fn toggle_of_a_member_votes_for_unlocked_features_of_its_stage() {
    let both = [
        voter(1, "3.7", "AllAlpha=true"),
        voter(2, "3.7", "Off=true"),
    ];
    assert!(value(&both, "Off"));
    assert!(!value(&[voter(1, "3.7", "AllBeta=false")], "On"));
    assert!(value(&[voter(1, "3.7", "AllBeta=false,On=true")], "On"));
    assert!(value(&[voter(1, "3.7", "AllBeta=false")], "LockedBeta"));
    assert_eq!(
        decided(
            &specs(),
            &[voter(1, "3.7", "AllAlpha=true")],
            &Previous::Absent
        )
        .get("Later"),
        None
    );
    let decision = decide(&specs(), Some(v("3.7")), &both, &Previous::Absent);
    let off = decision
        .features
        .iter()
        .find(|feature| feature.name == "Off")
        .unwrap();
    let ballots: Vec<Ballot> = off.votes.iter().map(|vote| vote.ballot).collect();
    assert_eq!(ballots, [Ballot::AllAlpha(true), Ballot::Explicit(true)]);
}

/// Proves: X6
#[test]
fn feature_goes_off_when_its_dependency_goes_off() {
    let members = [voter(1, "3.7", "Child=true,On=false")];
    assert!(!value(&members, "Child"));
    assert_eq!(
        reason_of(&members, "Child"),
        Reason::Dependency(vec!["On".to_owned()])
    );
    // Also along a chain, in any order of registration.
    let chain = cluster([
        NewFeature::new("C", [Spec::beta("3.7").on()]).depending_on(["B"]),
        NewFeature::new("A", [Spec::beta("3.7").on()]),
        NewFeature::new("B", [Spec::beta("3.7").on()]).depending_on(["A"]),
    ]);
    let values = decided(&chain, &[voter(1, "3.7", "A=false")], &Previous::Absent);
    assert!(values.values().all(|&value| !value), "{values:?}");
}

/// Proves: S0-34, S0-35, S0-A19, S1-13
#[test]
fn learner_flags_do_not_count_and_flags_of_unreachable_voters_do() {
    let with = |member: Member| [voter(1, "3.7", "Off=true"), member];
    assert!(value(&with(learner(2, "3.7", "Off=false,On=false")), "Off"));
    assert!(value(&with(learner(2, "3.7", "Off=false,On=false")), "On"));
    assert!(!value(&with(voter(2, "3.7", "Off=false")), "Off"));
    // A foreign learner turns features off: it applies the log but not the params.
    let foreign = Member {
        voter: false,
        ..with_publication(2, Publication::Foreign)
    };
    assert_eq!(
        reason_of(&with(foreign), "On"),
        Reason::Foreign(vec![MemberId(2)])
    );
    // Reachability is no input: the published flags of a lost member still count.
    let lost = voter(2, "3.7", "Off=true");
    assert!(value(&with(lost), "Off"));
    // A learner that is too old keeps the cluster version down.
    let versions = [Some(v("3.8")), Some(v("3.7"))];
    assert_eq!(
        specs().next_cluster_version(Some(v("3.7")), &versions, None),
        None
    );
}

/// Proves: S0-23, S0-A4, S0-A8
#[test]
fn first_decision_waits_for_the_version_and_for_every_started_voter() {
    let specs = specs();
    let silent = with_publication(2, Publication::Nothing);
    let members = [voter(1, "3.7", "Off=true"), silent.clone()];
    let bootstrap = Previous::Bootstrap(specs.bootstrap(v("3.7")).unwrap());
    for version in [None, Some(v("3.0"))] {
        let decision = decide(&specs, version, &members, &bootstrap);
        assert_eq!(decision.outcome, Outcome::Hold(Hold::VersionUndecided));
    }
    let hold = decide(&specs, Some(v("3.7")), &members, &bootstrap).outcome;
    assert_eq!(hold, Outcome::Hold(Hold::WaitingFor(vec![MemberId(2)])));
    assert_eq!(
        hold.params(&bootstrap),
        bootstrap.params(),
        "what is in force stays"
    );
    // The decision does not wait for a member that was added but never started.
    let unstarted = Member {
        started: false,
        ..silent.clone()
    };
    let members_unstarted = [voter(1, "3.7", "Off=true"), unstarted];
    assert!(decided(&specs, &members_unstarted, &bootstrap)["Off"]);
    // Later decisions count only members that published.
    let earlier = Previous::Decided(params("3.7", ""));
    assert!(decided(&specs, &members, &earlier)["Off"]);
    // The first decision is proposed even if it changes no value.
    let same = decided(&specs, &[voter(1, "3.7", "")], &Previous::Absent);
    let as_bootstrap = Previous::Bootstrap(ClusterParams {
        version: v("3.7"),
        features: same,
    });
    let decision = decide(
        &specs,
        Some(v("3.7")),
        &[voter(1, "3.7", "")],
        &as_bootstrap,
    );
    assert!(matches!(decision.outcome, Outcome::Set(_)));
}

/// Proves: X7, S0-A7
#[test]
fn features_unknown_to_the_leader_are_carried_over_and_unchanged_params_not_proposed() {
    let specs = specs();
    let members = [voter(1, "3.7", "")];
    let mut current = params("3.7", "Gone=true,Gone2=false");
    current
        .features
        .extend(decided(&specs, &members, &Previous::Absent));
    let previous = Previous::Decided(current.clone());
    let decision = decide(&specs, Some(v("3.7")), &members, &previous);
    assert_eq!(decision.outcome, Outcome::Unchanged);
    let names: Vec<&str> = decision.features.iter().map(|f| f.name.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
    // At another version they are dropped.
    let Outcome::Set(next) = decide(&specs, Some(v("3.8")), &members, &previous).outcome else {
        panic!("a new version is a new decision");
    };
    assert!(!next.features.contains_key("Gone"));
}

/// A cluster of 3.8 and 3.9 where the 3.9 leader no longer has a feature that is locked on.
///
/// Proves: S0-A7, S0-40
#[test]
fn older_member_reads_a_locked_feature_that_the_leader_dropped() {
    let older = cluster([NewFeature::new(
        "Graduated",
        [Spec::ga("3.7").on(), Spec::deprecated("3.8").on().locked()],
    )]);
    let leader = cluster([]);
    let Outcome::Set(params) = decide(
        &leader,
        Some(v("3.8")),
        &[voter(1, "3.9", "")],
        &Previous::Absent,
    )
    .outcome
    else {
        panic!("decided");
    };
    assert!(params.features.is_empty());
    assert!(params.enabled(older.registry(), "Graduated"));
    // Not locked at that version, or unknown: off.
    let earlier = ClusterParams {
        version: v("3.7"),
        ..params
    };
    assert!(!earlier.enabled(older.registry(), "Graduated"));
    assert!(!earlier.enabled(older.registry(), "Missing"));
    assert!(common::params("3.7", "Missing=true").enabled(older.registry(), "Missing"));
}

/// Proves: X15, S0-50
#[test]
fn params_are_not_written_before_every_member_publishes_a_proposal() {
    let specs = specs();
    let foreign = with_publication(2, Publication::Foreign);
    let members = [voter(1, "3.7", "Off=true"), foreign];
    let decision = decide(&specs, Some(v("3.7")), &members, &Previous::Absent);
    assert_eq!(decision.outcome, Outcome::Unchanged);
    let on = decision
        .features
        .iter()
        .filter(|feature| feature.value == Some(true));
    assert_eq!(on.count(), 0);
    // Where params exist already, every feature goes off, locked and carried-over ones too.
    let previous = Previous::Decided(params("3.7", "On=true,Locked=true,Carried=true"));
    let values = decided(&specs, &members, &previous);
    assert!(values.values().all(|&value| !value), "{values:?}");
    assert!(values.contains_key("Carried"));
    // With a foreign member the decision does not wait for unpublished ones.
    let waiting = [
        members[1].clone(),
        with_publication(3, Publication::Nothing),
    ];
    let decision = decide(&specs, Some(v("3.7")), &waiting, &Previous::Absent);
    assert_eq!(decision.outcome, Outcome::Unchanged);
    // Below 3.7 no flags are published and nothing is decided.
    assert!(!specs.publishes(Some(v("3.6")), false));
    let decision = decide(&specs, Some(v("3.6")), &members, &Previous::Absent);
    assert_eq!(decision.outcome, Outcome::Unchanged);
}

/// Proves: S0-37, S0-A10, S0-A12, X8
#[test]
fn version_entry_deletes_keeps_or_replaces_stored_params() {
    let specs = specs();
    let some = params("3.7", "On=true");
    let applied = |version: &str, sent: Option<&ClusterParams>, stored: Option<&ClusterParams>| {
        specs.applied(v(version), sent.cloned(), stored)
    };
    for stored in [None, Some(&some)] {
        assert_eq!(applied("3.6", None, stored), Ok(AppliedParams::Delete));
        let sent = applied("3.6", Some(&some), stored);
        assert_eq!(sent, Ok(AppliedParams::Delete));
        assert_eq!(applied("3.7", None, stored), Ok(AppliedParams::Keep));
        let sent = applied("3.7", Some(&some), stored);
        assert_eq!(sent, Ok(AppliedParams::Replace(some.clone())));
        let sent = applied("3.8", Some(&some), stored);
        assert_eq!(sent.unwrap_err().id(), "E-PARAMS-VERSION");
    }
    // Another version without params turns all features off: they were not decided for it.
    assert_eq!(applied("3.8", None, None), Ok(AppliedParams::Keep));
    let off = params("3.8", "On=false");
    let raised = applied("3.8", None, Some(&some));
    assert_eq!(raised, Ok(AppliedParams::Replace(off)));
    // Decoding accepts `3.7.0` and `3.7`; encoding writes `3.7`.
    let json = r#"{"version":"3.7.0","features":{"On":true}}"#;
    assert_eq!(serde_json::from_str::<ClusterParams>(json).unwrap(), some);
    assert!(
        serde_json::to_string(&some)
            .unwrap()
            .contains(r#""version":"3.7""#)
    );
    // The leader deletes them when the version falls below 3.7.
    let decision = decide(&specs, Some(v("3.6")), &[], &Previous::Decided(some));
    assert_eq!(decision.outcome, Outcome::Delete);
}

/// Proves: S0-30
#[test]
fn params_with_unknown_fields_are_decoded() {
    let json = r#"{"version":"3.9","features":{},"quota":{"bytes":1}}"#;
    assert!(serde_json::from_str::<ClusterParams>(json).is_ok());
}

/// Proves: S0-38
#[test]
fn offline_downgrade_drops_features_that_the_target_does_not_have() {
    let specs = specs();
    let now = params("3.8", "On=true,Later=true,Missing=true");
    assert_eq!(specs.pruned(&now, v("3.7")), Some(params("3.7", "On=true")));
    assert_eq!(specs.pruned(&now, v("3.6")), None);
}

/// Proves: S0-20, X10
#[test]
fn new_cluster_starts_with_alpha_and_beta_features_off() {
    let specs = specs();
    let start = specs.bootstrap(v("3.7")).unwrap();
    let expected = "Off=false,On=false,Locked=true,LockedBeta=false,Switch=false,Child=false";
    assert_eq!(start, params("3.7", expected));
    assert_eq!(specs.bootstrap(v("3.6")), None);
}

/// Proves: S0-21, S0-22, S0-25, S0-A2, S0-A3
#[test]
fn member_of_another_minor_is_refused_while_the_cluster_version_is_undecided() {
    let specs = specs();
    let check = |cluster: Option<&str>, downgrade: Option<&str>, theirs: &str| {
        let member = voter(2, theirs, "");
        specs.check_member_version(v("3.7"), cluster.map(v), downgrade.map(v), &member)
    };
    for undecided in [None, Some("3.0")] {
        assert!(check(undecided, None, "3.7").is_ok());
        assert!(
            check(undecided, None, "3.7.9").is_ok(),
            "patches never matter"
        );
        for other in ["3.6", "3.8"] {
            let error = check(undecided, None, other).unwrap_err();
            assert_eq!(error.id(), "E-MIXED-VERSIONS");
            let shown = error.to_string();
            assert!(shown.contains("m2") && shown.contains(other) && shown.contains("3.7"));
        }
    }
    // Later only a member below the cluster version is refused, unless a downgrade to its
    // version is enabled.
    assert!(check(Some("3.7"), None, "3.8").is_ok());
    assert!(check(Some("3.7"), None, "3.6").is_err());
    assert!(check(Some("3.7"), Some("3.6"), "3.6").is_ok());
    assert!(check(Some("3.7"), Some("3.6"), "3.5").is_err());
    let silent = with_publication(2, Publication::Nothing);
    assert!(
        specs
            .check_member_version(v("3.7"), None, None, &silent)
            .is_ok()
    );
}

/// Proves: S0-A6, S0-18
#[test]
fn own_flags_are_checked_at_the_server_version() {
    let specs = cluster([
        NewFeature::new("A", [Spec::beta("3.7"), Spec::ga("3.8").on().locked()]),
        NewFeature::new("L", [Spec::ga("3.6").on().locked()]),
        NewFeature::new("New", [Spec::alpha("3.8")]),
        NewFeature::new("Gone", [Spec::beta("3.6"), Spec::removed("3.7")]),
    ]);
    let check = |server: &str, cluster: Option<&str>, text: &str| {
        specs.check_flags(v(server), cluster.map(v), &flags(text))
    };
    let id = |server: &str, text: &str| check(server, None, text).unwrap_err().0[0].id();
    assert_eq!(id("3.7", "Missing=true"), "E-UNKNOWN");
    assert_eq!(id("3.8", "A=false"), "E-LOCKED");
    assert_eq!(id("3.7", "New=true"), "E-PREALPHA");
    assert_eq!(id("3.7", "Gone=true"), "E-REMOVED");
    assert!(
        check("3.7", None, "A=true,AllAlpha=true")
            .unwrap()
            .is_empty()
    );
    // Exists at the server version but not at the cluster version: a warning.
    let warnings = check("3.8", Some("3.7"), "New=true").unwrap();
    assert!(
        matches!(&warnings[..], [Warning::NotYetHeeded { .. }]),
        "{warnings:?}"
    );
    // The leader ignores names that it does not know.
    let decision = decide(
        &specs,
        Some(v("3.7")),
        &[voter(1, "3.7", "Missing=true")],
        &Previous::Absent,
    );
    assert!(
        decision
            .features
            .iter()
            .all(|feature| feature.name != "Missing")
    );
}

/// Proves: S0-19, S0-A9, X11
#[test]
fn raw_flags_are_published_in_a_new_cluster_and_from_the_first_version_with_params() {
    let specs = specs();
    assert!(specs.publishes(None, true));
    assert!(specs.publishes(Some(v("3.0")), true));
    assert!(!specs.publishes(None, false));
    assert!(!specs.publishes(Some(v("3.6")), true));
    assert!(specs.publishes(Some(v("3.7")), false));
    assert!(specs.publishes_again(Some(v("3.6")), v("3.7")));
    assert!(specs.publishes_again(None, v("3.8")));
    assert!(!specs.publishes_again(Some(v("3.7")), v("3.8")));
    assert!(!specs.publishes_again(Some(v("3.7")), v("3.6")));
    // Toggles and unknown names are published as given.
    let raw = flags("AllAlpha=true,Missing=false").to_map();
    assert_eq!(raw.len(), 2);
    assert!(raw["AllAlpha"]);
}

/// Proves: S0-A27, X15
#[test]
fn leader_without_proposal_decides_only_after_an_earlier_decision() {
    let specs = specs();
    let outcome = |at: &str, members: &[Member], previous: &Previous| {
        leader_outcome(&specs, v(at), members, previous, false)
    };
    let silent = with_publication(1, Publication::Foreign);
    let members = [silent.clone(), voter(2, "3.8", "On=true,Off=true")];
    let none = Previous::Absent;
    assert_eq!(outcome("3.7", &members, &none), Outcome::Unchanged);
    // It does not decide before it has published its attributes either.
    let unstarted = Member {
        started: false,
        ..with_publication(1, Publication::Nothing)
    };
    let founding = [unstarted, voter(2, "3.8", "On=true")];
    assert_eq!(outcome("3.7", &founding, &none), Outcome::Unchanged);
    // A leader that publishes a proposal decides from the members that have published.
    let proposing = leader_outcome(&specs, v("3.7"), &founding, &none, true);
    assert!(matches!(proposing, Outcome::Set(_)), "{proposing:?}");

    let earlier = Previous::Decided(params("3.7", "On=true,Off=true"));
    let Outcome::Set(off) = outcome("3.7", &members, &earlier) else {
        panic!("all-off is decided");
    };
    assert!(off.features.values().all(|on| !on), "{off:?}");
    // A repeated decision is unchanged, another version gets params of its own, and below
    // 3.7 they are deleted.
    let off = Previous::Decided(off);
    assert_eq!(outcome("3.7", &members, &off), Outcome::Unchanged);
    let Outcome::Set(raised) = outcome("3.8", &members, &off) else {
        panic!("params go with the version");
    };
    assert_eq!(raised.version, v("3.8"));
    assert!(raised.features.contains_key("Later"));
    assert!(raised.features.values().all(|on| !on), "{raised:?}");
    assert_eq!(outcome("3.6", &members, &off), Outcome::Delete);
    assert_eq!(outcome("3.6", &members, &none), Outcome::Unchanged);
}

/// Proves: S0-A25
#[test]
fn cluster_version_follows_the_lowest_member_version() {
    let specs = specs();
    let next = |current: Option<&str>, members: &[&str], downgrade: Option<&str>| {
        let members: Vec<Option<MajorMinor>> =
            members.iter().map(|text| text.parse().ok()).collect();
        let next = specs.next_cluster_version(current.map(v), &members, downgrade.map(v));
        next.map_or_else(|| "-".to_owned(), |version| version.to_string())
    };
    assert_eq!(next(None, &["3.8", "3.7"], None), "3.7");
    assert_eq!(next(Some("3.0"), &["3.8", "3.7"], None), "3.7");
    assert_eq!(next(Some("3.7"), &["3.8", "3.7"], None), "-");
    assert_eq!(next(Some("3.7"), &["3.8", "3.8"], None), "3.8");
    assert_eq!(next(Some("3.7"), &["3.8", "unreachable"], None), "-");
    assert_eq!(next(Some("3.7"), &["4.0", "4.0"], None), "-");
    assert_eq!(next(None, &[], None), "-");
    assert_eq!(next(Some("3.8"), &["3.8", "3.8"], Some("3.7")), "3.7");
    assert_eq!(next(Some("3.8"), &["3.8", "3.8"], Some("3.6")), "-");
    // After a cancelled downgrade the version rises once no member runs the target.
    assert_eq!(next(Some("3.7"), &["3.7", "3.8"], None), "-");
    assert_eq!(next(Some("3.7"), &["3.8", "3.8"], None), "3.8");
}

feature! {
    /// A cluster feature for this test.
    pub Persist {
        level: Cluster,
        owner: "test",
        touches: Backend,
        reversible: Free,
        specs: [Spec::alpha("3.7")],
    }
}
feature! {
    /// A server feature for this test.
    pub Fast {
        level: Server,
        owner: "test",
        touches: Memory,
        reversible: Free,
        specs: [Spec::beta("3.7").on()],
    }
}
registry! {
    /// The cluster features of this test.
    pub ClusterSet: Cluster = [Persist]
}
registry! {
    /// The server features of this test.
    pub ServerSet: Server = [Fast]
}

/// Proves: S0-17, S0-40, S0-41, S1-11
#[test]
fn features_of_both_levels_are_checked_by_handle_and_by_name() {
    let cluster = Features::<ClusterSet>::declared().unwrap();
    let server = Features::<ServerSet>::declared().unwrap();
    let gates = server
        .gates(Versions::emulating(v("3.7")), &flags("Fast=false"))
        .unwrap();
    assert!(!gates.enabled(Fast));

    let none = cluster.view(None);
    assert!(!none.enabled(Persist));
    assert_eq!(none.version(), None);
    let on = params("3.7", "Persist=true");
    let view = cluster.view(Some(&on));
    assert!(view.enabled(Persist));
    assert_eq!(view.version(), Some(v("3.7")));
    assert!(!cluster.view(Some(&params("3.7", ""))).enabled(Persist));

    let ask = |params: Option<&ClusterParams>, name: &str| {
        enabled_at_either_level(&gates, &cluster.view(params), name)
    };
    assert_eq!(ask(Some(&on), "Persist"), Ok(true));
    assert_eq!(ask(None, "Persist"), Ok(false));
    assert_eq!(ask(Some(&on), "Fast"), Ok(false));
    assert!(ask(Some(&on), "Missing").is_err());
}

/// Proves: S0-16, S0-A24
#[test]
fn cluster_feature_that_is_ga_and_off_can_be_switched_on() {
    assert!(!value(&[voter(1, "3.7", "")], "Switch"));
    assert!(value(&[voter(1, "3.7", "Switch=true")], "Switch"));
}

/// One error of every class that all surfaces share.
///
/// Proves: X13
#[test]
fn errors_map_to_the_class_of_their_cause() {
    use ErrorClass as C;
    let registry = server([
        NewFeature::new("Locked", [Spec::ga("3.6").on().locked()]),
        NewFeature::new("Later", [Spec::alpha("3.9")]),
        NewFeature::new("Gone", [Spec::beta("3.4"), Spec::removed("3.5")]),
        NewFeature::new("Base", [Spec::beta("3.6")]),
        NewFeature::new("Child", [Spec::alpha("3.6")]).depending_on(["Base"]),
    ]);
    let set = |text: &str| gates(&registry, "3.7", text).unwrap_err().0[0].class();
    assert_eq!(set("Missing=true"), C::Unknown);
    assert_eq!(set("Later=true"), C::PreAlpha);
    assert_eq!(set("Gone=true"), C::Removed);
    assert_eq!(set("Locked=false"), C::Locked);
    assert_eq!(set("Child=true"), C::Dependency);
    let parse = |text: &str| Assignments::parse(Origin::Flag, text).unwrap_err().class();
    assert_eq!(parse("A=maybe"), C::BadBool);
    assert_eq!(parse("A"), C::MissingBool);
    let component = |emulation: &[&str], gates: &[&str]| {
        ComponentFlags::parse(emulation, &[], gates)
            .unwrap_err()
            .class()
    };
    assert_eq!(component(&[], &["A=true,kube:B=true"]), C::MixedPrefix);
    assert_eq!(component(&["1.2,1.2"], &[]), C::Duplicate);
    assert_eq!(component(&["1.2.3"], &[]), C::Range);
    let unknown = Components::new().set(&ComponentFlags::parse(&["x=1.2"], &[], &[]).unwrap());
    assert_eq!(unknown.unwrap_err().class(), C::ComponentUnknown);
    assert_eq!(RegisterError::Closed.class(), C::Closed);
    let cluster = Features::<ClusterSet>::declared().unwrap();
    let on = params("3.7", "Persist=true");
    let off = cluster.view(Some(&on)).require(["Persist", "Off"]);
    let off = off.unwrap_err();
    assert_eq!((off.class(), off.features.len()), (C::NotEnabled, 1));
    assert!(cluster.view(None).require(["Persist"]).is_err());
    assert!(cluster.view(None).require([]).is_ok());
}
