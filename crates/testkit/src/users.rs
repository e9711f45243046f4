//! Users of a server with authentication, and whether it is enforced.

use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, PutRequest, RangeRequest,
};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Status};

use crate::client::Clients;

/// The user and role that may do everything.
pub const ROOT: &str = "root";
/// A user who may read and write the keys of [`ALICE_KEYS`], by the role [`ALICE_ROLE`].
pub const ALICE: &str = "alice";
/// The role of [`ALICE`].
pub const ALICE_ROLE: &str = "a-keys";
/// The range of keys that [`ALICE_ROLE`] permits.
pub const ALICE_KEYS: (&str, &str) = ("a/", "a0");
/// The password of every user.
pub const PASSWORD: &str = "secret";

const NO_USER: &str = "etcdserver: user name is empty";
const DENIED: &str = "etcdserver: permission denied";
const LOGIN_FAILED: &str = "etcdserver: authentication failed, invalid user ID or password";

/// Returns a request with a token.
///
/// # Panics
/// If the token cannot be sent.
#[must_use]
pub fn signed<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let token = AsciiMetadataValue::try_from(token).expect("tokens are printable");
    request.metadata_mut().insert("token", token);
    request
}

/// Returns a new token of a user.
///
/// # Errors
/// The server's refusal.
pub async fn log_in(clients: &mut Clients, name: &str, password: &str) -> Result<String, Status> {
    let request = AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let answer = clients.auth.authenticate(request).await?;
    Ok(answer.into_inner().token)
}

/// Returns a permission to read and write the keys of [`ALICE_KEYS`], for [`ALICE_ROLE`].
#[must_use]
pub fn alices_permission() -> AuthRoleGrantPermissionRequest {
    AuthRoleGrantPermissionRequest {
        name: ALICE_ROLE.to_owned(),
        perm: Some(Permission {
            perm_type: Type::Readwrite.into(),
            key: ALICE_KEYS.0.into(),
            range_end: ALICE_KEYS.1.into(),
        }),
    }
}

/// Adds [`ROOT`] and [`ALICE`], writes a key that Alice may read and one that she may not, and
/// enables authentication.
///
/// # Panics
/// If the server refuses it.
pub async fn enable(clients: &mut Clients) {
    let auth = &mut clients.auth;
    for name in [ROOT, ALICE_ROLE] {
        let name = name.to_owned();
        auth.role_add(AuthRoleAddRequest { name }).await.unwrap();
    }
    auth.role_grant_permission(alices_permission())
        .await
        .unwrap();
    for (user, role) in [(ROOT, ROOT), (ALICE, ALICE_ROLE)] {
        let add = AuthUserAddRequest {
            name: user.to_owned(),
            password: PASSWORD.to_owned(),
            ..AuthUserAddRequest::default()
        };
        auth.user_add(add).await.unwrap();
        let grant = AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: role.to_owned(),
        };
        auth.user_grant_role(grant).await.unwrap();
    }
    for key in ["a/1", "z/1"] {
        clients.kv.put(put(key)).await.unwrap();
    }
    let enable = AuthEnableRequest {};
    clients.auth.auth_enable(enable).await.unwrap();
}

fn put(key: &str) -> PutRequest {
    PutRequest {
        key: key.to_owned().into(),
        value: "v".into(),
        ..PutRequest::default()
    }
}

fn get(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        ..RangeRequest::default()
    }
}

fn refusal<T>(answer: Result<T, Status>) -> String {
    answer.map_or_else(|status| status.message().to_owned(), |_| "OK".to_owned())
}

/// Checks that a server has the users of [`enable`], and what each of them may do; returns a token
/// of [`ROOT`].
///
/// # Panics
/// If a request is answered otherwise.
pub async fn assert_enforced(clients: &mut Clients) -> String {
    let anonymous = [
        refusal(clients.kv.range(get("a/1")).await),
        refusal(clients.kv.put(put("a/1")).await),
    ];
    assert_eq!(anonymous, [NO_USER, NO_USER]);
    let wrong = log_in(clients, ALICE, "wrong").await;
    assert_eq!(refusal(wrong), LOGIN_FAILED);
    let alice = log_in(clients, ALICE, PASSWORD).await.unwrap();
    let read = clients.kv.range(signed(&alice, get("a/1"))).await.unwrap();
    assert_eq!(read.into_inner().kvs.len(), 1);
    clients.kv.put(signed(&alice, put("a/1"))).await.unwrap();
    let denied = [
        refusal(clients.kv.range(signed(&alice, get("z/1"))).await),
        refusal(clients.kv.put(signed(&alice, put("z/1"))).await),
    ];
    assert_eq!(denied, [DENIED, DENIED]);
    let root = log_in(clients, ROOT, PASSWORD).await.unwrap();
    let read = clients.kv.range(signed(&root, get("z/1"))).await.unwrap();
    assert_eq!(read.into_inner().kvs.len(), 1);
    root
}
