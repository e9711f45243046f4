//! Texts about feature gates. The shapes are ours, so these are what scripts rely on.

use std::collections::BTreeMap;

use portunus_gates::Level;
use portunus_gates::cluster::MemberId;
use portunus_gates::plan::{Block, FlagToDrop, Plan, PlanRow};
use portunus_proto::etcdserverpb::{
    Feature, FeatureGateDetail, FeatureGateStatusResponse, FeatureGateVote, ResponseHeader,
};
use portunus_proto::membershippb::{self, ClusterParams, ClusterParamsDecision};
use portunus_proto::portunuspb::{HistoryResponse, WatchResponse};

use super::{Answer, EndpointGates, Format, GateAnswer, GateReport, MemberNames, Printer};
use crate::gates::explain::{FeatureExplanation, MemberVote};
use crate::gates::plan::PlannedChange;

fn printed(format: Format, answer: GateAnswer<'_>) -> String {
    let printer = Printer {
        format,
        hex: false,
        value_only: false,
    };
    let printed = printer.render(&Answer::Gate(answer)).unwrap();
    String::from_utf8(printed.out).unwrap()
}

fn header() -> Option<ResponseHeader> {
    Some(ResponseHeader {
        cluster_id: 1,
        member_id: 2,
        revision: 3,
        raft_term: 4,
    })
}

fn response(is_server_feature: bool, details: Vec<FeatureGateDetail>) -> FeatureGateStatusResponse {
    let features = details.iter().map(|it| Feature {
        name: it.name.clone(),
        enabled: it.enabled,
    });
    FeatureGateStatusResponse {
        min_compatibility_version: String::new(),
        header: header(),
        is_server_feature,
        features: features.collect(),
        details,
        proposals: Vec::new(),
    }
}

fn checkpoint() -> FeatureGateDetail {
    FeatureGateDetail {
        name: "LeaseCheckpoint".to_owned(),
        level: "cluster".to_owned(),
        enabled: false,
        stage: "ALPHA".to_owned(),
        default: false,
        locked: false,
        explicit: true,
        source: "consensus".to_owned(),
        reason: "it is off by default and m3 did not set it to true".to_owned(),
        version_used: "3.8".to_owned(),
        since_index: 12,
        votes: vec![
            FeatureGateVote {
                member_id: 0xab,
                vote: "default".to_owned(),
                if_promoted: String::new(),
            },
            FeatureGateVote {
                member_id: 0xac,
                vote: "learner".to_owned(),
                if_promoted: "true".to_owned(),
            },
        ],
    }
}

fn fast_renewal() -> FeatureGateDetail {
    FeatureGateDetail {
        name: "FastLeaseKeepAlive".to_owned(),
        level: "server".to_owned(),
        enabled: true,
        stage: "BETA".to_owned(),
        default: true,
        source: "default".to_owned(),
        reason: "the default of its BETA stage since 3.7".to_owned(),
        version_used: "3.8".to_owned(),
        ..FeatureGateDetail::default()
    }
}

fn report(requested: &[&str]) -> GateReport {
    let server = |endpoint: &str| EndpointGates {
        endpoint: endpoint.to_owned(),
        response: response(true, vec![fast_renewal()]),
    };
    GateReport {
        requested: requested.iter().map(|name| (*name).to_owned()).collect(),
        cluster: response(false, vec![checkpoint()]),
        servers: vec![server("a:1"), server("b:1")],
        gateless: Vec::new(),
    }
}

#[test]
fn cluster_feature_value_prints_as_one_word() {
    let mut on = response(false, vec![checkpoint()]);
    on.details.clear();
    assert_eq!(printed(Format::Simple, GateAnswer::Enabled(&on)), "false\n");
    on.features[0].enabled = true;
    assert_eq!(printed(Format::Simple, GateAnswer::Enabled(&on)), "true\n");
    assert_eq!(
        printed(Format::Json, GateAnswer::Enabled(&on)),
        concat!(
            r#"{"header":{"cluster_id":1,"member_id":2,"revision":3,"raft_term":4},"#,
            r#""is_server_feature":false,"#,
            r#""features":[{"name":"LeaseCheckpoint","enabled":true}]}"#,
            "\n"
        )
    );
    assert_eq!(
        printed(Format::Fields, GateAnswer::Enabled(&on)),
        concat!(
            "\"ClusterID\" : 1\n\"MemberID\" : 2\n\"Revision\" : 3\n\"RaftTerm\" : 4\n",
            "\"Feature\" : \"LeaseCheckpoint\"\n\"Enabled\" : true\n"
        )
    );
}

#[test]
fn server_feature_prints_one_line_per_endpoint() {
    let mut list = report(&[]).servers;
    list[1].response.features[0].enabled = false;
    let answer = GateAnswer::EndpointsEnabled(&list);
    assert_eq!(printed(Format::Simple, answer), "a:1, true\nb:1, false\n");
    assert_eq!(
        printed(Format::Table, answer),
        "\
┌──────────┬────────────────────┬─────────┐
│ ENDPOINT │      FEATURE       │ ENABLED │
├──────────┼────────────────────┼─────────┤
│      a:1 │ FastLeaseKeepAlive │    true │
│      b:1 │ FastLeaseKeepAlive │   false │
└──────────┴────────────────────┴─────────┘
"
    );
}

#[test]
fn gate_list_prints_cluster_features_first_and_a_row_per_server() {
    assert_eq!(
        printed(Format::Simple, GateAnswer::List(&report(&[]))),
        "\
LeaseCheckpoint, cluster, false, ALPHA, false, false, consensus, -
FastLeaseKeepAlive, server, true, BETA, true, false, default, a:1
FastLeaseKeepAlive, server, true, BETA, true, false, default, b:1
"
    );
    let json = printed(Format::Json, GateAnswer::List(&report(&[])));
    assert!(
        json.contains(concat!(
            r#"{"name":"LeaseCheckpoint","level":"cluster","enabled":false,"stage":"ALPHA","#,
            r#""default":false,"locked":false,"explicit":true,"source":"consensus","#,
            r#""reason":"it is off by default and m3 did not set it to true","#,
            r#""version_used":"3.8","since_index":12,"votes":[{"member_id":171,"vote":"default"},{"member_id":172,"vote":"learner","if_promoted":"true"}]}"#,
        )),
        "{json}"
    );
    assert!(
        json.contains(r#""servers":[{"Endpoint":"a:1","FeatureGate":{"#),
        "{json}"
    );
}

#[test]
fn gateless_endpoint_is_named_below_the_others() {
    let mut mixed = report(&[]);
    mixed.gateless = vec!["g:1".to_owned()];
    let line = "g:1 does not know feature gates, as etcd and versions before 3.7 do not\n";
    for answer in [GateAnswer::List(&mixed), GateAnswer::Status(&mixed)] {
        for format in [Format::Simple, Format::Table] {
            let text = printed(format, answer);
            assert!(text.ends_with(line), "{text}");
        }
        let fields = printed(Format::Fields, answer);
        assert!(fields.ends_with("\"KnowsNoGates\" : \"g:1\"\n"), "{fields}");
        let json = printed(Format::Json, answer);
        assert!(json.ends_with("],\"gateless\":[\"g:1\"]}\n"), "{json}");
    }
}

#[test]
fn gate_status_prints_requested_features_or_all_enabled() {
    let mut partly_known = report(&["Zebra", "LeaseCheckpoint"]);
    // A server marks what it does not know.
    partly_known.cluster.details.push(FeatureGateDetail {
        name: "Zebra".to_owned(),
        level: "cluster".to_owned(),
        source: "unknown".to_owned(),
        ..FeatureGateDetail::default()
    });
    assert_eq!(
        printed(Format::Simple, GateAnswer::Status(&partly_known)),
        "\
Zebra, unknown, false, -, no server that was asked knows it
LeaseCheckpoint, cluster, false, -, it is off by default and m3 did not set it to true
"
    );
    assert_eq!(
        printed(Format::Simple, GateAnswer::Status(&report(&[]))),
        "\
FastLeaseKeepAlive, server, true, a:1, the default of its BETA stage since 3.7
FastLeaseKeepAlive, server, true, b:1, the default of its BETA stage since 3.7
"
    );
}

fn explanation() -> FeatureExplanation {
    FeatureExplanation {
        detail: checkpoint(),
        enabled: Some(false),
        what: "Tells how long leases live.".to_owned(),
        spec: "entry 1 of 1: ALPHA since 3.7".to_owned(),
        members: vec![MemberVote {
            member_id: 0xab,
            name: "m3".to_owned(),
            vote: "default".to_owned(),
        }],
        needs: vec![("Other".to_owned(), true)],
        to_change: vec!["restart m3".to_owned()],
        assumptions: vec!["m2 does not answer".to_owned()],
        next: "portctl gate plan restart m3".to_owned(),
        ..FeatureExplanation::default()
    }
}

#[test]
fn explanation_prints_in_lines_and_ends_with_a_command() {
    assert_eq!(
        printed(Format::Simple, GateAnswer::Explanation(&explanation())),
        "\
LeaseCheckpoint (cluster feature) is off: it is off by default and m3 did not set it to true
  what      Tells how long leases live.
  spec      entry 1 of 1: ALPHA since 3.7, default false
  at        cluster version 3.8
  source    consensus
  since     log index 12
  vote      m3 (ab) default
  needs     Other (on)
  assumed   m2 does not answer
  change    restart m3
  next      portctl gate plan restart m3
"
    );
    let json = printed(Format::Json, GateAnswer::Explanation(&explanation()));
    let end = concat!(
        r#""members":[{"member_id":171,"name":"m3","word":"default"}],"#,
        r#""needs":[{"name":"Other","enabled":true}],"not_written_by":[],"assumptions":["m2 does not answer"],"#,
        r#""to_change":["restart m3"],"next":"portctl gate plan restart m3"}"#,
        "\n"
    );
    assert!(json.ends_with(end), "{json}");
    let table = printed(Format::Table, GateAnswer::Explanation(&explanation()));
    assert!(table.contains("│    next │"), "{table}");
}

fn planned(block: Option<Block>) -> PlannedChange {
    let row = PlanRow {
        feature: "LeaseCheckpoint".to_owned(),
        level: Level::Cluster,
        member: None,
        before: Some(false),
        after: Some(true),
        why: "every voting member set it to true".to_owned(),
        block: None,
    };
    let blocking = PlanRow {
        feature: "Zebra".to_owned(),
        level: Level::Server,
        member: Some(MemberId(0xab)),
        before: None,
        after: None,
        why: "E-UNKNOWN".to_owned(),
        block,
    };
    PlannedChange {
        change: "restart m3".to_owned(),
        cluster_version_before: "3.7".parse().ok(),
        plan: Plan {
            rows: vec![row, blocking],
            writes: Vec::new(),
            flags_to_drop: Vec::new(),
            obstacles: block
                .map(|_| "m3 would not start".to_owned())
                .into_iter()
                .collect(),
            cluster_version: "3.8".parse().ok(),
        },
        names: vec![(MemberId(0xab), "m3".to_owned())],
        added: None,
        assumptions: vec!["m2 does not answer".to_owned()],
    }
}

#[test]
fn plan_prints_changes_and_ends_with_its_verdict() {
    assert_eq!(
        printed(Format::Simple, GateAnswer::Plan(&planned(None))),
        "\
LeaseCheckpoint (cluster): off -> on: every voting member set it to true
cluster version: 3.7 -> 3.8
assumed: m2 does not answer
restart m3: not blocked
"
    );
    let blocked = planned(Some(Block::Unknown));
    assert_eq!(
        printed(Format::Table, GateAnswer::Plan(&blocked)),
        "\
┌─────────────────┬─────────┬────────┬────────┬────────┬─────────┬────────────────────────────────────┐
│     FEATURE     │  LEVEL  │ MEMBER │ BEFORE │ AFTER  │  BLOCK  │                WHY                 │
├─────────────────┼─────────┼────────┼────────┼────────┼─────────┼────────────────────────────────────┤
│ LeaseCheckpoint │ cluster │        │    off │     on │         │ every voting member set it to true │
│           Zebra │  server │     m3 │ absent │ absent │ unknown │                          E-UNKNOWN │
└─────────────────┴─────────┴────────┴────────┴────────┴─────────┴────────────────────────────────────┘
cluster version: 3.7 -> 3.8
obstacle: m3 would not start
assumed: m2 does not answer
restart m3: blocked
"
    );
    assert_eq!(
        printed(Format::Json, GateAnswer::Plan(&blocked)),
        concat!(
            r#"{"change":"restart m3","blocked":true,"cluster_version_before":"3.7","#,
            r#""cluster_version":"3.8","rows":[{"feature":"LeaseCheckpoint","level":"cluster","#,
            r#""before":false,"after":true,"why":"every voting member set it to true"},"#,
            r#"{"feature":"Zebra","level":"server","member_id":171,"member":"m3","before":null,"#,
            r#""after":null,"block":"unknown","why":"E-UNKNOWN"}],"#,
            r#""writes":[],"flags_to_drop":[],"obstacles":["m3 would not start"],"assumptions":["m2 does not answer"]}"#,
            "\n"
        )
    );
}

#[test]
fn flags_to_drop_are_listed_and_do_not_block() {
    let mut dropping = planned(None);
    dropping.plan.flags_to_drop.push(FlagToDrop {
        member: MemberId(0xab),
        flag: "--feature-gates",
        feature: Some("Zebra".to_owned()),
        why: "E-UNKNOWN".to_owned(),
    });
    dropping.plan.flags_to_drop.push(FlagToDrop {
        member: MemberId(0xab),
        flag: "--min-compatibility-version",
        feature: None,
        why: "3.8 is above 3.7, the version of the member".to_owned(),
    });
    assert_eq!(
        printed(Format::Simple, GateAnswer::Plan(&dropping)),
        "\
LeaseCheckpoint (cluster): off -> on: every voting member set it to true
cluster version: 3.7 -> 3.8
flag to drop: Zebra in --feature-gates of m3: E-UNKNOWN
flag to drop: --min-compatibility-version of m3: 3.8 is above 3.7, the version of the member
assumed: m2 does not answer
restart m3: not blocked once these flags are dropped
"
    );
    let json = printed(Format::Json, GateAnswer::Plan(&dropping));
    assert!(json.contains(r#""blocked":false"#), "{json}");
    let flags = concat!(
        r#""flags_to_drop":[{"member_id":171,"member":"m3","flag":"--feature-gates","#,
        r#""feature":"Zebra","why":"E-UNKNOWN"},{"member_id":171,"member":"m3","#,
        r#""flag":"--min-compatibility-version","#,
        r#""why":"3.8 is above 3.7, the version of the member"}]"#
    );
    assert!(json.contains(flags), "{json}");
    let fields = printed(Format::Fields, GateAnswer::Plan(&dropping));
    assert!(
        fields.contains(r#""FlagToDrop" : "Zebra in --feature-gates"#),
        "{fields}"
    );
}

fn decision(index: u64, features: Option<&[(&str, bool)]>) -> ClusterParamsDecision {
    let gates = |features: &[(&str, bool)]| {
        let gates = features
            .iter()
            .map(|(name, enabled)| membershippb::Feature {
                name: (*name).to_owned(),
                enabled: *enabled,
            });
        gates.collect()
    };
    ClusterParamsDecision {
        index,
        cluster_version: "3.8".to_owned(),
        params: features.map(|features| ClusterParams {
            version: "3.8".to_owned(),
            feature_gates: gates(features),
        }),
        decided_unix_seconds: 951_782_400,
        decided_by: 0xab,
        cause: "m3 set A=true".to_owned(),
    }
}

fn names() -> MemberNames {
    MemberNames(BTreeMap::from([(0xab, "m1".to_owned())]))
}

#[test]
fn history_prints_the_changes_of_each_decision() {
    let response = &HistoryResponse {
        header: header(),
        decisions: vec![
            decision(5, Some(&[("A", true), ("B", false)])),
            decision(9, Some(&[("A", false), ("B", true)])),
            decision(10, Some(&[("A", false), ("B", true), ("C", false)])),
            decision(12, None),
            ClusterParamsDecision {
                decided_by: 0,
                decided_unix_seconds: 0,
                cause: "migrated offline from 3.8 to 3.7".to_owned(),
                ..decision(14, None)
            },
        ],
    };
    let names = &names();
    let answer = GateAnswer::History { response, names };
    assert_eq!(
        printed(Format::Simple, answer),
        "\
5, 2000-02-29T00:00:00Z, 3.8, m1, A=true, m3 set A=true
9, 2000-02-29T00:00:00Z, 3.8, m1, A=false B=true, m3 set A=true
10, 2000-02-29T00:00:00Z, 3.8, m1, nothing, m3 set A=true
12, 2000-02-29T00:00:00Z, 3.8, m1, B=false, m3 set A=true
14, -, 3.8, -, all removed, migrated offline from 3.8 to 3.7
"
    );
    let json = printed(Format::Json, answer);
    let second = concat!(
        r#"{"index":9,"decided_unix_seconds":951782400,"cluster_version":"3.8","decided_by":171,"#,
        r#""decided_by_name":"m1","features":[{"name":"A","enabled":false},"#,
        r#"{"name":"B","enabled":true}],"changed":[{"name":"A","enabled":false},"#,
        r#"{"name":"B","enabled":true}],"cause":"m3 set A=true"}"#
    );
    assert!(json.contains(second), "{json}");
    let table = printed(Format::Table, answer);
    assert!(table.contains("│ INDEX │"), "{table}");
}

#[test]
fn watched_decision_prints_the_changes_of_the_server() {
    let response = &WatchResponse {
        header: header(),
        decision: Some(decision(9, Some(&[("A", true)]))),
        changed: vec![membershippb::Feature {
            name: "A".to_owned(),
            enabled: true,
        }],
    };
    let names = &names();
    let answer = GateAnswer::Event { response, names };
    let line = "9, 2000-02-29T00:00:00Z, 3.8, m1, A=true, m3 set A=true\n";
    assert_eq!(printed(Format::Simple, answer), line);
    let printer = Printer {
        format: Format::Table,
        hex: false,
        value_only: false,
    };
    // A watch does not end, so it cannot be drawn as a table.
    let failure = printer.render(&Answer::Gate(answer)).unwrap_err();
    assert_eq!(failure.exit.code(), 4);
    for decision in [None, Some(ClusterParamsDecision::default())] {
        let response = &WatchResponse {
            decision,
            ..WatchResponse::default()
        };
        let answer = GateAnswer::Event { response, names };
        assert_eq!(printed(Format::Simple, answer), "nothing was decided yet\n");
    }
}
