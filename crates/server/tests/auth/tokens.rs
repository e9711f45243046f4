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

/// Guessing a password is slow, and locks out neither other users nor other addresses.
#[tokio::test(flavor = "multi_thread")]
async fn failed_logins_are_limited_per_user_and_address() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES, "--max-failed-logins=3"]);
    let mut clients = server.connect().await;
    let accounts = [("u", Type::Readwrite, &b"a"[..], &b"b"[..])];
    enable(&mut clients, &accounts).await;
    let guess = || AuthenticateRequest {
        name: "root".to_owned(),
        password: "guess".to_owned(),
    };
    let too_many = (
        Code::ResourceExhausted,
        "etcdserver: too many requests".to_owned(),
    );
    let mut refusals = Vec::new();
    for _ in 0..8 {
        refusals.push(refusal(clients.auth.authenticate(guess()).await));
    }
    assert_eq!(refusals[0].0, Code::InvalidArgument);
    assert!(refusals.contains(&too_many), "{refusals:?}");
    log_in(&mut clients, "u").await;
    let url = server.url();
    let endpoint = tonic::transport::Endpoint::from_shared(url).unwrap();
    let elsewhere = endpoint.local_address(Some([127, 0, 0, 2].into()));
    let channel = elsewhere.connect().await.unwrap();
    log_in(&mut super::common::clients_of(channel), "root").await;
    let metrics = server.get("/metrics").body;
    let refused = r#"portunus_client_requests_refused_total{limit="max-failed-logins"}"#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(refused));
    assert_ne!(count.unwrap().trim(), "0");
    // A token comes back each second.
    soon_logged_in(&mut clients).await;
}

async fn soon_logged_in(clients: &mut super::common::Clients) {
    let login = AuthenticateRequest {
        name: "root".to_owned(),
        password: "root".to_owned(),
    };
    super::common::eventually("a login", async || {
        clients.auth.authenticate(login.clone()).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_user_are_limited_per_address() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[CHEAP_HASHES, "--max-unauthenticated-requests=20"]);
    let mut clients = server.connect().await;
    for _ in 0..50 {
        get(&mut clients, "a", None).await.unwrap();
    }
    enable(&mut clients, &[]).await;
    let root = log_in(&mut clients, "root").await;
    let mut refusals = Vec::new();
    for _ in 0..100 {
        refusals.push(text(get(&mut clients, "a", None).await));
    }
    assert!(
        refusals
            .iter()
            .any(|text| text.ends_with("too many requests"))
    );
    // Users are served meanwhile.
    for _ in 0..100 {
        get(&mut clients, "a", Some(&root)).await.unwrap();
    }
}
