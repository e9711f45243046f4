//! Explanations and plans from replies that are made by the rules of the server.

use portunus_features::{ClusterFeatureGate, OwnFeatures};
use portunus_gates::cluster::{
    Ballot, ClusterParams, InForce, Member as Voter, MemberId, Outcome, Previous, Proposal,
    Publication, decide,
};
use portunus_gates::{Assignments, MajorMinor, Origin, Status, Versions};
use portunus_proto::etcdserverpb::{
    FeatureGateDetail, FeatureGateStatusResponse, FeatureGateVote, Member, ResponseHeader,
    StatusResponse,
};

use super::collect::{ClusterReport, MemberReport, Replies};
use super::explain::detail_of;

mod explain;
mod plan;

const MECHANISM: &str = "ClusterFeatureGate=true";
const CHECKPOINT: &str = "LeaseCheckpoint=true";

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

fn detail(status: &Status, votes: Vec<FeatureGateVote>) -> FeatureGateDetail {
    FeatureGateDetail {
        since_index: status.since_index.unwrap_or(0),
        votes,
        ..detail_of(status)
    }
}

fn vote_text(ballot: Ballot) -> String {
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
fn report_of(cluster_version: &str, nodes: &[Node]) -> ClusterReport {
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
            vote: vote_text(vote.ballot),
            if_promoted: vote.if_promoted.map(vote_text).unwrap_or_default(),
        });
        votes.collect()
    };
    let statuses = specs.statuses(in_force, &decision, &voters).into_iter();
    let cluster = FeatureGateStatusResponse {
        details: statuses
            .map(|status| {
                let votes = votes(&status.name);
                detail(&status, votes)
            })
            .collect(),
        ..FeatureGateStatusResponse::default()
    };
    ClusterReport {
        members: nodes
            .iter()
            .map(|node| member_report_of(node, cluster_version, &own))
            .collect(),
        cluster: Some(cluster),
    }
}

fn member_report_of(node: &Node, cluster_version: &str, own: &OwnFeatures) -> MemberReport {
    let versions = Versions::emulating(version(node.version));
    let gates = own.server.gates(versions, &flags(node.server)).unwrap();
    let statuses = gates.statuses().into_iter();
    let replies = Replies {
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
            details: statuses.map(|status| detail(&status, Vec::new())).collect(),
            ..FeatureGateStatusResponse::default()
        }),
        cluster: None,
    };
    MemberReport {
        member: Member {
            id: node.id,
            name: format!("m{}", node.id),
            is_learner: node.learner,
            ..Member::default()
        },
        replies: match node.answers {
            true => Ok(replies),
            false => Err("connection refused".to_owned()),
        },
    }
}
