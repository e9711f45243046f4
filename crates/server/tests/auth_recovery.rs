//! Users and permissions survive what the data survives: restarts, crashes during administration
//! and `--force-new-cluster`; and they are enforced from the first request on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::random::Random;
use common::requests::get;
use common::{Clients, Server, data_dir};
use portunus_proto::authpb::Permission;
use portunus_proto::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleGetRequest, AuthRoleGrantPermissionRequest, AuthStatusRequest,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, SnapshotRequest,
};
use portunus_testkit::users::{self, ALICE, PASSWORD, ROOT, log_in, signed};
use tonic::{Code, Status};

const FLAGS: [&str; 1] = ["--bcrypt-cost=4"];

/// Starts a member with users.
async fn start_with_users(dir: &Path) -> (Server, Clients) {
    let server = Server::start(dir, &FLAGS);
    let mut clients = server.connect().await;
    users::enable(&mut clients).await;
    (server, clients)
}

async fn auth_revision(clients: &mut Clients) -> u64 {
    let status = clients.auth.auth_status(AuthStatusRequest {}).await;
    let status = status.unwrap().into_inner();
    assert!(status.enabled);
    status.auth_revision
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_kept_and_enforced_after_restarts() {
    let (_guard, dir) = data_dir();
    let (server, mut clients) = start_with_users(&dir).await;
    let token = users::assert_enforced(&mut clients).await;
    let revision = auth_revision(&mut clients).await;
    server.stop();

    for is_killed in [true, false] {
        let server = Server::start(&dir, &FLAGS);
        let mut clients = server.connect().await;
        // Simple tokens are in memory, as in etcd.
        let old = clients.kv.range(signed(&token, get("a/1"))).await;
        assert_eq!(old.unwrap_err().code(), Code::Unauthenticated);
        users::assert_enforced(&mut clients).await;
        assert_eq!(auth_revision(&mut clients).await, revision);
        match is_killed {
            true => server.kill(),
            false => server.stop(),
        }
    }

    let flags = [FLAGS[0], "--force-new-cluster"];
    let server = Server::start(&dir, &flags);
    let mut clients = server.connect().await;
    users::assert_enforced(&mut clients).await;
    assert_eq!(auth_revision(&mut clients).await, revision);
    let snapshot = clients.maintenance.snapshot(SnapshotRequest {}).await;
    let refused = snapshot.map(drop).unwrap_err();
    assert_eq!(refused.message(), "etcdserver: user name is empty");
    server.stop();
}

/// A deleted user and an old password are refused after a crash as well.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_user_and_old_password_stay_refused_after_a_crash() {
    let (_guard, dir) = data_dir();
    let (server, mut clients) = start_with_users(&dir).await;
    let root = log_in(&mut clients, ROOT, PASSWORD).await.unwrap();
    let delete = AuthUserDeleteRequest {
        name: ALICE.to_owned(),
    };
    let deleted = clients.auth.user_delete(signed(&root, delete)).await;
    deleted.unwrap();
    let change = AuthUserChangePasswordRequest {
        name: ROOT.to_owned(),
        password: "changed".to_owned(),
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = clients.auth.user_change_password(signed(&root, change));
    changed.await.unwrap();
    server.kill();

    let server = Server::start(&dir, &FLAGS);
    let mut clients = server.connect().await;
    for (user, password) in [(ALICE, PASSWORD), (ROOT, PASSWORD)] {
        let refused = log_in(&mut clients, user, password).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{user}: {refused}");
    }
    log_in(&mut clients, ROOT, "changed").await.unwrap();
}

/// Adds a user and a role of the same name, with a permission for the key of that name.
async fn add_user_with_role(clients: &mut Clients, root: &str, name: &str) -> Result<(), Status> {
    let auth = &mut clients.auth;
    let role = AuthRoleAddRequest {
        name: name.to_owned(),
    };
    auth.role_add(signed(root, role)).await?;
    let permission = AuthRoleGrantPermissionRequest {
        name: name.to_owned(),
        perm: Some(Permission {
            key: name.to_owned().into(),
            ..Permission::default()
        }),
    };
    let permitted = auth.role_grant_permission(signed(root, permission));
    permitted.await?;
    let user = AuthUserAddRequest {
        name: name.to_owned(),
        password: PASSWORD.to_owned(),
        ..AuthUserAddRequest::default()
    };
    auth.user_add(signed(root, user)).await?;
    let grant = AuthUserGrantRoleRequest {
        user: name.to_owned(),
        role: name.to_owned(),
    };
    let granted = auth.user_grant_role(signed(root, grant));
    granted.await.map(drop)
}

/// Checks that an acknowledged user is there with its role and permission, and can log in.
async fn assert_has_user(clients: &mut Clients, root: &str, name: &str) {
    let user = AuthUserGetRequest {
        name: name.to_owned(),
    };
    let user = clients.auth.user_get(signed(root, user)).await.unwrap();
    assert_eq!(user.into_inner().roles, [name]);
    let role = AuthRoleGetRequest {
        role: name.to_owned(),
    };
    let role = clients.auth.role_get(signed(root, role)).await.unwrap();
    assert_eq!(role.into_inner().perm[0].key, name.as_bytes());
    let token = log_in(clients, name, PASSWORD).await.unwrap();
    clients.kv.range(signed(&token, get(name))).await.unwrap();
    let denied = clients.kv.range(signed(&token, get("a/1"))).await;
    assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_administration_survives_crashes() {
    const ROUNDS: u64 = 4;
    let mut random = Random::seeded("acknowledged_administration_survives_crashes");
    let (_guard, dir) = data_dir();
    let (server, _) = start_with_users(&dir).await;
    server.kill();
    let mut acknowledged: Vec<String> = Vec::new();
    let mut revision = 0;
    for round in 0..ROUNDS {
        let server = Server::start(&dir, &FLAGS);
        let mut clients = server.connect().await;
        assert!(auth_revision(&mut clients).await >= revision);
        let root = users::assert_enforced(&mut clients).await;
        for name in &acknowledged {
            assert_has_user(&mut clients, &root, name).await;
        }
        let life = Duration::from_millis(50 + random.below(300));
        let mut administrator = server.connect().await;
        let adding = tokio::spawn(async move {
            let mut added = Vec::new();
            for number in 0.. {
                let name = format!("user-{round}-{number}");
                match add_user_with_role(&mut administrator, &root, &name).await {
                    Ok(()) => added.push(name),
                    Err(_) => break,
                }
            }
            added
        });
        tokio::time::sleep(life).await;
        revision = auth_revision(&mut clients).await;
        server.kill();
        acknowledged.extend(adding.await.unwrap());
    }
    let server = Server::start(&dir, &FLAGS);
    let mut clients = server.connect().await;
    let root = users::assert_enforced(&mut clients).await;
    assert!(auth_revision(&mut clients).await >= revision);
    assert!(!acknowledged.is_empty());
    for name in &acknowledged {
        assert_has_user(&mut clients, &root, name).await;
    }
}
