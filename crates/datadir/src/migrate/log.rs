//! The version that the unapplied entries of a log need.

use portunus_consensus::core::InitialState;
use portunus_features::version::CLUSTER_PARAMS_SINCE;
use portunus_gates::MajorMinor;
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::EntryType;

use super::MigrateError;
use portunus_statemachine::v2_request::read as read_request;
use portunus_statemachine::wrap;

/// Returns the lowest version that can apply the unapplied entries; `None` if any can.
pub fn version_needed(initial: &InitialState) -> Result<Option<MajorMinor>, MigrateError> {
    let mut needed = None;
    let entries = initial.entries.iter();
    for entry in entries.filter(|entry| entry.index > initial.applied_index) {
        if entry.r#type() != EntryType::EntryNormal || entry.data.is_empty() {
            continue;
        }
        let index = entry.index;
        let request = read_request(index, entry.data.clone()).map_err(|source| {
            let source = Box::new(source);
            MigrateError::Entry { index, source }
        })?;
        needed = needed.max(needed_by(&request));
    }
    Ok(needed)
}

fn needed_by(request: &InternalRaftRequest) -> Option<MajorMinor> {
    if let Some(wrapped) = &request.wrapped {
        return Some(wrap::readable_since(wrapped.packing()));
    }
    if let Some(set) = &request.cluster_version_set {
        let decided = set.ver.parse().ok();
        return decided.max(set.cluster_params.as_ref().map(|_| CLUSTER_PARAMS_SINCE));
    }
    let said = request.cluster_member_attr_set.as_ref();
    let said = said.and_then(|set| set.member_attributes.as_ref());
    let proposal = said.and_then(|it| it.proposed_cluster_params.as_ref());
    proposal.map(|_| CLUSTER_PARAMS_SINCE)
}

/// Returns the term of an entry that is in the log, or just before it.
pub fn term_of(initial: &InitialState, index: u64) -> Option<u64> {
    if index == initial.base_index {
        return Some(initial.base_term);
    }
    let mut entries = initial.entries.iter();
    entries
        .find(|entry| entry.index == index)
        .map(|entry| entry.term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_proto::etcdserverpb::wrapped_request::Packing;
    use portunus_proto::etcdserverpb::{PutRequest, WrappedRequest};
    use portunus_proto::membershippb::{
        Attributes, ClusterMemberAttrSetRequest, ClusterParams, ClusterVersionSetRequest,
    };
    use portunus_proto::raftpb::Entry;
    use prost::Message as _;

    fn needed(request: InternalRaftRequest) -> Option<String> {
        let entry = |index: u64, data: Vec<u8>| Entry {
            index,
            term: 1,
            data: data.into(),
            ..Entry::default()
        };
        // Neither applied entries nor empty ones need a version.
        let later = InternalRaftRequest {
            wrapped: Some(WrappedRequest::default()),
            ..InternalRaftRequest::default()
        };
        let initial = InitialState {
            applied_index: 1,
            entries: vec![
                entry(1, later.encode_to_vec()),
                entry(2, Vec::new()),
                entry(3, request.encode_to_vec()),
            ],
            ..InitialState::default()
        };
        let needed = version_needed(&initial).unwrap();
        needed.map(|version| version.to_string())
    }

    fn request() -> InternalRaftRequest {
        InternalRaftRequest::default()
    }

    #[test]
    fn entry_needs_the_first_version_that_decodes_it() {
        let put = InternalRaftRequest {
            put: Some(PutRequest::default()),
            ..request()
        };
        assert_eq!(needed(put), None);
        let wrapped = |packing: Packing| InternalRaftRequest {
            wrapped: Some(WrappedRequest {
                packing: packing.into(),
                ..WrappedRequest::default()
            }),
            ..request()
        };
        assert_eq!(needed(wrapped(Packing::Plain)).unwrap(), "3.7");
        assert_eq!(needed(wrapped(Packing::Lz4Block)).unwrap(), "3.8");
        let decided = |ver: &str, params: Option<ClusterParams>| InternalRaftRequest {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: ver.to_owned(),
                cluster_params: params,
                ..ClusterVersionSetRequest::default()
            }),
            ..request()
        };
        assert_eq!(needed(decided("3.6.0", None)).unwrap(), "3.6");
        let params = Some(ClusterParams::default());
        assert_eq!(needed(decided("3.8.0", params)).unwrap(), "3.8");
        let said = |params: Option<ClusterParams>| InternalRaftRequest {
            cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
                member_id: 1,
                member_attributes: Some(Attributes {
                    proposed_cluster_params: params,
                    ..Attributes::default()
                }),
            }),
            ..request()
        };
        assert_eq!(needed(said(None)), None);
        assert_eq!(needed(said(Some(ClusterParams::default()))).unwrap(), "3.7");
    }
}
