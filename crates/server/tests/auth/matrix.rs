//! Every RPC and HTTP endpoint with every kind of caller, compared with `access.txt`.
//!
//! `REWRITE=1 cargo test -p portunus-server --test auth` writes the table anew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::downgrade_request::DowngradeAction;
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::watch_request::RequestUnion;
use portunus_proto::etcdserverpb::{
    AlarmRequest, AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest,
    AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthRoleListRequest,
    AuthRoleRevokePermissionRequest, AuthStatusRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, AuthenticateRequest,
    CompactionRequest, DefragmentRequest, DeleteRangeRequest, DowngradeRequest,
    FeatureGateStatusRequest, HashKvRequest, HashRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
    MoveLeaderRequest, PutRequest, RangeRequest, RequestOp, SnapshotRequest, StatusRequest,
    TxnRequest, WatchCreateRequest, WatchRequest,
};
use portunus_proto::portunuspb::feature_gates_client::FeatureGatesClient;
use portunus_proto::portunuspb::{HistoryRequest, WatchRequest as GateWatchRequest};
use portunus_server::grpc::access::Rpc;
use tokio_stream::StreamExt;
use tonic::Status;

use super::common::cluster::Cluster;
use super::common::{Clients, Server, data_dir, http_at};
use super::{Account, CHEAP_HASHES, add_user, enable, grant, log_in, with};

/// The range of all requests, and the roles around it.
const KEY: &[u8] = b"b";
const END: &[u8] = b"d";
const ACCOUNTS: [Account<'static>; 5] = [
    ("exact", Type::Readwrite, KEY, END),
    ("left", Type::Readwrite, b"b\0", END),
    ("right", Type::Readwrite, KEY, b"c"),
    ("reader", Type::Read, KEY, END),
    ("writer", Type::Write, KEY, END),
];
/// Simple tokens live this long without use.
const TOKEN_TTL_S: u64 = 4;
/// The lease that `root` attaches to [`KEY`].
const LEASE: i64 = 77;

/// Where the requests go.
#[derive(Clone)]
struct Target {
    clients: Clients,
    address: std::net::SocketAddr,
}

/// The outcome in one word. Whatever passes authorisation is `ok`, also if it fails afterwards.
fn outcome<T>(result: Result<T, Status>) -> &'static str {
    let Err(status) = result else {
        return "ok";
    };
    word(status.message())
}

fn word(text: &str) -> &'static str {
    [
        ("user name is empty", "anonymous"),
        ("permission denied", "denied"),
        ("invalid auth token", "token"),
        ("revision of auth store is old", "old"),
    ]
    .into_iter()
    .find(|(part, _)| text.contains(part))
    .map_or("ok", |(_, word)| word)
}

/// Calls every RPC; returns the outcomes by name.
async fn call_all(target: &Target, token: Option<&str>) -> BTreeMap<String, &'static str> {
    let mut outcomes = BTreeMap::new();
    for rpc in Rpc::ALL.iter().filter(|rpc| **rpc != Rpc::AuthDisable) {
        for (variant, outcome) in call(target, *rpc, token).await {
            let name = rpc.path().trim_start_matches('/');
            outcomes.insert(format!("{name}{variant}"), outcome);
        }
    }
    for (method, path) in [
        ("GET", "/featuregate"),
        ("POST", "/v3/maintenance/featuregate"),
        ("GET", "/health"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/version"),
        ("GET", "/metrics"),
    ] {
        let header = |token: &&str| ("authorization".to_owned(), (*token).to_owned());
        let headers: Vec<(String, String)> = token.iter().map(header).collect();
        let answer = http_at(target.address, method, path, &headers, &[]);
        let outcome = match answer.status {
            200 => "ok",
            _ => word(&answer.body),
        };
        outcomes.insert(format!("{method} {path}"), outcome);
    }
    // Last: without authentication no token is valid any more.
    let disabled = call(target, Rpc::AuthDisable, token).await[0].1;
    if disabled == "ok" {
        let auth = &mut target.clients.clone().auth;
        auth.auth_enable(AuthEnableRequest {}).await.unwrap();
    }
    outcomes.insert("etcdserverpb.Auth/AuthDisable".to_owned(), disabled);
    outcomes
}

/// Calls an RPC in its variants.
async fn call(target: &Target, rpc: Rpc, token: Option<&str>) -> Vec<(&'static str, &'static str)> {
    let Clients {
        channel,
        kv,
        watch,
        lease,
        maintenance,
        cluster,
        auth,
    } = &mut target.clients.clone();
    macro_rules! one {
        ($client:ident.$method:ident($message:expr)) => {
            vec![("", outcome($client.$method(with($message, token)).await))]
        };
    }
    let (key, range_end) = (
        bytes::Bytes::from_static(KEY),
        bytes::Bytes::from_static(END),
    );
    let range = || RangeRequest {
        key: key.clone(),
        range_end: range_end.clone(),
        ..RangeRequest::default()
    };
    let delete = |prev_kv| DeleteRangeRequest {
        key: key.clone(),
        range_end: range_end.clone(),
        prev_kv,
    };
    let put = |prev_kv, lease| PutRequest {
        key: key.clone(),
        value: "v".into(),
        lease,
        prev_kv,
        ..PutRequest::default()
    };
    match rpc {
        Rpc::Range => {
            let serializable = RangeRequest {
                serializable: true,
                ..range()
            };
            vec![
                ("", outcome(kv.range(with(range(), token)).await)),
                (
                    " (serializable)",
                    outcome(kv.range(with(serializable, token)).await),
                ),
            ]
        }
        Rpc::RangeStream => {
            let outcome = match kv.range_stream(with(range(), token)).await {
                Ok(stream) => outcome(stream.into_inner().message().await),
                Err(status) => outcome::<()>(Err(status)),
            };
            vec![("", outcome)]
        }
        Rpc::Put => vec![
            ("", outcome(kv.put(with(put(false, 0), token)).await)),
            (
                " (prev_kv)",
                outcome(kv.put(with(put(true, 0), token)).await),
            ),
            (
                " (lease)",
                outcome(kv.put(with(put(false, LEASE), token)).await),
            ),
        ],
        Rpc::DeleteRange => {
            let without = outcome(kv.delete_range(with(delete(false), token)).await);
            attach(target, LEASE).await;
            let with_prev = outcome(kv.delete_range(with(delete(true), token)).await);
            attach(target, LEASE).await;
            vec![("", without), (" (prev_kv)", with_prev)]
        }
        Rpc::Txn => {
            let nested = |op: Op| {
                let inner = TxnRequest {
                    failure: vec![RequestOp { request: Some(op) }],
                    ..TxnRequest::default()
                };
                TxnRequest {
                    success: vec![RequestOp {
                        request: Some(Op::RequestTxn(inner)),
                    }],
                    ..TxnRequest::default()
                }
            };
            let reads = nested(Op::RequestRange(range()));
            let writes = nested(Op::RequestPut(put(false, 0)));
            vec![
                (" (nested read)", outcome(kv.txn(with(reads, token)).await)),
                (
                    " (nested write)",
                    outcome(kv.txn(with(writes, token)).await),
                ),
            ]
        }
        Rpc::Compact => one!(kv.compact(CompactionRequest::default())),
        Rpc::Watch => {
            let create = WatchCreateRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                ..WatchCreateRequest::default()
            };
            let request = WatchRequest {
                request_union: Some(RequestUnion::CreateRequest(create)),
            };
            let requests = tokio_stream::once(request).chain(tokio_stream::pending());
            let mut stream = watch
                .watch(with(requests, token))
                .await
                .unwrap()
                .into_inner();
            let created = stream.message().await.unwrap().unwrap();
            vec![("", word(&created.cancel_reason))]
        }
        Rpc::LeaseGrant => one!(lease.lease_grant(LeaseGrantRequest { ttl: 5, id: 0 })),
        Rpc::LeaseRevoke => {
            let grant = LeaseGrantRequest { ttl: 60, id: 0 };
            let root = log_in(&mut target.clients.clone(), "root").await;
            let granted = lease.lease_grant(with(grant, Some(&root))).await;
            let id = granted.unwrap().into_inner().id;
            attach(target, id).await;
            let outcomes = one!(lease.lease_revoke(LeaseRevokeRequest { id }));
            attach(target, LEASE).await;
            outcomes
        }
        Rpc::LeaseKeepAlive => {
            let requests = tokio_stream::once(LeaseKeepAliveRequest { id: LEASE });
            let outcome = match lease.lease_keep_alive(with(requests, token)).await {
                Ok(stream) => outcome(stream.into_inner().message().await),
                Err(status) => outcome::<()>(Err(status)),
            };
            vec![("", outcome)]
        }
        Rpc::LeaseTimeToLive => {
            let request = |keys| LeaseTimeToLiveRequest { id: LEASE, keys };
            let without = lease.lease_time_to_live(with(request(false), token)).await;
            let with_keys = lease.lease_time_to_live(with(request(true), token)).await;
            vec![("", outcome(without)), (" (keys)", outcome(with_keys))]
        }
        Rpc::LeaseLeases => one!(lease.lease_leases(LeaseLeasesRequest {})),
        Rpc::MemberAdd => {
            // A URL that a member has: refused after authorisation.
            let root = log_in(&mut target.clients.clone(), "root").await;
            let listed = cluster.member_list(with(MemberListRequest::default(), Some(&root)));
            let peer_urls = listed.await.unwrap().into_inner().members[0]
                .peer_urls
                .clone();
            one!(cluster.member_add(MemberAddRequest {
                peer_urls,
                is_learner: false,
            }))
        }
        Rpc::MemberRemove => one!(cluster.member_remove(MemberRemoveRequest { id: 1 })),
        Rpc::MemberUpdate => one!(cluster.member_update(MemberUpdateRequest {
            id: 1,
            peer_urls: vec!["http://127.0.0.1:1".to_owned()],
        })),
        Rpc::MemberList => one!(cluster.member_list(MemberListRequest::default())),
        Rpc::MemberPromote => one!(cluster.member_promote(MemberPromoteRequest { id: 1 })),
        Rpc::Alarm => {
            let get = maintenance
                .alarm(with(AlarmRequest::default(), token))
                .await;
            let disarm = AlarmRequest {
                action: 2,
                ..AlarmRequest::default()
            };
            let disarm = maintenance.alarm(with(disarm, token)).await;
            vec![(" (get)", outcome(get)), (" (disarm)", outcome(disarm))]
        }
        Rpc::Status => one!(maintenance.status(StatusRequest {})),
        Rpc::Defragment => one!(maintenance.defragment(DefragmentRequest {})),
        Rpc::Hash => one!(maintenance.hash(HashRequest {})),
        Rpc::HashKv => one!(maintenance.hash_kv(HashKvRequest { revision: 0 })),
        Rpc::Snapshot => {
            let outcome = match maintenance.snapshot(with(SnapshotRequest {}, token)).await {
                Ok(stream) => outcome(stream.into_inner().message().await),
                Err(status) => outcome::<()>(Err(status)),
            };
            vec![("", outcome)]
        }
        Rpc::MoveLeader => one!(maintenance.move_leader(MoveLeaderRequest { target_id: 1 })),
        Rpc::Downgrade => one!(maintenance.downgrade(DowngradeRequest {
            action: DowngradeAction::Validate.into(),
            version: "1.0".to_owned(),
        })),
        Rpc::FeatureGateStatus => {
            one!(maintenance.feature_gate_status(FeatureGateStatusRequest::default()))
        }
        Rpc::AuthEnable => one!(auth.auth_enable(AuthEnableRequest {})),
        Rpc::AuthDisable => one!(auth.auth_disable(AuthDisableRequest {})),
        Rpc::AuthStatus => one!(auth.auth_status(AuthStatusRequest {})),
        Rpc::Authenticate => one!(auth.authenticate(AuthenticateRequest {
            name: "exact".to_owned(),
            password: "exact".to_owned(),
        })),
        Rpc::UserAdd => one!(auth.user_add(AuthUserAddRequest {
            name: "root".to_owned(),
            password: "x".to_owned(),
            ..AuthUserAddRequest::default()
        })),
        Rpc::UserGet => {
            let get = |name: &str| AuthUserGetRequest {
                name: name.to_owned(),
            };
            let own = auth.user_get(with(get("exact"), token)).await;
            let other = auth.user_get(with(get("root"), token)).await;
            vec![(" (exact)", outcome(own)), (" (root)", outcome(other))]
        }
        Rpc::UserList => one!(auth.user_list(AuthUserListRequest {})),
        Rpc::UserDelete => one!(auth.user_delete(AuthUserDeleteRequest {
            name: "root".to_owned(),
        })),
        Rpc::UserChangePassword => {
            one!(auth.user_change_password(AuthUserChangePasswordRequest {
                name: "missing".to_owned(),
                password: "x".to_owned(),
                ..AuthUserChangePasswordRequest::default()
            }))
        }
        Rpc::UserGrantRole => one!(auth.user_grant_role(AuthUserGrantRoleRequest {
            user: "root".to_owned(),
            role: "root".to_owned(),
        })),
        Rpc::UserRevokeRole => one!(auth.user_revoke_role(AuthUserRevokeRoleRequest {
            name: "root".to_owned(),
            role: "root".to_owned(),
        })),
        Rpc::RoleAdd => one!(auth.role_add(AuthRoleAddRequest {
            name: "exact".to_owned(),
        })),
        Rpc::RoleGet => {
            let get = |role: &str| AuthRoleGetRequest {
                role: role.to_owned(),
            };
            let own = auth.role_get(with(get("exact"), token)).await;
            let other = auth.role_get(with(get("reader"), token)).await;
            vec![(" (exact)", outcome(own)), (" (reader)", outcome(other))]
        }
        Rpc::RoleList => one!(auth.role_list(AuthRoleListRequest {})),
        Rpc::RoleDelete => one!(auth.role_delete(AuthRoleDeleteRequest {
            role: "root".to_owned(),
        })),
        Rpc::RoleGrantPermission => {
            one!(auth.role_grant_permission(AuthRoleGrantPermissionRequest::default()))
        }
        Rpc::RoleRevokePermission => {
            one!(
                auth.role_revoke_permission(AuthRoleRevokePermissionRequest {
                    role: "exact".to_owned(),
                    ..AuthRoleRevokePermissionRequest::default()
                })
            )
        }
        Rpc::GateHistory => {
            let mut gates = FeatureGatesClient::new(channel.clone());
            one!(gates.history(HistoryRequest::default()))
        }
        Rpc::GateWatch => {
            let mut gates = FeatureGatesClient::new(channel.clone());
            let outcome = match gates.watch(with(GateWatchRequest::default(), token)).await {
                Ok(stream) => outcome(stream.into_inner().message().await),
                Err(status) => outcome::<()>(Err(status)),
            };
            vec![("", outcome)]
        }
        // Served by the library of the health protocol, which takes no caller.
        Rpc::HealthCheck | Rpc::HealthWatch => Vec::new(),
    }
}

/// Attaches the key to a lease, as `root`.
async fn attach(target: &Target, lease: i64) {
    let mut clients = target.clients.clone();
    let root = log_in(&mut clients, "root").await;
    let put = PutRequest {
        key: bytes::Bytes::from_static(KEY),
        lease,
        ..PutRequest::default()
    };
    clients.kv.put(with(put, Some(&root))).await.unwrap();
}

/// Makes all columns of the table at one member.
async fn columns(target: &Target) -> Vec<(&'static str, BTreeMap<String, &'static str>)> {
    let mut clients = target.clients.clone();
    let mut columns = vec![("none", call_all(target, None).await)];
    for user in ["poor", "exact", "left", "right", "reader", "writer", "root"] {
        let token = log_in(&mut clients, user).await;
        columns.push((user, call_all(target, Some(&token)).await));
    }
    let root = log_in(&mut clients, "root").await;
    add_user(&mut clients, "gone", Some(&root)).await;
    grant(&mut clients, "gone", "exact", Some(&root)).await;
    let gone = log_in(&mut clients, "gone").await;
    let delete = AuthUserDeleteRequest {
        name: "gone".to_owned(),
    };
    let deleted = clients.auth.user_delete(with(delete, Some(&root)));
    deleted.await.unwrap();
    columns.push(("deleted", call_all(target, Some(&gone)).await));
    let expired = log_in(&mut clients, "exact").await;
    // A use would prolong its life, so this cannot wait for a condition.
    tokio::time::sleep(Duration::from_secs(TOKEN_TTL_S + 1)).await;
    columns.push(("expired", call_all(target, Some(&expired)).await));
    columns
}

fn table(columns: &[(&'static str, BTreeMap<String, &'static str>)]) -> String {
    let mut names: Vec<&String> = columns.iter().flat_map(|(_, rows)| rows.keys()).collect();
    names.sort();
    names.dedup();
    let mut text = format!("{:<52}", "");
    for (caller, _) in columns {
        text += &format!("{caller:<10}");
    }
    let line = |text: String| text.trim_end().to_owned() + "\n";
    let mut text = line(text);
    for name in names {
        let mut row = format!("{name:<52}");
        for (_, rows) in columns {
            row += &format!("{:<10}", rows.get(name).copied().unwrap_or("-"));
        }
        text += &line(row);
    }
    text
}

#[track_caller]
fn assert_as_committed(found: &str, at: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/auth/access.txt");
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let lines = committed.lines().zip(found.lines());
    let differing: Vec<_> = lines
        .filter(|(committed, found)| committed != found)
        .collect();
    assert!(committed == found, "{at}: {differing:#?}");
}

async fn prepare(clients: &mut Clients) {
    add_user(clients, "poor", None).await;
    let grant = LeaseGrantRequest {
        ttl: 600,
        id: LEASE,
    };
    clients.lease.lease_grant(grant).await.unwrap();
    let attach = PutRequest {
        key: bytes::Bytes::from_static(KEY),
        lease: LEASE,
        ..PutRequest::default()
    };
    clients.kv.put(attach).await.unwrap();
    enable(clients, &ACCOUNTS).await;
}

fn flags() -> [String; 2] {
    [
        CHEAP_HASHES.to_owned(),
        format!("--auth-token-ttl={TOKEN_TTL_S}"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn access_to_one_member_is_as_the_committed_table_says() {
    let (_guard, dir) = data_dir();
    let flags = flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start(&dir, &flags);
    let target = Target {
        clients: server.connect().await,
        address: server.address,
    };
    prepare(&mut target.clients.clone()).await;
    assert_as_committed(&table(&columns(&target).await), "one member");
}

#[tokio::test(flavor = "multi_thread")]
async fn access_to_leader_and_follower_is_as_the_committed_table_says() {
    let test = "access_to_leader_and_follower_is_as_the_committed_table_says";
    let flags = flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut cluster = Cluster::start(test, 3, &flags).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    prepare(&mut cluster.clients(leader)).await;
    for member in [leader, follower] {
        let endpoint = cluster.members[member].endpoint();
        let target = Target {
            clients: cluster.clients(member),
            address: endpoint.trim_start_matches("http://").parse().unwrap(),
        };
        let found = table(&columns(&target).await);
        if std::env::var_os("REWRITE").is_none() {
            assert_as_committed(
                &found,
                if member == leader {
                    "leader"
                } else {
                    "follower"
                },
            );
        }
    }
}

/// A new RPC needs a rule, and a rule needs an RPC.
#[test]
fn every_rpc_of_the_protocol_has_a_rule() {
    let document = include_str!("../../../../docs/api.md");
    let (_, rpcs) = document.split_once("\n## RPCs\n").unwrap();
    let (rpcs, _) = rpcs.split_once("\n## ").unwrap();
    let mut service = "";
    let mut listed = Vec::new();
    for line in rpcs.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            service = name;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let support = cells.iter().rev().nth(1);
        if support.is_some_and(|support| support.starts_with("supported")) {
            listed.push(format!("/{service}/{}", cells[1]));
        }
    }
    assert!(listed.len() > 40, "{listed:?}");
    let mut ruled: Vec<&str> = Rpc::ALL.iter().map(|rpc| rpc.path()).collect();
    ruled.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, ruled);
}
