//! Plans of changes.

use portunus_gates::cluster::{Member, MemberId, Previous, Publication};
use portunus_gates::plan::{Block, Change, FleetMember};

use super::super::fleet::{ObservedFleet, observe};
use super::super::plan::{PlannedChange, plan_change};
use super::{CHECKPOINT, MECHANISM, Node, flags, node, own, report_of, version};

const NO_MECHANISM: &str = "ClusterFeatureGate=false";

fn observed_fleet(cluster_version: &str, nodes: &[Node]) -> ObservedFleet {
    observe(&report_of(cluster_version, nodes), &own())
}

fn plan_of(cluster_version: &str, nodes: &[Node], change: &Change) -> PlannedChange {
    plan_change(observed_fleet(cluster_version, nodes), &own(), change)
}

fn restart(id: u64, server: Option<&str>, cluster: Option<&str>) -> Change {
    Change::Restart {
        member: MemberId(id),
        version: None,
        min_compat: None,
        server_flags: server.map(flags),
        cluster_flags: cluster.map(flags),
    }
}

fn added(server: &str, cluster: &str, voter: bool) -> Change {
    Change::Add(FleetMember {
        member: Member {
            id: MemberId(0),
            name: "m9".to_owned(),
            voter,
            started: true,
            publication: Publication::Nothing,
        },
        server_version: version("3.8"),
        min_compat: None,
        server_flags: flags(server),
        cluster_flags: flags(cluster),
    })
}

/// The rows a person sees: feature, before, after, block.
type Row<'f> = (&'f str, Option<bool>, Option<bool>, Option<Block>);

fn rows(planned: &PlannedChange) -> Vec<Row<'_>> {
    let rows = planned.notable();
    rows.map(|row| (row.feature.as_str(), row.before, row.after, row.block))
        .collect()
}

const ON: Option<bool> = Some(true);
const OFF: Option<bool> = Some(false);

#[test]
fn fleet_flags_are_derived_from_votes_and_server_features() {
    let nodes = [
        Node {
            server: "ClusterFeatureGate=true,FastLeaseKeepAlive=false,AllAlpha=true",
            ..node(1, "LeaseCheckpoint=true,ApplyTag=false")
        },
        node(2, "AllAlpha=true,ApplyTag=false"),
        node(3, ""),
    ];
    let observed = observed_fleet("3.8", &nodes);
    for (seen, node) in observed.fleet.members.iter().zip(&nodes) {
        assert_eq!(seen.server_flags, flags(node.server));
        assert_eq!(seen.cluster_flags, flags(node.cluster));
        let Publication::Proposal(proposal) = &seen.member.publication else {
            panic!("{seen:?}");
        };
        assert_eq!(proposal.flags, flags(node.cluster).to_map());
    }
    assert_eq!(observed.assumptions, Vec::<String>::new());
    assert_eq!(observed.fleet.cluster_version, Some(version("3.8")));
    let Previous::Decided(params) = &observed.fleet.previous else {
        panic!("{observed:?}");
    };
    assert_eq!(params.features.get("LeaseCheckpoint"), Some(&false));
}

#[test]
fn last_missing_vote_turns_a_feature_on() {
    let nodes = [node(1, CHECKPOINT), node(2, CHECKPOINT), node(3, "")];
    let planned = plan_of("3.8", &nodes, &restart(3, None, Some(CHECKPOINT)));
    assert_eq!(rows(&planned), [("LeaseCheckpoint", OFF, ON, None)]);
    assert!(!planned.plan.is_blocked());
    assert_eq!(
        planned.change,
        "restart m3 --cluster-feature-gates=LeaseCheckpoint=true"
    );
}

#[test]
fn turning_off_a_dependency_blocks_the_plan() {
    let both = "LeaseCheckpoint=true,LeaseCheckpointPersist=true";
    let nodes = [node(1, both), node(2, both), node(3, both)];
    let without = "LeaseCheckpoint=false,LeaseCheckpointPersist=true";
    let planned = plan_of("3.8", &nodes, &restart(2, None, Some(without)));
    let lost = Some(Block::DependencyLost);
    assert_eq!(
        rows(&planned),
        [
            ("LeaseCheckpoint", ON, OFF, None),
            ("LeaseCheckpointPersist", ON, OFF, lost)
        ]
    );
    assert!(planned.plan.is_blocked());
}

#[test]
fn adding_or_removing_a_voter_changes_the_decision() {
    let dissenting = [node(1, CHECKPOINT), node(2, CHECKPOINT), node(3, "")];
    let planned = plan_of("3.8", &dissenting, &Change::Remove(MemberId(3)));
    assert_eq!(rows(&planned), [("LeaseCheckpoint", OFF, ON, None)]);

    let agreeing = [
        node(1, CHECKPOINT),
        node(2, CHECKPOINT),
        node(3, CHECKPOINT),
    ];
    let planned = plan_of("3.8", &agreeing, &added(MECHANISM, "", true));
    assert!(!planned.plan.is_blocked());
    let cluster: Vec<Row<'_>> = rows(&planned);
    assert!(
        cluster.contains(&("LeaseCheckpoint", ON, OFF, None)),
        "{cluster:?}"
    );

    // A learner obeys and does not count.
    let planned = plan_of("3.8", &agreeing, &added(MECHANISM, "", false));
    assert!(rows(&planned).iter().all(|row| row.0 != "LeaseCheckpoint"));
}

#[test]
fn promoted_learner_votes_with_its_flags() {
    let promoted = |flags| {
        let learner = Node {
            learner: true,
            ..node(2, flags)
        };
        let nodes = [node(1, CHECKPOINT), learner];
        plan_of("3.8", &nodes, &Change::Promote(MemberId(2)))
    };
    let without = promoted("");
    assert_eq!(rows(&without), [("LeaseCheckpoint", ON, OFF, None)]);
    assert_eq!(without.assumptions, Vec::<String>::new());
    let with = promoted(CHECKPOINT);
    assert_eq!(rows(&with), []);
    assert_eq!(with.assumptions, Vec::<String>::new());
    let with_all = promoted("AllAlpha=true");
    assert_eq!(rows(&with_all), []);
}

/// Proves: C28
#[test]
fn newer_portctl_plans_the_upgrade_of_an_older_cluster() {
    let nodes = [1, 2].map(|id| Node {
        version: "3.7",
        ..node(id, CHECKPOINT)
    });
    let planned = plan_of("3.7", &nodes, &Change::Upgrade(version("3.8")));
    assert_eq!(rows(&planned), [("LogCompression", None, OFF, None)]);
    assert_eq!(planned.plan.cluster_version, Some(version("3.8")));
    assert_eq!(planned.cluster_version_before, Some(version("3.7")));
    assert!(!planned.plan.is_blocked());
}

/// Proves: C29
#[test]
fn downgrade_plan_names_flags_that_would_stop_the_start() {
    let nodes = [node(1, "LogCompression=true"), node(2, "")];
    let planned = plan_of("3.8", &nodes, &Change::Downgrade(version("3.7")));
    assert!(!planned.plan.is_blocked());
    let [dropped] = planned.plan.flags_to_drop.as_slice() else {
        panic!("{:?}", planned.plan.flags_to_drop);
    };
    assert_eq!(
        (dropped.feature.as_deref(), dropped.member, dropped.flag),
        (
            Some("LogCompression"),
            MemberId(1),
            "--cluster-feature-gates"
        )
    );

    // Below the first version with cluster features their switch itself has to go.
    let nodes = [1, 2].map(|id| Node {
        version: "3.7",
        ..node(id, "")
    });
    let planned = plan_of("3.7", &nodes, &Change::Downgrade(version("3.6")));
    let dropped = planned.plan.flags_to_drop.iter();
    let dropped: Vec<Option<&str>> = dropped.map(|it| it.feature.as_deref()).collect();
    assert_eq!(dropped, [Some("ClusterFeatureGate"); 2]);
    assert!(rows(&planned).contains(&("ClusterFeatureGate", ON, None, None)));
    assert!(!planned.plan.is_blocked());
}

/// Proves: S0-A27
#[test]
fn turning_the_mechanism_off_is_never_blocked_and_turns_features_off() {
    let nodes = [node(1, CHECKPOINT), node(2, CHECKPOINT)];
    let off = ("LeaseCheckpoint", ON, OFF, None);
    for flags in [Some(""), None] {
        // With the cluster flags it had they have no effect, and it starts.
        let planned = plan_of("3.8", &nodes, &restart(2, Some(NO_MECHANISM), flags));
        assert_eq!(rows(&planned), [("ClusterFeatureGate", ON, OFF, None), off]);
        assert!(!planned.plan.is_blocked());
    }
    let planned = plan_of("3.8", &nodes, &added(NO_MECHANISM, "", true));
    assert!(rows(&planned).contains(&off));
    assert!(!planned.plan.is_blocked());
}

#[test]
fn mechanism_can_be_turned_on_in_a_cluster_without_it() {
    let nodes = [Node {
        server: NO_MECHANISM,
        ..node(1, "")
    }];
    let change = restart(1, Some(""), Some(CHECKPOINT));
    let planned = plan_of("3.8", &nodes, &change);
    assert_eq!(
        rows(&planned),
        [
            ("ClusterFeatureGate", OFF, ON, None),
            ("LeaseCheckpoint", OFF, ON, None)
        ]
    );
    assert!(!planned.plan.is_blocked());
}

#[test]
fn plan_lists_what_it_assumes_about_a_member_that_does_not_answer() {
    let nodes = [
        node(1, CHECKPOINT),
        Node {
            answers: false,
            ..node(2, CHECKPOINT)
        },
    ];
    let planned = plan_of("3.8", &nodes, &restart(1, None, Some("")));
    assert_eq!(rows(&planned), [("LeaseCheckpoint", ON, OFF, None)]);
    assert_eq!(
        planned.assumptions,
        [
            "m2 does not answer (connection refused): assumed to run version 3.8 with \
          no server flags"
        ]
    );
}

#[test]
fn gateless_member_keeps_features_off_until_it_is_removed() {
    let nodes = [
        node(1, CHECKPOINT),
        Node {
            gateless: true,
            ..node(2, "")
        },
    ];
    let planned = plan_of("3.8", &nodes, &restart(1, None, Some(CHECKPOINT)));
    assert_eq!(rows(&planned), []);
    let planned = plan_of("3.8", &nodes, &Change::Remove(MemberId(2)));
    assert_eq!(rows(&planned), [("LeaseCheckpoint", OFF, ON, None)]);
    let [assumed] = planned.assumptions.as_slice() else {
        panic!("{:?}", planned.assumptions);
    };
    assert!(
        assumed.starts_with("m2 does not know feature gates"),
        "{assumed}"
    );
}

#[test]
fn member_of_an_earlier_version_votes_after_a_restart_with_the_mechanism() {
    let nodes = [Node {
        version: "3.6",
        server: "",
        gateless: true,
        ..node(1, "")
    }];
    let upgrade = plan_of("3.6", &nodes, &Change::Upgrade(version("3.7")));
    assert!(rows(&upgrade).contains(&("LeaseCheckpoint", None, OFF, None)));
    let restart = Change::Restart {
        member: MemberId(1),
        version: Some(version("3.7")),
        min_compat: None,
        server_flags: Some(flags(MECHANISM)),
        cluster_flags: Some(flags(CHECKPOINT)),
    };
    let restart = plan_of("3.6", &nodes, &restart);
    assert!(rows(&restart).contains(&("LeaseCheckpoint", None, ON, None)));
    assert!(!restart.plan.is_blocked());
}

#[test]
fn version_below_the_floor_is_an_obstacle() {
    let nodes = [node(1, "")];
    let change = Change::Restart {
        member: MemberId(1),
        version: Some(version("3.4")),
        min_compat: None,
        server_flags: Some(flags("")),
        cluster_flags: None,
    };
    let planned = plan_of("3.8", &nodes, &change);
    let starts = planned.plan.obstacles.iter();
    let starts = starts.filter(|it| it.starts_with("m1 would not start: "));
    assert!(starts.count() >= 1, "{:?}", planned.plan.obstacles);
    // The floor itself is fine.
    let change = Change::Restart {
        member: MemberId(1),
        version: Some(version("3.5")),
        min_compat: None,
        server_flags: Some(flags("")),
        cluster_flags: None,
    };
    let nodes = [Node {
        version: "3.5",
        server: "",
        ..node(1, "")
    }];
    assert_eq!(
        plan_of("3.5", &nodes, &change).plan.obstacles,
        Vec::<String>::new()
    );
}
