//! No applied request violates the permissions of the log before it, checked against a model that
//! knows keys one by one instead of ranges.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Machine, TERM, settings};
use portunus_proto::EtcdError;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserDeleteRequest,
    AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest, DeleteRangeRequest, InternalRaftRequest,
    LeaseGrantRequest, LeaseRevokeRequest, PutRequest, RangeRequest, RequestHeader, RequestOp,
    TxnRequest,
};
use portunus_proto::raftpb::{Entry, EntryType};
use proptest::prelude::*;
use prost::Message;

/// The keys of all requests; ranges begin and end at them.
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const USERS: [&str; 3] = ["root", "u", "v"];
const ROLES: [&str; 3] = ["root", "r", "s"];

/// What a request reads and writes, by the numbers of its keys.
#[derive(Debug, Clone, Copy)]
enum Access {
    Put { key: usize, lease: i64, prev: bool },
    Delete { from: usize, to: usize, prev: bool },
    Read { from: usize, to: usize },
}

#[derive(Debug, Clone)]
enum Step {
    Enable,
    Disable,
    UserAdd(usize),
    UserDelete(usize),
    Grant(usize, usize),
    Revoke(usize, usize),
    RoleAdd(usize),
    Permit {
        role: usize,
        from: usize,
        to: usize,
        kind: i32,
    },
    Forbid {
        role: usize,
        from: usize,
        to: usize,
    },
    Data(Access),
    /// Both in one transaction, the second in a nested branch that is not taken.
    Txn(Access, Access),
    LeaseGrant(i64),
    LeaseRevoke(i64),
}

/// A step with its sender and how old its knowledge of users and roles is.
type Sent = (Step, Option<usize>, u64);

fn access() -> impl Strategy<Value = Access> {
    let key = || 0..KEYS.len();
    prop_oneof![
        3 => (key(), 0..3_i64, any::<bool>()).prop_map(|(key, lease, prev)| Access::Put { key, lease, prev }),
        1 => (key(), key(), any::<bool>()).prop_map(|(a, b, prev)| Access::Delete { from: a.min(b), to: a.max(b), prev }),
        1 => (key(), key()).prop_map(|(a, b)| Access::Read { from: a.min(b), to: a.max(b) }),
    ]
}

fn sent() -> impl Strategy<Value = Sent> {
    let user = || 0..USERS.len();
    let role = || 0..ROLES.len();
    let range = || (0..KEYS.len(), 0..KEYS.len()).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let step = prop_oneof![
        3 => Just(Step::Enable),
        1 => Just(Step::Disable),
        3 => user().prop_map(Step::UserAdd),
        1 => user().prop_map(Step::UserDelete),
        5 => (user(), role()).prop_map(|(user, role)| Step::Grant(user, role)),
        1 => (user(), role()).prop_map(|(user, role)| Step::Revoke(user, role)),
        3 => role().prop_map(Step::RoleAdd),
        5 => (role(), range(), 0..3_i32).prop_map(|(role, (from, to), kind)| Step::Permit { role, from, to, kind }),
        2 => (role(), range()).prop_map(|(role, (from, to))| Step::Forbid { role, from, to }),
        12 => access().prop_map(Step::Data),
        4 => (access(), access()).prop_map(|(first, second)| Step::Txn(first, second)),
        2 => (1..3_i64).prop_map(Step::LeaseGrant),
        2 => (1..3_i64).prop_map(Step::LeaseRevoke),
    ];
    // Mostly root, so that much is administered, and mostly with the newest revision.
    let sender = prop_oneof![3 => Just(Some(0)), 4 => (1..3_usize).prop_map(Some), 1 => Just(None)];
    let age = prop_oneof![8 => Just(0_u64), 1 => 1..3_u64];
    (step, sender, age)
}

/// The end of a range whose last key is `to`: the key after it, so that ranges side by side have
/// no key between them.
fn end(to: usize) -> &'static str {
    KEYS.get(to + 1).copied().unwrap_or("f")
}

fn operation(access: Access) -> Op {
    let key = |number: usize| bytes::Bytes::from(KEYS[number]);
    match access {
        Access::Put {
            key: at,
            lease,
            prev,
        } => Op::RequestPut(PutRequest {
            key: key(at),
            value: "v".into(),
            lease,
            prev_kv: prev,
            ..PutRequest::default()
        }),
        Access::Delete { from, to, prev } => Op::RequestDeleteRange(DeleteRangeRequest {
            key: key(from),
            range_end: end(to).into(),
            prev_kv: prev,
        }),
        Access::Read { from, to } => Op::RequestRange(RangeRequest {
            key: key(from),
            range_end: end(to).into(),
            ..RangeRequest::default()
        }),
    }
}

fn request(step: &Step) -> InternalRaftRequest {
    let mut request = InternalRaftRequest::default();
    let (user, role) = (
        |it: usize| USERS[it].to_owned(),
        |it: usize| ROLES[it].to_owned(),
    );
    match *step {
        Step::Enable => request.auth_enable = Some(AuthEnableRequest {}),
        Step::Disable => request.auth_disable = Some(AuthDisableRequest {}),
        Step::UserAdd(name) => {
            request.auth_user_add = Some(AuthUserAddRequest {
                name: user(name),
                ..AuthUserAddRequest::default()
            });
        }
        Step::UserDelete(name) => {
            request.auth_user_delete = Some(AuthUserDeleteRequest { name: user(name) });
        }
        Step::Grant(name, granted) => {
            request.auth_user_grant_role = Some(AuthUserGrantRoleRequest {
                user: user(name),
                role: role(granted),
            });
        }
        Step::Revoke(name, revoked) => {
            request.auth_user_revoke_role = Some(AuthUserRevokeRoleRequest {
                name: user(name),
                role: role(revoked),
            });
        }
        Step::RoleAdd(name) => {
            request.auth_role_add = Some(AuthRoleAddRequest { name: role(name) });
        }
        Step::Permit {
            role: name,
            from,
            to,
            kind,
        } => {
            request.auth_role_grant_permission = Some(AuthRoleGrantPermissionRequest {
                name: role(name),
                perm: Some(Permission {
                    perm_type: kind,
                    key: KEYS[from].into(),
                    range_end: end(to).into(),
                }),
            });
        }
        Step::Forbid {
            role: name,
            from,
            to,
        } => {
            request.auth_role_revoke_permission = Some(AuthRoleRevokePermissionRequest {
                role: role(name),
                key: KEYS[from].into(),
                range_end: end(to).into(),
            });
        }
        Step::Data(access) => match operation(access) {
            Op::RequestPut(put) => request.put = Some(put),
            Op::RequestDeleteRange(delete) => request.delete_range = Some(delete),
            read => request.txn = Some(txn(vec![read], Vec::new())),
        },
        Step::Txn(first, second) => {
            let untaken = txn(Vec::new(), vec![operation(second)]);
            request.txn = Some(txn(
                vec![operation(first), Op::RequestTxn(untaken)],
                Vec::new(),
            ));
        }
        Step::LeaseGrant(id) => {
            request.lease_grant = Some(LeaseGrantRequest { id, ttl: 100 });
        }
        Step::LeaseRevoke(id) => request.lease_revoke = Some(LeaseRevokeRequest { id }),
    }
    request
}

fn txn(success: Vec<Op>, failure: Vec<Op>) -> TxnRequest {
    let all = |ops: Vec<Op>| {
        let ops = ops.into_iter();
        ops.map(|op| RequestOp { request: Some(op) }).collect()
    };
    TxnRequest {
        compare: Vec::new(),
        success: all(success),
        failure: all(failure),
    }
}

/// A permission of a role for the keys `from..=to`.
#[derive(Debug, Clone, Copy)]
struct KeyPermission {
    from: usize,
    to: usize,
    kind: i32,
}

impl KeyPermission {
    /// Changes the type of a role's permission, or adds a permission. Like etcd, only the first
    /// permission that starts at the key is compared with the range: a role can have the same
    /// range several times, and then has the rights of all of them.
    fn grant(self, permissions: &mut Vec<KeyPermission>) {
        let first = permissions.iter_mut().find(|it| it.from == self.from);
        match first {
            Some(it) if it.to == self.to => it.kind = self.kind,
            _ => permissions.push(self),
        }
    }
}

/// Users, roles and permissions, key by key.
#[derive(Debug, Default)]
struct Model {
    enabled: bool,
    users: BTreeMap<usize, BTreeSet<usize>>,
    roles: BTreeMap<usize, Vec<KeyPermission>>,
    /// The keys of each lease that exists.
    leases: BTreeMap<i64, BTreeSet<usize>>,
    lease_of: BTreeMap<usize, i64>,
}

impl Model {
    fn is_root(&self, user: usize) -> bool {
        self.users
            .get(&user)
            .is_some_and(|roles| roles.contains(&0))
    }

    fn may(&self, user: usize, key: usize, wanted: Type) -> bool {
        let roles = self.users.get(&user).into_iter().flatten();
        let permissions = roles.filter_map(|role| self.roles.get(role)).flatten();
        let mut covering = permissions.filter(|it| (it.from..=it.to).contains(&key));
        let has_right = |kind: i32| kind == wanted as i32 || kind == Type::Readwrite as i32;
        self.is_root(user) || covering.any(|it| has_right(it.kind))
    }

    fn permits(&self, user: usize, access: Access) -> bool {
        let all =
            |from: usize, to: usize, wanted| (from..=to).all(|key| self.may(user, key, wanted));
        match access {
            Access::Put { key, lease, prev } => {
                let leased = self.leases.get(&lease).into_iter().flatten();
                let may_lease = || leased.clone().all(|key| self.may(user, *key, Type::Write));
                all(key, key, Type::Write)
                    && (self.is_root(user) || may_lease())
                    && (!prev || all(key, key, Type::Read))
            }
            Access::Delete { from, to, prev } => {
                all(from, to, Type::Write) && (!prev || all(from, to, Type::Read))
            }
            Access::Read { from, to } => all(from, to, Type::Read),
        }
    }

    /// Whether the log permits a step; administration is not judged here.
    fn judges(&self, step: &Step, sender: Option<usize>, is_old: bool) -> Option<bool> {
        let accesses: Vec<Access> = match step {
            Step::Data(access) => vec![*access],
            Step::Txn(first, second) => vec![*first, *second],
            Step::LeaseRevoke(id) => {
                let Some(user) = sender else {
                    let is_free = self.leases.get(id).is_none_or(BTreeSet::is_empty);
                    return Some(!self.enabled || is_free);
                };
                let mut keys = self.leases.get(id).into_iter().flatten();
                let is_empty = self.leases.get(id).is_none_or(BTreeSet::is_empty);
                let may = !is_old && keys.all(|key| self.may(user, *key, Type::Write));
                return Some(!self.enabled || self.is_root(user) || is_empty || may);
            }
            _ => return None,
        };
        if !self.enabled {
            return Some(true);
        }
        let permitted = sender.is_some_and(|user| {
            let mut accesses = accesses.into_iter();
            !is_old && self.users.contains_key(&user) && accesses.all(|it| self.permits(user, it))
        });
        Some(permitted)
    }

    fn detach(&mut self, key: usize) {
        if let Some(lease) = self.lease_of.remove(&key)
            && let Some(keys) = self.leases.get_mut(&lease)
        {
            keys.remove(&key);
        }
    }

    fn wrote(&mut self, access: Access) {
        match access {
            Access::Put { key, lease, .. } => {
                self.detach(key);
                if lease != 0 {
                    self.leases.entry(lease).or_default().insert(key);
                    self.lease_of.insert(key, lease);
                }
            }
            Access::Delete { from, to, .. } => (from..=to).for_each(|key| self.detach(key)),
            Access::Read { .. } => {}
        }
    }

    /// Follows a step that was applied.
    fn applied(&mut self, step: &Step) {
        match *step {
            Step::Enable => self.enabled = true,
            Step::Disable => self.enabled = false,
            Step::UserAdd(user) => drop(self.users.insert(user, BTreeSet::new())),
            Step::UserDelete(user) => drop(self.users.remove(&user)),
            Step::Grant(user, role) => {
                self.users.get_mut(&user).unwrap().insert(role);
            }
            Step::Revoke(user, role) => {
                self.users.get_mut(&user).unwrap().remove(&role);
            }
            Step::RoleAdd(role) => drop(self.roles.insert(role, Vec::new())),
            Step::Permit {
                role,
                from,
                to,
                kind,
            } => {
                KeyPermission { from, to, kind }.grant(self.roles.get_mut(&role).unwrap());
            }
            Step::Forbid { role, from, to } => {
                let permissions = self.roles.get_mut(&role).unwrap();
                permissions.retain(|it| (it.from, it.to) != (from, to));
            }
            Step::Data(access) => self.wrote(access),
            // Only the first branch is taken.
            Step::Txn(first, _) => self.wrote(first),
            Step::LeaseGrant(id) => drop(self.leases.insert(id, BTreeSet::new())),
            Step::LeaseRevoke(id) => {
                let keys = self.leases.remove(&id).unwrap_or_default();
                self.lease_of.retain(|key, _| !keys.contains(key));
            }
        }
    }
}

fn entry(index: u64, step: &Step, sender: Option<usize>, revision: u64) -> Entry {
    let header = RequestHeader {
        id: index,
        username: sender.map_or_else(String::new, |user| USERS[user].to_owned()),
        auth_revision: sender.map_or(0, |_| revision),
    };
    let request = InternalRaftRequest {
        header: Some(header),
        ..request(step)
    };
    Entry {
        index,
        term: TERM,
        r#type: EntryType::EntryNormal.into(),
        data: request.encode_to_vec().into(),
    }
}

fn is_auth_refusal(error: EtcdError) -> bool {
    matches!(
        error,
        EtcdError::PermissionDenied
            | EtcdError::UserEmpty
            | EtcdError::AuthOldRevision
            | EtcdError::UserNotFound
    )
}

/// A role that was granted a range twice with different types has both rights, like in etcd.
#[test]
fn range_granted_twice_behind_another_range_has_both_types() {
    let mut machine = Machine::new(settings());
    let permit = |to, kind| Step::Permit {
        role: 1,
        from: 2,
        to,
        kind,
    };
    let read = Type::Read as i32;
    let write = Type::Write as i32;
    let steps = [
        Step::UserAdd(0),
        Step::Grant(0, 0),
        Step::UserAdd(1),
        Step::RoleAdd(1),
        Step::Grant(1, 1),
        permit(2, read),
        permit(4, read),
        permit(4, write),
        Step::Enable,
    ];
    let mut index = 0;
    let mut apply = |step: &Step, sender| {
        index += 1;
        let revision = machine.machine.auth().revision();
        machine.apply(entry(index, step, Some(sender), revision))
    };
    for step in &steps {
        apply(step, 0).answer.unwrap();
    }
    let put = Step::Data(Access::Put {
        key: 3,
        lease: 0,
        prev: true,
    });
    apply(&put, 1).answer.unwrap();
    let forbid = Step::Forbid {
        role: 1,
        from: 2,
        to: 4,
    };
    apply(&forbid, 0).answer.unwrap();
    let refused = apply(&put, 1).answer;
    assert_eq!(refused.err(), Some(EtcdError::PermissionDenied));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn requests_are_applied_if_and_only_if_the_log_before_them_permits_them(
        steps in proptest::collection::vec(sent(), 0..120),
        restart_at in 0..120_usize,
    ) {
        let mut machine = Machine::new(settings());
        let mut model = Model::default();
        // Enough for most runs to get anywhere.
        let opening = [Step::UserAdd(0), Step::Grant(0, 0), Step::UserAdd(1), Step::RoleAdd(1), Step::Grant(1, 1)];
        let opening = opening.map(|step| (step, Some(0), 0));
        for (number, (step, sender, age)) in opening.into_iter().chain(steps).enumerate() {
            if number == restart_at {
                machine = machine.restarted();
            }
            let current = machine.machine.auth().revision();
            let revision = current.saturating_sub(age);
            let before = machine.machine.store().revision();
            let applied = machine.apply(entry(number as u64 + 1, &step, sender, revision));
            let expected = model.judges(&step, sender, revision < current);
            match applied.answer {
                Ok(_) => {
                    prop_assert_ne!(expected, Some(false), "{} {:?} {:?}", number, step, sender);
                    model.applied(&step);
                }
                Err(error) => {
                    prop_assert_eq!(machine.machine.store().revision(), before);
                    prop_assert!(applied.events.is_none());
                    if is_auth_refusal(error) && expected.is_some() {
                        prop_assert_eq!(expected, Some(false), "{} {:?} {:?}", number, step, sender);
                    }
                }
            }
            prop_assert_eq!(machine.machine.auth().is_enabled(), model.enabled);
        }
    }
}
