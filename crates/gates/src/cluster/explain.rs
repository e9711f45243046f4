//! Explanations of cluster features: each member's vote, the members that block, next steps.

use crate::cluster::{
    Ballot, ClusterParams, ClusterSpecs, Decision, FeatureDecision, Hold, Member, MemberId,
    Outcome, Reason,
};
use crate::registry::{Registered, UnknownFeature};
use crate::resolve::Source;
use crate::spec::Versions;
use crate::stage::Stage;
use crate::status::{Explanation, Related, Setting, Status, absence_reason, version_options};
use crate::version::MajorMinor;

/// The params in force, with the log index that set them.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'a> {
    /// The params; absent below the first version that has them.
    pub params: Option<&'a ClusterParams>,
    /// The cluster version, if decided.
    pub cluster_version: Option<MajorMinor>,
    /// The log index of the entry that set them, if known.
    pub since_index: Option<u64>,
}

impl ClusterSpecs {
    /// Returns one row per feature that exists at the cluster version, sorted by name.
    pub fn statuses(
        &self,
        in_force: InForce<'_>,
        decision: &Decision,
        members: &[Member],
    ) -> Vec<Status> {
        let version = in_force.cluster_version.unwrap_or(MajorMinor::ZERO);
        self.registry()
            .sorted()
            .filter(|feature| feature.at(Versions::exactly(version)).spec.stage.exists())
            .map(|feature| self.status(feature, in_force, decision, members))
            .collect()
    }

    /// Explains the value of a feature. `decision` is the result of [`decide`](super::decide)
    /// for the present members and gives the reason, while `in_force` gives the value.
    pub fn explain(
        &self,
        name: &str,
        in_force: InForce<'_>,
        decision: &Decision,
        members: &[Member],
    ) -> Result<Explanation, UnknownFeature> {
        let registry = self.registry();
        let Some(feature) = registry.get(name) else {
            return Err(registry.unknown(name));
        };
        let version = in_force.cluster_version.unwrap_or(MajorMinor::ZERO);
        let versions = Versions::exactly(version);
        let selected = feature.at(versions);
        let status = self.status(feature, in_force, decision, members);
        let related = |name: &str| Related {
            name: name.to_owned(),
            enabled: in_force
                .params
                .is_some_and(|params| params.enabled(registry, name)),
        };
        let decided = find_feature(decision, name);
        let mut to_change = change_options(feature, decided, decision, members, status.enabled);
        to_change.extend(version_options(
            feature,
            selected.spec,
            versions,
            !status.enabled,
        ));
        Ok(Explanation {
            doc: feature.doc.clone(),
            owner: feature.owner.clone(),
            touches: feature.touches,
            reversible: feature.reversible,
            spec: selected.spec,
            spec_entry: selected.entry,
            history: feature.specs.clone(),
            versions,
            settings: decided.map_or_else(Vec::new, |decided| member_settings(decided, members)),
            needs: feature
                .depends_on
                .iter()
                .map(|name| related(name))
                .collect(),
            needed_by: registry
                .sorted()
                .filter(|other| other.depends_on.contains(&feature.name))
                .map(|other| related(&other.name))
                .collect(),
            to_change,
            unwritten: None,
            status,
        })
    }

    fn status(
        &self,
        feature: &Registered,
        in_force: InForce<'_>,
        decision: &Decision,
        members: &[Member],
    ) -> Status {
        let version = in_force.cluster_version.unwrap_or(MajorMinor::ZERO);
        let spec = feature.at(Versions::exactly(version)).spec;
        let decided = find_feature(decision, &feature.name);
        let votes = decided.map_or(&[][..], |decided| &decided.votes);
        Status {
            name: feature.name.clone(),
            level: feature.level,
            enabled: in_force
                .params
                .is_some_and(|params| params.enabled(self.registry(), &feature.name)),
            stage: spec.stage,
            default: spec.default,
            locked: spec.locked,
            explicit: votes
                .iter()
                .any(|vote| matches!(vote.ballot, Ballot::Explicit(_))),
            source: match decided.map(|decided| &decided.reason) {
                Some(Reason::Absent) => Source::Absent,
                Some(Reason::Lock) => Source::Lock,
                Some(Reason::Default) => Source::Default,
                Some(Reason::Dependency(_)) => Source::Dependency,
                Some(_) => Source::Consensus,
                None if spec.stage.exists() => Source::Default,
                None => Source::Absent,
            },
            reason: reason(feature, decided, decision, members, version, self.since()),
            version_used: version,
            since_index: in_force.since_index,
            inert: feature.inert.clone(),
        }
    }
}

pub(crate) fn find_feature<'a>(decision: &'a Decision, name: &str) -> Option<&'a FeatureDecision> {
    decision
        .features
        .iter()
        .find(|feature| feature.name == name)
}

pub(crate) fn reason(
    feature: &Registered,
    decided: Option<&FeatureDecision>,
    decision: &Decision,
    members: &[Member],
    version: MajorMinor,
    since: MajorMinor,
) -> String {
    let names = |ids: &[MemberId]| member_names(ids, members);
    let Some(decided) = decided else {
        return match &decision.outcome {
            Outcome::Hold(Hold::WaitingFor(ids)) => format!(
                "a new cluster keeps alpha and beta features off until every member has published its flags; waiting for {}",
                names(ids)
            ),
            Outcome::Hold(Hold::VersionUndecided) => {
                "the cluster version is not decided yet".to_owned()
            }
            _ => format!(
                "clusters have features of their own from version {since} on, not at {version}"
            ),
        };
    };
    match &decided.reason {
        Reason::Absent => absence_reason(feature, version),
        Reason::Lock => {
            let spec = decided.spec.map_or(MajorMinor::ZERO, |spec| spec.version);
            format!("locked to {} since {spec}", decided.value == Some(true))
        }
        Reason::Default => {
            let stage = decided.spec.map_or(Stage::PreAlpha, |spec| spec.stage);
            format!("the default of its {stage} stage at cluster version {version}")
        }
        Reason::Veto(ids) => {
            let veto = format!("{} set it to false, and one veto is enough", names(ids));
            match decided.missing().as_slice() {
                [] => veto,
                missing => format!(
                    "{veto}; it is off by default, and {} did not set it to true",
                    names(missing)
                ),
            }
        }
        Reason::Unanimous => "every voting member set it to true".to_owned(),
        Reason::NotUnanimous(ids) => {
            format!(
                "it is off by default and {} did not set it to true",
                names(ids)
            )
        }
        Reason::Dependency(needs) => format!("it needs {}, which is off", needs.join(", ")),
        Reason::Foreign(ids) => format!(
            "{} published no proposal (ClusterFeatureGate is off there, or cluster features are \
             not known), so no feature is on",
            names(ids)
        ),
        Reason::CarriedOver => {
            "kept from an earlier decision: the leader does not know it".to_owned()
        }
    }
}

fn member_names(ids: &[MemberId], members: &[Member]) -> String {
    let name = |id: &MemberId| {
        members
            .iter()
            .find(|member| member.id == *id)
            .map_or_else(|| id.to_string(), Member::display_name)
    };
    ids.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn member_settings(decided: &FeatureDecision, members: &[Member]) -> Vec<Setting> {
    let locked = decided
        .spec
        .is_some_and(|spec| spec.locked || !spec.stage.exists());
    decided
        .votes
        .iter()
        .filter_map(|vote| {
            let via = match vote.ballot {
                Ballot::AllAlpha(_) => " through AllAlpha",
                Ballot::AllBeta(_) => " through AllBeta",
                _ => "",
            };
            Some(Setting {
                by: format!("member {}{via}", member_names(&[vote.member], members)),
                value: vote.ballot.value()?,
                counts: !locked,
            })
        })
        .collect()
}

fn change_options(
    feature: &Registered,
    decided: Option<&FeatureDecision>,
    decision: &Decision,
    members: &[Member],
    enabled: bool,
) -> Vec<String> {
    let flag = feature.level.flag();
    let name = &feature.name;
    let is_off_by_default = decided
        .and_then(|decided| decided.spec)
        .is_some_and(|spec| !spec.default);
    match decided.map(|decided| &decided.reason) {
        None => match &decision.outcome {
            Outcome::Hold(Hold::WaitingFor(ids)) => {
                vec![format!("start {}", member_names(ids, members))]
            }
            _ => Vec::new(),
        },
        Some(Reason::Foreign(ids)) => vec![format!(
            "restart {0} with --feature-gates=ClusterFeatureGate=true, or replace {0} if it does \
             not know cluster features",
            member_names(ids, members)
        )],
        Some(Reason::Veto(ids)) if is_off_by_default => {
            let missing = decided.map_or_else(Vec::new, FeatureDecision::missing);
            let ids: Vec<MemberId> = ids.iter().copied().chain(missing).collect();
            vec![format!(
                "restart {} with {flag}={name}=true",
                member_names(&ids, members)
            )]
        }
        Some(Reason::Veto(ids)) => vec![format!(
            "restart {} without {flag}={name}=false",
            member_names(ids, members)
        )],
        Some(Reason::NotUnanimous(ids)) => vec![format!(
            "restart {} with {flag}={name}=true",
            member_names(ids, members)
        )],
        Some(Reason::Dependency(needs)) => needs
            .iter()
            .map(|need| format!("turn on {need}; see its explanation"))
            .collect(),
        Some(Reason::Default | Reason::Unanimous) if enabled => {
            vec![format!(
                "restart any voting member with {flag}={name}=false"
            )]
        }
        Some(Reason::Default) => {
            vec![format!(
                "restart every voting member with {flag}={name}=true"
            )]
        }
        Some(_) => Vec::new(),
    }
}
