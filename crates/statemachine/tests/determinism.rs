//! What is stored depends on the log alone.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Machine, conf_change, normal, settings};
use portunus_features::{LeaseCheckpoint, LogCompression};
use portunus_proto::etcdserverpb::{
    AlarmRequest, CompactionRequest, DeleteRangeRequest, InternalRaftRequest,
    LeaseCheckpoint as Checkpoint, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestHeader, RequestOp, TxnRequest, request_op::Request,
};
use portunus_proto::membershippb::{
    Attributes, ClusterMemberAttrSetRequest, ClusterParams, ClusterVersionSetRequest,
    DowngradeInfoSetRequest, Feature,
};
use portunus_proto::raftpb::{ConfChange, Entry};
use portunus_statemachine::{Settings, wrap};
use proptest::prelude::*;

type Request3 = InternalRaftRequest;

fn key() -> impl Strategy<Value = String> {
    (0..6_u8).prop_map(|number| format!("k{number}"))
}

fn put() -> impl Strategy<Value = PutRequest> {
    (key(), "[a-c]{0,3}", 0..4_i64).prop_map(|(key, value, lease)| PutRequest {
        key: key.into(),
        value: value.into(),
        lease,
        ..PutRequest::default()
    })
}

fn range(key: String) -> RequestOp {
    RequestOp {
        request: Some(Request::RequestRange(RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        })),
    }
}

fn data_request() -> impl Strategy<Value = Request3> {
    let put_op = |put| RequestOp {
        request: Some(Request::RequestPut(put)),
    };
    prop_oneof![
        4 => put().prop_map(|put| Request3 { put: Some(put), ..Request3::default() }),
        1 => key().prop_map(|key| Request3 {
            delete_range: Some(DeleteRangeRequest { key: key.into(), ..Default::default() }),
            ..Request3::default()
        }),
        2 => (put(), key()).prop_map(move |(put, key)| Request3 {
            txn: Some(TxnRequest {
                success: vec![put_op(put), range(key)],
                ..TxnRequest::default()
            }),
            ..Request3::default()
        }),
        1 => (1..20_i64, any::<bool>()).prop_map(|(revision, physical)| Request3 {
            compaction: Some(CompactionRequest { revision, physical }),
            ..Request3::default()
        }),
        2 => (1..4_i64, 0..100_i64).prop_map(|(id, ttl)| Request3 {
            lease_grant: Some(LeaseGrantRequest { id, ttl }),
            ..Request3::default()
        }),
        1 => (1..4_i64).prop_map(|id| Request3 {
            lease_revoke: Some(LeaseRevokeRequest { id }),
            ..Request3::default()
        }),
        1 => (1..4_i64, 0..50_i64).prop_map(|(id, remaining_ttl)| Request3 {
            lease_checkpoint: Some(LeaseCheckpointRequest {
                checkpoints: vec![Checkpoint { id, remaining_ttl }],
            }),
            ..Request3::default()
        }),
        1 => (0..3_i32, 0..4_u64, 0..3_i32).prop_map(|(action, member_id, alarm)| Request3 {
            alarm: Some(AlarmRequest { action, member_id, alarm }),
            ..Request3::default()
        }),
    ]
}

fn params() -> impl Strategy<Value = Option<ClusterParams>> {
    let feature = |name: &str, enabled| Feature {
        name: name.to_owned(),
        enabled,
    };
    let params =
        (any::<bool>(), any::<bool>()).prop_map(move |(checkpoint, compression)| ClusterParams {
            version: "3.8".to_owned(),
            feature_gates: vec![
                feature("LeaseCheckpoint", checkpoint),
                feature("LogCompression", compression),
            ],
        });
    proptest::option::of(params)
}

fn cluster_request() -> impl Strategy<Value = Request3> {
    let version = prop_oneof![Just("3.6.0"), Just("3.7.0"), Just("3.8.0")];
    prop_oneof![
        (version.clone(), params()).prop_map(|(version, cluster_params)| Request3 {
            cluster_version_set: Some(ClusterVersionSetRequest {
                ver: version.to_owned(),
                cluster_params,
                ..ClusterVersionSetRequest::default()
            }),
            ..Request3::default()
        }),
        (1..5_u64, params()).prop_map(|(member_id, proposed)| Request3 {
            cluster_member_attr_set: Some(ClusterMemberAttrSetRequest {
                member_id,
                member_attributes: Some(Attributes {
                    name: format!("m{member_id}"),
                    client_urls: vec!["http://c:2379".to_owned()],
                    proposed_cluster_params: proposed,
                }),
            }),
            ..Request3::default()
        }),
        (version, any::<bool>()).prop_map(|(version, enabled)| Request3 {
            downgrade_info_set: Some(DowngradeInfoSetRequest {
                enabled,
                ver: version.to_owned(),
            }),
            ..Request3::default()
        }),
    ]
}

/// A request, or a configuration change.
#[derive(Debug, Clone)]
enum Content {
    Request(Request3),
    /// A request that requires features.
    Wrapped(Request3, Vec<String>),
    Change(ConfChange),
    FirstOfTerm,
}

fn change() -> impl Strategy<Value = ConfChange> {
    (0..4_i32, 1..5_u64, any::<bool>()).prop_map(|(kind, id, is_promote)| ConfChange {
        r#type: kind,
        node_id: id,
        context: format!(
            r#"{{"id":{id},"peerURLs":["http://m{id}:2380"],"isPromote":{is_promote}}}"#
        )
        .into(),
        ..ConfChange::default()
    })
}

fn content() -> impl Strategy<Value = Content> {
    let features = prop_oneof![Just("LeaseCheckpoint"), Just("LogCompression")];
    let features = proptest::collection::vec(features.prop_map(str::to_owned), 1..3);
    prop_oneof![
        8 => data_request().prop_map(Content::Request),
        2 => cluster_request().prop_map(Content::Request),
        1 => (data_request(), features).prop_map(|(request, names)| Content::Wrapped(request, names)),
        2 => change().prop_map(Content::Change),
        1 => Just(Content::FirstOfTerm),
    ]
}

fn entry(index: u64, content: &Content) -> Entry {
    match content {
        Content::Request(request) => normal(index, request.clone()),
        Content::Wrapped(request, required) => Entry {
            data: wrap::encode(
                RequestHeader {
                    id: index,
                    ..RequestHeader::default()
                },
                request.clone(),
                wrap::Wrapping {
                    pack: false,
                    required,
                },
            ),
            ..normal(index, Request3::default())
        },
        Content::Change(change) => conf_change(index, change.clone()),
        Content::FirstOfTerm => Entry {
            data: bytes::Bytes::new(),
            ..normal(index, Request3::default())
        },
    }
}

/// The log of a cluster with one member and what follows.
fn log(contents: &[Content]) -> Vec<Entry> {
    let first = Content::Change(ConfChange {
        node_id: 1,
        context: r#"{"id":1,"peerURLs":["http://m1:2380"],"name":"m1"}"#.into(),
        ..ConfChange::default()
    });
    let contents = std::iter::once(&first).chain(contents);
    contents
        .zip(1..)
        .map(|(content, index)| entry(index, content))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Two members apply the same log and differ in everything that is local: the clock, the
    /// clients that wait, the quota, the id, and when they were restarted.
    #[test]
    fn members_with_the_same_log_store_the_same(
        contents in proptest::collection::vec(content(), 0..80),
        restart_at in 0..80_usize,
        now_ms in 0..1_000_000_u64,
    ) {
        let mut one = Machine::new(settings());
        let mut other = Machine::new(Settings { member_id: 9, quota_bytes: Some(1), snapshot_count: 3, ..settings() });
        other.now_ms = now_ms;
        other.answers_clients = true;
        for (number, entry) in log(&contents).into_iter().enumerate() {
            if number == restart_at {
                other = other.restarted();
                other.answers_clients = true;
            }
            let index = entry.index;
            // A cluster version above the member's own, and the like: the member stops.
            let (applied, also) = (one.try_apply(entry.clone()), other.try_apply(entry));
            prop_assert_eq!(applied.is_err(), also.is_err());
            let (Ok(applied), Ok(also)) = (applied, also) else { break };
            let events = |applied: &portunus_statemachine::Applied| {
                applied.events.as_ref().map(|events| (events.revision, events.events.len()))
            };
            prop_assert_eq!(events(&applied), events(&also));
            let on = |machine: &Machine| {
                let view = machine.machine.view();
                (view.enabled(LeaseCheckpoint), view.enabled(LogCompression))
            };
            prop_assert_eq!(on(&one), on(&other));
            one.machine.end_batch(index, &|_| false);
            other.machine.end_batch(index, &|_| true);
        }
        prop_assert_eq!(one.dump(), other.dump());
        let hash = |machine: &Machine| machine.machine.reader().hash_kv(0).unwrap();
        prop_assert_eq!(hash(&one), hash(&other));
        prop_assert_eq!(
            one.machine.membership().to_messages(),
            other.machine.membership().to_messages()
        );
    }
}
