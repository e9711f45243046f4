//! The fleet that the rules work on, made from the replies of the members.
//!
//! What no reply contains is assumed. Every assumption becomes a sentence that is printed with
//! the answer.

use std::collections::{BTreeMap, BTreeSet};

use portunus_features::version::{CLUSTER_PARAMS_SINCE, ETCD_VERSION, effective_version};
use portunus_features::{ClusterFeatureGate, OwnFeatures};
use portunus_gates::cluster::{ClusterParams, Member, MemberId, Previous, Proposal, Publication};
use portunus_gates::plan::{Fleet, FleetMember};
use portunus_gates::{Assignments, MajorMinor, Origin, Registry, Reversibility, Version, Versions};
use portunus_proto::etcdserverpb::FeatureGateStatusResponse;

use super::survey::{Survey, Surveyed, Words};
use super::votes::{Published, proposed, published, server_flags};

/// The server gate without which a member publishes nothing about the cluster's features.
pub const MECHANISM: &str = "ClusterFeatureGate";

/// A fleet and what was assumed about it.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The input of the rules.
    pub fleet: Fleet,
    /// Members whose server knows no feature gates: another program, or an earlier version.
    pub gateless: BTreeSet<MemberId>,
    /// Members whose flags for cluster features are known whole, not from votes.
    pub proposals_known: BTreeSet<MemberId>,
    /// The assumptions, one sentence each.
    pub assumptions: Vec<String>,
}

impl Picture {
    /// The member with this id.
    pub fn member(&self, id: MemberId) -> Option<&FleetMember> {
        let mut members = self.fleet.members.iter();
        members.find(|member| member.member.id == id)
    }

    /// A member's name, or its id if it has none.
    pub fn name_of(&self, id: MemberId) -> String {
        let member = self.member(id);
        member.map_or_else(|| id.to_string(), |member| member.member.shown())
    }
}

/// Makes the fleet from the replies.
pub fn picture(survey: &Survey, own: &OwnFeatures) -> Picture {
    let cluster_version = cluster_version(survey);
    let mut picture = Picture {
        fleet: Fleet {
            cluster_version,
            downgrade_target: downgrade_target(survey),
            previous: in_force(survey.cluster.as_ref(), cluster_version),
            members: Vec::new(),
            used: taken_as_used(own),
        },
        gateless: BTreeSet::new(),
        proposals_known: BTreeSet::new(),
        assumptions: Vec::new(),
    };
    for surveyed in &survey.members {
        let member = picture.add(surveyed, survey.cluster.as_ref(), own);
        picture.fleet.members.push(member);
    }
    picture.note_what_this_program_cannot_know(survey, own);
    picture
}

impl Picture {
    fn add(
        &mut self,
        surveyed: &Surveyed,
        cluster: Option<&FeatureGateStatusResponse>,
        own: &OwnFeatures,
    ) -> FleetMember {
        let id = MemberId(surveyed.member.id);
        let name = &surveyed.member.name;
        let shown = match name.is_empty() {
            true => id.to_string(),
            false => name.clone(),
        };
        let own_answer = surveyed.said.as_ref().ok();
        let own_answer = own_answer.and_then(|words| words.cluster.as_ref());
        let proposed = proposed(own_answer.into_iter().chain(cluster), id.0);
        let published = match &proposed {
            Some(flags) => Some(Published::Flags(flags.clone())),
            // The reply has no proposals, only votes.
            None => cluster.and_then(|cluster| published(cluster, id.0)),
        };
        if proposed.is_some() {
            self.proposals_known.insert(id);
        }
        let (server_version, server_flags) = match &surveyed.said {
            Ok(words) => self.said(&shown, id, words),
            Err(why) => self.unsaid(&shown, why, published.as_ref(), own),
        };
        let cluster_flags = match &published {
            Some(Published::Flags(flags)) => flags.clone(),
            Some(Published::Nothing | Published::Foreign) | None => BTreeMap::new(),
        };
        let mut member = FleetMember {
            member: Member {
                id,
                name: name.clone(),
                voter: !surveyed.member.is_learner,
                started: !name.is_empty(),
                publication: Publication::Nothing,
            },
            server_version,
            min_compat: surveyed
                .min_compat()
                .filter(|version| *version != usual_min_compat(server_version)),
            server_flags: Assignments::from_map(Origin::Flag, server_flags),
            cluster_flags: Assignments::from_map(Origin::Flag, cluster_flags),
        };
        let takes_part = !self.gateless.contains(&id) && has_mechanism(&member, own);
        let tells = matches!(published, Some(Published::Flags(_)));
        if takes_part && member.member.started && !tells {
            let note = format!("{shown} has not published its cluster flags: taken to have none");
            self.assumptions.push(note);
        }
        member.member.publication = match published {
            _ if !member.member.started => Publication::Nothing,
            Some(Published::Flags(_)) => Publication::Proposal(Proposal {
                version: server_version,
                flags: member.cluster_flags.to_map(),
            }),
            Some(Published::Foreign) => Publication::Foreign,
            Some(Published::Nothing) | None if takes_part => Publication::Nothing,
            Some(Published::Nothing) | None => Publication::Foreign,
        };
        member
    }

    /// The version and the flags of a member that answered.
    fn said(
        &mut self,
        shown: &str,
        id: MemberId,
        words: &Words,
    ) -> (MajorMinor, BTreeMap<String, bool>) {
        let version = major_minor(&words.status.version).unwrap_or_else(|| {
            let assumed = self.usual_version();
            let said = &words.status.version;
            let note = format!("{shown} calls its version {said:?}: taken for {assumed}");
            self.assumptions.push(note);
            assumed
        });
        if let Some(server) = &words.server {
            return (version, server_flags(server));
        }
        self.gateless.insert(id);
        let note = format!(
            "{shown} does not know feature gates, as etcd and versions before \
             {CLUSTER_PARAMS_SINCE} do not: its flags cannot be seen and are taken to be none"
        );
        self.assumptions.push(note);
        (version, BTreeMap::new())
    }

    /// The version and the flags of a member that did not answer.
    fn unsaid(
        &mut self,
        shown: &str,
        why: &str,
        published: Option<&Published>,
        own: &OwnFeatures,
    ) -> (MajorMinor, BTreeMap<String, bool>) {
        let version = self.usual_version();
        // A member publishes a proposal if the mechanism is on, and only then.
        let proposes = match published {
            Some(Published::Flags(_)) => Some(true),
            Some(Published::Foreign) => Some(false),
            Some(Published::Nothing) | None => None,
        };
        let default = mechanism_default(version, own);
        let (flags, taken) = match proposes.filter(|proposes| *proposes != default) {
            Some(value) => (
                BTreeMap::from([(MECHANISM.to_owned(), value)]),
                format!("{MECHANISM}={value} as its only server flag"),
            ),
            None => (BTreeMap::new(), "no server flags".to_owned()),
        };
        let note =
            format!("{shown} does not answer ({why}): taken to run version {version} with {taken}");
        self.assumptions.push(note);
        (version, flags)
    }

    fn usual_version(&self) -> MajorMinor {
        self.fleet.cluster_version.unwrap_or(ETCD_VERSION)
    }

    fn note_what_this_program_cannot_know(&mut self, survey: &Survey, own: &OwnFeatures) {
        let servers = survey.members.iter().filter_map(|it| it.said.as_ref().ok());
        let servers = servers.filter_map(|words| words.server.as_ref());
        let known = [(survey.cluster.as_ref(), own.cluster.registry())];
        let known = known.into_iter();
        let known = known.chain(servers.map(|reply| (Some(reply), own.server.registry())));
        let mut foreign_names = BTreeSet::new();
        for (reply, registry) in known {
            let details = reply.iter().flat_map(|reply| &reply.details);
            let unknown = details.filter(|detail| registry.get(&detail.name).is_none());
            foreign_names.extend(unknown.map(|detail| detail.name.clone()));
        }
        for name in foreign_names {
            let note = format!(
                "{name} is not known to this portctl ({ETCD_VERSION}): what is said about it \
                 may be wrong; use the portctl of the cluster's version"
            );
            self.assumptions.push(note);
        }
        let Some(current) = self.fleet.cluster_version else {
            return;
        };
        let members = self.fleet.members.iter();
        let members = members.filter(|it| !self.proposals_known.contains(&it.member.id));
        let newest = members.map(|member| member.server_version).max();
        let newest = newest.unwrap_or(current);
        if hides_flags(own.cluster.registry(), current, newest) {
            let note = format!(
                "the cluster is at {current} while a member runs {newest}: flags for cluster \
                 features that came after {current} cannot be seen and are taken not to be set"
            );
            self.assumptions.push(note);
        }
    }
}

/// Whether a member of the newer version could have a flag for a cluster feature that does not
/// exist at the current version, so that no votes on it are counted.
fn hides_flags(registry: &Registry, current: MajorMinor, newest: MajorMinor) -> bool {
    let exists = |version: MajorMinor, name: &str| {
        let feature = registry.get(name);
        feature.is_some_and(|it| it.at(Versions::exactly(version)).spec.stage.exists())
    };
    let mut features = registry.features().iter();
    features.any(|it| exists(newest, &it.name) && !exists(current, &it.name))
}

/// Whether a member takes part in deciding cluster features, as it was started. Flags it could
/// not start with count with the values they set.
pub fn has_mechanism(member: &FleetMember, own: &OwnFeatures) -> bool {
    match own.server.gates(member.versions(), &member.server_flags) {
        Ok(gates) => gates.enabled(ClusterFeatureGate),
        Err(_) => match member.server_flags.get(MECHANISM) {
            Some((value, _)) => value,
            None => mechanism_default(member.server_version, own),
        },
    }
}

/// The minimum compatibility version of a member whose flags do not set one.
fn usual_min_compat(server_version: MajorMinor) -> MajorMinor {
    let mut usual = effective_version();
    usual.set_emulation(server_version);
    usual.min_compat()
}

/// Whether a member of this version takes part if its flags do not set it.
fn mechanism_default(version: MajorMinor, own: &OwnFeatures) -> bool {
    let gates = own
        .server
        .gates(Versions::emulating(version), &Assignments::default());
    gates.is_ok_and(|gates| gates.enabled(ClusterFeatureGate))
}

/// Features that cannot be turned off once data of them exists. No member reports whether it
/// does, so all of them are taken as used.
fn taken_as_used(own: &OwnFeatures) -> BTreeSet<String> {
    let registries = [own.server.registry(), own.cluster.registry()];
    let features = registries.into_iter().flat_map(|it| it.features());
    let until_used = features.filter(|it| it.reversible == Reversibility::UntilUsed);
    until_used.map(|it| it.name.clone()).collect()
}

/// The values that hold now.
fn in_force(cluster: Option<&FeatureGateStatusResponse>, version: Option<MajorMinor>) -> Previous {
    let (Some(cluster), Some(version)) = (cluster, version) else {
        return Previous::Absent;
    };
    let details = &cluster.details;
    let is_decided = details.iter().any(|it| it.since_index != 0 || it.enabled);
    if version < CLUSTER_PARAMS_SINCE || !is_decided {
        return Previous::Absent;
    }
    let values = details.iter().map(|it| (it.name.clone(), it.enabled));
    Previous::Decided(ClusterParams {
        version,
        features: values.collect(),
    })
}

/// The version that the cluster's features are decided at; without such features, the one that
/// the members store their data for, which follows it.
fn cluster_version(survey: &Survey) -> Option<MajorMinor> {
    let details = survey.cluster.iter().flat_map(|cluster| &cluster.details);
    let mut used = details.filter_map(|detail| major_minor(&detail.version_used));
    let words = survey.members.iter().filter_map(|it| it.said.as_ref().ok());
    let stored = words.filter_map(|words| major_minor(&words.status.storage_version));
    used.next().or_else(|| stored.max())
}

/// The target of a downgrade, as the member that has applied most knows it.
fn downgrade_target(survey: &Survey) -> Option<MajorMinor> {
    let words = survey.members.iter().filter_map(|it| it.said.as_ref().ok());
    let newest = words.max_by_key(|words| words.status.raft_applied_index)?;
    let downgrade = newest.status.downgrade_info.as_ref()?;
    downgrade
        .enabled
        .then(|| major_minor(&downgrade.target_version))
        .flatten()
}

fn major_minor(text: &str) -> Option<MajorMinor> {
    let version = Version::parse(text).ok()?;
    Some(version.major_minor())
}
