//! The decision: pure, total, and the same whatever the order of its inputs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::{ClusterParams, ClusterSpecs, Member, MemberId, Publication};
use crate::registry::{ALL_ALPHA, ALL_BETA, Registry};
use crate::spec::{Spec, Versions};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// What was in force before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Previous {
    /// No params: below the first version that has them, or never decided.
    Absent,
    /// What a new cluster starts with; nothing was decided yet.
    Bootstrap(ClusterParams),
    /// An earlier decision.
    Decided(ClusterParams),
}

impl Previous {
    /// The params, wherever they come from.
    pub fn params(&self) -> Option<&ClusterParams> {
        match self {
            Previous::Absent => None,
            Previous::Bootstrap(params) | Previous::Decided(params) => Some(params),
        }
    }
}

/// What the leader should do, and why each feature is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to do.
    pub outcome: Outcome,
    /// One entry per known or carried feature, sorted by name. Empty while nothing can
    /// be decided.
    pub features: Vec<FeatureDecision>,
}

/// What to do with a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Decide later; what is in force stays.
    Hold(Hold),
    /// It is in force already; propose nothing.
    Unchanged,
    /// Propose these, in one entry with the cluster version.
    Set(ClusterParams),
    /// Propose the version without params: members delete theirs.
    Delete,
}

impl Outcome {
    /// The params in force once this outcome is applied.
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
    /// The cluster version is not known.
    VersionUndecided,
    /// For the first decision every started voter must have published.
    WaitingFor(Vec<MemberId>),
}

/// One feature in a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeatureDecision {
    /// Which.
    pub name: String,
    /// The value; absent where the feature does not exist at the cluster version.
    pub value: Option<bool>,
    /// Why.
    pub reason: Reason,
    /// The spec in force; absent for a carried feature nobody here knows.
    pub spec: Option<Spec>,
    /// What each member said, by member.
    pub votes: Vec<Vote>,
}

impl FeatureDecision {
    /// The voters whose abstention keeps a feature off that is off by default.
    pub(crate) fn missing(&self) -> Vec<MemberId> {
        match self.spec {
            Some(spec) if !spec.default => {
                voters(&self.votes, |ballot| ballot == Ballot::Abstained)
            }
            _ => Vec::new(),
        }
    }
}

/// Why a feature got its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It does not exist at the cluster version, or no longer.
    Absent,
    /// The spec fixes it.
    Lock,
    /// The default, which nobody's word changed.
    Default,
    /// These members set it to false, and one is enough, whatever the default.
    Veto(Vec<MemberId>),
    /// Off by default, and every voter that counts said yes.
    Unanimous,
    /// Off by default; some members set it to true, these set nothing.
    NotUnanimous(Vec<MemberId>),
    /// It would be on, but these that it needs are off.
    Dependency(Vec<String>),
    /// These members published no proposal, so no feature is on.
    Foreign(Vec<MemberId>),
    /// This leader does not know it; the earlier value stays while the version does.
    CarriedOver,
}

/// One member's word on one feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Vote {
    /// Who.
    pub member: MemberId,
    /// What.
    pub ballot: Ballot,
    /// What a learner would say if it were promoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_promoted: Option<Ballot>,
}

/// A vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ballot {
    /// Named the feature.
    Explicit(bool),
    /// Set AllAlpha, and the feature is alpha.
    AllAlpha(bool),
    /// Set AllBeta, and the feature is beta.
    AllBeta(bool),
    /// Said nothing: follows the default.
    Abstained,
    /// A learner; whatever it said does not count.
    Learner,
    /// Has not published; does not count.
    Unpublished,
    /// Published no proposal; counts as a veto on all features.
    Foreign,
}

impl Ballot {
    /// The value it stands for, if it is one.
    pub fn value(self) -> Option<bool> {
        match self {
            Ballot::Explicit(value) | Ballot::AllAlpha(value) | Ballot::AllBeta(value) => {
                Some(value)
            }
            _ => None,
        }
    }
}

/// Decides every cluster feature at a cluster version from what the voters published.
///
/// A feature that can be switched there is on if every voter that counts wants it, where
/// saying nothing means wanting the default. So one explicit `false` turns it off for
/// all, and turning on what is off by default takes every voter. A feature that needs
/// another goes off with it; that is never an error, because an error would stall the cluster.
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
/// let says = |id, shiny| Member {
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
/// let all = decide(&specs, at, &[says(1, true), says(2, true)], &Previous::Absent);
/// assert_eq!(all.features[0].value, Some(true));
/// let veto = decide(&specs, at, &[says(1, true), says(2, false)], &Previous::Absent);
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
    // Learners as well: they apply the log, and one that is no Portunus could not obey.
    let foreign = those(|m| m.publication == Publication::Foreign);
    if foreign.is_empty() && !matches!(previous, Previous::Decided(_)) {
        let waiting = those(|m| m.voter && m.started && m.publication == Publication::Nothing);
        if !waiting.is_empty() {
            return hold(Hold::WaitingFor(waiting));
        }
    }

    let registry = specs.registry();
    let mut features = count(registry, version, &members);
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
        // Until every member proposes for the first time, the mechanism leaves no trace.
        Previous::Absent if !foreign.is_empty() => Outcome::Unchanged,
        Previous::Decided(current) if *current == params => Outcome::Unchanged,
        _ => Outcome::Set(params),
    };
    Decision { outcome, features }
}

/// What a leader proposes about params at a cluster version: [`decide`], except that a leader
/// which itself publishes no proposal never makes the first decision. That one would be
/// all-off, and all-off without earlier params leaves no trace; while a cluster is founded
/// the leader may not have published its attributes yet, so the members alone do not show it.
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

/// Every feature on its own, by position in the registry.
fn count(registry: &Registry, version: MajorMinor, members: &[&Member]) -> Vec<FeatureDecision> {
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

/// Adds one member's ballot to every feature. Flags and names are both sorted, so one
/// walk along the two lists does it.
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
    let mut said = flags.iter().peekable();
    for (name, &index) in registry.positions() {
        while said.next_if(|(other, _)| *other < name).is_some() {}
        let explicit = said
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

/// On if every vote that counts is for it; an abstention is a vote for the default. One
/// `false` is a veto whatever the default is.
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

/// The members with such a ballot, in the order of the votes.
fn voters(votes: &[Vote], wanted: impl Fn(Ballot) -> bool) -> Vec<MemberId> {
    let votes = votes.iter().filter(|vote| wanted(vote.ballot));
    let mut ids: Vec<MemberId> = votes.map(|vote| vote.member).collect();
    ids.dedup();
    ids
}

/// What needs something that is off goes off, in one pass, because needs come first.
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

/// Keys this leader does not know keep their value while the version stays: an older
/// member may still look them up.
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
