//! The explanation of a feature: why it has its value, each member's vote, and the next command.
//!
//! The state and its reason are those that the servers report. What they do not send, such as what
//! the feature does and what it needs, comes from this program's declarations.

use portunus_features::OwnFeatures;
use portunus_gates::cluster::{InForce, Member, MemberId, decide};
use portunus_gates::{
    Explanation, MIN_COMPAT_FLAG, MajorMinor, Registered, Status, UnknownFeature, Versions,
};
use portunus_proto::etcdserverpb::FeatureGateDetail;

use super::collect::ClusterReport;
use super::fleet::ObservedFleet;
use super::next_command;

/// A feature, explained.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FeatureExplanation {
    /// The value in force. Of a server feature, that of the first member.
    pub detail: FeatureGateDetail,
    /// Whether it is on: everywhere, nowhere, or `None` where members differ.
    pub enabled: Option<bool>,
    /// What it does; empty if this program does not know it.
    pub what: String,
    /// Which entry of its history applies.
    pub spec: String,
    /// Why it has no effect, if so.
    pub inert: Option<String>,
    /// Each member's vote on a cluster feature, or its value of a server feature.
    pub members: Vec<MemberVote>,
    /// What it needs, and whether that is on.
    pub needs: Vec<(String, bool)>,
    /// The first version that can read what members write with it, if not every version can.
    pub readable_since: Option<MajorMinor>,
    /// Voting members that write nothing with it while it is on.
    pub not_written_by: Vec<NotWriting>,
    /// A sentence about these members; `None` if every voting member that answers writes with it.
    pub not_written: Option<String>,
    /// What an operator could do to change it, the likeliest first.
    pub to_change: Vec<String>,
    /// The assumptions, one sentence each.
    pub assumptions: Vec<String>,
    /// The next command to type.
    pub next: String,
}

/// One member's vote on a cluster feature, or its value of a server feature.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberVote {
    /// The id of the member.
    pub member_id: u64,
    /// Its name.
    pub name: String,
    /// The vote, or the value with its reason.
    pub vote: String,
}

/// A member that writes nothing with a feature, because its minimum compatibility version could
/// not read that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotWriting {
    /// The id of the member.
    pub member_id: u64,
    /// Its name.
    pub name: String,
    /// Its minimum compatibility version.
    pub min_compat: MajorMinor,
}

/// Explains a feature of either level.
pub fn explain(
    report: &ClusterReport,
    observed: &ObservedFleet,
    own: &OwnFeatures,
    name: &str,
) -> Result<FeatureExplanation, UnknownFeature> {
    let details = report.cluster.iter().flat_map(|cluster| &cluster.details);
    let detail = details.into_iter().find(|detail| detail.name == name);
    let feature = own.cluster.registry().get(name);
    if detail.is_some() || feature.is_some() {
        let mut explanation = explain_cluster_feature(observed, own, name, detail)?;
        if let Some(feature) = feature {
            add_writers(&mut explanation, report, observed, feature);
        }
        return Ok(explanation);
    }
    explain_server_feature(report, observed, own, name)
}

fn explain_cluster_feature(
    observed: &ObservedFleet,
    own: &OwnFeatures,
    name: &str,
    detail: Option<&FeatureGateDetail>,
) -> Result<FeatureExplanation, UnknownFeature> {
    let specs = own.cluster_specs();
    let fleet = &observed.fleet;
    let members = fleet.members.iter().map(|it| it.member.clone());
    let members: Vec<Member> = members.collect();
    let in_force = InForce {
        params: fleet.previous.params(),
        cluster_version: fleet.cluster_version,
        since_index: None,
    };
    let decision = decide(&specs, fleet.cluster_version, &members, &fleet.previous);
    let explained = specs.explain(name, in_force, &decision, &members);
    let (explained, feature) = match (explained, specs.registry().get(name)) {
        (Ok(explained), Some(feature)) => (explained, feature),
        (Err(unknown), _) => return explain_from_detail(observed, detail, unknown),
        (Ok(_), None) => return Err(specs.registry().unknown(name)),
    };
    let mut explanation = with_detail(explained, detail);
    explanation.members = votes(observed, &explanation.detail);
    let decided = decision.features.iter().find(|it| it.name == name);
    let enabled = explanation.detail.enabled;
    explanation.next = next_command::for_cluster(observed, feature, &decision, decided, enabled);
    explanation.assumptions = observed.assumptions.clone();
    Ok(explanation)
}

/// Adds which voting members write nothing with a feature that exists at the cluster version,
/// why, and how to change that.
fn add_writers(
    explanation: &mut FeatureExplanation,
    report: &ClusterReport,
    observed: &ObservedFleet,
    feature: &Registered,
) {
    let version = observed.fleet.cluster_version.unwrap_or(MajorMinor::ZERO);
    let exists = feature.at(Versions::exactly(version)).spec.stage.exists();
    let Some(since) = feature.readable_since.filter(|_| exists) else {
        return;
    };
    explanation.readable_since = Some(since);
    let voters = report.members.iter().filter(|it| !it.member.is_learner);
    let reported = voters.filter_map(|it| Some((it.member.id, it.min_compat()?)));
    let reported: Vec<(u64, MajorMinor)> = reported.collect();
    let unable = reported
        .iter()
        .filter(|(_, min_compat)| feature.unwritten(*min_compat).is_some());
    explanation.not_written_by = unable
        .map(|(id, min_compat)| NotWriting {
            member_id: *id,
            name: observed.name_of(MemberId(*id)),
            min_compat: *min_compat,
        })
        .collect();
    let members = &explanation.not_written_by;
    let Some(first) = members.first() else {
        return;
    };
    let names: Vec<&str> = members.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    let who = match (members.len() == reported.len(), members.len()) {
        (true, _) => "no member that answers writes anything".to_owned(),
        (false, 1) => format!("{names} writes nothing"),
        (false, _) => format!("{names} write nothing"),
    };
    let when = if explanation.detail.enabled {
        ""
    } else {
        "even while it is on, "
    };
    let versions = members.iter();
    let versions: Vec<String> = versions
        .map(|it| format!("{} at {}", it.min_compat, it.name))
        .collect();
    explanation.not_written = Some(format!(
        "{when}{who} with it: only {since} and later can read that, and the minimum \
         compatibility version is {}",
        versions.join(", ")
    ));
    let restart = format!("restart {names} with --{MIN_COMPAT_FLAG}={since}");
    if !explanation.detail.enabled {
        explanation.to_change.push(restart);
    } else {
        explanation.to_change.insert(0, restart);
        explanation.next = format!(
            "portctl gate plan restart {} --{MIN_COMPAT_FLAG}={since}",
            first.name
        );
    }
}

/// Explains a feature that the servers know and this program, which is older, does not.
fn explain_from_detail(
    observed: &ObservedFleet,
    detail: Option<&FeatureGateDetail>,
    unknown: UnknownFeature,
) -> Result<FeatureExplanation, UnknownFeature> {
    let detail = detail.ok_or(unknown)?;
    Ok(FeatureExplanation {
        enabled: Some(detail.enabled),
        members: votes(observed, detail),
        assumptions: observed.assumptions.clone(),
        next: "portctl version".to_owned(),
        detail: detail.clone(),
        ..FeatureExplanation::default()
    })
}

fn explain_server_feature(
    report: &ClusterReport,
    observed: &ObservedFleet,
    own: &OwnFeatures,
    name: &str,
) -> Result<FeatureExplanation, UnknownFeature> {
    let registry = own.server.registry();
    let feature = registry.get(name);
    let mut explanations: Vec<(MemberId, FeatureExplanation)> = Vec::new();
    for member_report in &report.members {
        let id = MemberId(member_report.member.id);
        let reply = member_report
            .replies
            .as_ref()
            .ok()
            .and_then(|it| it.server.as_ref());
        let (Some(reply), Some(member)) = (reply, observed.member(id)) else {
            continue;
        };
        let detail = reply.details.iter().find(|detail| detail.name == name);
        let gates = own.server.gates(member.versions(), &member.server_flags);
        let explained = gates.ok().and_then(|gates| gates.explain(name).ok());
        let explanation = match (explained, detail) {
            (Some(explained), detail) => with_detail(explained, detail),
            (None, Some(detail)) => {
                explain_from_detail(observed, Some(detail), registry.unknown(name))?
            }
            (None, None) => continue,
        };
        explanations.push((id, explanation));
    }
    let Some((_, first)) = explanations.first() else {
        return Err(unknown_feature(own, name, feature));
    };
    let mut explanation = first.clone();
    let differ = explanations
        .iter()
        .any(|(_, other)| other.enabled != explanation.enabled);
    explanation.enabled = explanation.enabled.filter(|_| !differ);
    explanation.members = explanations
        .iter()
        .map(|(id, explanation)| server_value_of(observed, *id, explanation))
        .collect();
    // Where members differ, the one that has it off is the one to change.
    let to_change = explanations
        .iter()
        .find(|(_, it)| !differ || it.enabled == Some(false));
    let to_change = to_change.and_then(|(id, it)| Some((observed.member(*id)?, it)));
    if let (Some((member, it)), Some(feature)) = (to_change, feature) {
        explanation.next = next_command::for_server(member, feature, it.detail.enabled);
        explanation.to_change = it.to_change.clone();
    }
    explanation.assumptions = observed.assumptions.clone();
    Ok(explanation)
}

fn server_value_of(
    observed: &ObservedFleet,
    id: MemberId,
    explanation: &FeatureExplanation,
) -> MemberVote {
    let on = if explanation.detail.enabled {
        "on"
    } else {
        "off"
    };
    MemberVote {
        member_id: id.0,
        name: observed.name_of(id),
        vote: format!("{on}: {}", explanation.detail.reason),
    }
}

/// The error for a feature that no member reports. If this program knows it, no member that
/// knows it answered.
fn unknown_feature(own: &OwnFeatures, name: &str, feature: Option<&Registered>) -> UnknownFeature {
    let mut unknown = own.server.registry().unknown(name);
    if feature.is_some() {
        unknown.hint = "it is a server feature, and no member that knows it answers".to_owned();
    } else if !unknown.hint.starts_with("did you mean") {
        let other = own.cluster.registry().unknown(name);
        unknown.hint = match other.hint.starts_with("did you mean") {
            true => other.hint,
            false => "see `portctl gate list`".to_owned(),
        };
    }
    unknown
}

/// Uses the server's detail if there is one, else that of this program's declarations.
fn with_detail(explained: Explanation, detail: Option<&FeatureGateDetail>) -> FeatureExplanation {
    let status = explained.status;
    let detail = detail.cloned().unwrap_or_else(|| detail_of(&status));
    let spec = match explained.spec_entry {
        Some(entry) => format!(
            "entry {} of {}: {} since {}",
            entry + 1,
            explained.history.len(),
            detail.stage,
            explained.spec.version
        ),
        None => "none applies yet".to_owned(),
    };
    let needs = explained.needs.into_iter();
    FeatureExplanation {
        enabled: Some(detail.enabled),
        what: explained.doc.lines().next().unwrap_or_default().to_owned(),
        spec,
        inert: status.inert,
        needs: needs.map(|need| (need.name, need.enabled)).collect(),
        to_change: explained.to_change,
        detail,
        ..FeatureExplanation::default()
    }
}

/// The detail of a status as a server sends it, without index and votes.
pub fn detail_of(status: &Status) -> FeatureGateDetail {
    FeatureGateDetail {
        name: status.name.clone(),
        level: status.level.text().to_owned(),
        enabled: status.enabled,
        stage: status.stage.to_string(),
        default: status.default,
        locked: status.locked,
        explicit: status.explicit,
        source: status.source.to_string(),
        reason: status.reason.clone(),
        version_used: status.version_used.to_string(),
        since_index: 0,
        votes: Vec::new(),
    }
}

fn votes(observed: &ObservedFleet, detail: &FeatureGateDetail) -> Vec<MemberVote> {
    let votes = detail.votes.iter();
    votes
        .map(|vote| MemberVote {
            member_id: vote.member_id,
            name: observed.name_of(MemberId(vote.member_id)),
            vote: match vote.if_promoted.as_str() {
                "" => vote.vote.clone(),
                later => format!("{} ({later} if promoted)", vote.vote),
            },
        })
        .collect()
}
