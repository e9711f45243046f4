//! Cluster params and proposals: between the log's messages, the stored records and the types of
//! the gates crate.

use std::collections::BTreeMap;

use portunus_features::ClusterFeatures;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::{
    ClusterParams, ClusterSpecs, ClusterView, Member, MemberId, MixedVersions, Proposal,
    Publication,
};
use portunus_proto::membershippb;
use prost::Message as _;

use crate::decision::downgrade_target;
use crate::membership::{MemberRecord, Membership, ProposalRecord};

/// The values of all cluster features at one log index, by handle.
pub type View = ClusterView<ClusterFeatures>;

/// Checks whether the version that a member has published fits the cluster and this member.
pub fn check_member_version(
    specs: &ClusterSpecs,
    membership: &Membership,
    record: &MemberRecord,
    own_version: MajorMinor,
) -> Result<(), MixedVersions> {
    specs.check_member_version(
        own_version,
        membership.cluster_version,
        downgrade_target(&membership.downgrade),
        &member(record),
    )
}

/// Returns all members with what they have published, as decisions are made from it.
pub fn members(membership: &Membership) -> Vec<Member> {
    membership.iter().map(member).collect()
}

fn member(record: &MemberRecord) -> Member {
    let has_started = !record.name.is_empty();
    let publication = match &record.proposal {
        Some(proposal) => match proposal.version.parse() {
            Ok(version) => Publication::Proposal(Proposal {
                version,
                flags: proposal.flags.clone(),
            }),
            // Written by a program with another form of cluster features.
            Err(_) => Publication::Foreign,
        },
        None if has_started => Publication::Foreign,
        None => Publication::Nothing,
    };
    Member {
        id: MemberId(record.id),
        name: record.name.clone(),
        voter: !record.is_learner,
        started: has_started,
        publication,
    }
}

/// Returns a checksum of the params, by which members can be compared.
pub fn digest(params: Option<&ClusterParams>) -> u32 {
    let bytes = params.map(|params| to_message(params).encode_to_vec());
    crc32c::crc32c(&bytes.unwrap_or_default())
}

/// Encodes params as the log and the backend hold them.
pub fn to_message(params: &ClusterParams) -> membershippb::ClusterParams {
    message(params.version.to_string(), &params.features)
}

/// Encodes a proposal as the log holds it.
pub fn proposal_to_message(proposal: &ProposalRecord) -> membershippb::ClusterParams {
    message(proposal.version.clone(), &proposal.flags)
}

fn message(version: String, features: &BTreeMap<String, bool>) -> membershippb::ClusterParams {
    membershippb::ClusterParams {
        version,
        feature_gates: features
            .iter()
            .map(|(name, enabled)| membershippb::Feature {
                name: name.clone(),
                enabled: *enabled,
            })
            .collect(),
    }
}

/// Decodes params from the log or the backend; `None` if their version cannot be parsed.
pub fn from_message(message: &membershippb::ClusterParams) -> Option<ClusterParams> {
    Some(ClusterParams {
        version: message.version.parse().ok()?,
        features: features_of(message),
    })
}

/// Decodes a proposal from the log.
pub fn proposal_from_message(message: &membershippb::ClusterParams) -> ProposalRecord {
    ProposalRecord {
        version: message.version.clone(),
        flags: features_of(message),
    }
}

fn features_of(message: &membershippb::ClusterParams) -> BTreeMap<String, bool> {
    message
        .feature_gates
        .iter()
        .map(|feature| (feature.name.clone(), feature.enabled))
        .collect()
}
