//! The messages of every gRPC call, and what the server checks before it proposes them.

use std::fmt::Debug;

use bytes::Bytes;
use portunus_mvcc::rules::{quota, txn, validate};
use portunus_proto::etcdserverpb::*;
use portunus_proto::{portunuspb, v3electionpb, v3lockpb};
use prost::Message;

use crate::input::take_byte;

/// Operations of a transaction, the default of `--max-txn-ops`.
const TXN_OPS_MAX: usize = 128;

/// Decodes a message, and checks that what was decoded is encoded and decoded without a change.
fn decode<M: Message + Default + PartialEq + Debug>(data: &[u8]) -> Option<M> {
    let message = M::decode(Bytes::copy_from_slice(data)).ok()?;
    let encoded = message.encode_to_vec();
    assert_eq!(encoded.len(), message.encoded_len());
    let again = M::decode(encoded.as_slice()).expect("an encoded message is decoded");
    assert_eq!(again, message);
    assert_eq!(again.encode_to_vec(), encoded);
    Some(message)
}

macro_rules! decode_one_of {
    ($choice:expr, $data:expr, $($message:ty),* $(,)?) => {{
        let decoders: &[fn(&[u8])] = &[$(|data| { decode::<$message>(data); }),*];
        decoders[usize::from($choice) % decoders.len()]($data);
    }};
}

/// Decodes one message of any call; the first byte selects its type.
pub fn grpc_messages(mut data: &[u8]) {
    let choice = take_byte(&mut data);
    decode_one_of!(
        choice,
        data,
        RangeRequest,
        PutRequest,
        DeleteRangeRequest,
        TxnRequest,
        CompactionRequest,
        WatchRequest,
        LeaseGrantRequest,
        LeaseRevokeRequest,
        LeaseKeepAliveRequest,
        LeaseTimeToLiveRequest,
        LeaseLeasesRequest,
        MemberAddRequest,
        MemberRemoveRequest,
        MemberUpdateRequest,
        MemberListRequest,
        MemberPromoteRequest,
        AlarmRequest,
        StatusRequest,
        DefragmentRequest,
        HashRequest,
        HashKvRequest,
        SnapshotRequest,
        MoveLeaderRequest,
        DowngradeRequest,
        AuthEnableRequest,
        AuthDisableRequest,
        AuthStatusRequest,
        AuthenticateRequest,
        AuthUserAddRequest,
        AuthUserGetRequest,
        AuthUserListRequest,
        AuthUserDeleteRequest,
        AuthUserChangePasswordRequest,
        AuthUserGrantRoleRequest,
        AuthUserRevokeRoleRequest,
        AuthRoleAddRequest,
        AuthRoleGetRequest,
        AuthRoleListRequest,
        AuthRoleDeleteRequest,
        AuthRoleGrantPermissionRequest,
        AuthRoleRevokePermissionRequest,
        FeatureGateStatusRequest,
        portunuspb::HistoryRequest,
        portunuspb::WatchRequest,
        v3electionpb::CampaignRequest,
        v3electionpb::ProclaimRequest,
        v3electionpb::LeaderRequest,
        v3electionpb::ResignRequest,
        v3lockpb::LockRequest,
        v3lockpb::UnlockRequest,
        // Answers, which a client decodes.
        RangeResponse,
        TxnResponse,
        WatchResponse,
        LeaseTimeToLiveResponse,
        MemberListResponse,
        SnapshotResponse,
        StatusResponse,
        AuthRoleGetResponse,
        portunuspb::HistoryResponse,
        portunuspb::WatchResponse,
    );
}

/// Decodes the requests of the service KV, and checks them as the server does.
pub fn kv_requests(mut data: &[u8]) {
    match take_byte(&mut data) % 4 {
        0 => {
            if let Some(request) = decode::<RangeRequest>(data) {
                let _ = validate::range(&request);
                let _ = validate::range_stream(&request);
            }
        }
        1 => {
            if let Some(request) = decode::<PutRequest>(data) {
                let _ = validate::put(&request);
                let _ = quota::put_cost_bytes(&request);
            }
        }
        2 => {
            if let Some(request) = decode::<DeleteRangeRequest>(data) {
                let _ = validate::delete_range(&request);
            }
        }
        _ => {
            if let Some(request) = decode::<TxnRequest>(data) {
                let is_valid = validate::txn(&request, TXN_OPS_MAX);
                let _ = quota::txn_cost_bytes(&request);
                let is_read_only = txn::is_read_only(&request);
                let _ = txn::is_serializable(&request);
                if is_valid.is_ok() && !is_read_only {
                    assert!(request.encoded_len() > 0);
                }
            }
        }
    }
}
