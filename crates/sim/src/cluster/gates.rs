//! Cluster features in simulated members: their flags, their publications in the log and the
//! decided params.
//!
//! Members publish, the leader decides, and applying binds the values to the entries that
//! follow, as in the server, by the rules of [`portunus_gates::cluster`]. A feature changes the
//! effect of a client's entry, so members with different values get different states. Not
//! simulated: a member that stops because of another member's version; the crate `model`
//! covers it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use portunus_gates::cluster::{
    AppliedParams, ClusterParams, ClusterSpecs, Member, MemberId, Outcome, Previous, Proposal,
    Publication, leader_outcome,
};
use portunus_gates::{Level, MajorMinor, NewFeature, RegistryBuilder, Spec, Versions};
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::{
    self, Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest, Feature,
};
use portunus_proto::raftpb::{ConfState, Entry, EntryType};
use prost::Message as _;

use crate::random::Random;

/// A beta feature, on by default, and an alpha feature of the later version, off by default.
const NAMES: [&str; 2] = ["Marks", "Seals"];
const EARLY: MajorMinor = MajorMinor::literal("3.7");
const LATE: MajorMinor = MajorMinor::literal("3.8");
/// The bit in the number of an entry that marks a request about features.
const ABOUT_FEATURES: u64 = 1 << 63;

/// Returns the features and their rules.
pub(super) fn specs() -> ClusterSpecs {
    let mut builder = RegistryBuilder::new(Level::Cluster);
    // If they were refused, no feature would be switched, which the tests count.
    let _ = builder.add_all([
        NewFeature::new(NAMES[0], [Spec::beta("3.7").on()]),
        NewFeature::new(NAMES[1], [Spec::alpha("3.8")]),
    ]);
    ClusterSpecs::new(Arc::new(builder.build()), EARLY, MajorMinor::literal("3.0"))
}

/// The version and flags of a member's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) version: MajorMinor,
    pub(super) flags: BTreeMap<String, bool>,
    /// The member publishes proposed params.
    pub(super) proposes: bool,
}

impl Start {
    /// The first start of a member.
    pub(super) fn first() -> Self {
        Self {
            version: EARLY,
            flags: BTreeMap::new(),
            proposes: true,
        }
    }

    /// A random start, with a version of at least `lowest`.
    pub(super) fn any(random: &mut Random, lowest: Option<MajorMinor>) -> Self {
        let version = *random.choose(&[EARLY, LATE, LATE]).unwrap_or(&LATE);
        let mut flags = BTreeMap::new();
        // Most members enable the features, so that they are switched on sometimes.
        if random.below(5) == 0 {
            flags.insert(NAMES[0].to_owned(), false);
        }
        if version == LATE && random.below(6) > 0 {
            flags.insert(NAMES[1].to_owned(), true);
        }
        Self {
            version: lowest.map_or(version, |lowest| lowest.max(version)),
            flags,
            proposes: random.below(8) > 0,
        }
    }
}

/// The feature part of a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gates {
    /// The publications by member; `None` for member attributes without proposed params.
    pub(super) published: BTreeMap<u64, Option<Proposal>>,
    pub(super) cluster_version: Option<MajorMinor>,
    pub(super) params: Option<ClusterParams>,
}

/// Returns the enabled features as a bit set.
pub(super) fn effect(specs: &ClusterSpecs, params: Option<&ClusterParams>) -> u64 {
    let is_on = |name| params.is_some_and(|params| params.enabled(specs.registry(), name));
    let bits = NAMES.iter().zip([1, 2]);
    bits.filter(|(name, _)| is_on(name))
        .map(|(_, bit)| bit)
        .sum()
}

/// Decodes an entry about features.
fn request_of(entry: &Entry) -> Option<InternalRaftRequest> {
    if entry.r#type() != EntryType::EntryNormal {
        return None;
    }
    let number = entry.data.first_chunk().map(|it| u64::from_le_bytes(*it))?;
    (number & ABOUT_FEATURES != 0).then(|| {
        let request = InternalRaftRequest::decode(entry.data.slice(8..));
        request.unwrap_or_default()
    })
}

/// Encodes a request about features as the data of an entry.
pub(super) fn payload(number: u64, request: &InternalRaftRequest) -> Bytes {
    let mut payload = (number | ABOUT_FEATURES).to_le_bytes().to_vec();
    payload.extend(request.encode_to_vec());
    payload.into()
}

/// Returns the cluster version that an entry sets.
pub(super) fn version_of(entry: &Entry) -> Option<MajorMinor> {
    request_of(entry)?.cluster_version_set?.ver.parse().ok()
}

/// Returns the cluster params that an entry sets.
pub(super) fn params_of(entry: &Entry) -> Option<ClusterParams> {
    let set = request_of(entry)?.cluster_version_set?;
    from_message(set.cluster_params.as_ref()?)
}

impl Gates {
    /// Applies an entry if it is about features. Its values hold from the next entry on.
    pub(super) fn apply(gates: &mut Arc<Gates>, specs: &ClusterSpecs, entry: &Entry) -> bool {
        let Some(request) = request_of(entry) else {
            return false;
        };
        if let Some(set) = request.cluster_version_set
            && let Ok(version) = set.ver.parse()
            && let Ok(applied) = specs.applied(
                version,
                set.cluster_params.as_ref().and_then(from_message),
                gates.params.as_ref(),
            )
        {
            let gates = Arc::make_mut(gates);
            gates.cluster_version = Some(version);
            match applied {
                AppliedParams::Keep => {}
                AppliedParams::Delete => gates.params = None,
                AppliedParams::Replace(params) => gates.params = Some(params),
            }
        }
        if let Some(set) = request.cluster_member_attr_set
            && let Some(attributes) = set.member_attributes
        {
            let proposal = attributes.proposed_cluster_params.as_ref();
            let proposal = proposal.and_then(from_message).map(|params| Proposal {
                version: params.version,
                flags: params.features,
            });
            let gates = Arc::make_mut(gates);
            gates.published.insert(set.member_id, proposal);
        }
        true
    }

    /// Drops the publications of removed members.
    pub(super) fn keep_members(gates: &mut Arc<Gates>, conf_state: &ConfState) {
        let is_member =
            |id: &u64| conf_state.voters.contains(id) || conf_state.learners.contains(id);
        if !gates.published.keys().all(is_member) {
            Arc::make_mut(gates).published.retain(|id, _| is_member(id));
        }
    }

    /// Returns the publication of a member, unless the log contains it already.
    pub(super) fn announcement(
        &self,
        specs: &ClusterSpecs,
        id: u64,
        is_founder: bool,
        start: &Start,
    ) -> Option<InternalRaftRequest> {
        let is_new = is_founder && self.cluster_version.is_none();
        let publishes = start.proposes && specs.publishes(self.cluster_version, is_new);
        let proposal = publishes.then(|| Proposal {
            version: start.version,
            flags: start.flags.clone(),
        });
        if self.published.get(&id) == Some(&proposal) {
            return None;
        }
        Some(InternalRaftRequest {
            cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
                member_id: id,
                member_attributes: Some(Attributes {
                    name: format!("{id:x}"),
                    client_urls: Vec::new(),
                    proposed_cluster_params: proposal.map(|it| to_message(it.version, &it.flags)),
                }),
            }),
            ..InternalRaftRequest::default()
        })
    }

    /// Returns the proposal of a leader, if something changes. `versions` are those of all
    /// members; `proposes` is whether the leader publishes proposed params.
    pub(super) fn decision(
        &self,
        specs: &ClusterSpecs,
        conf_state: &ConfState,
        versions: &[Option<MajorMinor>],
        proposes: bool,
    ) -> Option<InternalRaftRequest> {
        let next = specs.next_cluster_version(self.cluster_version, versions, None);
        let version = next.or(self.cluster_version)?;
        let previous = match &self.params {
            Some(params) => Previous::Decided(params.clone()),
            None => Previous::Absent,
        };
        let members = self.members(conf_state);
        let outcome = leader_outcome(specs, version, &members, &previous, proposes);
        let (params, is_changed) = match outcome {
            Outcome::Set(params) => (Some(params), true),
            Outcome::Delete => (None, true),
            Outcome::Hold(_) | Outcome::Unchanged => (None, false),
        };
        (next.is_some() || is_changed).then(|| InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: format!("{version}.0"),
                cluster_params: params.map(|it| to_message(it.version, &it.features)),
                ..ClusterVersionSetRequest::default()
            }),
            ..InternalRaftRequest::default()
        })
    }

    fn members(&self, conf_state: &ConfState) -> Vec<Member> {
        let ConfState {
            voters, learners, ..
        } = conf_state;
        let all = voters.iter().chain(learners);
        all.map(|id| Member {
            id: MemberId(*id),
            name: String::new(),
            voter: voters.contains(id),
            started: self.published.contains_key(id),
            publication: match self.published.get(id) {
                None => Publication::Nothing,
                Some(None) => Publication::Foreign,
                Some(Some(proposal)) => Publication::Proposal(proposal.clone()),
            },
        })
        .collect()
    }

    /// Returns whether the values follow from the members' flags: a feature that exists is on
    /// if it is on for every voter, by flag or else by default; all are off while any member,
    /// also a learner, publishes no proposed params.
    pub(super) fn follow_from_flags<'a>(
        &self,
        specs: &ClusterSpecs,
        voters: impl Iterator<Item = &'a Start> + Clone,
        learners: impl Iterator<Item = &'a Start> + Clone,
    ) -> bool {
        let all_propose = voters.clone().chain(learners).all(|start| start.proposes);
        let Some(params) = &self.params else {
            return !all_propose;
        };
        specs.registry().features().iter().all(|feature| {
            let spec = feature.at(Versions::exactly(params.version)).spec;
            let flag = |start: &Start| start.flags.get(&feature.name).copied();
            let expected = spec.stage.exists().then(|| {
                let mut flags = voters.clone().map(flag);
                all_propose && flags.all(|flag| flag.unwrap_or(spec.default))
            });
            params.features.get(&feature.name).copied() == expected
        })
    }
}

fn to_message(version: MajorMinor, values: &BTreeMap<String, bool>) -> membershippb::ClusterParams {
    let feature = |(name, enabled): (&String, &bool)| Feature {
        name: name.clone(),
        enabled: *enabled,
    };
    membershippb::ClusterParams {
        version: version.to_string(),
        feature_gates: values.iter().map(feature).collect(),
    }
}

fn from_message(message: &membershippb::ClusterParams) -> Option<ClusterParams> {
    let value = |feature: &Feature| (feature.name.clone(), feature.enabled);
    Some(ClusterParams {
        version: message.version.parse().ok()?,
        features: message.feature_gates.iter().map(value).collect(),
    })
}
