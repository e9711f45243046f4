//! The rules about users, roles and permissions, over a store in memory.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use bytes::Bytes;
use portunus_auth::{AuthState, Caller, ROOT, encode_hash};
use portunus_mvcc::backend::MemoryBackend;
use portunus_mvcc::{Config, EntryId, Hooks, Store};
use portunus_proto::authpb::permission::Type;
use portunus_proto::authpb::{Permission, UserAddOptions};
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest, Compare,
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use portunus_proto::{EtcdError, LeaseId, Term};
use proptest::prelude::*;

/// A change of users and roles.
#[derive(Debug, Clone)]
enum Change {
    Enable,
    Disable,
    UserAdd(AuthUserAddRequest),
    UserDelete(String),
    Password(String),
    Grant(String, String),
    Revoke(String, String),
    RoleAdd(String),
    RoleDelete(String),
    Permit(String, Permission),
    Forbid(String, Permission),
}

struct Rules {
    store: Store,
    auth: AuthState,
    index: u64,
}

impl Rules {
    fn new() -> Rules {
        let backend = Arc::new(MemoryBackend::new());
        let (store, _) = Store::open(backend, Config::default(), Hooks::default()).unwrap();
        let auth = AuthState::load(&store).unwrap();
        Rules {
            store,
            auth,
            index: 0,
        }
    }

    /// `root` with its role, user `u` with role `r`, and authentication.
    fn enabled(permissions: &[Permission]) -> Rules {
        let mut rules = Rules::new();
        for user in [ROOT, "u", "poor"] {
            rules.apply(&Change::UserAdd(user_add(user))).unwrap();
        }
        rules.apply(&Change::RoleAdd("r".to_owned())).unwrap();
        for (user, role) in [(ROOT, ROOT), ("u", "r")] {
            let grant = Change::Grant(user.to_owned(), role.to_owned());
            rules.apply(&grant).unwrap();
        }
        for permission in permissions {
            let permit = Change::Permit("r".to_owned(), permission.clone());
            rules.apply(&permit).unwrap();
        }
        rules.apply(&Change::Enable).unwrap();
        rules
    }

    fn apply(&mut self, change: &Change) -> Result<(), EtcdError> {
        self.index += 1;
        let entry = EntryId {
            index: self.index,
            term: Term(1),
        };
        self.store.begin(entry).unwrap();
        let (auth, store) = (&mut self.auth, &mut self.store);
        let done = match change.clone() {
            Change::Enable => auth.enable(store),
            Change::Disable => auth.disable(store),
            Change::UserAdd(request) => auth.user_add(store, &request),
            Change::UserDelete(name) => auth.user_delete(store, &AuthUserDeleteRequest { name }),
            Change::Password(name) => {
                let request = AuthUserChangePasswordRequest {
                    name,
                    hashed_password: encode_hash(b"another hash"),
                    ..AuthUserChangePasswordRequest::default()
                };
                auth.user_change_password(store, &request)
            }
            Change::Grant(user, role) => {
                auth.user_grant_role(store, &AuthUserGrantRoleRequest { user, role })
            }
            Change::Revoke(name, role) => {
                auth.user_revoke_role(store, &AuthUserRevokeRoleRequest { name, role })
            }
            Change::RoleAdd(name) => auth.role_add(store, &AuthRoleAddRequest { name }),
            Change::RoleDelete(role) => auth.role_delete(store, &AuthRoleDeleteRequest { role }),
            Change::Permit(name, perm) => {
                let perm = Some(perm);
                let request = AuthRoleGrantPermissionRequest { name, perm };
                auth.role_grant_permission(store, &request)
            }
            Change::Forbid(role, Permission { key, range_end, .. }) => {
                let request = AuthRoleRevokePermissionRequest {
                    role,
                    key,
                    range_end,
                };
                auth.role_revoke_permission(store, &request)
            }
        };
        self.store.end().unwrap();
        done.map_err(|error| error.refusal().expect("only refusals"))
    }

    fn caller(&self, name: &str) -> Caller {
        Caller::new(name, self.auth.revision())
    }
}

fn user_add(name: &str) -> AuthUserAddRequest {
    AuthUserAddRequest {
        name: name.to_owned(),
        hashed_password: encode_hash(b"hash"),
        ..AuthUserAddRequest::default()
    }
}

fn permission(kind: Type, key: &str, range_end: &str) -> Permission {
    Permission {
        perm_type: kind.into(),
        key: Bytes::from(key.to_owned()),
        range_end: Bytes::from(range_end.to_owned()),
    }
}

fn no_keys(_: LeaseId) -> Vec<Bytes> {
    Vec::new()
}

fn change() -> impl Strategy<Value = Change> {
    let user = || prop::sample::select(vec!["root", "a", "b", ""]).prop_map(str::to_owned);
    let role = || prop::sample::select(vec!["root", "r", "s", ""]).prop_map(str::to_owned);
    let text = || prop::sample::select(vec!["", "\0", "a", "b", "bb", "c"]);
    let of = (0..4_i32, text(), text()).prop_map(|(kind, key, end)| Permission {
        perm_type: kind,
        ..permission(Type::Read, key, end)
    });
    let added = (user(), any::<bool>()).prop_map(|(name, no_password)| AuthUserAddRequest {
        options: no_password.then_some(UserAddOptions { no_password }),
        ..user_add(&name)
    });
    prop_oneof![
        1 => Just(Change::Enable),
        1 => Just(Change::Disable),
        4 => added.prop_map(Change::UserAdd),
        1 => user().prop_map(Change::UserDelete),
        1 => user().prop_map(Change::Password),
        4 => (user(), role()).prop_map(|(user, role)| Change::Grant(user, role)),
        2 => (user(), role()).prop_map(|(user, role)| Change::Revoke(user, role)),
        4 => role().prop_map(Change::RoleAdd),
        1 => role().prop_map(Change::RoleDelete),
        4 => (role(), of.clone()).prop_map(|(role, it)| Change::Permit(role, it)),
        2 => (role(), of).prop_map(|(role, it)| Change::Forbid(role, it)),
    ]
}

proptest! {
    /// What is applied is what is stored: a restart and a snapshot give the same users and roles.
    #[test]
    fn state_loaded_from_the_store_is_the_state_that_was_applied(
        changes in prop::collection::vec(change(), 1..60)
    ) {
        let mut rules = Rules::new();
        for change in changes {
            let before = rules.auth.clone();
            let done = rules.apply(&change);
            prop_assert_eq!(&AuthState::load(&rules.store).unwrap(), &rules.auth);
            match done {
                Err(_) => prop_assert_eq!(&before, &rules.auth, "a refusal changes nothing"),
                Ok(()) => {
                    let grown = rules.auth.revision() - before.revision();
                    let is_changed = before.is_enabled() == rules.auth.is_enabled()
                        && before != rules.auth;
                    prop_assert!(grown <= 1);
                    prop_assert!(grown == 1 || !is_changed, "every change has its revision");
                }
            }
            // While authentication is enabled, someone can administer it.
            let root = rules.auth.user(ROOT);
            prop_assert!(!rules.auth.is_enabled() || root.is_some_and(|user| user.is_root()));
        }
    }
}

#[test]
fn revision_follows_changes_as_in_etcd() {
    let mut rules = Rules::new();
    let mut revisions = vec![rules.auth.revision()];
    let same = |kind| permission(kind, "a", "b");
    for change in [
        Change::UserAdd(user_add(ROOT)),
        Change::Grant(ROOT.to_owned(), ROOT.to_owned()),
        // Granted already: no change.
        Change::Grant(ROOT.to_owned(), ROOT.to_owned()),
        Change::RoleAdd("r".to_owned()),
        Change::Permit("r".to_owned(), same(Type::Read)),
        Change::Permit("r".to_owned(), same(Type::Read)),
        Change::Enable,
        Change::Enable,
        Change::Disable,
        Change::Disable,
    ] {
        rules.apply(&change).unwrap();
        revisions.push(rules.auth.revision());
    }
    assert_eq!(revisions, [1, 2, 3, 3, 4, 5, 6, 6, 6, 7, 7]);
}

#[test]
fn root_cannot_be_taken_away_while_authentication_is_enabled() {
    let mut rules = Rules::enabled(&[]);
    let root = || ROOT.to_owned();
    for change in [
        Change::UserDelete(root()),
        Change::Revoke(root(), root()),
        Change::RoleDelete(root()),
    ] {
        assert_eq!(rules.apply(&change), Err(EtcdError::InvalidAuthManagement));
    }
    rules.apply(&Change::Disable).unwrap();
    rules.apply(&Change::Revoke(root(), root())).unwrap();
    assert_eq!(
        rules.apply(&Change::Enable),
        Err(EtcdError::RootRoleNotExist)
    );
    rules.apply(&Change::UserDelete(root())).unwrap();
    assert_eq!(
        rules.apply(&Change::Enable),
        Err(EtcdError::RootUserNotExist)
    );
}

#[test]
fn caller_without_a_user_passes_no_check() {
    let rules = Rules::enabled(&[permission(Type::Readwrite, "a", "\0")]);
    let (auth, nobody) = (&rules.auth, Caller::default());
    let empty = Err(EtcdError::UserEmpty);
    assert_eq!(auth.check_admin(&nobody), empty);
    assert_eq!(auth.check_authenticated(&nobody), empty);
    assert_eq!(auth.check_range(&nobody, b"a", b""), empty);
    assert_eq!(auth.check_put(&nobody, &put("a", 0), &no_keys), empty);
    let delete = DeleteRangeRequest::default();
    assert_eq!(auth.check_delete_range(&nobody, &delete), empty);
    assert!(!auth.may_watch("", b"a", b""));
    // A name without a revision is no identity either.
    let forged = Caller::new("u", 0);
    assert_eq!(auth.check_range(&forged, b"a", b""), empty);
}

#[test]
fn old_revision_and_missing_users_are_refused() {
    let rules = Rules::enabled(&[permission(Type::Readwrite, "a", "\0")]);
    let auth = &rules.auth;
    let old = Caller::new("u", auth.revision() - 1);
    let refused = auth.check_range(&old, b"a", b"");
    assert_eq!(refused, Err(EtcdError::AuthOldRevision));
    let denied = Err(EtcdError::PermissionDenied);
    assert_eq!(auth.check_range(&rules.caller("gone"), b"a", b""), denied);
    assert_eq!(auth.check_range(&rules.caller("poor"), b"a", b""), denied);
    let refused = auth.check_admin(&rules.caller("gone"));
    assert_eq!(refused, Err(EtcdError::UserNotFound));
    assert_eq!(auth.check_admin(&rules.caller("u")), denied);
    assert_eq!(auth.check_range(&rules.caller("u"), b"a", b"\0"), Ok(()));
    assert_eq!(auth.check_range(&rules.caller(ROOT), b"", b"\0"), Ok(()));
}

fn put(key: &str, lease: i64) -> PutRequest {
    PutRequest {
        key: Bytes::from(key.to_owned()),
        lease,
        ..PutRequest::default()
    }
}

fn operation(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

/// A forbidden read or write is found wherever it is in a transaction.
#[test]
fn transaction_is_checked_in_both_branches_on_every_level() {
    let rules = Rules::enabled(&[permission(Type::Readwrite, "a", "b")]);
    let caller = rules.caller("u");
    let key = |key: &str| Bytes::from(key.to_owned());
    let forbidden = [
        Request::RequestRange(RangeRequest {
            key: key("b"),
            ..RangeRequest::default()
        }),
        Request::RequestRange(RangeRequest {
            key: key("a"),
            range_end: key("b\0"),
            ..RangeRequest::default()
        }),
        Request::RequestPut(put("b", 0)),
        Request::RequestDeleteRange(DeleteRangeRequest {
            key: key("a"),
            range_end: key("\0"),
            ..DeleteRangeRequest::default()
        }),
        Request::RequestTxn(TxnRequest {
            compare: vec![Compare {
                key: key("b"),
                ..Compare::default()
            }],
            ..TxnRequest::default()
        }),
    ];
    let allowed = TxnRequest {
        success: vec![operation(Request::RequestPut(put("a", 0)))],
        ..TxnRequest::default()
    };
    let check = |txn: &TxnRequest| rules.auth.check_txn(&caller, txn, &no_keys);
    assert_eq!(check(&allowed), Ok(()));
    for request in forbidden {
        for is_success in [true, false] {
            let mut txn = TxnRequest::default();
            let branch = vec![
                operation(Request::RequestPut(put("a", 0))),
                operation(request.clone()),
            ];
            match is_success {
                true => txn.success = branch,
                false => txn.failure = branch,
            }
            for level in 0..4 {
                let denied = Err(EtcdError::PermissionDenied);
                assert_eq!(check(&txn), denied, "level {level}: {request:?}");
                let inner = operation(Request::RequestTxn(txn));
                txn = TxnRequest {
                    failure: vec![inner],
                    ..allowed.clone()
                };
            }
        }
    }
}

/// A user with permission to write a key may not read its previous value, and may not attach the
/// key to a lease with other keys.
#[test]
fn write_permission_permits_no_read_and_no_other_key_of_the_lease() {
    let rules = Rules::enabled(&[permission(Type::Write, "a", "b")]);
    let (auth, caller) = (&rules.auth, rules.caller("u"));
    let denied = Err(EtcdError::PermissionDenied);
    let with_prev = PutRequest {
        prev_kv: true,
        ..put("a", 0)
    };
    assert_eq!(auth.check_put(&caller, &put("a", 0), &no_keys), Ok(()));
    assert_eq!(auth.check_put(&caller, &with_prev, &no_keys), denied);
    let delete = DeleteRangeRequest {
        key: "a".into(),
        prev_kv: true,
        ..DeleteRangeRequest::default()
    };
    assert_eq!(auth.check_delete_range(&caller, &delete), denied);
    let leased = |lease: LeaseId| match lease {
        LeaseId(7) => vec![Bytes::from_static(b"secret")],
        _ => vec![Bytes::from_static(b"a1")],
    };
    assert_eq!(auth.check_put(&caller, &put("a", 8), &leased), Ok(()));
    assert_eq!(auth.check_put(&caller, &put("a", 7), &leased), denied);
    let root = rules.caller(ROOT);
    assert_eq!(
        auth.check_lease_writable(&caller, LeaseId(7), &leased),
        denied
    );
    assert_eq!(
        auth.check_lease_writable(&root, LeaseId(7), &leased),
        Ok(())
    );
    assert_eq!(
        auth.check_lease_readable(&caller, LeaseId(8), &leased),
        denied
    );
}
