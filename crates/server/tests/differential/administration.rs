//! Random requests about users and roles, and the requests that are not about keys: leases,
//! watches, members, maintenance.

use portunus_proto::authpb::{Permission, UserAddOptions};
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AlarmType, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest,
    AuthRoleDeleteRequest, AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, DefragmentRequest,
    DowngradeRequest, HashKvRequest, HashRequest, LeaseKeepAliveRequest, LeaseLeasesRequest,
    LeaseTimeToLiveRequest, MemberAddRequest, MemberListRequest, MemberPromoteRequest,
    MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest, SnapshotRequest, StatusRequest,
    WatchCreateRequest, WatchRequest, alarm_request, downgrade_request,
};
use tonic::Status;

use crate::common::Clients;
use crate::common::random::Random;
use crate::requests::{Credentials, answer, clear, revision};

/// The names of users, with some that nobody adds.
pub const USERS: &[&str] = &["root", "alice", "bob", "carol", "dave", "a b", ""];
const ROLES: &[&str] = &["root", "readers", "writers", "r", "no role", ""];
/// Short and empty ones, one with a zero byte, and the longest that bcrypt takes.
pub const PASSWORDS: &[&str] = &["p", "p\0q", "", "secret", LONGEST_PASSWORD];
const LONGEST_PASSWORD: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789-2";
const TOO_LONG_PASSWORD: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789-23";
/// The bcrypt hash of `secret` with cost 4 as clients may send it, and texts that are none.
const HASHES: &[&str] = &[
    "JDJhJDA0JGFiY2RlZmdoaWprbG1ub3BxcnN0dXUycjlPZkpuZkNzZG5lQVhBR0huUzRVcEZGUDhXSXJX",
    "bm8gaGFzaA==",
    "bm8gaGFzaA",
    "*",
];
const KEYS: &[&str] = &["a", "b", "c", "d", "da", "db", "e", "\0", ""];
const ENDS: &[&str] = &["", "\0", "a", "c", "d", "e", "d\0", "da"];
/// Read, write, both, and two that no version knows.
const PERMISSION_TYPES: &[i32] = &[0, 1, 2, 0, 1, 2, 7, -1];

/// A request about users and roles.
#[derive(Debug, Clone)]
pub enum Change {
    Enable,
    Disable,
    Status,
    UserAdd(AuthUserAddRequest),
    UserGet(AuthUserGetRequest),
    UserList,
    UserDelete(AuthUserDeleteRequest),
    UserChangePassword(AuthUserChangePasswordRequest),
    UserGrantRole(AuthUserGrantRoleRequest),
    UserRevokeRole(AuthUserRevokeRoleRequest),
    RoleAdd(AuthRoleAddRequest),
    RoleGet(AuthRoleGetRequest),
    RoleList,
    RoleDelete(AuthRoleDeleteRequest),
    RoleGrantPermission(AuthRoleGrantPermissionRequest),
    RoleRevokePermission(AuthRoleRevokePermissionRequest),
}

/// Any other request that is not about keys.
#[derive(Debug, Clone)]
pub enum Other {
    KeepAlive(LeaseKeepAliveRequest),
    TimeToLive(LeaseTimeToLiveRequest),
    Leases,
    Watch(WatchCreateRequest),
    MemberList(MemberListRequest),
    MemberAdd(MemberAddRequest),
    MemberRemove(MemberRemoveRequest),
    MemberUpdate(MemberUpdateRequest),
    MemberPromote(MemberPromoteRequest),
    Alarm(AlarmRequest),
    Status,
    Defragment,
    Hash,
    HashKv(HashKvRequest),
    Snapshot,
    MoveLeader(MoveLeaderRequest),
    Downgrade(DowngradeRequest),
}

pub fn one_of<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[usize::try_from(random.below(of.len() as u64)).unwrap()]
}

fn user(random: &mut Random) -> String {
    one_of(random, USERS).to_owned()
}

fn role(random: &mut Random) -> String {
    one_of(random, ROLES).to_owned()
}

/// Returns a password and a hash as a client may send them, mostly without a hash.
fn password(random: &mut Random) -> (String, String) {
    let hash = match random.below(5) {
        0 => one_of(random, HASHES),
        _ => "",
    };
    let password = match random.below(20) {
        0 => TOO_LONG_PASSWORD,
        _ => one_of(random, PASSWORDS),
    };
    (password.to_owned(), hash.to_owned())
}

/// Returns a change of users and roles, or a question about them.
pub fn change(random: &mut Random) -> Change {
    match random.below(40) {
        0 => Change::Enable,
        1 if random.below(4) == 0 => Change::Disable,
        1..=2 => Change::Status,
        3..=6 => {
            let (password, hashed_password) = password(random);
            let options = (random.below(3) == 0).then(|| UserAddOptions {
                no_password: random.below(2) == 0,
            });
            Change::UserAdd(AuthUserAddRequest {
                name: user(random),
                password,
                options,
                hashed_password,
            })
        }
        7 => Change::UserDelete(AuthUserDeleteRequest { name: user(random) }),
        8 => {
            let (password, hashed_password) = password(random);
            Change::UserChangePassword(AuthUserChangePasswordRequest {
                name: user(random),
                password,
                hashed_password,
            })
        }
        9..=10 => Change::UserGet(AuthUserGetRequest { name: user(random) }),
        11 => Change::UserList,
        12..=18 => Change::UserGrantRole(AuthUserGrantRoleRequest {
            user: user(random),
            role: role(random),
        }),
        19..=20 => Change::UserRevokeRole(AuthUserRevokeRoleRequest {
            name: user(random),
            role: role(random),
        }),
        21..=23 => Change::RoleAdd(AuthRoleAddRequest { name: role(random) }),
        24..=25 => Change::RoleGet(AuthRoleGetRequest { role: role(random) }),
        26 => Change::RoleList,
        27 => Change::RoleDelete(AuthRoleDeleteRequest { role: role(random) }),
        28..=35 => Change::RoleGrantPermission(AuthRoleGrantPermissionRequest {
            name: role(random),
            perm: (random.below(20) > 0).then(|| Permission {
                perm_type: one_of(random, PERMISSION_TYPES),
                key: one_of(random, KEYS).into(),
                range_end: one_of(random, ENDS).into(),
            }),
        }),
        _ => Change::RoleRevokePermission(AuthRoleRevokePermissionRequest {
            role: role(random),
            key: one_of(random, KEYS).into(),
            range_end: one_of(random, ENDS).into(),
        }),
    }
}

/// Returns a request that is neither about keys nor about users and roles. No request changes
/// the membership: the members named do not exist.
pub fn other(random: &mut Random, newest: i64) -> Other {
    let lease = 1 + random.below(6) as i64;
    match random.below(40) {
        0..=6 => Other::KeepAlive(LeaseKeepAliveRequest { id: lease }),
        7..=14 => Other::TimeToLive(LeaseTimeToLiveRequest {
            id: lease,
            keys: random.below(3) > 0,
        }),
        15..=19 => Other::Leases,
        20..=28 => Other::Watch(WatchCreateRequest {
            key: one_of(random, KEYS).into(),
            range_end: one_of(random, ENDS).into(),
            // No compacted one: its second answer may come first.
            start_revision: match random.below(6) {
                0 => -1,
                1 => newest + 3,
                _ => 0,
            },
            ..WatchCreateRequest::default()
        }),
        29 => Other::MemberList(MemberListRequest {
            linearizable: random.below(2) == 0,
        }),
        30 => match random.below(4) {
            0 => Other::MemberAdd(MemberAddRequest {
                peer_urls: vec!["no address".to_owned()],
                is_learner: true,
            }),
            1 => Other::MemberRemove(MemberRemoveRequest { id: 1 }),
            2 => Other::MemberUpdate(MemberUpdateRequest {
                id: 1,
                peer_urls: vec!["http://127.0.0.1:1".to_owned()],
            }),
            _ => Other::MemberPromote(MemberPromoteRequest { id: 1 }),
        },
        31..=33 => Other::Alarm(AlarmRequest {
            action: match random.below(8) {
                0 => alarm_request::AlarmAction::Activate.into(),
                1..=4 => alarm_request::AlarmAction::Deactivate.into(),
                _ => alarm_request::AlarmAction::Get.into(),
            },
            member_id: 0,
            alarm: AlarmType::Nospace.into(),
        }),
        34 => Other::Status,
        35 if revision(random, newest) == 0 => Other::Defragment,
        35..=36 => Other::HashKv(HashKvRequest { revision: 0 }),
        37 => Other::Hash,
        38 if random.below(4) == 0 => Other::Snapshot,
        38 => Other::MoveLeader(MoveLeaderRequest { target_id: 1 }),
        _ => Other::Downgrade(DowngradeRequest {
            action: downgrade_request::DowngradeAction::Cancel.into(),
            version: String::new(),
        }),
    }
}

/// Sends a change as a user; returns its answer.
pub async fn send_change(clients: &mut Clients, change: Change, by: &Credentials) -> String {
    let auth = &mut clients.auth;
    macro_rules! call {
        ($method:ident, $request:expr) => {
            answer(auth.$method(by.sign($request)).await, |m| {
                clear(&mut m.header)
            })
        };
    }
    match change {
        Change::Enable => call!(auth_enable, AuthEnableRequest {}),
        Change::Disable => call!(auth_disable, AuthDisableRequest {}),
        Change::Status => call!(auth_status, AuthStatusRequest {}),
        Change::UserAdd(r) => call!(user_add, r),
        Change::UserGet(r) => call!(user_get, r),
        Change::UserList => call!(user_list, AuthUserListRequest {}),
        Change::UserDelete(r) => call!(user_delete, r),
        Change::UserChangePassword(r) => call!(user_change_password, r),
        Change::UserGrantRole(r) => call!(user_grant_role, r),
        Change::UserRevokeRole(r) => call!(user_revoke_role, r),
        Change::RoleAdd(r) => call!(role_add, r),
        Change::RoleGet(r) => call!(role_get, r),
        Change::RoleList => call!(role_list, AuthRoleListRequest {}),
        Change::RoleDelete(r) => call!(role_delete, r),
        Change::RoleGrantPermission(r) => call!(role_grant_permission, r),
        Change::RoleRevokePermission(r) => call!(role_revoke_permission, r),
    }
}

/// Returns the first message of a stream.
async fn first<T>(
    stream: Result<tonic::Response<tonic::Streaming<T>>, Status>,
) -> Result<tonic::Response<T>, Status> {
    let first = stream?.into_inner().message().await?;
    first
        .map(tonic::Response::new)
        .ok_or_else(|| Status::unknown("the stream ended"))
}

/// Returns a stream of one message, which does not end.
fn only<T: Send + 'static>(message: T) -> impl tokio_stream::Stream<Item = T> + Send {
    tokio_stream::StreamExt::chain(tokio_stream::once(message), tokio_stream::pending())
}

/// Sends another request as a user; returns the part of its answer that servers agree on.
pub async fn send_other(clients: &mut Clients, request: Other, by: &Credentials) -> String {
    let (maintenance, cluster) = (&mut clients.maintenance, &mut clients.cluster);
    match request {
        Other::KeepAlive(r) => {
            let kept = clients.lease.lease_keep_alive(by.sign(only(r))).await;
            answer(first(kept).await, |m| clear(&mut m.header))
        }
        Other::TimeToLive(r) => answer(clients.lease.lease_time_to_live(by.sign(r)).await, |m| {
            clear(&mut m.header);
            m.ttl = m.ttl.min(0);
            m.keys.sort();
        }),
        Other::Leases => {
            let request = by.sign(LeaseLeasesRequest {});
            answer(clients.lease.lease_leases(request).await, |m| {
                clear(&mut m.header);
                m.leases.sort_by_key(|lease| lease.id);
            })
        }
        Other::Watch(create) => {
            let request = WatchRequest {
                request_union: Some(RequestUnion::CreateRequest(create)),
            };
            let watch = clients.watch.watch(by.sign(only(request))).await;
            answer(first(watch).await, |m| clear(&mut m.header))
        }
        Other::MemberList(r) => answer(cluster.member_list(by.sign(r)).await, |m| {
            clear(&mut m.header);
            m.members.clear();
        }),
        Other::MemberAdd(r) => answer(cluster.member_add(by.sign(r)).await, |_| {}),
        Other::MemberRemove(r) => answer(cluster.member_remove(by.sign(r)).await, |_| {}),
        Other::MemberUpdate(r) => answer(cluster.member_update(by.sign(r)).await, |_| {}),
        Other::MemberPromote(r) => answer(cluster.member_promote(by.sign(r)).await, |_| {}),
        Other::Alarm(r) => answer(maintenance.alarm(by.sign(r)).await, |m| {
            clear(&mut m.header);
        }),
        Other::Status => {
            let status = maintenance.status(by.sign(StatusRequest {})).await;
            let revision = status.map(|status| {
                let header = status.into_inner().header.unwrap_or_default();
                tonic::Response::new(header.revision)
            });
            answer(revision, |_| {})
        }
        Other::Defragment => {
            let defragmented = maintenance.defragment(by.sign(DefragmentRequest {})).await;
            answer(defragmented, |m| clear(&mut m.header))
        }
        Other::Hash => answer(maintenance.hash(by.sign(HashRequest {})).await, |m| {
            clear(&mut m.header);
            m.hash = 0;
        }),
        Other::HashKv(r) => answer(maintenance.hash_kv(by.sign(r)).await, |m| {
            clear(&mut m.header);
        }),
        Other::Snapshot => {
            let pieces = maintenance.snapshot(by.sign(SnapshotRequest {})).await;
            // Files differ.
            answer(first(pieces).await, |m| *m = Default::default())
        }
        Other::MoveLeader(r) => answer(maintenance.move_leader(by.sign(r)).await, |_| {}),
        Other::Downgrade(r) => answer(maintenance.downgrade(by.sign(r)).await, |m| {
            clear(&mut m.header);
            m.version.clear();
        }),
    }
}
