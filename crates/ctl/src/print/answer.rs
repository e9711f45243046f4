//! Everything that can be printed.

use std::time::Duration;

use portunus_bolt::snapshot;
use portunus_datadir::migrate::Migrated;
use portunus_gates::cluster::DowngradeState;
use portunus_mvcc::KvHash;
use portunus_proto::etcdserverpb::{
    AlarmResponse, DeleteRangeResponse, DowngradeResponse, HashKvResponse, LeaseGrantResponse,
    LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse,
    MemberAddResponse, MemberListResponse, MemberPromoteResponse, MemberRemoveResponse,
    MemberUpdateResponse, MoveLeaderResponse, PutResponse, RangeResponse, StatusResponse,
    TxnResponse, WatchResponse,
};

use super::auth::AuthAnswer;
use super::gate::GateAnswer;
use crate::go::duration;

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
        /// The server's response.
        response: &'a LeaseTimeToLiveResponse,
        /// Whether the keys were asked for.
        keys: bool,
    },
    /// `lease list`
    Leases(&'a LeaseLeasesResponse),
    /// `member list`
    Members(&'a MemberListResponse),
    /// `member add`
    MemberAdd {
        /// The server's response.
        response: &'a MemberAddResponse,
        /// The name that the user gave.
        name: &'a str,
        /// The peer URLs as the user gave them.
        peer_urls: &'a str,
    },
    /// `member remove`
    MemberRemove(u64, &'a MemberRemoveResponse),
    /// `member update`
    MemberUpdate(u64, &'a MemberUpdateResponse),
    /// `member promote`
    MemberPromote(u64, &'a MemberPromoteResponse),
    /// `move-leader`
    MoveLeader {
        /// The former leader.
        from: u64,
        /// The new leader.
        to: u64,
        /// The response of the former leader.
        response: &'a MoveLeaderResponse,
    },
    /// `downgrade`
    Downgrade {
        /// The name of the subcommand.
        did: &'static str,
        /// The server's response.
        response: &'a DowngradeResponse,
    },
    /// `downgrade status`
    DowngradeStatus(&'a DowngradeState),
    /// `alarm list`, `alarm disarm`
    Alarms(&'a AlarmResponse),
    /// `endpoint health`
    Health(&'a [EndpointHealth]),
    /// `endpoint status`
    Status(&'a [EndpointStatus]),
    /// `endpoint hashkv`
    HashKv(&'a [EndpointHashKv]),
    /// `gate`, `endpoint featuregate`
    Gate(GateAnswer<'a>),
    /// `auth`, `user`, `role`
    Auth(AuthAnswer<'a>),
    /// `snapshot status`
    Snapshot(&'a snapshot::Status),
    /// `hashkv`
    FileHash(&'a KvHash),
    /// `migrate`
    Migrated(&'a Migrated),
}

/// The health of an endpoint: whether its member commits.
#[derive(Debug)]
pub struct EndpointHealth {
    /// As given by the user or the member.
    pub endpoint: String,
    /// The duration of the check; `None` if it could not begin.
    pub took: Option<Duration>,
    /// Why it is not healthy.
    pub error: Option<String>,
}

impl EndpointHealth {
    /// The duration as Go prints it.
    pub fn took_text(&self) -> String {
        self.took.map(duration::format).unwrap_or_default()
    }
}

/// State of the member behind an endpoint.
#[derive(Debug)]
pub struct EndpointStatus {
    /// As given by the user or the member.
    pub endpoint: String,
    /// The response of its member.
    pub response: StatusResponse,
}

/// Hash of the member behind an endpoint.
#[derive(Debug)]
pub struct EndpointHashKv {
    /// As given by the user or the member.
    pub endpoint: String,
    /// The response of its member.
    pub response: HashKvResponse,
}
