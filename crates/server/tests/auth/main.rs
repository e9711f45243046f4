//! Authentication and authorisation of a running member, over its services.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod matrix;
mod streams;
mod tokens;
mod watches;

use common::Clients;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, PutRequest, RangeRequest,
};
use tonic::{Request, Status};

/// Makes hashing fast; nobody attacks these passwords.
pub const CHEAP_HASHES: &str = "--bcrypt-cost=4";

/// Returns a request with a token.
pub fn with<T>(message: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let metadata = request.metadata_mut();
        metadata.insert("token", token.parse().unwrap());
    }
    request
}

/// A user with its permission: name, kind, key and end of the range.
pub type Account<'a> = (&'a str, Type, &'a [u8], &'a [u8]);

/// Adds `root` and users that have a role each with one permission, and enables authentication.
/// The password of each is its name.
pub async fn enable(clients: &mut Clients, accounts: &[Account<'_>]) {
    add_user(clients, "root", None).await;
    grant(clients, "root", "root", None).await;
    for (name, kind, key, range_end) in accounts {
        add_user(clients, name, None).await;
        add_role(clients, name, permission(*kind, key, range_end)).await;
        grant(clients, name, name, None).await;
    }
    clients
        .auth
        .auth_enable(AuthEnableRequest {})
        .await
        .unwrap();
}

pub fn permission(kind: Type, key: &[u8], range_end: &[u8]) -> Permission {
    Permission {
        perm_type: kind.into(),
        key: key.to_vec().into(),
        range_end: range_end.to_vec().into(),
    }
}

pub async fn add_user(clients: &mut Clients, name: &str, token: Option<&str>) {
    let user = AuthUserAddRequest {
        name: name.to_owned(),
        password: name.to_owned(),
        ..AuthUserAddRequest::default()
    };
    clients.auth.user_add(with(user, token)).await.unwrap();
}

async fn add_role(clients: &mut Clients, name: &str, permission: Permission) {
    let role = AuthRoleAddRequest {
        name: name.to_owned(),
    };
    clients.auth.role_add(role).await.unwrap();
    let permitted = AuthRoleGrantPermissionRequest {
        name: name.to_owned(),
        perm: Some(permission),
    };
    let granted = clients.auth.role_grant_permission(permitted).await;
    granted.unwrap();
}

pub async fn grant(clients: &mut Clients, user: &str, role: &str, token: Option<&str>) {
    let grant = AuthUserGrantRoleRequest {
        user: user.to_owned(),
        role: role.to_owned(),
    };
    let granted = clients.auth.user_grant_role(with(grant, token)).await;
    granted.unwrap();
}

/// Returns a token of a user.
pub async fn log_in(clients: &mut Clients, name: &str) -> String {
    let login = AuthenticateRequest {
        name: name.to_owned(),
        password: name.to_owned(),
    };
    let answer = clients.auth.authenticate(login).await;
    answer.unwrap().into_inner().token
}

pub async fn put(clients: &mut Clients, key: &str, token: Option<&str>) -> Result<i64, Status> {
    let put = PutRequest {
        key: key.to_owned().into(),
        value: "value".into(),
        ..PutRequest::default()
    };
    let answer = clients.kv.put(with(put, token)).await?;
    Ok(answer.into_inner().header.unwrap().revision)
}

pub async fn get(clients: &mut Clients, key: &str, token: Option<&str>) -> Result<usize, Status> {
    let range = RangeRequest {
        key: key.to_owned().into(),
        ..RangeRequest::default()
    };
    let answer = clients.kv.range(with(range, token)).await?;
    Ok(answer.into_inner().kvs.len())
}

/// The text of a refusal.
#[track_caller]
pub fn text<T: std::fmt::Debug>(result: Result<T, Status>) -> String {
    result.expect_err("a refusal").message().to_owned()
}
