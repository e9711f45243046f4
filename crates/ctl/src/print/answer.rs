//! Everything that can be printed.

use std::time::Duration;

use portunus_bolt::snapshot;
use portunus_proto::etcdserverpb::{
    AlarmResponse, DeleteRangeResponse, HashKvResponse, LeaseGrantResponse, LeaseKeepAliveResponse,
    LeaseLeasesResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, MemberListResponse,
    PutResponse, RangeResponse, StatusResponse, TxnResponse, WatchResponse,
};

/// One answer to the user.
#[derive(Debug)]
pub enum Answer<'a> {
    /// `put`
    Put(&'a PutResponse),
    /// `get`
    Range(&'a RangeResponse),
    /// `del`
    DeleteRange(&'a DeleteRangeResponse),
    /// `txn`
    Txn(&'a TxnResponse),
    /// `watch`
    Watch(&'a WatchResponse),
    /// `lease grant`
    LeaseGrant(&'a LeaseGrantResponse),
    /// `lease revoke`
    LeaseRevoke(i64, &'a LeaseRevokeResponse),
    /// `lease keep-alive`
    KeepAlive(&'a LeaseKeepAliveResponse),
    /// `lease timetolive`
    TimeToLive {
        /// What the server said.
        response: &'a LeaseTimeToLiveResponse,
        /// Whether the keys were asked for.
        keys: bool,
    },
    /// `lease list`
    Leases(&'a LeaseLeasesResponse),
    /// `member list`
    Members(&'a MemberListResponse),
    /// `alarm list`, `alarm disarm`
    Alarms(&'a AlarmResponse),
    /// `endpoint health`
    Health(&'a [EndpointHealth]),
    /// `endpoint status`
    Status(&'a [EndpointStatus]),
    /// `endpoint hashkv`
    HashKv(&'a [EndpointHashKv]),
    /// `snapshot status`
    Snapshot(&'a snapshot::Status),
}

/// Whether an endpoint commits.
#[derive(Debug)]
pub struct EndpointHealth {
    /// As given by the user or the member.
    pub endpoint: String,
    /// How long the answer took.
    pub took: Duration,
    /// Why it is not healthy.
    pub error: Option<String>,
}

/// State of the member behind an endpoint.
#[derive(Debug)]
pub struct EndpointStatus {
    /// As given by the user or the member.
    pub endpoint: String,
    /// What it said.
    pub response: StatusResponse,
}

/// Hash of the member behind an endpoint.
#[derive(Debug)]
pub struct EndpointHashKv {
    /// As given by the user or the member.
    pub endpoint: String,
    /// What it said.
    pub response: HashKvResponse,
}
