//! Clients with credentials, against Go's etcd: tokens are requested, renewed and sent with every
//! call.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use portunus_client::{Client, ClientError, Credentials, Options};
use portunus_proto::EtcdError;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserChangePasswordRequest, AuthUserGrantRoleRequest, AuthenticateRequest,
    LeaseGrantRequest, PutRequest, RangeRequest, WatchCreateRequest,
};
use portunus_testkit::member::Member;
use portunus_testkit::program::Program;
use portunus_testkit::wait::until;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// The lifetime of a token that is not used, in seconds.
const TOKEN_TTL_S: u64 = 1;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// The kind of tokens that a server issues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Simple,
    /// Contain the auth revision, so that every change of users and roles makes them old.
    Jwt,
}

/// A server with the users `root` and `alice`; `alice` may use the keys that begin with `a`.
struct Server {
    member: Member,
    _directory: TempDir,
}

impl Server {
    /// Starts one server of each implementation, with authentication off.
    async fn start(test: &str) -> Vec<Server> {
        Server::start_with(test, Tokens::Simple).await
    }

    async fn start_with(test: &str, tokens: Tokens) -> Vec<Server> {
        let portunus = Some(Program::portunus());
        let mut servers = Vec::new();
        for program in [portunus, Program::etcd(test)].into_iter().flatten() {
            servers.push(Server::start_one(program, tokens).await);
        }
        servers
    }

    /// Starts one server of each implementation, with authentication on.
    async fn start_with_auth(test: &str) -> Vec<Server> {
        let servers = Server::start(test).await;
        for server in &servers {
            server.client(None).auth_enable().await.unwrap();
        }
        servers
    }

    async fn start_one(program: Program, tokens: Tokens) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let mut member = Member::new("m1", program, directory.path()).unwrap();
        member.flags = vec![
            "--bcrypt-cost=4".to_owned(),
            format!("--auth-token-ttl={TOKEN_TTL_S}"),
        ];
        if tokens == Tokens::Jwt {
            let key = directory.path().join("jwt.key");
            std::fs::write(&key, "a key that only this server has").unwrap();
            let key = key.display();
            let settings = format!("jwt,sign-method=HS256,priv-key={key},ttl=10m");
            member.flags.push(format!("--auth-token={settings}"));
        }
        member.launch(&[]);
        let server = Server {
            member,
            _directory: directory,
        };
        let anonymous = server.client(None);
        until("server", async || anonymous.status().await).await;
        for user in ["root", "alice"] {
            let add = AuthUserAddRequest {
                name: user.to_owned(),
                password: user.to_owned(),
                ..AuthUserAddRequest::default()
            };
            anonymous.user_add(add).await.unwrap();
            let name = user.to_owned();
            anonymous
                .role_add(AuthRoleAddRequest { name })
                .await
                .unwrap();
            let grant = AuthUserGrantRoleRequest {
                user: user.to_owned(),
                role: user.to_owned(),
            };
            anonymous.user_grant_role(grant).await.unwrap();
        }
        let grant = AuthRoleGrantPermissionRequest {
            name: "alice".to_owned(),
            perm: Some(Permission {
                perm_type: Type::Readwrite.into(),
                key: "a".into(),
                range_end: "b".into(),
            }),
        };
        anonymous.role_grant_permission(grant).await.unwrap();
        server
    }

    fn client(&self, credentials: Option<Credentials>) -> Client {
        Client::connect(Options {
            endpoints: vec![self.member.endpoint()],
            credentials,
            ..Options::default()
        })
        .unwrap()
    }

    fn client_of(&self, user: &str) -> Client {
        self.client(Some(password(user, user)))
    }
}

fn password(user: &str, password: &str) -> Credentials {
    Credentials::Password {
        user: user.to_owned(),
        password: password.to_owned(),
    }
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

/// Waits until the server has forgotten a token that was not used.
async fn token_expiry() {
    // The server looks for expired tokens once per second.
    sleep(Duration::from_secs(TOKEN_TTL_S + 2)).await;
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, ClientError>, error: EtcdError) {
    assert_eq!(answer.unwrap_err().etcd(), Some(error));
}

#[tokio::test]
async fn calls_carry_the_identity_of_the_user() {
    for server in Server::start_with_auth("auth::identity").await {
        let alice = server.client_of("alice");
        alice.put(put("a1")).await.unwrap();
        assert_refused(alice.put(put("b1")).await, EtcdError::PermissionDenied);
        assert_refused(alice.user_list().await, EtcdError::PermissionDenied);
        let root = server.client_of("root");
        root.put(put("b1")).await.unwrap();
        let mut snapshot = root.snapshot().await.unwrap();
        assert!(snapshot.message().await.unwrap().is_some());
        let anonymous = server.client(None);
        assert_refused(anonymous.range(get("a1")).await, EtcdError::UserEmpty);
        let wrong = server.client(Some(password("root", "wrong")));
        assert_refused(wrong.log_in().await, EtcdError::AuthFailed);
        assert_refused(wrong.range(get("a1")).await, EtcdError::AuthFailed);
    }
}

#[tokio::test]
async fn expired_token_is_renewed_and_the_call_repeated() {
    for server in Server::start_with_auth("auth::expired").await {
        let alice = server.client_of("alice");
        alice.put(put("a1")).await.unwrap();
        token_expiry().await;
        alice.put(put("a2")).await.unwrap();
        token_expiry().await;
        let calls = (0..8).map(|number| {
            let alice = alice.clone();
            tokio::spawn(async move { alice.put(put(&format!("a{number}"))).await })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        // A changed password does not help an old client.
        let change = AuthUserChangePasswordRequest {
            name: "alice".to_owned(),
            password: "other".to_owned(),
            ..AuthUserChangePasswordRequest::default()
        };
        let root = server.client_of("root");
        root.user_change_password(change).await.unwrap();
        assert_refused(alice.put(put("a1")).await, EtcdError::AuthFailed);
    }
}

#[tokio::test]
async fn fixed_token_is_sent_and_not_renewed() {
    for server in Server::start_with_auth("auth::fixed").await {
        let request = AuthenticateRequest {
            name: "alice".to_owned(),
            password: "alice".to_owned(),
        };
        let token = server.client(None).authenticate(request).await;
        let token = Credentials::Token(token.unwrap().token);
        let alice = server.client(Some(token));
        alice.log_in().await.unwrap();
        alice.put(put("a1")).await.unwrap();
        token_expiry().await;
        assert_refused(alice.put(put("a1")).await, EtcdError::InvalidAuthToken);
    }
}

#[tokio::test]
async fn client_without_a_token_requests_one_when_authentication_is_enabled() {
    for server in Server::start("auth::enabled_later").await {
        let alice = server.client_of("alice");
        alice.log_in().await.unwrap();
        alice.put(put("b1")).await.unwrap();
        server.client(None).auth_enable().await.unwrap();
        alice.put(put("a1")).await.unwrap();
        assert_refused(alice.put(put("b1")).await, EtcdError::PermissionDenied);
        // The same error because of the request itself is returned.
        let root = server.client_of("root");
        let nameless = AuthUserAddRequest::default();
        assert_refused(root.user_add(nameless).await, EtcdError::UserEmpty);
        // Authentication that is disabled needs no token.
        root.auth_disable().await.unwrap();
        server.client_of("nobody").put(put("b1")).await.unwrap();
    }
}

#[tokio::test]
async fn streams_that_open_after_the_token_expired_have_a_new_one() {
    for server in Server::start_with_auth("auth::streams").await {
        let alice = server.client_of("alice");
        let lease = alice.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 });
        let lease = lease.await.unwrap().id;
        token_expiry().await;
        alice.keep_alive_once(lease).await.unwrap();
        token_expiry().await;
        let mut renewals = alice.keep_alive(lease);
        assert!(renewals.next().await.unwrap().is_some());
        token_expiry().await;
        let mut watch = alice.watch(WatchCreateRequest {
            key: "a1".into(),
            start_revision: 1,
            ..WatchCreateRequest::default()
        });
        alice.put(put("a1")).await.unwrap();
        let event = timeout(LONG, watch.next()).await.unwrap().unwrap();
        assert_eq!(event.unwrap().events.len(), 1);
        let mut denied = alice.watch(WatchCreateRequest {
            key: "b1".into(),
            ..WatchCreateRequest::default()
        });
        let canceled = timeout(LONG, denied.next()).await.unwrap().unwrap();
        assert!(
            canceled
                .unwrap()
                .cancel_reason
                .contains("permission denied")
        );
    }
}

#[tokio::test]
async fn call_with_an_old_auth_revision_is_repeated_with_a_new_token() {
    for server in Server::start_with("auth::old_revision", Tokens::Jwt).await {
        server.client(None).auth_enable().await.unwrap();
        let alice = server.client_of("alice");
        alice.put(put("a1")).await.unwrap();
        let request = AuthenticateRequest {
            name: "alice".to_owned(),
            password: "alice".to_owned(),
        };
        let token = server.client(None).authenticate(request).await;
        let fixed = server.client(Some(Credentials::Token(token.unwrap().token)));
        fixed.put(put("a1")).await.unwrap();
        let root = server.client_of("root");
        for name in ["new1", "new2"] {
            let name = name.to_owned();
            root.role_add(AuthRoleAddRequest { name }).await.unwrap();
            alice.put(put("a2")).await.unwrap();
        }
        assert_refused(fixed.put(put("a1")).await, EtcdError::AuthOldRevision);
    }
}
