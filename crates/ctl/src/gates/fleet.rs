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

use super::collect::{ClusterReport, MemberReport, Replies};
use super::member_flags::{Published, proposed_flags, published_by, server_flags};

/// The server gate without which a member publishes nothing about the cluster's features.
pub const MECHANISM: &str = "ClusterFeatureGate";

/// A fleet and what was assumed about it.
#[derive(Debug, Clone)]
pub struct ObservedFleet {
    /// The input of the rules.
    pub fleet: Fleet,
    /// Members whose server knows no feature gates: another program, or an earlier version.
    pub gateless: BTreeSet<MemberId>,
    /// Members whose flags for cluster features are known whole, not from votes.
    pub proposals_known: BTreeSet<MemberId>,
    /// The assumptions, one sentence each.
    pub assumptions: Vec<String>,
}

impl ObservedFleet {
    /// The member with this id.
    pub fn member(&self, id: MemberId) -> Option<&FleetMember> {
        let mut members = self.fleet.members.iter();
        members.find(|member| member.member.id == id)
    }

    /// A member's name, or its id if it has none.
    pub fn name_of(&self, id: MemberId) -> String {
        let member = self.member(id);
        member.map_or_else(|| id.to_string(), |member| member.member.display_name())
    }
}

/// Makes the fleet from the replies.
pub fn observe(report: &ClusterReport, own: &OwnFeatures) -> ObservedFleet {
    let cluster_version = cluster_version(report);
    let mut observed = ObservedFleet {
        fleet: Fleet {
            cluster_version,
            downgrade_target: downgrade_target(report),
            previous: in_force(report.cluster.as_ref(), cluster_version),
            members: Vec::new(),
            used: assumed_used(own),
        },
        gateless: BTreeSet::new(),
        proposals_known: BTreeSet::new(),
        assumptions: Vec::new(),
    };
    for member_report in &report.members {
        let member = observed.add(member_report, report.cluster.as_ref(), own);
        observed.fleet.members.push(member);
    }
    observed.note_unknown_features(report, own);
    observed
}

impl ObservedFleet {
    fn add(
        &mut self,
        member_report: &MemberReport,
        cluster: Option<&FeatureGateStatusResponse>,
        own: &OwnFeatures,
    ) -> FleetMember {
        let id = MemberId(member_report.member.id);
        let name = &member_report.member.name;
        let name_or_id = match name.is_empty() {
            true => id.to_string(),
            false => name.clone(),
        };
        let own_answer = member_report.replies.as_ref().ok();
        let own_answer = own_answer.and_then(|replies| replies.cluster.as_ref());
        let proposed = proposed_flags(own_answer.into_iter().chain(cluster), id.0);
        let published = match &proposed {
            Some(flags) => Some(Published::Flags(flags.clone())),
            // The reply has no proposals, only votes.
            None => cluster.and_then(|cluster| published_by(cluster, id.0)),
        };
        if proposed.is_some() {
            self.proposals_known.insert(id);
        }
        let (server_version, server_flags) = match &member_report.replies {
            Ok(replies) => self.reported_start(&name_or_id, id, replies),
            Err(why) => self.assumed_start(&name_or_id, why, published.as_ref(), own),
        };
        let cluster_flags = match &published {
            Some(Published::Flags(flags)) => flags.clone(),
            Some(Published::Nothing | Published::Foreign) | None => BTreeMap::new(),
        };
        let mut member = FleetMember {
            member: Member {
                id,
                name: name.clone(),
                voter: !member_report.member.is_learner,
                started: !name.is_empty(),
                publication: Publication::Nothing,
            },
            server_version,
            min_compat: member_report
                .min_compat()
                .filter(|version| *version != usual_min_compat(server_version)),
            server_flags: Assignments::from_map(Origin::Flag, server_flags),
            cluster_flags: Assignments::from_map(Origin::Flag, cluster_flags),
        };
        let takes_part = !self.gateless.contains(&id) && has_mechanism(&member, own);
        let has_proposal = matches!(published, Some(Published::Flags(_)));
        if takes_part && member.member.started && !has_proposal {
            let note =
                format!("{name_or_id} has not published its cluster flags: assumed to have none");
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
    fn reported_start(
        &mut self,
        name_or_id: &str,
        id: MemberId,
        replies: &Replies,
    ) -> (MajorMinor, BTreeMap<String, bool>) {
        let version = major_minor(&replies.status.version).unwrap_or_else(|| {
            let assumed = self.usual_version();
            let reported = &replies.status.version;
            let note = format!("{name_or_id} reports version {reported:?}, which cannot be parsed: assumed to run {assumed}");
            self.assumptions.push(note);
            assumed
        });
        if let Some(server) = &replies.server {
            return (version, server_flags(server));
        }
        self.gateless.insert(id);
        let note = format!(
            "{name_or_id} does not know feature gates, as etcd and versions before \
             {CLUSTER_PARAMS_SINCE} do not: its flags are unknown and assumed to be empty"
        );
        self.assumptions.push(note);
        (version, BTreeMap::new())
    }

    /// The version and the flags of a member that did not answer.
    fn assumed_start(
        &mut self,
        name_or_id: &str,
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
        let (flags, assumed) = match proposes.filter(|proposes| *proposes != default) {
            Some(value) => (
                BTreeMap::from([(MECHANISM.to_owned(), value)]),
                format!("{MECHANISM}={value} as its only server flag"),
            ),
            None => (BTreeMap::new(), "no server flags".to_owned()),
        };
        let note = format!(
            "{name_or_id} does not answer ({why}): assumed to run version {version} with {assumed}"
        );
        self.assumptions.push(note);
        (version, flags)
    }

    fn usual_version(&self) -> MajorMinor {
        self.fleet.cluster_version.unwrap_or(ETCD_VERSION)
    }

    fn note_unknown_features(&mut self, report: &ClusterReport, own: &OwnFeatures) {
        let servers = report
            .members
            .iter()
            .filter_map(|it| it.replies.as_ref().ok());
        let servers = servers.filter_map(|replies| replies.server.as_ref());
        let known = [(report.cluster.as_ref(), own.cluster.registry())];
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
                "{name} is not known to this portctl ({ETCD_VERSION}): its plan and explanation \
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
        if may_hide_flags(own.cluster.registry(), current, newest) {
            let note = format!(
                "the cluster is at {current} while a member runs {newest}: flags for cluster \
                 features that came after {current} are unknown and assumed not to be set"
            );
            self.assumptions.push(note);
        }
    }
}

/// Whether a member of the newer version could have a flag for a cluster feature that does not
/// exist at the current version, so that no votes on it are counted.
fn may_hide_flags(registry: &Registry, current: MajorMinor, newest: MajorMinor) -> bool {
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
fn assumed_used(own: &OwnFeatures) -> BTreeSet<String> {
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
fn cluster_version(report: &ClusterReport) -> Option<MajorMinor> {
    let details = report.cluster.iter().flat_map(|cluster| &cluster.details);
    let mut used = details.filter_map(|detail| major_minor(&detail.version_used));
    let replies = report
        .members
        .iter()
        .filter_map(|it| it.replies.as_ref().ok());
    let stored = replies.filter_map(|replies| major_minor(&replies.status.storage_version));
    used.next().or_else(|| stored.max())
}

/// The target of a downgrade, as the member that has applied most knows it.
pub fn downgrade_target(report: &ClusterReport) -> Option<MajorMinor> {
    let replies = report
        .members
        .iter()
        .filter_map(|it| it.replies.as_ref().ok());
    let newest = replies.max_by_key(|replies| replies.status.raft_applied_index)?;
    let downgrade = newest.status.downgrade_info.as_ref()?;
    downgrade
        .enabled
        .then(|| major_minor(&downgrade.target_version))
        .flatten()
}

/// The major and minor version in a text; `None` if it is not a version.
pub fn major_minor(text: &str) -> Option<MajorMinor> {
    let version = Version::parse(text).ok()?;
    Some(version.major_minor())
}
