//! Plans, beyond the transcripts in `testdata`.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::*;
use portunus_gates::cluster::*;
use portunus_gates::plan::*;
use portunus_gates::*;

fn server_features() -> Arc<Registry> {
    server([
        NewFeature::new(
            "Graduating",
            [Spec::beta("3.7"), Spec::ga("3.8").on().locked()],
        ),
        NewFeature::new("Dropped", [Spec::beta("3.7").on(), Spec::removed("3.8")]),
        NewFeature::new("Base", [Spec::beta("3.7").on(), Spec::deprecated("3.8")]),
        NewFeature::new("Child", [Spec::alpha("3.7")]).depending_on(["Base"]),
        NewFeature::new("Fresh", [Spec::alpha("3.8")]),
    ])
}

fn member(id: u64, server: &str, cluster: &str) -> FleetMember {
    FleetMember {
        member: voter(id, "3.7", cluster),
        server_version: v("3.7"),
        min_compat: None,
        server_flags: flags(server),
        cluster_flags: flags(cluster),
    }
}

fn fleet(members: Vec<FleetMember>) -> Fleet {
    Fleet {
        downgrade_target: None,
        cluster_version: Some(v("3.7")),
        previous: Previous::Decided(params("3.7", "Format=true")),
        members,
        used: BTreeSet::new(),
    }
}

fn format_feature(reversible: Reversibility) -> ClusterSpecs {
    cluster([NewFeature::new("Format", [Spec::beta("3.7").on()]).reversible(reversible)])
}

/// Proves: C13, C28
#[test]
fn plan_of_an_upgrade_names_the_flags_that_would_stop_the_start() {
    let cluster = format_feature(Reversibility::Free);
    let fleet = fleet(vec![
        member(1, "Graduating=false,Dropped=false,Child=true", ""),
        member(2, "", ""),
    ]);
    let plan = plan(
        &server_features(),
        &cluster,
        &fleet,
        &Change::Upgrade(v("3.8")),
    );
    assert!(plan.is_blocked());
    let blocks: Vec<(&str, u64, Block)> = plan
        .rows
        .iter()
        .filter_map(|row| Some((row.feature.as_str(), row.member?.0, row.block?)))
        .collect();
    // A removed feature and a locked one differ; a lost dependency shows once both are fixed.
    assert_eq!(
        blocks,
        [
            ("Dropped", 1, Block::Removed),
            ("Graduating", 1, Block::Locked)
        ]
    );
    let mended = without_bad_flags(&fleet);
    let plan = portunus_gates::plan::plan(
        &server_features(),
        &cluster,
        &mended,
        &Change::Upgrade(v("3.8")),
    );
    let lost = plan.rows.iter().find(|row| row.block.is_some()).unwrap();
    assert_eq!(
        (lost.feature.as_str(), lost.block),
        ("Child", Some(Block::DependencyLost))
    );
    // Changes that do not block are listed too.
    let row = |name: &str, id: u64| {
        let found = plan
            .rows
            .iter()
            .find(|r| r.feature == name && r.member == Some(MemberId(id)));
        found.map(|row| (row.before, row.after)).unwrap()
    };
    assert_eq!(row("Graduating", 2), (Some(false), Some(true)));
    assert_eq!(row("Dropped", 2), (Some(true), None));
    assert_eq!(row("Fresh", 2), (None, Some(false)));
}

fn without_bad_flags(fleet: &Fleet) -> Fleet {
    let mut fleet = fleet.clone();
    fleet.members[0].server_flags = flags("Child=true");
    fleet
}

/// Proves: S0-8
#[test]
fn plan_that_turns_off_a_one_way_feature_is_blocked() {
    let fleet = fleet(vec![member(1, "", "")]);
    let off = Change::Restart {
        member: MemberId(1),
        version: None,
        min_compat: None,
        server_flags: None,
        cluster_flags: Some(flags("Format=false")),
    };
    let block = |reversible, used: &[&str]| {
        let mut fleet = fleet.clone();
        fleet.used = used.iter().map(|name| (*name).to_owned()).collect();
        let plan = plan(&server([]), &format_feature(reversible), &fleet, &off);
        let row = &plan.rows[0];
        assert_eq!((row.before, row.after), (Some(true), Some(false)));
        row.block
    };
    assert_eq!(block(Reversibility::Free, &["Format"]), None);
    assert_eq!(block(Reversibility::UntilUsed, &[]), None);
    assert_eq!(
        block(Reversibility::UntilUsed, &["Format"]),
        Some(Block::OneWay)
    );
    assert_eq!(block(Reversibility::Never, &[]), Some(Block::OneWay));
}

/// Proves: S0-39
#[test]
fn plan_that_puts_members_more_than_one_minor_apart_is_blocked() {
    let cluster = format_feature(Reversibility::Free);
    let fleet = fleet(vec![member(1, "", ""), member(2, "", "")]);
    let skip = plan(&server([]), &cluster, &fleet, &Change::Upgrade(v("3.9")));
    assert!(
        skip.obstacles[0].contains("one minor at a time"),
        "{:?}",
        skip.obstacles
    );
    let step = plan(&server([]), &cluster, &fleet, &Change::Upgrade(v("3.8")));
    assert!(step.obstacles.is_empty());
    assert_eq!(step.cluster_version, Some(v("3.8")));
    let mut too_old = member(3, "", "");
    too_old.server_version = v("3.6");
    too_old.member = voter(3, "3.6", "");
    let add = plan(&server([]), &cluster, &fleet, &Change::Add(too_old));
    assert!(add.is_blocked());
}

/// Proves: C29
#[test]
fn plan_of_an_impossible_change_has_only_an_obstacle() {
    let cluster = format_feature(Reversibility::Free);
    let fleet = fleet(vec![member(1, "", "")]);
    for change in [
        Change::Remove(MemberId(9)),
        Change::Promote(MemberId(1)),
        Change::Add(member(1, "", "")),
        Change::Upgrade(v("3.6")),
        Change::Downgrade(v("3.5")),
        Change::Downgrade(v("3.7")),
    ] {
        let plan = plan(&server([]), &cluster, &fleet, &change);
        assert_eq!(
            (plan.obstacles.len(), plan.rows.len()),
            (1, 0),
            "{change:?}"
        );
        assert!(plan.is_blocked());
    }
    let mut undecided = fleet;
    undecided.cluster_version = None;
    assert!(
        plan(
            &server([]),
            &cluster,
            &undecided,
            &Change::Downgrade(v("3.6"))
        )
        .is_blocked()
    );
}

/// The flags to drop, as `feature flag member`; without a feature, `flag member`.
fn to_drop(plan: &Plan) -> Vec<String> {
    let flags = plan.flags_to_drop.iter().map(|it| {
        let feature = it.feature.iter().map(|feature| format!("{feature} "));
        format!(
            "{}{} m{}",
            feature.collect::<String>(),
            it.flag,
            it.member.0
        )
    });
    flags.collect()
}

/// Proves: C28
#[test]
fn flags_that_the_target_does_not_take_are_dropped_and_do_not_block() {
    let cluster = format_feature(Reversibility::Free);
    let stale = "Graduating=false,Dropped=false";
    let upgrade = Change::Upgrade(v("3.8"));
    let members = |server| fleet(vec![member(1, server, ""), member(2, "", "")]);
    let dropping = plan_dropping_flags(&server_features(), &cluster, &members(stale), &upgrade);
    assert_eq!(
        to_drop(&dropping),
        [
            "Dropped --feature-gates m1",
            "Graduating --feature-gates m1"
        ]
    );
    assert!(!dropping.is_blocked());
    // The values now are those with the flags, the values then are those without.
    let row = |name: &str| {
        let mut rows = dropping.rows.iter();
        let found = rows.find(|r| r.feature == name && r.member == Some(MemberId(1)));
        found.map(|row| (row.before, row.after)).unwrap()
    };
    assert_eq!(row("Dropped"), (Some(false), None));
    assert_eq!(row("Graduating"), (Some(false), Some(true)));
    // What shows only after the flags are dropped still blocks.
    let needy = members("Graduating=false,Child=true");
    let dropping = plan_dropping_flags(&server_features(), &cluster, &needy, &upgrade);
    assert_eq!(to_drop(&dropping), ["Graduating --feature-gates m1"]);
    assert!(dropping.is_blocked());
    // Flags that the change itself sets are what the question is about.
    let set = Change::Restart {
        member: MemberId(1),
        version: Some(v("3.8")),
        min_compat: None,
        server_flags: Some(flags(stale)),
        cluster_flags: None,
    };
    let dropping = plan_dropping_flags(&server_features(), &cluster, &members(""), &set);
    assert_eq!(to_drop(&dropping), Vec::<String>::new());
    assert!(dropping.is_blocked());
}

/// Proves: C29
#[test]
fn minimum_compatibility_version_above_the_target_is_a_flag_to_drop() {
    let cluster = format_feature(Reversibility::Free);
    let mut newest_only = member(1, "", "");
    newest_only.min_compat = Some(v("3.7"));
    let fleet = fleet(vec![newest_only, member(2, "", "")]);
    let back = Change::Downgrade(v("3.6"));
    let dropping = plan_dropping_flags(&server([]), &cluster, &fleet, &back);
    assert_eq!(to_drop(&dropping), ["--min-compatibility-version m1"]);
    assert!(!dropping.is_blocked());
}

#[test]
fn plan_names_the_members_that_begin_to_write_with_a_feature() {
    let format = NewFeature::new("Format", [Spec::alpha("3.7")]).readable_since(v("3.7"));
    let cluster = cluster([format]);
    let mut fleet = fleet(vec![
        member(1, "", "Format=true"),
        member(2, "", "Format=true"),
    ]);
    let restart = |min_compat, flags: Option<Assignments>| Change::Restart {
        member: MemberId(2),
        version: None,
        min_compat,
        server_flags: None,
        cluster_flags: flags,
    };
    let notable = |fleet: &Fleet, change: &Change| -> Vec<(u64, Option<bool>, bool)> {
        let plan = plan(&server([]), &cluster, fleet, change);
        let rows = plan.notable_writes();
        rows.map(|row| (row.member.0, row.before, row.after))
            .collect()
    };
    let newest_only = restart(Some(v("3.7")), None);
    assert_eq!(notable(&fleet, &newest_only), [(2, Some(false), true)]);
    assert_eq!(notable(&fleet, &restart(None, None)), []);
    // A feature that comes on without being written with is worth a line for each member.
    fleet.members[1] = member(2, "", "");
    fleet.previous = Previous::Decided(params("3.7", "Format=false"));
    let wanted = restart(None, Some(flags("Format=true")));
    let unwritten = [(1, Some(false), false), (2, Some(false), false)];
    assert_eq!(notable(&fleet, &wanted), unwritten);
    // So is a member that begins to ask for it, as that member warns at its start.
    fleet.members[0] = member(1, "", "");
    assert_eq!(notable(&fleet, &wanted), unwritten[1..]);
}
