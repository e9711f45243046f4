//! The status of feature gates: this server's and the cluster's.

use portunus_gates::Status as GateStatus;
use portunus_gates::cluster::Ballot;
use portunus_proto::etcdserverpb::Feature;
use portunus_proto::etcdserverpb::{
    FeatureGateDetail, FeatureGateProposal, FeatureGateStatusRequest, FeatureGateStatusResponse,
    FeatureGateVote,
};
use tonic::{Code, Status};

use super::Api;
use portunus_statemachine::membership::{ParamsDecision, ProposalRecord};
use portunus_statemachine::params::members;

impl Api {
    /// Returns the values of the requested features, or of all that are enabled. An unknown
    /// name is reported as disabled: new clients may query old servers.
    pub(crate) async fn gate_status(
        &self,
        request: FeatureGateStatusRequest,
    ) -> Result<FeatureGateStatusResponse, Status> {
        if request.features.iter().any(String::is_empty) {
            let text = "a feature name is empty";
            return Err(Status::new(Code::InvalidArgument, text));
        }
        if !request.is_server_feature && !request.serializable {
            let barrier = self.member.store.linearizable().await;
            barrier.map_err(|error| self.refuse(error))?;
        }
        let details = match request.is_server_feature {
            true => self.server_details(),
            false => self.cluster_details(),
        };
        let is_on = |name: &str| {
            let known = details.iter().find(|detail| detail.name == name);
            known.is_some_and(|detail| detail.enabled)
        };
        let features = match request.features.is_empty() {
            true => {
                let on = details.iter().filter(|detail| detail.enabled);
                on.map(|detail| feature(&detail.name, true)).collect()
            }
            false => {
                let asked = request.features.iter();
                asked.map(|name| feature(name, is_on(name))).collect()
            }
        };
        let is_wanted = |detail: &FeatureGateDetail| {
            request.features.is_empty() || request.features.contains(&detail.name)
        };
        Ok(FeatureGateStatusResponse {
            header: Some(
                self.member
                    .store
                    .header(self.member.store.reader().revision()),
            ),
            is_server_feature: request.is_server_feature,
            features,
            proposals: match request.all_known && !request.is_server_feature {
                true => self.proposals(),
                false => Vec::new(),
            },
            min_compatibility_version: match request.all_known {
                true => self.member.process.config.version.min_compat().to_string(),
                false => String::new(),
            },
            details: match request.all_known {
                true => {
                    let unknown = self.unknown_details(&request, &details);
                    let known = details.into_iter().filter(is_wanted);
                    known.chain(unknown).collect()
                }
                false => Vec::new(),
            },
        })
    }

    /// Returns a row for each requested name that is no feature of the level at this version.
    fn unknown_details(
        &self,
        request: &FeatureGateStatusRequest,
        known: &[FeatureGateDetail],
    ) -> Vec<FeatureGateDetail> {
        let server = self.member.process.gates.registry();
        let cluster = self.member.cluster.gates.specs().registry();
        let is_known = |name: &str| known.iter().any(|detail| detail.name == name);
        let names = request.features.iter().filter(|name| !is_known(name));
        let (level, here, there, other) = match request.is_server_feature {
            true => ("server", server, cluster, "a cluster feature"),
            false => ("cluster", cluster, server, "a server feature"),
        };
        names
            .map(|name| FeatureGateDetail {
                name: name.clone(),
                level: level.to_owned(),
                source: "unknown".to_owned(),
                reason: if there.get(name).is_some() {
                    format!("{name} is {other}; ask for that level")
                } else if here.get(name).is_some() {
                    format!("{name} does not exist at this version")
                } else {
                    here.unknown(name).to_string()
                },
                ..FeatureGateDetail::default()
            })
            .collect()
    }

    fn server_details(&self) -> Vec<FeatureGateDetail> {
        let statuses = self.member.process.gates.statuses().into_iter();
        statuses
            .map(|status| detail(status, "server", Vec::new()))
            .collect()
    }

    /// Returns the published proposal of every member, and this member's if it is unpublished.
    fn proposals(&self) -> Vec<FeatureGateProposal> {
        let membership = self.member.cluster.membership();
        let own_id = self.member.cluster.own_id().0;
        let published = membership.iter().filter_map(|record| {
            let published = record.proposal.as_ref()?;
            Some(proposal(record.id, published, true))
        });
        let mut proposals: Vec<FeatureGateProposal> = published.collect();
        if !proposals.iter().any(|it| it.member_id == own_id)
            && let Some(own) = self.member.cluster.gates.own_flags()
        {
            proposals.push(proposal(own_id, own, false));
        }
        proposals
    }

    fn cluster_details(&self) -> Vec<FeatureGateDetail> {
        let membership = self.member.cluster.membership();
        let Some(version) = membership.cluster_version else {
            return Vec::new();
        };
        let gates = &self.member.cluster.gates;
        let decision = gates.decide(&membership, version);
        let in_force = gates.in_force(&membership);
        let statuses = gates
            .specs()
            .statuses(in_force, &decision, &members(&membership));
        let votes = |name: &str| {
            let decided = decision.features.iter().find(|it| it.name == name);
            let votes = decided.map(|decided| decided.votes.iter()).into_iter();
            let votes = votes.flatten().map(|vote| FeatureGateVote {
                member_id: vote.member.0,
                vote: word(vote.ballot).to_owned(),
                if_promoted: vote.if_promoted.map_or("", word).to_owned(),
            });
            votes.collect()
        };
        statuses
            .into_iter()
            .map(|status| {
                let votes = votes(&status.name);
                let since = value_since(&membership.history, &status.name, status.enabled);
                FeatureGateDetail {
                    since_index: since,
                    ..detail(status, "cluster", votes)
                }
            })
            .collect()
    }
}

/// Returns the index of the decision that gave a feature its value, among the decisions that
/// are kept.
fn value_since(history: &[ParamsDecision], name: &str, enabled: bool) -> u64 {
    let value = |decision: &ParamsDecision| {
        let features = decision
            .params
            .iter()
            .flat_map(|params| &params.feature_gates);
        let mut on = features.filter(|feature| feature.enabled);
        on.any(|feature| feature.name == name)
    };
    let same = history.iter().rev().take_while(|it| value(it) == enabled);
    same.last().map_or(0, |decision| decision.index)
}

fn proposal(member_id: u64, record: &ProposalRecord, published: bool) -> FeatureGateProposal {
    let flags = record.flags.iter();
    FeatureGateProposal {
        member_id,
        version: record.version.clone(),
        feature_gates: flags.map(|(name, value)| feature(name, *value)).collect(),
        published,
    }
}

fn feature(name: &str, enabled: bool) -> Feature {
    Feature {
        name: name.to_owned(),
        enabled,
    }
}

fn detail(status: GateStatus, level: &str, votes: Vec<FeatureGateVote>) -> FeatureGateDetail {
    FeatureGateDetail {
        name: status.name,
        level: level.to_owned(),
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

fn word(ballot: Ballot) -> &'static str {
    match ballot {
        Ballot::Explicit(true) => "true",
        Ballot::Explicit(false) => "false",
        Ballot::AllAlpha(true) => "AllAlpha=true",
        Ballot::AllAlpha(false) => "AllAlpha=false",
        Ballot::AllBeta(true) => "AllBeta=true",
        Ballot::AllBeta(false) => "AllBeta=false",
        Ballot::Abstained => "default",
        Ballot::Learner => "learner",
        Ballot::Unpublished => "unpublished",
        Ballot::Foreign => "foreign",
    }
}
