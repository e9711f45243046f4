//! The decision of cluster features: pure, total, independent of the order of its inputs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::{ClusterParams, ClusterSpecs, Member, MemberId, Publication};
use crate::registry::{ALL_ALPHA, ALL_BETA, Registry};
use crate::spec::{Spec, Versions};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// The params in force before a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Previous {
    /// No params: below the first version that has them, or never decided.
    Absent,
    /// The params a new cluster starts with; no decision was made yet.
    Bootstrap(ClusterParams),
    /// The params of an earlier decision.
    Decided(ClusterParams),
}

impl Previous {
    /// Returns the params, decided or not.
    pub fn params(&self) -> Option<&ClusterParams> {
        match self {
            Previous::Absent => None,
            Previous::Bootstrap(params) | Previous::Decided(params) => Some(params),
        }
    }
}

/// What the leader should propose, and the reason for each feature's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What the leader should propose.
    pub outcome: Outcome,
    /// One entry per known or carried-over feature, sorted by name. Empty while nothing can
    /// be decided.
    pub features: Vec<FeatureDecision>,
}

/// What the leader should propose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Decide later; the params in force stay.
    Hold(Hold),
    /// The decision is in force already; propose nothing.
    Unchanged,
    /// Propose these params in one entry with the cluster version.
    Set(ClusterParams),
    /// Propose the version without params: members delete theirs.
    Delete,
}

impl Outcome {
    /// Returns the params in force once this outcome is applied.
    pub fn params<'a>(&'a self, previous: &'a Previous) -> Option<&'a ClusterParams> {
        match self {
            Outcome::Hold(_) | Outcome::Unchanged => previous.params(),
            Outcome::Set(params) => Some(params),
            Outcome::Delete => None,
        }
    }
}

/// Why nothing can be decided yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// The cluster version is undecided.
    VersionUndecided,
    /// These started voters have not published; the first decision needs all of them.
    WaitingFor(Vec<MemberId>),
}

/// The decision of one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureDecision {
    /// The feature's name.
    pub name: String,
    /// The value; absent where the feature does not exist at the cluster version.
    pub value: Option<bool>,
    /// The reason for the value.
    pub reason: Reason,
    /// The spec in force; absent for a carried-over feature, which the leader does not know.
    pub spec: Option<Spec>,
    /// The vote of each member, sorted by member.
    pub votes: Vec<Vote>,
}

impl FeatureDecision {
    /// Returns the voters whose abstention keeps a feature off that is off by default.
    pub(crate) fn missing(&self) -> Vec<MemberId> {
        match self.spec {
            Some(spec) if !spec.default => {
                voters(&self.votes, |ballot| ballot == Ballot::Abstained)
            }
            _ => Vec::new(),
        }
    }
}

/// The reason for a feature's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The feature does not exist at the cluster version, or no longer.
    Absent,
    /// The spec locks the value.
    Lock,
    /// The default, which no vote changed.
    Default,
    /// These members set it to false; one is enough, whether the default is on or off.
    Veto(Vec<MemberId>),
    /// Off by default, and every voter that published set it to true.
    Unanimous,
    /// Off by default; some members set it to true, these set nothing.
    NotUnanimous(Vec<MemberId>),
    /// The votes would turn it on, but these dependencies are off.
    Dependency(Vec<String>),
    /// These members published no proposal, so no feature is on.
    Foreign(Vec<MemberId>),
    /// The leader does not know the feature; its value stays while the version stays.
    CarriedOver,
}

/// One member's vote on one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Vote {
    /// The member that votes.
    pub member: MemberId,
    /// The value it votes for, or why its vote is not a value.
    pub ballot: Ballot,
    /// The ballot of a learner if it were promoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_promoted: Option<Ballot>,
}

/// The value of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ballot {
    /// The member set the feature by name.
    Explicit(bool),
    /// The member set AllAlpha, and the feature is alpha.
    AllAlpha(bool),
    /// The member set AllBeta, and the feature is beta.
    AllBeta(bool),
    /// The member set nothing: a vote for the default.
    Abstained,
    /// The member is a learner; its flags do not count.
    Learner,
    /// The member has not published; it does not count.
    Unpublished,
    /// The member published no proposal; a veto on all features.
    Foreign,
}

impl Ballot {
    /// Returns the value that the member set, if any.
    pub fn value(self) -> Option<bool> {
        match self {
            Ballot::Explicit(value) | Ballot::AllAlpha(value) | Ballot::AllBeta(value) => {
                Some(value)
            }
            _ => None,
        }
    }
}

/// Decides every cluster feature at a cluster version from the proposals of the voters.
///
/// An unlocked feature is on if every voter that published votes for it, where an
/// abstention is a vote for the default. So one explicit `false` turns it off for all, and
/// turning on a feature that is off by default takes every voter. A feature whose
/// dependency is off goes off too, without an error, because an error would stall the
/// cluster.
///
/// ```
/// use portunus_gates::cluster::*;
/// use portunus_gates::{Level, MajorMinor, NewFeature, RegistryBuilder, Spec};
///
/// let mut builder = RegistryBuilder::new(Level::Cluster);
/// builder.add(NewFeature::new("Shiny", [Spec::beta("3.7")]))?;
/// let specs = ClusterSpecs::new(
///     builder.build().into(),
///     MajorMinor::literal("3.7"),
///     MajorMinor::literal("3.0"),
/// );
/// let voter = |id, shiny| Member {
///     id: MemberId(id),
///     name: format!("m{id}"),
///     voter: true,
///     started: true,
///     publication: Publication::Proposal(Proposal {
///         version: MajorMinor::literal("3.7"),
///         flags: [("Shiny".to_owned(), shiny)].into(),
///     }),
/// };
/// let at = Some(MajorMinor::literal("3.7"));
/// let all = decide(&specs, at, &[voter(1, true), voter(2, true)], &Previous::Absent);
/// assert_eq!(all.features[0].value, Some(true));
/// let veto = decide(&specs, at, &[voter(1, true), voter(2, false)], &Previous::Absent);
/// assert_eq!(veto.features[0].reason, Reason::Veto(vec![MemberId(2)]));
/// # Ok::<(), portunus_gates::RegisterError>(())
/// ```
pub fn decide(
    specs: &ClusterSpecs,
    cluster_version: Option<MajorMinor>,
    members: &[Member],
    previous: &Previous,
) -> Decision {
    let hold = |why| Decision {
        outcome: Outcome::Hold(why),
        features: Vec::new(),
    };
    let Some(version) = specs.decided(cluster_version) else {
        return hold(Hold::VersionUndecided);
    };
    if version < specs.since() {
        return Decision {
            outcome: match previous {
                Previous::Absent => Outcome::Unchanged,
                _ => Outcome::Delete,
            },
            features: Vec::new(),
        };
    }
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_by(|a, b| (a.id, &a.name).cmp(&(b.id, &b.name)));
    let those = |wanted: fn(&Member) -> bool| -> Vec<MemberId> {
        let wanted = members.iter().filter(|m| wanted(m));
        wanted.map(|m| m.id).collect()
    };
    // Including learners: they apply the log, and a foreign one does not apply the params.
    let foreign = those(|m| m.publication == Publication::Foreign);
    if foreign.is_empty() && !matches!(previous, Previous::Decided(_)) {
        let waiting = those(|m| m.voter && m.started && m.publication == Publication::Nothing);
        if !waiting.is_empty() {
            return hold(Hold::WaitingFor(waiting));
        }
    }

    let registry = specs.registry();
    let mut features = decide_features(registry, version, &members);
    turn_off_dependents(registry, &mut features);
    if !foreign.is_empty() {
        for feature in features
            .iter_mut()
            .filter(|feature| feature.value.is_some())
        {
            feature.value = Some(false);
            feature.reason = Reason::Foreign(foreign.clone());
        }
    }
    carry_over(registry, version, previous, &foreign, &mut features);
    features.sort_by(|a, b| a.name.cmp(&b.name));

    let params = ClusterParams {
        version,
        features: features
            .iter()
            .filter_map(|feature| Some((feature.name.clone(), feature.value?)))
            .collect(),
    };
    let outcome = match previous {
        // Before the first decision, nothing is written while a member is foreign.
        Previous::Absent if !foreign.is_empty() => Outcome::Unchanged,
        Previous::Decided(current) if *current == params => Outcome::Unchanged,
        _ => Outcome::Set(params),
    };
    Decision { outcome, features }
}

/// Returns what a leader proposes at a cluster version: the outcome of [`decide`], except
/// that a leader which itself publishes no proposal never makes the first decision. Such a
/// leader is a foreign member, but while a cluster is founded it may not have published its
/// attributes yet, so the members do not show it.
pub fn leader_outcome(
    specs: &ClusterSpecs,
    cluster_version: MajorMinor,
    members: &[Member],
    previous: &Previous,
    leader_proposes: bool,
) -> Outcome {
    if !leader_proposes && !matches!(previous, Previous::Decided(_)) {
        return Outcome::Unchanged;
    }
    decide(specs, Some(cluster_version), members, previous).outcome
}

/// Decides every feature without regard to dependencies, by position in the registry.
fn decide_features(
    registry: &Registry,
    version: MajorMinor,
    members: &[&Member],
) -> Vec<FeatureDecision> {
    let versions = Versions::exactly(version);
    let mut features: Vec<FeatureDecision> = registry
        .features()
        .iter()
        .map(|feature| FeatureDecision {
            name: feature.name.clone(),
            value: None,
            reason: Reason::Absent,
            spec: Some(feature.at(versions).spec),
            votes: Vec::with_capacity(members.len()),
        })
        .collect();
    for member in members {
        collect_votes(registry, member, &mut features);
    }
    for feature in &mut features {
        let Some(spec) = feature.spec.filter(|spec| spec.stage.exists()) else {
            continue;
        };
        let (value, reason) = if spec.locked {
            (spec.default, Reason::Lock)
        } else {
            tally(spec.default, &feature.votes)
        };
        feature.value = Some(value);
        feature.reason = reason;
    }
    features
}

/// Adds one member's vote to every feature. Flags and names are both sorted, so one pass
/// over the two lists is enough.
fn collect_votes(registry: &Registry, member: &Member, features: &mut [FeatureDecision]) {
    let blanket = match &member.publication {
        Publication::Foreign => Some(Ballot::Foreign),
        _ if !member.voter => Some(Ballot::Learner),
        Publication::Nothing => Some(Ballot::Unpublished),
        Publication::Proposal(_) => None,
    };
    let empty = BTreeMap::new();
    let publishes = matches!(member.publication, Publication::Proposal(_));
    let flags = match &member.publication {
        Publication::Proposal(proposal) => &proposal.flags,
        _ => &empty,
    };
    let (all_alpha, all_beta) = (flags.get(ALL_ALPHA), flags.get(ALL_BETA));
    let mut sorted_flags = flags.iter().peekable();
    for (name, &index) in registry.positions() {
        while sorted_flags.next_if(|(other, _)| *other < name).is_some() {}
        let explicit = sorted_flags
            .next_if(|(other, _)| *other == name)
            .map(|(_, &value)| value);
        let feature = &mut features[index];
        let stage = feature.spec.map(|spec| spec.stage);
        let flagged = match (explicit, stage, all_alpha, all_beta) {
            (Some(value), ..) => Ballot::Explicit(value),
            (None, Some(Stage::Alpha), Some(&value), _) => Ballot::AllAlpha(value),
            (None, Some(Stage::Beta), _, Some(&value)) => Ballot::AllBeta(value),
            _ => Ballot::Abstained,
        };
        feature.votes.push(Vote {
            member: member.id,
            ballot: blanket.unwrap_or(flagged),
            if_promoted: (blanket == Some(Ballot::Learner)).then_some(match publishes {
                true => flagged,
                false => Ballot::Unpublished,
            }),
        });
    }
}

/// Counts votes: on if every vote that counts is for it, where an abstention is a vote for
/// the default. One `false` is a veto whether the default is on or off.
fn tally(default: bool, votes: &[Vote]) -> (bool, Reason) {
    let vetoes = voters(votes, |ballot| ballot.value() == Some(false));
    if !vetoes.is_empty() {
        return (false, Reason::Veto(vetoes));
    }
    let in_favour = votes.iter().any(|vote| vote.ballot.value() == Some(true));
    if default || !in_favour {
        return (default, Reason::Default);
    }
    let missing = voters(votes, |ballot| ballot == Ballot::Abstained);
    if missing.is_empty() {
        (true, Reason::Unanimous)
    } else {
        (false, Reason::NotUnanimous(missing))
    }
}

/// Returns the members with a wanted ballot, in the order of the votes.
fn voters(votes: &[Vote], wanted: impl Fn(Ballot) -> bool) -> Vec<MemberId> {
    let votes = votes.iter().filter(|vote| wanted(vote.ballot));
    let mut ids: Vec<MemberId> = votes.map(|vote| vote.member).collect();
    ids.dedup();
    ids
}

/// Turns off features with a dependency that is off, in one pass in dependency order.
fn turn_off_dependents(registry: &Registry, features: &mut [FeatureDecision]) {
    for &index in registry.dependency_order() {
        if features[index].value != Some(true) {
            continue;
        }
        let off: Vec<String> = registry
            .dependencies(index)
            .iter()
            .filter(|&&needed| features[needed].value != Some(true))
            .map(|&needed| features[needed].name.clone())
            .collect();
        if !off.is_empty() {
            features[index].value = Some(false);
            features[index].reason = Reason::Dependency(off);
        }
    }
}

/// Adds the features of the previous params that this leader does not know. They keep their
/// value while the version stays, because an older member may still read them.
fn carry_over(
    registry: &Registry,
    version: MajorMinor,
    previous: &Previous,
    foreign: &[MemberId],
    features: &mut Vec<FeatureDecision>,
) {
    let Some(params) = previous.params().filter(|params| params.version == version) else {
        return;
    };
    for (name, &value) in &params.features {
        if registry.get(name).is_some() {
            continue;
        }
        let (value, reason) = if foreign.is_empty() {
            (value, Reason::CarriedOver)
        } else {
            (false, Reason::Foreign(foreign.to_vec()))
        };
        features.push(FeatureDecision {
            name: name.clone(),
            value: Some(value),
            reason,
            spec: None,
            votes: Vec::new(),
        });
    }
}
