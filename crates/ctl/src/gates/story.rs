//! The explanation of a feature: why it has its value, each member's vote, and the next command.
//!
//! The state and its reason are those that the servers report. What they do not send, such as what
//! the feature does and what it needs, comes from this program's declarations.

use portunus_features::OwnFeatures;
use portunus_gates::cluster::{InForce, Member, MemberId, decide};
use portunus_gates::{
    Explanation, MIN_COMPAT_FLAG, MajorMinor, Registered, UnknownFeature, Versions,
};
use portunus_proto::etcdserverpb::FeatureGateDetail;

use super::next;
use super::picture::Picture;
use super::survey::Survey;

/// A feature, explained.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
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
    pub members: Vec<Word>,
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
pub struct Word {
    /// The id of the member.
    pub member_id: u64,
    /// Its name.
    pub name: String,
    /// The vote, or the value with its reason.
    pub word: String,
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
pub fn tell(
    survey: &Survey,
    picture: &Picture,
    own: &OwnFeatures,
    name: &str,
) -> Result<Story, UnknownFeature> {
    let details = survey.cluster.iter().flat_map(|cluster| &cluster.details);
    let detail = details.into_iter().find(|detail| detail.name == name);
    let feature = own.cluster.registry().get(name);
    if detail.is_some() || feature.is_some() {
        let mut story = of_cluster(picture, own, name, detail)?;
        if let Some(feature) = feature {
            written_by(&mut story, survey, picture, feature);
        }
        return Ok(story);
    }
    of_servers(survey, picture, own, name)
}

fn of_cluster(
    picture: &Picture,
    own: &OwnFeatures,
    name: &str,
    detail: Option<&FeatureGateDetail>,
) -> Result<Story, UnknownFeature> {
    let specs = own.cluster_specs();
    let fleet = &picture.fleet;
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
        (Err(unknown), _) => return unknown_here(picture, detail, unknown),
        (Ok(_), None) => return Err(specs.registry().unknown(name)),
    };
    let mut story = known(explained, detail);
    story.members = words(picture, &story.detail);
    let decided = decision.features.iter().find(|it| it.name == name);
    let enabled = story.detail.enabled;
    story.next = next::for_cluster(picture, feature, &decision, decided, enabled);
    story.assumptions = picture.assumptions.clone();
    Ok(story)
}

/// Adds which voting members write nothing with a feature that exists at the cluster version,
/// why, and how to change that.
fn written_by(story: &mut Story, survey: &Survey, picture: &Picture, feature: &Registered) {
    let version = picture.fleet.cluster_version.unwrap_or(MajorMinor::ZERO);
    let exists = feature.at(Versions::exactly(version)).spec.stage.exists();
    let Some(since) = feature.readable_since.filter(|_| exists) else {
        return;
    };
    story.readable_since = Some(since);
    let voters = survey.members.iter().filter(|it| !it.member.is_learner);
    let told = voters.filter_map(|it| Some((it.member.id, it.min_compat()?)));
    let told: Vec<(u64, MajorMinor)> = told.collect();
    let unable = told
        .iter()
        .filter(|(_, min_compat)| feature.unwritten(*min_compat).is_some());
    story.not_written_by = unable
        .map(|(id, min_compat)| NotWriting {
            member_id: *id,
            name: picture.name_of(MemberId(*id)),
            min_compat: *min_compat,
        })
        .collect();
    let members = &story.not_written_by;
    let Some(first) = members.first() else {
        return;
    };
    let names: Vec<&str> = members.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    let who = match (members.len() == told.len(), members.len()) {
        (true, _) => "no member that answers writes anything".to_owned(),
        (false, 1) => format!("{names} writes nothing"),
        (false, _) => format!("{names} write nothing"),
    };
    let when = if story.detail.enabled {
        ""
    } else {
        "even while it is on, "
    };
    let versions = members.iter();
    let versions: Vec<String> = versions
        .map(|it| format!("{} at {}", it.min_compat, it.name))
        .collect();
    story.not_written = Some(format!(
        "{when}{who} with it: only {since} and later can read that, and the minimum \
         compatibility version is {}",
        versions.join(", ")
    ));
    let restart = format!("restart {names} with --{MIN_COMPAT_FLAG}={since}");
    if !story.detail.enabled {
        story.to_change.push(restart);
    } else {
        story.to_change.insert(0, restart);
        story.next = format!(
            "portctl gate plan restart {} --{MIN_COMPAT_FLAG}={since}",
            first.name
        );
    }
}

/// Explains a feature that the servers know and this program, which is older, does not.
fn unknown_here(
    picture: &Picture,
    detail: Option<&FeatureGateDetail>,
    unknown: UnknownFeature,
) -> Result<Story, UnknownFeature> {
    let detail = detail.ok_or(unknown)?;
    Ok(Story {
        enabled: Some(detail.enabled),
        members: words(picture, detail),
        assumptions: picture.assumptions.clone(),
        next: "portctl version".to_owned(),
        detail: detail.clone(),
        ..Story::default()
    })
}

fn of_servers(
    survey: &Survey,
    picture: &Picture,
    own: &OwnFeatures,
    name: &str,
) -> Result<Story, UnknownFeature> {
    let registry = own.server.registry();
    let feature = registry.get(name);
    let mut stories: Vec<(MemberId, Story)> = Vec::new();
    for surveyed in &survey.members {
        let id = MemberId(surveyed.member.id);
        let reply = surveyed
            .said
            .as_ref()
            .ok()
            .and_then(|it| it.server.as_ref());
        let (Some(reply), Some(member)) = (reply, picture.member(id)) else {
            continue;
        };
        let detail = reply.details.iter().find(|detail| detail.name == name);
        let gates = own.server.gates(member.versions(), &member.server_flags);
        let explained = gates.ok().and_then(|gates| gates.explain(name).ok());
        let story = match (explained, detail) {
            (Some(explained), detail) => known(explained, detail),
            (None, Some(detail)) => unknown_here(picture, Some(detail), registry.unknown(name))?,
            (None, None) => continue,
        };
        stories.push((id, story));
    }
    let Some((_, first)) = stories.first() else {
        return Err(either_unknown(own, name, feature));
    };
    let mut story = first.clone();
    let differ = stories
        .iter()
        .any(|(_, other)| other.enabled != story.enabled);
    story.enabled = story.enabled.filter(|_| !differ);
    story.members = stories
        .iter()
        .map(|(id, story)| word_of(picture, *id, story))
        .collect();
    // Where members differ, the one that has it off is the one to change.
    let to_change = stories
        .iter()
        .find(|(_, it)| !differ || it.enabled == Some(false));
    let to_change = to_change.and_then(|(id, it)| Some((picture.member(*id)?, it)));
    if let (Some((member, it)), Some(feature)) = (to_change, feature) {
        story.next = next::for_server(member, feature, it.detail.enabled);
        story.to_change = it.to_change.clone();
    }
    story.assumptions = picture.assumptions.clone();
    Ok(story)
}

fn word_of(picture: &Picture, id: MemberId, story: &Story) -> Word {
    let on = if story.detail.enabled { "on" } else { "off" };
    Word {
        member_id: id.0,
        name: picture.name_of(id),
        word: format!("{on}: {}", story.detail.reason),
    }
}

/// The error for a feature that no member reports. If this program knows it, no member that
/// knows it answered.
fn either_unknown(own: &OwnFeatures, name: &str, feature: Option<&Registered>) -> UnknownFeature {
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
fn known(explained: Explanation, detail: Option<&FeatureGateDetail>) -> Story {
    let status = explained.status;
    let detail = detail.cloned().unwrap_or_else(|| FeatureGateDetail {
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
    });
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
    Story {
        enabled: Some(detail.enabled),
        what: explained.doc.lines().next().unwrap_or_default().to_owned(),
        spec,
        inert: status.inert,
        needs: needs.map(|need| (need.name, need.enabled)).collect(),
        to_change: explained.to_change,
        detail,
        ..Story::default()
    }
}

fn words(picture: &Picture, detail: &FeatureGateDetail) -> Vec<Word> {
    let votes = detail.votes.iter();
    votes
        .map(|vote| Word {
            member_id: vote.member_id,
            name: picture.name_of(MemberId(vote.member_id)),
            word: match vote.if_promoted.as_str() {
                "" => vote.vote.clone(),
                later => format!("{} ({later} if promoted)", vote.vote),
            },
        })
        .collect()
}
