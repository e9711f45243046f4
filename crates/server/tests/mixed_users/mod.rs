//! Authentication in clusters of both kinds of members.

pub mod mutual_tls;

use std::collections::BTreeMap;

use portunus_proto::etcdserverpb::{
    AuthRoleRevokePermissionRequest, LeaseGrantRequest, PutRequest, RangeRequest, SnapshotRequest,
};
use portunus_testkit::member::InitialState;
use portunus_testkit::program::{Kind, Program};
use portunus_testkit::users::{
    self, ALICE, ALICE_KEYS, ALICE_ROLE, PASSWORD, ROOT, alices_permission, log_in, signed,
};
use tonic::Status;

use super::common::requests::{get, put};
use super::{Mixed, etcd_for, patiently};
use mutual_tls::MutualTls;

const DENIED: &str = "etcdserver: permission denied";
const OLD_REVISION: &str = "etcdserver: revision of auth store is old";

impl Mixed {
    /// Returns a token of a user from a member.
    async fn token(&self, via: &str, user: &str) -> String {
        let mut clients = self.clients(via).await;
        let mut token = String::new();
        patiently("a login", async || {
            token = log_in(&mut clients, user, PASSWORD).await?;
            Ok(())
        })
        .await;
        token
    }

    /// Writes a key as a user through a member.
    async fn write(&self, via: &str, token: &str, key: &str) -> Result<(), Status> {
        let mut clients = self.clients(via).await;
        let put = signed(token, put(key, "v"));
        clients.kv.put(put).await.map(drop)
    }

    /// Writes a key with a lease as `root` through one member, and waits until the lease expires
    /// and another member has deleted the key.
    async fn expire_lease(&self, via: &str, seen_by: &str) {
        let root = self.token(via, ROOT).await;
        let mut clients = self.clients(via).await;
        let grant = signed(&root, LeaseGrantRequest { ttl: 2, id: 0 });
        let lease = clients.lease.lease_grant(grant).await.unwrap();
        let leased = PutRequest {
            key: "z/leased".into(),
            lease: lease.into_inner().id,
            ..PutRequest::default()
        };
        let written = clients.kv.put(signed(&root, leased)).await;
        let written = written.unwrap().into_inner().header.unwrap().revision;
        let mut clients = self.clients(seen_by).await;
        patiently("a lease expires", async || {
            let found = clients.kv.range(signed(&root, get("z/leased"))).await?;
            let found = found.into_inner();
            match found.kvs.is_empty() && found.header.unwrap().revision > written {
                true => Ok(()),
                false => Err(Status::unavailable(self.logs())),
            }
        })
        .await;
    }

    /// Returns the records of users and roles of a member.
    async fn auth_records(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let root = self.token(name, ROOT).await;
        let mut clients = self.clients(name).await;
        let pieces = signed(&root, SnapshotRequest {});
        let pieces = clients.maintenance.snapshot(pieces).await.unwrap();
        let mut pieces = pieces.into_inner();
        let mut file = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            file.extend_from_slice(&piece.blob);
        }
        let reader = portunus_bolt::Reader::from_bytes(file.into()).unwrap();
        let mut records = BTreeMap::new();
        for bucket in ["auth", "authUsers", "authRoles"] {
            let stored = reader.bucket(bucket.as_bytes()).unwrap().unwrap();
            for (key, value) in stored.iter().map(Result::unwrap) {
                let key = format!("{bucket}/{}", String::from_utf8_lossy(key));
                records.insert(key, value.to_vec());
            }
        }
        records
    }
}

/// Two Go members with users, and a Portunus member that joins by snapshot.
async fn with_users(etcd: Program, tls: Option<MutualTls>) -> Mixed {
    let mut mixed = Mixed::new(etcd);
    mixed.tls = tls;
    for name in ["go1", "go2"] {
        mixed.add(name, Kind::Etcd);
    }
    for name in ["go1", "go2"] {
        mixed.start(name, InitialState::New);
    }
    mixed.leader().await;
    users::enable(&mut mixed.clients("go1").await).await;
    mixed.token = Some(mixed.token("go1", ROOT).await);
    // So many that the new member needs a snapshot.
    let root = mixed.token.clone().unwrap();
    for number in 0..250 {
        let written = mixed.write("go1", &root, &format!("z/{number}")).await;
        written.unwrap();
    }
    mixed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_tokens_are_those_of_the_cluster() {
    if let Some(etcd) = etcd_for("users_and_tokens_are_those_of_the_cluster") {
        share_users(etcd, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_tokens_are_those_of_the_cluster_over_mutual_tls() {
    if let Some(etcd) = etcd_for("users_and_tokens_are_those_of_the_cluster_over_mutual_tls") {
        share_users(etcd, Some(MutualTls::new())).await;
    }
}

/// A token from either kind is accepted by the other, a change of permissions through one holds
/// on the other, and leases expire whoever leads, though only `root` may write their keys.
async fn share_users(etcd: Program, tls: Option<MutualTls>) {
    // Over TLS the certificate names a user, which does not exist.
    let refusal = match tls {
        None => "etcdserver: user name is empty",
        Some(_) => DENIED,
    };
    let mut mixed = with_users(etcd, tls).await;

    // The new member never serves a key without a user.
    mixed.join_as_learner("p1", Kind::Portunus, "go1").await;
    let mut clients = mixed.clients("p1").await;
    patiently(
        "authentication is enforced after the snapshot",
        async || {
            let local = RangeRequest {
                serializable: true,
                ..get("z/1")
            };
            let refused = match clients.kv.range(local).await {
                Ok(answer) => {
                    assert_eq!(answer.into_inner().kvs, []);
                    return Err(Status::unavailable("no snapshot yet"));
                }
                Err(refused) => refused,
            };
            match refused.message() == refusal {
                true => Ok(()),
                false => Err(refused),
            }
        },
    )
    .await;
    let log = mixed.members["p1"].log();
    assert!(log.contains("the snapshot of the leader is installed"));
    mixed.promote("p1", "go1").await;

    for (from, at) in [("p1", "go1"), ("go2", "p1")] {
        let token = mixed.token(from, ALICE).await;
        mixed.write(at, &token, "a/1").await.unwrap();
        let denied = mixed.write(at, &token, "z/1").await.unwrap_err();
        assert_eq!(denied.message(), DENIED);
    }
    mixed.token = Some(mixed.token("p1", ROOT).await);
    let root = mixed.token.clone().unwrap();
    if let Some(tls) = &mixed.tls {
        for name in ["p1", "go1"] {
            tls.assert_required(mixed.members[name].client, &root).await;
        }
    }

    for (by, other) in [("p1", "go1"), ("go2", "p1")] {
        let alice = mixed.token(other, ALICE).await;
        mixed.write(other, &alice, "a/1").await.unwrap();
        let revoke = AuthRoleRevokePermissionRequest {
            role: ALICE_ROLE.to_owned(),
            key: ALICE_KEYS.0.into(),
            range_end: ALICE_KEYS.1.into(),
        };
        let mut clients = mixed.clients(by).await;
        let revoked = clients.auth.role_revoke_permission(signed(&root, revoke));
        revoked.await.unwrap();
        let refused = mixed.write(other, &alice, "a/1").await.unwrap_err();
        let text = refused.message();
        assert!(text == DENIED || text == OLD_REVISION, "{refused}");
        let granted = signed(&root, alices_permission());
        clients.auth.role_grant_permission(granted).await.unwrap();
        patiently("the permission is there again", async || {
            mixed.write(other, &alice, "a/1").await
        })
        .await;
    }

    mixed.move_leader("p1").await;
    mixed.expire_lease("go1", "go2").await;
    mixed.move_leader("go1").await;
    mixed.expire_lease("p1", "p1").await;
    mixed.agree("with authentication").await;
    let records = mixed.auth_records("p1").await;
    assert!(records.len() >= 6, "{records:?}");
    for name in ["go1", "go2"] {
        assert_eq!(mixed.auth_records(name).await, records, "{name}");
    }
    mixed.all_run();
}

/// Portunus serves the data directory of a crashed Go member with its users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_directory_of_a_go_member_is_taken_over_with_its_users() {
    let test = "data_directory_of_a_go_member_is_taken_over_with_its_users";
    let Some(etcd) = etcd_for(test) else {
        return;
    };
    let mut mixed = Mixed::new(etcd);
    mixed.add("go1", Kind::Etcd);
    mixed.start("go1", InitialState::New);
    mixed.leader().await;
    users::enable(&mut mixed.clients("go1").await).await;
    let root = users::assert_enforced(&mut mixed.clients("go1").await).await;
    for number in 0..250 {
        let written = mixed.write("go1", &root, &format!("z/{number}")).await;
        written.unwrap();
    }
    let records = mixed.auth_records("go1").await;
    mixed.members.get_mut("go1").unwrap().kill();

    mixed.members.get_mut("go1").unwrap().program = Program::portunus();
    mixed.start("go1", InitialState::Existing);
    let mut clients = mixed.clients("go1").await;
    patiently("the data is served", async || {
        log_in(&mut clients, ROOT, PASSWORD).await.map(drop)
    })
    .await;
    users::assert_enforced(&mut clients).await;
    assert_eq!(mixed.auth_records("go1").await, records);
    mixed.all_run();
}
