//! Compares every message, enum and service of `proto/` with a table written
//! from the specification. A changed number, name or type fails here, and so
//! does a message that is not in the table.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use portunus_proto::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

/// `message: field number type, ...`. Types: b bytes, s string, i/u 64 bit,
/// u32, bool, otherwise the short name of a message or enum; `*` repeated.
const MESSAGES: &str = "
portunuspb.HistoryRequest: serializable 1 bool
portunuspb.HistoryResponse: header 1 ResponseHeader, decisions 2 *ClusterParamsDecision
portunuspb.WatchRequest: after_index 1 u
portunuspb.WatchResponse: header 1 ResponseHeader, decision 2 ClusterParamsDecision, changed 3 *Feature

mvccpb.KeyValue: key 1 b, create_revision 2 i, mod_revision 3 i, version 4 i, value 5 b, lease 6 i
mvccpb.Event: type 1 EventType, kv 2 KeyValue, prev_kv 3 KeyValue

authpb.UserAddOptions: no_password 1 bool
authpb.User: name 1 b, password 2 b, roles 3 *s, options 4 UserAddOptions
authpb.Permission: permType 1 Type, key 2 b, range_end 3 b
authpb.Role: name 1 b, keyPermission 2 *Permission

leasepb.Lease: ID 1 i, TTL 2 i, RemainingTTL 3 i
leasepb.LeaseInternalRequest: LeaseTimeToLiveRequest 1 LeaseTimeToLiveRequest
leasepb.LeaseInternalResponse: LeaseTimeToLiveResponse 1 LeaseTimeToLiveResponse

membershippb.RaftAttributes: peer_urls 1 *s, is_learner 2 bool
membershippb.Feature: name 1 s, enabled 2 bool
membershippb.ClusterParams: version 1 s, feature_gates 2 *Feature
membershippb.Attributes: name 1 s, client_urls 2 *s, proposed_cluster_params 3 ClusterParams
membershippb.Member: ID 1 u, raft_attributes 2 RaftAttributes, member_attributes 3 Attributes
membershippb.ClusterVersionSetRequest: ver 1 s, cluster_params 2 ClusterParams, decided_unix_seconds 50 i, decided_by 51 u, cause 52 s
membershippb.ClusterParamsHistory: decisions 1 *ClusterParamsDecision
membershippb.ClusterParamsDecision: index 1 u, cluster_version 2 s, params 3 ClusterParams, decided_unix_seconds 4 i, decided_by 5 u, cause 6 s
membershippb.ClusterMemberAttrSetRequest: member_ID 1 u, member_attributes 2 Attributes
membershippb.DowngradeInfoSetRequest: enabled 1 bool, ver 2 s

v3lockpb.LockRequest: name 1 b, lease 2 i
v3lockpb.LockResponse: header 1 ResponseHeader, key 2 b
v3lockpb.UnlockRequest: key 1 b
v3lockpb.UnlockResponse: header 1 ResponseHeader

v3electionpb.CampaignRequest: name 1 b, lease 2 i, value 3 b
v3electionpb.CampaignResponse: header 1 ResponseHeader, leader 2 LeaderKey
v3electionpb.LeaderKey: name 1 b, key 2 b, rev 3 i, lease 4 i
v3electionpb.LeaderRequest: name 1 b
v3electionpb.LeaderResponse: header 1 ResponseHeader, kv 2 KeyValue
v3electionpb.ResignRequest: leader 1 LeaderKey
v3electionpb.ResignResponse: header 1 ResponseHeader
v3electionpb.ProclaimRequest: leader 1 LeaderKey, value 2 b
v3electionpb.ProclaimResponse: header 1 ResponseHeader

raftpb.Entry: Type 1 EntryType, Term 2 u, Index 3 u, Data 4 b
raftpb.SnapshotMetadata: conf_state 1 ConfState, index 2 u, term 3 u
raftpb.Snapshot: data 1 b, metadata 2 SnapshotMetadata
raftpb.Message: type 1 MessageType, to 2 u, from 3 u, term 4 u, logTerm 5 u, index 6 u, entries 7 *Entry, commit 8 u, snapshot 9 Snapshot, reject 10 bool, rejectHint 11 u, context 12 b, vote 13 u, responses 14 *Message
raftpb.HardState: term 1 u, vote 2 u, commit 3 u
raftpb.ConfState: voters 1 *u, learners 2 *u, voters_outgoing 3 *u, learners_next 4 *u, auto_leave 5 bool
raftpb.ConfChange: id 1 u, type 2 ConfChangeType, node_id 3 u, context 4 b
raftpb.ConfChangeSingle: type 1 ConfChangeType, node_id 2 u
raftpb.ConfChangeV2: transition 1 ConfChangeTransition, changes 2 *ConfChangeSingle, context 3 b

walpb.Record: type 1 i, crc 2 u32, data 3 b
walpb.Snapshot: index 1 u, term 2 u, conf_state 3 ConfState
snappb.snapshot: crc 1 u32, data 2 b

etcdserverpb.Metadata: NodeID 1 u, ClusterID 2 u
etcdserverpb.Request: ID 1 u, Method 2 s, Path 3 s, Val 4 s, Dir 5 bool, PrevValue 6 s, PrevIndex 7 u, PrevExist 8 bool, Expiration 9 i, Wait 10 bool, Since 11 u, Recursive 12 bool, Sorted 13 bool, Quorum 14 bool, Time 15 i, Stream 16 bool, Refresh 17 bool
etcdserverpb.RequestHeader: ID 1 u, username 2 s, auth_revision 3 u
etcdserverpb.EmptyResponse:
etcdserverpb.InternalAuthenticateRequest: name 1 s, password 2 s, simple_token 3 s
etcdserverpb.WrappedRequest: packing 1 Packing, raw_bytes 2 u, data 3 b, required_features 4 *s
etcdserverpb.InternalRaftRequest: ID 1 u, v2 2 Request, range 3 RangeRequest, put 4 PutRequest, delete_range 5 DeleteRangeRequest, txn 6 TxnRequest, compaction 7 CompactionRequest, lease_grant 8 LeaseGrantRequest, lease_revoke 9 LeaseRevokeRequest, alarm 10 AlarmRequest, lease_checkpoint 11 LeaseCheckpointRequest, header 100 RequestHeader, auth_enable 1000 AuthEnableRequest, auth_disable 1011 AuthDisableRequest, authenticate 1012 InternalAuthenticateRequest, auth_status 1013 AuthStatusRequest, auth_user_add 1100 AuthUserAddRequest, auth_user_delete 1101 AuthUserDeleteRequest, auth_user_get 1102 AuthUserGetRequest, auth_user_change_password 1103 AuthUserChangePasswordRequest, auth_user_grant_role 1104 AuthUserGrantRoleRequest, auth_user_revoke_role 1105 AuthUserRevokeRoleRequest, auth_user_list 1106 AuthUserListRequest, auth_role_list 1107 AuthRoleListRequest, auth_role_add 1200 AuthRoleAddRequest, auth_role_delete 1201 AuthRoleDeleteRequest, auth_role_get 1202 AuthRoleGetRequest, auth_role_grant_permission 1203 AuthRoleGrantPermissionRequest, auth_role_revoke_permission 1204 AuthRoleRevokePermissionRequest, cluster_version_set 1300 ClusterVersionSetRequest, cluster_member_attr_set 1301 ClusterMemberAttrSetRequest, downgrade_info_set 1302 DowngradeInfoSetRequest, wrapped 5000 WrappedRequest, downgrade_version_test 9900 DowngradeVersionTestRequest

etcdserverpb.ResponseHeader: cluster_id 1 u, member_id 2 u, revision 3 i, raft_term 4 u
etcdserverpb.RangeRequest: key 1 b, range_end 2 b, limit 3 i, revision 4 i, sort_order 5 SortOrder, sort_target 6 SortTarget, serializable 7 bool, keys_only 8 bool, count_only 9 bool, min_mod_revision 10 i, max_mod_revision 11 i, min_create_revision 12 i, max_create_revision 13 i
etcdserverpb.RangeResponse: header 1 ResponseHeader, kvs 2 *KeyValue, more 3 bool, count 4 i
etcdserverpb.RangeStreamResponse: range_response 1 RangeResponse
etcdserverpb.PutRequest: key 1 b, value 2 b, lease 3 i, prev_kv 4 bool, ignore_value 5 bool, ignore_lease 6 bool
etcdserverpb.PutResponse: header 1 ResponseHeader, prev_kv 2 KeyValue
etcdserverpb.DeleteRangeRequest: key 1 b, range_end 2 b, prev_kv 3 bool
etcdserverpb.DeleteRangeResponse: header 1 ResponseHeader, deleted 2 i, prev_kvs 3 *KeyValue
etcdserverpb.RequestOp: request_range 1 RangeRequest, request_put 2 PutRequest, request_delete_range 3 DeleteRangeRequest, request_txn 4 TxnRequest
etcdserverpb.ResponseOp: response_range 1 RangeResponse, response_put 2 PutResponse, response_delete_range 3 DeleteRangeResponse, response_txn 4 TxnResponse
etcdserverpb.Compare: result 1 CompareResult, target 2 CompareTarget, key 3 b, version 4 i, create_revision 5 i, mod_revision 6 i, value 7 b, lease 8 i, range_end 64 b
etcdserverpb.TxnRequest: compare 1 *Compare, success 2 *RequestOp, failure 3 *RequestOp
etcdserverpb.TxnResponse: header 1 ResponseHeader, succeeded 2 bool, responses 3 *ResponseOp
etcdserverpb.CompactionRequest: revision 1 i, physical 2 bool
etcdserverpb.CompactionResponse: header 1 ResponseHeader
etcdserverpb.HashRequest:
etcdserverpb.HashResponse: header 1 ResponseHeader, hash 2 u32
etcdserverpb.HashKVRequest: revision 1 i
etcdserverpb.HashKVResponse: header 1 ResponseHeader, hash 2 u32, compact_revision 3 i, hash_revision 4 i
etcdserverpb.SnapshotRequest:
etcdserverpb.SnapshotResponse: header 1 ResponseHeader, remaining_bytes 2 u, blob 3 b, version 4 s
etcdserverpb.WatchRequest: create_request 1 WatchCreateRequest, cancel_request 2 WatchCancelRequest, progress_request 3 WatchProgressRequest
etcdserverpb.WatchCreateRequest: key 1 b, range_end 2 b, start_revision 3 i, progress_notify 4 bool, filters 5 *FilterType, prev_kv 6 bool, watch_id 7 i, fragment 8 bool
etcdserverpb.WatchCancelRequest: watch_id 1 i
etcdserverpb.WatchProgressRequest:
etcdserverpb.WatchResponse: header 1 ResponseHeader, watch_id 2 i, created 3 bool, canceled 4 bool, compact_revision 5 i, cancel_reason 6 s, fragment 7 bool, events 11 *Event
etcdserverpb.LeaseGrantRequest: TTL 1 i, ID 2 i
etcdserverpb.LeaseGrantResponse: header 1 ResponseHeader, ID 2 i, TTL 3 i, error 4 s
etcdserverpb.LeaseRevokeRequest: ID 1 i
etcdserverpb.LeaseRevokeResponse: header 1 ResponseHeader
etcdserverpb.LeaseKeepAliveRequest: ID 1 i
etcdserverpb.LeaseKeepAliveResponse: header 1 ResponseHeader, ID 2 i, TTL 3 i
etcdserverpb.LeaseTimeToLiveRequest: ID 1 i, keys 2 bool
etcdserverpb.LeaseTimeToLiveResponse: header 1 ResponseHeader, ID 2 i, TTL 3 i, grantedTTL 4 i, keys 5 *b
etcdserverpb.LeaseLeasesRequest:
etcdserverpb.LeaseStatus: ID 1 i
etcdserverpb.LeaseLeasesResponse: header 1 ResponseHeader, leases 2 *LeaseStatus
etcdserverpb.LeaseCheckpoint: ID 1 i, remaining_TTL 2 i
etcdserverpb.LeaseCheckpointRequest: checkpoints 1 *LeaseCheckpoint
etcdserverpb.LeaseCheckpointResponse: header 1 ResponseHeader
etcdserverpb.Member: ID 1 u, name 2 s, peerURLs 3 *s, clientURLs 4 *s, isLearner 5 bool
etcdserverpb.MemberAddRequest: peerURLs 1 *s, isLearner 2 bool
etcdserverpb.MemberAddResponse: header 1 ResponseHeader, member 2 Member, members 3 *Member
etcdserverpb.MemberRemoveRequest: ID 1 u
etcdserverpb.MemberRemoveResponse: header 1 ResponseHeader, members 2 *Member
etcdserverpb.MemberUpdateRequest: ID 1 u, peerURLs 2 *s
etcdserverpb.MemberUpdateResponse: header 1 ResponseHeader, members 2 *Member
etcdserverpb.MemberListRequest: linearizable 1 bool
etcdserverpb.MemberListResponse: header 1 ResponseHeader, members 2 *Member
etcdserverpb.MemberPromoteRequest: ID 1 u
etcdserverpb.MemberPromoteResponse: header 1 ResponseHeader, members 2 *Member
etcdserverpb.AlarmRequest: action 1 AlarmAction, memberID 2 u, alarm 3 AlarmType
etcdserverpb.AlarmMember: memberID 1 u, alarm 2 AlarmType
etcdserverpb.AlarmResponse: header 1 ResponseHeader, alarms 2 *AlarmMember
etcdserverpb.DefragmentRequest:
etcdserverpb.DefragmentResponse: header 1 ResponseHeader
etcdserverpb.MoveLeaderRequest: targetID 1 u
etcdserverpb.MoveLeaderResponse: header 1 ResponseHeader
etcdserverpb.DowngradeRequest: action 1 DowngradeAction, version 2 s
etcdserverpb.DowngradeResponse: header 1 ResponseHeader, version 2 s
etcdserverpb.DowngradeVersionTestRequest: ver 1 s
etcdserverpb.StatusRequest:
etcdserverpb.StatusResponse: header 1 ResponseHeader, version 2 s, dbSize 3 i, leader 4 u, raftIndex 5 u, raftTerm 6 u, raftAppliedIndex 7 u, errors 8 *s, dbSizeInUse 9 i, isLearner 10 bool, storageVersion 11 s, dbSizeQuota 12 i, downgradeInfo 13 DowngradeInfo
etcdserverpb.DowngradeInfo: enabled 1 bool, targetVersion 2 s

etcdserverpb.AuthEnableRequest:
etcdserverpb.AuthDisableRequest:
etcdserverpb.AuthStatusRequest:
etcdserverpb.AuthUserListRequest:
etcdserverpb.AuthRoleListRequest:
etcdserverpb.AuthenticateRequest: name 1 s, password 2 s
etcdserverpb.AuthUserAddRequest: name 1 s, password 2 s, options 3 UserAddOptions, hashedPassword 4 s
etcdserverpb.AuthUserGetRequest: name 1 s
etcdserverpb.AuthUserDeleteRequest: name 1 s
etcdserverpb.AuthUserChangePasswordRequest: name 1 s, password 2 s, hashedPassword 3 s
etcdserverpb.AuthUserGrantRoleRequest: user 1 s, role 2 s
etcdserverpb.AuthUserRevokeRoleRequest: name 1 s, role 2 s
etcdserverpb.AuthRoleAddRequest: name 1 s
etcdserverpb.AuthRoleGetRequest: role 1 s
etcdserverpb.AuthRoleDeleteRequest: role 1 s
etcdserverpb.AuthRoleGrantPermissionRequest: name 1 s, perm 2 Permission
etcdserverpb.AuthRoleRevokePermissionRequest: role 1 s, key 2 b, range_end 3 b
etcdserverpb.AuthEnableResponse: header 1 ResponseHeader
etcdserverpb.AuthDisableResponse: header 1 ResponseHeader
etcdserverpb.AuthStatusResponse: header 1 ResponseHeader, enabled 2 bool, authRevision 3 u
etcdserverpb.AuthenticateResponse: header 1 ResponseHeader, token 2 s
etcdserverpb.AuthUserAddResponse: header 1 ResponseHeader
etcdserverpb.AuthUserGetResponse: header 1 ResponseHeader, roles 2 *s
etcdserverpb.AuthUserDeleteResponse: header 1 ResponseHeader
etcdserverpb.AuthUserChangePasswordResponse: header 1 ResponseHeader
etcdserverpb.AuthUserGrantRoleResponse: header 1 ResponseHeader
etcdserverpb.AuthUserRevokeRoleResponse: header 1 ResponseHeader
etcdserverpb.AuthUserListResponse: header 1 ResponseHeader, users 2 *s
etcdserverpb.AuthRoleAddResponse: header 1 ResponseHeader
etcdserverpb.AuthRoleGetResponse: header 1 ResponseHeader, perm 2 *Permission
etcdserverpb.AuthRoleListResponse: header 1 ResponseHeader, roles 2 *s
etcdserverpb.AuthRoleDeleteResponse: header 1 ResponseHeader
etcdserverpb.AuthRoleGrantPermissionResponse: header 1 ResponseHeader
etcdserverpb.AuthRoleRevokePermissionResponse: header 1 ResponseHeader

etcdserverpb.Feature: name 1 s, enabled 2 bool
etcdserverpb.FeatureGateStatusRequest: is_server_feature 1 bool, features 2 *s, all_known 10 bool, serializable 11 bool
etcdserverpb.FeatureGateStatusResponse: header 1 ResponseHeader, is_server_feature 2 bool, features 3 *Feature, details 10 *FeatureGateDetail, proposals 11 *FeatureGateProposal, min_compatibility_version 12 s
etcdserverpb.FeatureGateProposal: member_id 1 u, version 2 s, feature_gates 3 *Feature, published 4 bool
etcdserverpb.FeatureGateDetail: name 1 s, level 2 s, enabled 3 bool, stage 4 s, default 5 bool, locked 6 bool, explicit 7 bool, source 8 s, reason 9 s, version_used 10 s, since_index 11 u, votes 12 *FeatureGateVote
etcdserverpb.FeatureGateVote: member_id 1 u, vote 2 s, if_promoted 3 s
";

const ENUMS: &str = "
etcdserverpb.WrappedRequest.Packing: PLAIN 0, LZ4_BLOCK 1
mvccpb.Event.EventType: PUT 0, DELETE 1
authpb.Permission.Type: READ 0, WRITE 1, READWRITE 2
raftpb.EntryType: EntryNormal 0, EntryConfChange 1, EntryConfChangeV2 2
raftpb.MessageType: MsgHup 0, MsgBeat 1, MsgProp 2, MsgApp 3, MsgAppResp 4, MsgVote 5, MsgVoteResp 6, MsgSnap 7, MsgHeartbeat 8, MsgHeartbeatResp 9, MsgUnreachable 10, MsgSnapStatus 11, MsgCheckQuorum 12, MsgTransferLeader 13, MsgTimeoutNow 14, MsgReadIndex 15, MsgReadIndexResp 16, MsgPreVote 17, MsgPreVoteResp 18, MsgStorageAppend 19, MsgStorageAppendResp 20, MsgStorageApply 21, MsgStorageApplyResp 22, MsgForgetLeader 23
raftpb.ConfChangeTransition: ConfChangeTransitionAuto 0, ConfChangeTransitionJointImplicit 1, ConfChangeTransitionJointExplicit 2
raftpb.ConfChangeType: ConfChangeAddNode 0, ConfChangeRemoveNode 1, ConfChangeUpdateNode 2, ConfChangeAddLearnerNode 3
etcdserverpb.RangeRequest.SortOrder: NONE 0, ASCEND 1, DESCEND 2
etcdserverpb.RangeRequest.SortTarget: KEY 0, VERSION 1, CREATE 2, MOD 3, VALUE 4
etcdserverpb.Compare.CompareResult: EQUAL 0, GREATER 1, LESS 2, NOT_EQUAL 3
etcdserverpb.Compare.CompareTarget: VERSION 0, CREATE 1, MOD 2, VALUE 3, LEASE 4
etcdserverpb.WatchCreateRequest.FilterType: NOPUT 0, NODELETE 1
etcdserverpb.AlarmRequest.AlarmAction: GET 0, ACTIVATE 1, DEACTIVATE 2
etcdserverpb.AlarmType: NONE 0, NOSPACE 1, CORRUPT 2
etcdserverpb.DowngradeRequest.DowngradeAction: VALIDATE 0, ENABLE 1, CANCEL 2
";

/// Streams are marked: `>` the server streams, `<>` both do.
const SERVICES: &str = "
etcdserverpb.KV: Range, RangeStream>, Put, DeleteRange, Txn, Compact
etcdserverpb.Watch: Watch<>
etcdserverpb.Lease: LeaseGrant, LeaseRevoke, LeaseKeepAlive<>, LeaseTimeToLive, LeaseLeases
etcdserverpb.Cluster: MemberAdd, MemberRemove, MemberUpdate, MemberList, MemberPromote
etcdserverpb.Maintenance: Alarm, Status, Defragment, Hash, HashKV, Snapshot>, MoveLeader, Downgrade, FeatureGateStatus
etcdserverpb.Auth: AuthEnable, AuthDisable, AuthStatus, Authenticate, UserAdd, UserGet, UserList, UserDelete, UserChangePassword, UserGrantRole, UserRevokeRole, RoleAdd, RoleGet, RoleList, RoleDelete, RoleGrantPermission, RoleRevokePermission
v3lockpb.Lock: Lock, Unlock
portunuspb.FeatureGates: History, Watch>
v3electionpb.Election: Campaign, Proclaim, Leader, Observe>, Resign
";

type Table = BTreeMap<String, String>;

fn expected(text: &str) -> Table {
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let table: Table = lines
        .iter()
        .map(|line| {
            let (name, content) = line.split_once(':').unwrap();
            (name.to_owned(), content.trim().to_owned())
        })
        .collect();
    assert_eq!(table.len(), lines.len(), "the table lists a name twice");
    table
}

/// Compares line by line so that a failure shows the line, not two whole tables.
fn assert_same(actual: &Table, expected: &Table) {
    for (name, content) in expected {
        assert_eq!(actual.get(name), Some(content), "{name}");
    }
    for name in actual.keys() {
        assert!(expected.contains_key(name), "{name} is in no table");
    }
}

fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap()
}

fn describe_message(
    prefix: &str,
    message: &DescriptorProto,
    messages: &mut Table,
    enums: &mut Table,
) {
    let name = format!("{prefix}.{}", message.name());
    let mut fields: Vec<_> = message.field.iter().collect();
    fields.sort_by_key(|field| field.number());
    let fields: Vec<_> = fields
        .iter()
        .map(|field| {
            let kind = match field.r#type() {
                Type::Bytes => "b",
                Type::String => "s",
                Type::Int64 => "i",
                Type::Uint64 => "u",
                Type::Uint32 => "u32",
                Type::Bool => "bool",
                Type::Message | Type::Enum => field.type_name().rsplit('.').next().unwrap(),
                other => panic!("{name}.{}: etcd uses no {other:?}", field.name()),
            };
            let repeated = if field.label() == Label::Repeated {
                "*"
            } else {
                ""
            };
            format!("{} {} {repeated}{kind}", field.name(), field.number())
        })
        .collect();
    messages.insert(name.clone(), fields.join(", "));
    for nested in &message.nested_type {
        describe_message(&name, nested, messages, enums);
    }
    for nested in &message.enum_type {
        describe_enum(&name, nested, enums);
    }
}

fn describe_enum(prefix: &str, described: &EnumDescriptorProto, enums: &mut Table) {
    let values: Vec<_> = described
        .value
        .iter()
        .map(|value| format!("{} {}", value.name(), value.number()))
        .collect();
    enums.insert(format!("{prefix}.{}", described.name()), values.join(", "));
}

/// Proves: S0-32, S0-33, S0-42, S1-8, S0-A14
#[test]
fn every_message_and_enum_has_the_specified_names_numbers_and_types() {
    let (mut messages, mut enums) = (Table::new(), Table::new());
    for file in &descriptors().file {
        for message in &file.message_type {
            describe_message(file.package(), message, &mut messages, &mut enums);
        }
        for described in &file.enum_type {
            describe_enum(file.package(), described, &mut enums);
        }
    }
    assert_same(&messages, &expected(MESSAGES));
    assert_same(&enums, &expected(ENUMS));
}

/// Proves: S0-42, S1-8
#[test]
fn every_service_has_the_specified_methods() {
    let mut services = Table::new();
    for file in &descriptors().file {
        for service in &file.service {
            let methods: Vec<_> = service
                .method
                .iter()
                .map(|method| {
                    let stream = match (method.client_streaming(), method.server_streaming()) {
                        (false, false) => "",
                        (false, true) => ">",
                        (true, true) => "<>",
                        (true, false) => panic!("etcd has no client-only stream"),
                    };
                    format!("{}{stream}", method.name())
                })
                .collect();
            services.insert(
                format!("{}.{}", file.package(), service.name()),
                methods.join(", "),
            );
        }
    }
    assert_same(&services, &expected(SERVICES));
}

/// Proves: S0-A13, S1-A1
#[test]
fn draft_name_of_attributes_field_3_is_reserved() {
    let descriptors = descriptors();
    let attributes = descriptors
        .file
        .iter()
        .find(|file| file.package() == "membershippb")
        .and_then(|file| file.message_type.iter().find(|m| m.name() == "Attributes"))
        .unwrap();
    assert_eq!(attributes.reserved_name, ["enabled_features"]);
}
