//! Explanations and plans from replies that are made by the rules of the server.

use portunus_features::{ClusterFeatureGate, OwnFeatures};
use portunus_gates::cluster::{
    Ballot, ClusterParams, InForce, Member as Voter, MemberId, Outcome, Previous, Proposal,
    Publication, decide,
};
use portunus_gates::plan::{Block, Change, FleetMember};
use portunus_gates::{Assignments, MajorMinor, Origin, Status, Versions};
use portunus_proto::etcdserverpb::{
    FeatureGateDetail, FeatureGateStatusResponse, FeatureGateVote, Member, ResponseHeader,
    StatusResponse,
};

use super::foresight::{Foresight, foresee};
use super::picture::{Picture, picture};
use super::story::{Story, tell};
use super::survey::{Survey, Surveyed, Words};

const MECHANISM: &str = "ClusterFeatureGate=true";
const NO_MECHANISM: &str = "ClusterFeatureGate=false";

fn flags(text: &str) -> Assignments {
    Assignments::parse(Origin::Flag, text).unwrap()
}

/// A member of a made-up cluster.
#[derive(Clone)]
struct Node {
    id: u64,
    version: &'static str,
    server: &'static str,
    cluster: &'static str,
    learner: bool,
    answers: bool,
    /// Runs a server that knows no gates.
    gateless: bool,
}

fn node(id: u64, cluster: &'static str) -> Node {
    Node {
        id,
        version: "3.8",
        server: MECHANISM,
        cluster,
        learner: false,
        answers: true,
        gateless: false,
    }
}

fn version(text: &str) -> MajorMinor {
    text.parse().unwrap()
}

fn own() -> OwnFeatures {
    OwnFeatures::declared().unwrap()
}

fn detail(status: Status, votes: Vec<FeatureGateVote>) -> FeatureGateDetail {
    FeatureGateDetail {
        name: status.name,
        level: status.level.text().to_owned(),
        enabled: status.enabled,
        stage: status.stage.to_string(),
        default: status.default,
        locked: status.locked,
        explicit: status.explicit,
        source: status.source.to_string(),
        reason: status.reason,
        version_used: status.version_used.to_string(),
        since_index: status.since_index.unwrap_or(0),
        votes,
    }
}

fn word(ballot: Ballot) -> String {
    match ballot {
        Ballot::Explicit(value) => value.to_string(),
        Ballot::AllAlpha(value) => format!("AllAlpha={value}"),
        Ballot::AllBeta(value) => format!("AllBeta={value}"),
        Ballot::Abstained => "default".to_owned(),
        Ballot::Learner => "learner".to_owned(),
        Ballot::Unpublished => "unpublished".to_owned(),
        Ballot::Foreign => "foreign".to_owned(),
    }
}

/// The replies of a cluster of these members, once it has decided.
fn survey(cluster_version: &str, nodes: &[Node]) -> Survey {
    let own = own();
    let specs = own.cluster_specs();
    let version = version(cluster_version);
    let voters: Vec<Voter> = nodes
        .iter()
        .map(|node| {
            let versions = Versions::emulating(node.version.parse().unwrap());
            let gates = own.server.gates(versions, &flags(node.server)).unwrap();
            let takes_part = gates.enabled(ClusterFeatureGate) && !node.gateless;
            Voter {
                id: MemberId(node.id),
                name: format!("m{}", node.id),
                voter: !node.learner,
                started: true,
                publication: match takes_part && version >= specs.since() {
                    true => Publication::Proposal(Proposal {
                        version: node.version.parse().unwrap(),
                        flags: flags(node.cluster).to_map(),
                    }),
                    false => Publication::Foreign,
                },
            }
        })
        .collect();
    let decision = decide(&specs, Some(version), &voters, &Previous::Absent);
    let params: Option<ClusterParams> = match &decision.outcome {
        Outcome::Set(params) => Some(params.clone()),
        _ => None,
    };
    let in_force = InForce {
        params: params.as_ref(),
        cluster_version: Some(version),
        since_index: params.as_ref().map(|_| 7),
    };
    let votes = |name: &str| {
        let decided = decision.features.iter().find(|it| it.name == name);
        let votes = decided.into_iter().flat_map(|it| &it.votes);
        let votes = votes.map(|vote| FeatureGateVote {
            member_id: vote.member.0,
            vote: word(vote.ballot),
            if_promoted: vote.if_promoted.map(word).unwrap_or_default(),
        });
        votes.collect()
    };
    let statuses = specs.statuses(in_force, &decision, &voters).into_iter();
    let cluster = FeatureGateStatusResponse {
        details: statuses
            .map(|status| {
                let votes = votes(&status.name);
                detail(status, votes)
            })
            .collect(),
        ..FeatureGateStatusResponse::default()
    };
    Survey {
        members: nodes
            .iter()
            .map(|node| surveyed(node, cluster_version, &own))
            .collect(),
        cluster: Some(cluster),
    }
}

fn surveyed(node: &Node, cluster_version: &str, own: &OwnFeatures) -> Surveyed {
    let versions = Versions::emulating(version(node.version));
    let gates = own.server.gates(versions, &flags(node.server)).unwrap();
    let statuses = gates.statuses().into_iter();
    let words = Words {
        status: StatusResponse {
            header: Some(ResponseHeader {
                member_id: node.id,
                ..ResponseHeader::default()
            }),
            version: format!("{}.0", node.version),
            storage_version: format!("{cluster_version}.0"),
            ..StatusResponse::default()
        },
        server: (!node.gateless).then(|| FeatureGateStatusResponse {
            details: statuses.map(|status| detail(status, Vec::new())).collect(),
            ..FeatureGateStatusResponse::default()
        }),
        cluster: None,
    };
    Surveyed {
        member: Member {
            id: node.id,
            name: format!("m{}", node.id),
            is_learner: node.learner,
            ..Member::default()
        },
        said: match node.answers {
            true => Ok(words),
            false => Err("connection refused".to_owned()),
        },
    }
}

fn pictured(cluster_version: &str, nodes: &[Node]) -> Picture {
    picture(&survey(cluster_version, nodes), &own())
}

fn foreseen(cluster_version: &str, nodes: &[Node], change: &Change) -> Foresight {
    foresee(pictured(cluster_version, nodes), &own(), change)
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
        member: Voter {
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

fn rows(foresight: &Foresight) -> Vec<Row<'_>> {
    let rows = foresight.notable();
    rows.map(|row| (row.feature.as_str(), row.before, row.after, row.block))
        .collect()
}

const ON: Option<bool> = Some(true);
const OFF: Option<bool> = Some(false);
const CHECKPOINT: &str = "LeaseCheckpoint=true";

#[test]
fn flags_are_read_back_from_votes_and_server_features() {
    let nodes = [
        Node {
            server: "ClusterFeatureGate=true,FastLeaseKeepAlive=false,AllAlpha=true",
            ..node(1, "LeaseCheckpoint=true,ApplyTag=false")
        },
        node(2, "AllAlpha=true,ApplyTag=false"),
        node(3, ""),
    ];
    let picture = pictured("3.8", &nodes);
    for (seen, node) in picture.fleet.members.iter().zip(&nodes) {
        assert_eq!(seen.server_flags, flags(node.server));
        assert_eq!(seen.cluster_flags, flags(node.cluster));
        let Publication::Proposal(proposal) = &seen.member.publication else {
            panic!("{seen:?}");
        };
        assert_eq!(proposal.flags, flags(node.cluster).to_map());
    }
    assert_eq!(picture.assumptions, Vec::<String>::new());
    assert_eq!(picture.fleet.cluster_version, Some(version("3.8")));
    let Previous::Decided(params) = &picture.fleet.previous else {
        panic!("{picture:?}");
    };
    assert_eq!(params.features.get("LeaseCheckpoint"), Some(&false));
}

#[test]
fn the_last_missing_vote_turns_a_feature_on() {
    let nodes = [node(1, CHECKPOINT), node(2, CHECKPOINT), node(3, "")];
    let foresight = foreseen("3.8", &nodes, &restart(3, None, Some(CHECKPOINT)));
    assert_eq!(rows(&foresight), [("LeaseCheckpoint", OFF, ON, None)]);
    assert!(!foresight.plan.is_blocked());
    assert_eq!(
        foresight.change,
        "restart m3 --cluster-feature-gates=LeaseCheckpoint=true"
    );
}

#[test]
fn turning_off_what_another_feature_needs_blocks() {
    let both = "LeaseCheckpoint=true,LeaseCheckpointPersist=true";
    let nodes = [node(1, both), node(2, both), node(3, both)];
    let without = "LeaseCheckpoint=false,LeaseCheckpointPersist=true";
    let foresight = foreseen("3.8", &nodes, &restart(2, None, Some(without)));
    let lost = Some(Block::DependencyLost);
    assert_eq!(
        rows(&foresight),
        [
            ("LeaseCheckpoint", ON, OFF, None),
            ("LeaseCheckpointPersist", ON, OFF, lost)
        ]
    );
    assert!(foresight.plan.is_blocked());
}

#[test]
fn membership_decides_too() {
    let dissenting = [node(1, CHECKPOINT), node(2, CHECKPOINT), node(3, "")];
    let foresight = foreseen("3.8", &dissenting, &Change::Remove(MemberId(3)));
    assert_eq!(rows(&foresight), [("LeaseCheckpoint", OFF, ON, None)]);

    let agreeing = [
        node(1, CHECKPOINT),
        node(2, CHECKPOINT),
        node(3, CHECKPOINT),
    ];
    let foresight = foreseen("3.8", &agreeing, &added(MECHANISM, "", true));
    assert!(!foresight.plan.is_blocked());
    let cluster: Vec<Row<'_>> = rows(&foresight);
    assert!(
        cluster.contains(&("LeaseCheckpoint", ON, OFF, None)),
        "{cluster:?}"
    );

    // A learner obeys and does not count.
    let foresight = foreseen("3.8", &agreeing, &added(MECHANISM, "", false));
    assert!(
        rows(&foresight)
            .iter()
            .all(|row| row.0 != "LeaseCheckpoint")
    );
}

#[test]
fn a_promoted_learner_brings_its_flags() {
    let promoted = |flags| {
        let learner = Node {
            learner: true,
            ..node(2, flags)
        };
        let nodes = [node(1, CHECKPOINT), learner];
        foreseen("3.8", &nodes, &Change::Promote(MemberId(2)))
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
fn a_newer_program_tells_an_older_cluster_what_an_upgrade_brings() {
    let nodes = [1, 2].map(|id| Node {
        version: "3.7",
        ..node(id, CHECKPOINT)
    });
    let foresight = foreseen("3.7", &nodes, &Change::Upgrade(version("3.8")));
    assert_eq!(rows(&foresight), [("LogCompression", None, OFF, None)]);
    assert_eq!(foresight.plan.cluster_version, Some(version("3.8")));
    assert_eq!(foresight.cluster_version_before, Some(version("3.7")));
    assert!(!foresight.plan.is_blocked());
}

/// Proves: C29
#[test]
fn a_downgrade_names_the_flags_that_would_stop_the_start() {
    let nodes = [node(1, "LogCompression=true"), node(2, "")];
    let foresight = foreseen("3.8", &nodes, &Change::Downgrade(version("3.7")));
    assert!(!foresight.plan.is_blocked());
    let [dropped] = foresight.plan.flags_to_drop.as_slice() else {
        panic!("{:?}", foresight.plan.flags_to_drop);
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
    let foresight = foreseen("3.7", &nodes, &Change::Downgrade(version("3.6")));
    let dropped = foresight.plan.flags_to_drop.iter();
    let dropped: Vec<Option<&str>> = dropped.map(|it| it.feature.as_deref()).collect();
    assert_eq!(dropped, [Some("ClusterFeatureGate"); 2]);
    assert!(rows(&foresight).contains(&("ClusterFeatureGate", ON, None, None)));
    assert!(!foresight.plan.is_blocked());
}

/// Proves: S0-A27
#[test]
fn turning_the_mechanism_off_is_never_blocked_and_turns_features_off() {
    let nodes = [node(1, CHECKPOINT), node(2, CHECKPOINT)];
    let off = ("LeaseCheckpoint", ON, OFF, None);
    for flags in [Some(""), None] {
        // With the cluster flags it had they have no effect, and it starts.
        let foresight = foreseen("3.8", &nodes, &restart(2, Some(NO_MECHANISM), flags));
        assert_eq!(
            rows(&foresight),
            [("ClusterFeatureGate", ON, OFF, None), off]
        );
        assert!(!foresight.plan.is_blocked());
    }
    let foresight = foreseen("3.8", &nodes, &added(NO_MECHANISM, "", true));
    assert!(rows(&foresight).contains(&off));
    assert!(!foresight.plan.is_blocked());
}

#[test]
fn a_cluster_without_the_mechanism_can_begin_with_it() {
    let nodes = [Node {
        server: NO_MECHANISM,
        ..node(1, "")
    }];
    let change = restart(1, Some(""), Some(CHECKPOINT));
    let foresight = foreseen("3.8", &nodes, &change);
    assert_eq!(
        rows(&foresight),
        [
            ("ClusterFeatureGate", OFF, ON, None),
            ("LeaseCheckpoint", OFF, ON, None)
        ]
    );
    assert!(!foresight.plan.is_blocked());
}

#[test]
fn a_member_that_does_not_answer_is_said_to_be_assumed() {
    let nodes = [
        node(1, CHECKPOINT),
        Node {
            answers: false,
            ..node(2, CHECKPOINT)
        },
    ];
    let foresight = foreseen("3.8", &nodes, &restart(1, None, Some("")));
    assert_eq!(rows(&foresight), [("LeaseCheckpoint", ON, OFF, None)]);
    assert_eq!(
        foresight.assumptions,
        [
            "m2 does not answer (connection refused): taken to run version 3.8 with \
          no server flags"
        ]
    );
}

#[test]
fn a_member_of_another_kind_keeps_features_off_until_it_is_gone() {
    let nodes = [
        node(1, CHECKPOINT),
        Node {
            gateless: true,
            ..node(2, "")
        },
    ];
    let foresight = foreseen("3.8", &nodes, &restart(1, None, Some(CHECKPOINT)));
    assert_eq!(rows(&foresight), []);
    let foresight = foreseen("3.8", &nodes, &Change::Remove(MemberId(2)));
    assert_eq!(rows(&foresight), [("LeaseCheckpoint", OFF, ON, None)]);
    let [assumed] = foresight.assumptions.as_slice() else {
        panic!("{:?}", foresight.assumptions);
    };
    assert!(
        assumed.starts_with("m2 does not know feature gates"),
        "{assumed}"
    );
}

#[test]
fn a_member_of_an_earlier_version_takes_part_once_it_is_started_so() {
    let nodes = [Node {
        version: "3.6",
        server: "",
        gateless: true,
        ..node(1, "")
    }];
    let upgrade = foreseen("3.6", &nodes, &Change::Upgrade(version("3.7")));
    assert!(rows(&upgrade).contains(&("LeaseCheckpoint", None, OFF, None)));
    let restart = Change::Restart {
        member: MemberId(1),
        version: Some(version("3.7")),
        min_compat: None,
        server_flags: Some(flags(MECHANISM)),
        cluster_flags: Some(flags(CHECKPOINT)),
    };
    let restart = foreseen("3.6", &nodes, &restart);
    assert!(rows(&restart).contains(&("LeaseCheckpoint", None, ON, None)));
    assert!(!restart.plan.is_blocked());
}

#[test]
fn versions_that_no_member_could_run_are_obstacles() {
    let nodes = [node(1, "")];
    let change = Change::Restart {
        member: MemberId(1),
        version: Some(version("3.4")),
        min_compat: None,
        server_flags: Some(flags("")),
        cluster_flags: None,
    };
    let foresight = foreseen("3.8", &nodes, &change);
    let starts = foresight.plan.obstacles.iter();
    let starts = starts.filter(|it| it.starts_with("m1 would not start: "));
    assert!(starts.count() >= 1, "{:?}", foresight.plan.obstacles);
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
        foreseen("3.5", &nodes, &change).plan.obstacles,
        Vec::<String>::new()
    );
}

fn told(cluster_version: &str, nodes: &[Node], name: &str) -> Story {
    let survey = survey(cluster_version, nodes);
    tell(&survey, &picture(&survey, &own()), &own(), name).unwrap()
}

/// Proves: C27
#[test]
fn a_story_ends_with_the_command_to_type() {
    let missing = [
        node(1, CHECKPOINT),
        node(2, CHECKPOINT),
        node(3, "ApplyTag=true"),
    ];
    let story = told("3.8", &missing, "LeaseCheckpoint");
    assert_eq!(story.enabled, Some(false));
    assert_eq!(
        story.detail.reason,
        "it is off by default and m3 did not set it to true"
    );
    assert_eq!(
        story.to_change,
        ["restart m3 with --cluster-feature-gates=LeaseCheckpoint=true"]
    );
    // The other flags of the member stay in the command.
    assert_eq!(
        story.next,
        "portctl gate plan restart m3 \
         --cluster-feature-gates=ApplyTag=true,LeaseCheckpoint=true"
    );
    let words = story.members.iter();
    let words: Vec<(&str, &str)> = words.map(|it| (&*it.name, &*it.word)).collect();
    assert_eq!(words, [("m1", "true"), ("m2", "true"), ("m3", "default")]);

    let agreeing = [node(1, CHECKPOINT), node(2, CHECKPOINT)];
    for (cluster_version, nodes, name, next) in [
        (
            "3.8",
            &agreeing[..],
            "LeaseCheckpoint",
            "portctl gate plan restart m1 --cluster-feature-gates=LeaseCheckpoint=false",
        ),
        (
            "3.8",
            &[node(1, "LeaseCheckpointPersist=true")],
            "LeaseCheckpointPersist",
            "portctl gate explain LeaseCheckpoint",
        ),
        (
            "3.8",
            &agreeing,
            "ApplyTag",
            "portctl gate plan restart m1 \
             --cluster-feature-gates=ApplyTag=true,LeaseCheckpoint=true",
        ),
        (
            "3.7",
            &[Node {
                version: "3.7",
                ..node(1, "")
            }],
            "LogCompression",
            "portctl gate plan upgrade 3.8",
        ),
        (
            "3.6",
            &[Node {
                version: "3.6",
                server: "",
                ..node(1, "")
            }],
            "LeaseCheckpoint",
            "portctl gate plan upgrade 3.7",
        ),
        (
            "3.8",
            &[Node {
                server: "ClusterFeatureGate=false,PriorityRequest=true",
                ..node(1, "")
            }],
            "LeaseCheckpoint",
            "portctl gate plan restart m1 \
             --feature-gates=ClusterFeatureGate=true,PriorityRequest=true \
             --cluster-feature-gates=LeaseCheckpoint=true",
        ),
        (
            "3.8",
            &[
                node(1, CHECKPOINT),
                Node {
                    gateless: true,
                    ..node(2, "")
                },
            ],
            "LeaseCheckpoint",
            "portctl gate plan remove m2",
        ),
    ] {
        assert_eq!(told(cluster_version, nodes, name).next, next, "{name}");
    }
}

#[test]
fn a_server_feature_is_told_member_by_member() {
    let nodes = [
        node(1, ""),
        Node {
            server: "ClusterFeatureGate=true,PriorityRequest=true",
            ..node(2, "")
        },
    ];
    let story = told("3.8", &nodes, "PriorityRequest");
    assert_eq!(story.enabled, None);
    let words = story.members.iter();
    let words: Vec<(&str, &str)> = words.map(|it| (&*it.name, &*it.word)).collect();
    assert_eq!(
        words,
        [
            ("m1", "off: the default of its ALPHA stage since 3.7"),
            ("m2", "on: set to true by flag")
        ]
    );
    assert_eq!(
        story.next,
        "portctl gate plan restart m1 \
         --feature-gates=ClusterFeatureGate=true,PriorityRequest=true"
    );
    let locked = told("3.8", &nodes, "CompatibilityVersions");
    assert_eq!(
        (locked.enabled, &*locked.next),
        (Some(true), "portctl gate list")
    );
}

#[test]
fn an_unknown_name_is_answered_with_a_known_one() {
    let survey = survey("3.8", &[node(1, "")]);
    let picture = picture(&survey, &own());
    for (name, hint) in [
        ("LeaseCheckpont", "did you mean LeaseCheckpoint?"),
        ("PriorityRequests", "did you mean PriorityRequest?"),
        ("Zebra", "see `portctl gate list`"),
    ] {
        let unknown = tell(&survey, &picture, &own(), name).unwrap_err();
        assert_eq!(unknown.hint, hint);
    }
}

#[test]
fn what_only_the_servers_know_is_told_in_their_words_and_marked() {
    let mut survey = survey("3.8", &[node(1, "")]);
    let details = &mut survey.cluster.as_mut().unwrap().details;
    details.push(FeatureGateDetail {
        name: "FromTheFuture".to_owned(),
        level: "cluster".to_owned(),
        enabled: true,
        version_used: "3.8".to_owned(),
        ..FeatureGateDetail::default()
    });
    let picture = picture(&survey, &own());
    let story = tell(&survey, &picture, &own(), "FromTheFuture").unwrap();
    assert_eq!(story.enabled, Some(true));
    let [assumed] = story.assumptions.as_slice() else {
        panic!("{story:?}");
    };
    assert!(
        assumed.starts_with("FromTheFuture is not known to this portctl"),
        "{assumed}"
    );
}
