//! Explanations of features.

use portunus_proto::etcdserverpb::FeatureGateDetail;

use super::super::explain::{FeatureExplanation, explain};
use super::super::fleet::observe;
use super::{CHECKPOINT, Node, node, own, report_of};

fn explained(cluster_version: &str, nodes: &[Node], name: &str) -> FeatureExplanation {
    let report = report_of(cluster_version, nodes);
    explain(&report, &observe(&report, &own()), &own(), name).unwrap()
}

/// Proves: C27
#[test]
fn explanation_ends_with_the_next_command() {
    let missing = [
        node(1, CHECKPOINT),
        node(2, CHECKPOINT),
        node(3, "ApplyTag=true"),
    ];
    let explanation = explained("3.8", &missing, "LeaseCheckpoint");
    assert_eq!(explanation.enabled, Some(false));
    assert_eq!(
        explanation.detail.reason,
        "it is off by default and m3 did not set it to true"
    );
    assert_eq!(
        explanation.to_change,
        ["restart m3 with --cluster-feature-gates=LeaseCheckpoint=true"]
    );
    // The other flags of the member stay in the command.
    assert_eq!(
        explanation.next,
        "portctl gate plan restart m3 \
         --cluster-feature-gates=ApplyTag=true,LeaseCheckpoint=true"
    );
    let votes = explanation.members.iter();
    let votes: Vec<(&str, &str)> = votes.map(|it| (&*it.name, &*it.vote)).collect();
    assert_eq!(votes, [("m1", "true"), ("m2", "true"), ("m3", "default")]);

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
        assert_eq!(explained(cluster_version, nodes, name).next, next, "{name}");
    }
}

#[test]
fn server_feature_is_explained_per_member() {
    let nodes = [
        node(1, ""),
        Node {
            server: "ClusterFeatureGate=true,PriorityRequest=true",
            ..node(2, "")
        },
    ];
    let explanation = explained("3.8", &nodes, "PriorityRequest");
    assert_eq!(explanation.enabled, None);
    let votes = explanation.members.iter();
    let votes: Vec<(&str, &str)> = votes.map(|it| (&*it.name, &*it.vote)).collect();
    assert_eq!(
        votes,
        [
            ("m1", "off: the default of its ALPHA stage since 3.7"),
            ("m2", "on: set to true by flag")
        ]
    );
    assert_eq!(
        explanation.next,
        "portctl gate plan restart m1 \
         --feature-gates=ClusterFeatureGate=true,PriorityRequest=true"
    );
    let locked = explained("3.8", &nodes, "CompatibilityVersions");
    assert_eq!(
        (locked.enabled, &*locked.next),
        (Some(true), "portctl gate list")
    );
}

#[test]
fn unknown_feature_name_is_refused_with_a_suggestion() {
    let report = report_of("3.8", &[node(1, "")]);
    let observed = observe(&report, &own());
    for (name, hint) in [
        ("LeaseCheckpont", "did you mean LeaseCheckpoint?"),
        ("PriorityRequests", "did you mean PriorityRequest?"),
        ("Zebra", "see `portctl gate list`"),
    ] {
        let unknown = explain(&report, &observed, &own(), name).unwrap_err();
        assert_eq!(unknown.hint, hint);
    }
}

#[test]
fn feature_unknown_to_portctl_is_explained_from_the_reply() {
    let mut report = report_of("3.8", &[node(1, "")]);
    let details = &mut report.cluster.as_mut().unwrap().details;
    details.push(FeatureGateDetail {
        name: "FromTheFuture".to_owned(),
        level: "cluster".to_owned(),
        enabled: true,
        version_used: "3.8".to_owned(),
        ..FeatureGateDetail::default()
    });
    let observed = observe(&report, &own());
    let explanation = explain(&report, &observed, &own(), "FromTheFuture").unwrap();
    assert_eq!(explanation.enabled, Some(true));
    let [assumed] = explanation.assumptions.as_slice() else {
        panic!("{explanation:?}");
    };
    assert!(
        assumed.starts_with("FromTheFuture is not known to this portctl"),
        "{assumed}"
    );
}
