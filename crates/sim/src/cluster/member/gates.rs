//! The version and flags of a simulated member, its published attributes and its decisions.
//!
//! Features, attributes and decisions are those of the product; the versions and flags are drawn
//! from the seed.

use std::collections::BTreeMap;

use bytes::Bytes;
use portunus_features::OwnFeatures;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::ClusterSpecs;
use portunus_proto::etcdserverpb::{InternalRaftRequest, RequestHeader};
use portunus_proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterVersionSetRequest,
};
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_statemachine::decision::{NextDecision, next_decision};
use portunus_statemachine::membership::{Membership, ProposalRecord};
use portunus_statemachine::params::{proposal_to_message, to_message};
use portunus_statemachine::wrap;
use prost::Message as _;

use crate::random::Random;

const EARLY: MajorMinor = MajorMinor::literal("3.7");
const LATE: MajorMinor = MajorMinor::literal("3.8");
/// The feature that simulated clients require.
pub(in super::super) const REQUIRED: &str = "LeaseCheckpoint";
const PACKING: &str = "LogCompression";

/// The features of the product and their rules.
pub(in super::super) struct Features {
    pub(in super::super) own: OwnFeatures,
    pub(in super::super) specs: ClusterSpecs,
}

impl Features {
    pub(in super::super) fn declared() -> Self {
        #[allow(clippy::expect_used)]
        // Tests check the declarations, so this never fails.
        let own = OwnFeatures::declared().expect("the declarations are consistent");
        let specs = own.cluster_specs();
        Self { own, specs }
    }
}

/// The version and flags of a member's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Start {
    pub(in super::super) version: MajorMinor,
    pub(in super::super) flags: BTreeMap<String, bool>,
    /// The member publishes proposed params.
    pub(in super::super) proposes: bool,
}

impl Start {
    /// The first start of a founder.
    pub(in super::super) fn first() -> Self {
        Self {
            version: EARLY,
            flags: [(REQUIRED.to_owned(), true)].into(),
            proposes: true,
        }
    }

    /// A random start, with a version of at least `lowest`.
    pub(in super::super) fn any(random: &mut Random, lowest: Option<MajorMinor>) -> Self {
        let version = *random.choose(&[EARLY, LATE, LATE]).unwrap_or(&LATE);
        let version = lowest.map_or(version, |lowest| lowest.max(version));
        let mut flags = BTreeMap::new();
        // Most members enable the features, so that they are switched on sometimes.
        flags.insert(REQUIRED.to_owned(), random.below(5) > 0);
        if version >= LATE && random.below(6) > 0 {
            flags.insert(PACKING.to_owned(), true);
        }
        Self {
            version,
            flags,
            proposes: random.below(8) > 0,
        }
    }

    fn proposal(&self) -> ProposalRecord {
        ProposalRecord {
            version: self.version.to_string(),
            flags: self.flags.clone(),
        }
    }

    /// Returns the attributes that this member has to publish, unless the log contains them.
    pub(in super::super) fn announcement(
        &self,
        specs: &ClusterSpecs,
        membership: &Membership,
        id: u64,
        is_founder: bool,
    ) -> Option<InternalRaftRequest> {
        let record = membership.get(id)?;
        let is_new = is_founder && membership.cluster_version.is_none();
        let publishes = self.proposes && specs.publishes(membership.cluster_version, is_new);
        let proposal = publishes.then(|| self.proposal());
        if record.has_published() && record.proposal == proposal {
            return None;
        }
        Some(InternalRaftRequest {
            cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
                member_id: id,
                member_attributes: Some(Attributes {
                    name: format!("{id:x}"),
                    client_urls: vec![format!("http://{id:x}:2379")],
                    proposed_cluster_params: proposal.as_ref().map(proposal_to_message),
                }),
            }),
            ..InternalRaftRequest::default()
        })
    }

    /// Returns the decision that this member proposes as leader. `versions` has every member's.
    pub(in super::super) fn decision(
        &self,
        specs: &ClusterSpecs,
        membership: &Membership,
        id: u64,
        versions: Option<&BTreeMap<u64, MajorMinor>>,
    ) -> Option<InternalRaftRequest> {
        let NextDecision::Propose {
            version, params, ..
        } = next_decision(specs, membership, versions, self.proposes)
        else {
            return None;
        };
        Some(InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: format!("{version}.0"),
                decided_by: params.as_ref().map_or(0, |_| id),
                cluster_params: params.as_ref().map(to_message),
                ..ClusterVersionSetRequest::default()
            }),
            ..InternalRaftRequest::default()
        })
    }

    /// Encodes a client's request as the server does. `None`: it is refused before it is proposed.
    pub(in super::super) fn encode(
        &self,
        membership: &Membership,
        header: RequestHeader,
        request: InternalRaftRequest,
        required: &[String],
    ) -> Option<Bytes> {
        let params = membership.params.as_ref();
        let packing = params.and_then(|params| params.features.get(PACKING));
        let packs = packing == Some(&true) && self.version >= LATE;
        let all_propose = membership.all_propose();
        if !required.is_empty() && !all_propose {
            return None;
        }
        let pack = packs && all_propose;
        Some(wrap::encode(
            header,
            request,
            wrap::Wrapping { pack, required },
        ))
    }
}

/// For a planted bug: returns a wrapped entry judged by the newest params that were received.
pub(in super::super) fn judged_by(entry: &Entry, newest: &BTreeMap<String, bool>) -> Option<Entry> {
    let mut request = InternalRaftRequest::decode(entry.data.clone()).ok()?;
    let wrapped = request.wrapped.as_mut()?;
    if wrapped.required_features.is_empty() {
        return None;
    }
    let is_on = |name: &String| newest.get(name) == Some(&true);
    let required = &mut wrapped.required_features;
    *required = match required.iter().all(is_on) {
        true => Vec::new(),
        false => vec!["NoSuchFeature".to_owned()],
    };
    Some(Entry {
        data: request.encode_to_vec().into(),
        ..entry.clone()
    })
}

/// Returns the feature values that an entry decides.
pub(in super::super) fn decided_by(entry: &Entry) -> Option<BTreeMap<String, bool>> {
    if entry.r#type() != EntryType::EntryNormal {
        return None;
    }
    let request = InternalRaftRequest::decode(entry.data.clone()).ok()?;
    let params = request.cluster_version_set?.cluster_params?;
    let features = params.feature_gates.into_iter();
    Some(features.map(|it| (it.name, it.enabled)).collect())
}
