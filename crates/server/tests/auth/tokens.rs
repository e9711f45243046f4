//! Logins and tokens.

use std::time::Duration;

use portunus_proto::authpb::UserAddOptions;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthDisableRequest, AuthStatusRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthenticateRequest, StatusRequest,
};
use tonic::Code;

use super::common::cluster::Cluster;
use super::common::{Server, data_dir, refusal};
use super::{CHEAP_HASHES, add_user, enable, get, grant, log_in, put, text, with};

const INVALID: &str = "etcdserver: invalid auth token";

#[tokio::test(flavor = "multi_thread")]
async fn token_ends_with_its_user_its_password_and_authentication() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    let accounts = [("u", Type::Readwrite, &b"a"[..], &b"b"[..])];
    enable(&mut clients, &accounts).await;
    let root = log_in(&mut clients, "root").await;
    let first = log_in(&mut clients, "u").await;
    let second = log_in(&mut clients, "u").await;
    assert_ne!(first, second);
    for token in [&first, &second] {
        put(&mut clients, "a", Some(token)).await.unwrap();
    }
    let change = AuthUserChangePasswordRequest {
        name: "u".to_owned(),
        password: "u".to_owned(),
        ..AuthUserChangePasswordRequest::default()
    };
    let changed = clients.auth.user_change_password(with(change, Some(&root)));
    changed.await.unwrap();
    assert_eq!(text(put(&mut clients, "a", Some(&first)).await), INVALID);
    let third = log_in(&mut clients, "u").await;
    put(&mut clients, "a", Some(&third)).await.unwrap();
    let delete = AuthUserDeleteRequest {
        name: "u".to_owned(),
    };
    let deleted = clients.auth.user_delete(with(delete, Some(&root)));
    deleted.await.unwrap();
    assert_eq!(text(put(&mut clients, "a", Some(&third)).await), INVALID);
    // A new user with the old name has none of the old tokens.
    add_user(&mut clients, "u", Some(&root)).await;
    grant(&mut clients, "u", "u", Some(&root)).await;
    assert_eq!(text(put(&mut clients, "a", Some(&third)).await), INVALID);

    let disable = with(AuthDisableRequest {}, Some(&root));
    clients.auth.auth_disable(disable).await.unwrap();
    put(&mut clients, "z", None).await.unwrap();
    let status = clients.auth.auth_status(AuthStatusRequest {}).await;
    assert!(!status.unwrap().into_inner().enabled);
}

#[tokio::test(flavor = "multi_thread")]
async fn login_is_refused_as_in_etcd() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    let login = |name: &str, password: &str| AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    let early = clients.auth.authenticate(login("root", "root")).await;
    let not_enabled = "etcdserver: authentication is not enabled".to_owned();
    assert_eq!(refusal(early), (Code::FailedPrecondition, not_enabled));
    let certified = AuthUserAddRequest {
        name: "certified".to_owned(),
        options: Some(UserAddOptions { no_password: true }),
        ..AuthUserAddRequest::default()
    };
    clients.auth.user_add(certified).await.unwrap();
    enable(&mut clients, &[]).await;
    let failed = "etcdserver: authentication failed, invalid user ID or password".to_owned();
    for (name, password) in [("root", "Root"), ("root", ""), ("nobody", "x"), ("", "")] {
        let refused = clients.auth.authenticate(login(name, password)).await;
        assert_eq!(refusal(refused), (Code::InvalidArgument, failed.clone()));
    }
    let refused = clients.auth.authenticate(login("certified", "x")).await;
    let text = "auth: authentication failed, password was given for no password user";
    assert_eq!(refusal(refused), (Code::Unknown, text.to_owned()));
}

/// Texts that look like tokens are refused at once; none of them waits or ends the process.
#[tokio::test(flavor = "multi_thread")]
async fn invented_tokens_are_refused_without_waiting() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES]);
    let mut clients = server.connect().await;
    enable(&mut clients, &[]).await;
    let root = log_in(&mut clients, "root").await;
    let (letters, index) = root.split_once('.').unwrap();
    let long = "x".repeat(4000);
    for token in [
        "",
        ".",
        "x",
        "x.1",
        ".1",
        &format!(".{index}"),
        letters,
        &format!("{letters}."),
        &format!("{letters}.{}", u64::MAX),
        &format!("{letters}.18446744073709551616"),
        &format!("{letters}.-1"),
        &format!("{root}.1"),
        &format!("{letters}x.{index}"),
        &long,
        &format!("{long}.1"),
    ] {
        let refused = get(&mut clients, "a", Some(token));
        let refused = tokio::time::timeout(Duration::from_secs(4), refused).await;
        assert_eq!(text(refused.expect("no wait")), INVALID, "{token:.40}");
    }
    get(&mut clients, "a", Some(&root)).await.unwrap();
    get(&mut clients, "a", Some(&format!("Bearer {root}")))
        .await
        .unwrap();
}

/// Every member accepts a token as soon as the client has it.
#[tokio::test(flavor = "multi_thread")]
async fn token_of_one_member_is_accepted_by_all() {
    let test = "token_of_one_member_is_accepted_by_all";
    let mut cluster = Cluster::start(test, 3, &[CHEAP_HASHES]).await;
    let leader = cluster.leader().await;
    let accounts = [("u", Type::Readwrite, &b"a"[..], &b"b"[..])];
    enable(&mut cluster.clients(leader), &accounts).await;
    for from in 0..3 {
        let token = log_in(&mut cluster.clients(from), "u").await;
        for to in 0..3 {
            let mut clients = cluster.clients(to);
            put(&mut clients, "a", Some(&token)).await.unwrap();
            let denied = text(put(&mut clients, "b", Some(&token)).await);
            assert_eq!(denied, "etcdserver: permission denied");
        }
    }
    // Also a member that was restarted since: it has forgotten its tokens, and says so.
    let token = log_in(&mut cluster.clients(0), "u").await;
    cluster.kill(1);
    cluster.start_one(1).await;
    let mut clients = cluster.clients(1);
    let status = clients
        .maintenance
        .status(with(StatusRequest {}, Some(&token)));
    if let Err(status) = status.await {
        assert_eq!(status.message(), INVALID);
    }
    assert_eq!(
        text(put(&mut clients, "a", None).await),
        "etcdserver: user name is empty"
    );
    let token = log_in(&mut clients, "u").await;
    put(&mut clients, "a", Some(&token)).await.unwrap();
}
