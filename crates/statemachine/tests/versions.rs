//! Attributes of members whose version is below the cluster version.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Machine, conf_change, normal, settings};
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterParams, ClusterVersionSetRequest,
};
use portunus_proto::raftpb::{ConfChange, ConfChangeType, Entry};
use portunus_statemachine::{EntryError, Settings};

fn added(index: u64, id: u64) -> Entry {
    let change = ConfChange {
        r#type: ConfChangeType::ConfChangeAddNode.into(),
        node_id: id,
        context: format!(r#"{{"id":{id},"peerURLs":["http://m{id}:2380"]}}"#).into(),
        ..ConfChange::default()
    };
    conf_change(index, change)
}

fn published(index: u64, member_id: u64, version: &str) -> Entry {
    let proposed = ClusterParams {
        version: version.to_owned(),
        ..ClusterParams::default()
    };
    let attributes = Attributes {
        name: format!("m{member_id}"),
        client_urls: vec!["http://c:2379".to_owned()],
        proposed_cluster_params: Some(proposed),
    };
    let request = InternalRaftRequest {
        cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
            member_id,
            member_attributes: Some(attributes),
        }),
        ..InternalRaftRequest::default()
    };
    normal(index, request)
}

fn decided(index: u64, version: &str) -> Entry {
    let set = ClusterVersionSetRequest {
        ver: version.to_owned(),
        ..ClusterVersionSetRequest::default()
    };
    let request = InternalRaftRequest {
        cluster_version_set: Some(set),
        ..InternalRaftRequest::default()
    };
    normal(index, request)
}

fn machine(version: &str) -> Machine {
    let settings = Settings {
        version: version.parse().unwrap(),
        ..settings()
    };
    let mut machine = Machine::new(settings);
    machine.apply(added(1, 1));
    machine.apply(added(2, 2));
    machine
}

/// The member published its attributes as 3.7 after the decision for 3.8 and before it had applied
/// that decision. It stops there; its operator starts it as 3.8, and the same entry comes again.
#[test]
fn member_started_with_the_needed_version_applies_attributes_of_its_earlier_version() {
    let mut member = machine("3.7");
    let stopped = member.try_apply(decided(3, "3.8.0"));
    assert!(matches!(
        stopped,
        Err(EntryError::ClusterVersionTooHigh { .. })
    ));

    let mut member = machine("3.8");
    member.apply(decided(3, "3.8.0"));
    member.apply(published(4, 1, "3.7"));
    member.apply(published(5, 1, "3.8"));
    let record = member.machine.membership().get(1).unwrap();
    assert_eq!(record.proposal.as_ref().unwrap().version, "3.8");
}

#[test]
fn attributes_of_another_member_below_the_cluster_version_are_applied() {
    let mut member = machine("3.8");
    member.apply(decided(3, "3.8.0"));
    member.apply(published(4, 2, "3.7"));
    assert!(
        member
            .machine
            .membership()
            .get(2)
            .unwrap()
            .proposal
            .is_some()
    );
}
