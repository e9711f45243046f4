//! Users, roles and permissions as a sequential model that knows keys one by one.
//!
//! The oracle executes the log with it and compares: a request takes effect if and only if the
//! users and roles at its index permit it, and a read returns data only if those of the reading
//! member's applied index do.

use std::collections::{BTreeMap, BTreeSet};

use portunus_proto::EtcdError;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::request_op::Request as Op;
use portunus_proto::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserDeleteRequest,
    AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest, DeleteRangeRequest, InternalRaftRequest,
    PutRequest, RequestOp, TxnRequest,
};

use crate::random::Random;

const ROOT: &str = "root";
/// Users besides `root`, with the role of each.
const USERS: [(&str, &str); 2] = [("u", "r"), ("v", "s")];

/// The user of a client. The first one administers.
pub(super) fn user_of(client: usize) -> &'static str {
    match client.checked_sub(1) {
        None => ROOT,
        Some(client) => USERS[client % USERS.len()].0,
    }
}

/// The keys of a permission or of a request: one, or all.
type Range = (Vec<u8>, Vec<u8>);

/// Who made a request: the user and the revision of users and roles, as in its header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    pub(super) user: &'a str,
    pub(super) revision: u64,
}

/// Users, roles and permissions.
#[derive(Debug, Clone)]
pub(super) struct Users {
    enabled: bool,
    revision: u64,
    users: BTreeMap<String, BTreeSet<String>>,
    roles: BTreeMap<String, BTreeMap<Range, i32>>,
}

impl Default for Users {
    fn default() -> Self {
        Users {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
        }
    }
}

impl Users {
    fn is_root(&self, user: &str) -> bool {
        let roles = self.users.get(user);
        roles.is_some_and(|roles| roles.contains(ROOT))
    }

    fn may(&self, user: &str, wanted: Type, key: &[u8], range_end: &[u8]) -> bool {
        let covers = |(from, to): &Range| {
            let is_all = !to.is_empty();
            is_all || (range_end.is_empty() && from == key)
        };
        let roles = self.users.get(user).into_iter().flatten();
        let permissions = roles.filter_map(|role| self.roles.get(role)).flatten();
        let is_kind = |kind: i32| kind == wanted as i32 || kind == Type::Readwrite as i32;
        let mut permissions = permissions.filter(|(range, kind)| covers(range) && is_kind(**kind));
        self.is_root(user) || permissions.next().is_some()
    }

    fn check(
        &self,
        sender: Sender<'_>,
        wanted: Type,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), EtcdError> {
        if !self.enabled {
            return Ok(());
        }
        if sender.revision == 0 {
            return Err(EtcdError::UserEmpty);
        }
        if sender.revision < self.revision {
            return Err(EtcdError::AuthOldRevision);
        }
        match self.may(sender.user, wanted, key, range_end) {
            true => Ok(()),
            false => Err(EtcdError::PermissionDenied),
        }
    }

    /// Whether a user may read, as of this state.
    pub(super) fn check_read(
        &self,
        user: &str,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), EtcdError> {
        let revision = self.revision;
        self.check(Sender { user, revision }, Type::Read, key, range_end)
    }

    fn check_admin(&self, sender: Sender<'_>) -> Result<(), EtcdError> {
        if !self.enabled || self.is_root(sender.user) {
            return Ok(());
        }
        Err(match sender.user {
            "" => EtcdError::UserEmpty,
            user if !self.users.contains_key(user) => EtcdError::UserNotFound,
            _ => EtcdError::PermissionDenied,
        })
    }

    /// Checks a request about keys or leases. `leased` returns the keys of a lease.
    pub(super) fn check_request(
        &self,
        sender: Sender<'_>,
        request: &InternalRaftRequest,
        leased: &dyn Fn(i64) -> Vec<String>,
    ) -> Result<(), EtcdError> {
        if let Some(put) = &request.put {
            self.check_put(sender, put, leased)?;
        }
        if let Some(delete) = &request.delete_range {
            self.check_delete(sender, delete)?;
        }
        if let Some(txn) = &request.txn {
            self.check_txn(sender, txn, leased)?;
        }
        match &request.lease_revoke {
            Some(revoke) => self.check_lease(sender, revoke.id, leased),
            None => Ok(()),
        }
    }

    fn check_lease(
        &self,
        sender: Sender<'_>,
        lease: i64,
        leased: &dyn Fn(i64) -> Vec<String>,
    ) -> Result<(), EtcdError> {
        if self.check_admin(sender).is_ok() {
            return Ok(());
        }
        let keys = leased(lease);
        let mut keys = keys.iter();
        keys.try_for_each(|key| self.check(sender, Type::Write, key.as_bytes(), &[]))
    }

    fn check_put(
        &self,
        sender: Sender<'_>,
        put: &PutRequest,
        leased: &dyn Fn(i64) -> Vec<String>,
    ) -> Result<(), EtcdError> {
        self.check(sender, Type::Write, &put.key, &[])?;
        self.check_lease(sender, put.lease, leased)?;
        match put.prev_kv {
            true => self.check(sender, Type::Read, &put.key, &[]),
            false => Ok(()),
        }
    }

    fn check_delete(
        &self,
        sender: Sender<'_>,
        delete: &DeleteRangeRequest,
    ) -> Result<(), EtcdError> {
        self.check(sender, Type::Write, &delete.key, &delete.range_end)?;
        match delete.prev_kv {
            true => self.check(sender, Type::Read, &delete.key, &delete.range_end),
            false => Ok(()),
        }
    }

    fn check_txn(
        &self,
        sender: Sender<'_>,
        txn: &TxnRequest,
        leased: &dyn Fn(i64) -> Vec<String>,
    ) -> Result<(), EtcdError> {
        for compare in &txn.compare {
            self.check(sender, Type::Read, &compare.key, &compare.range_end)?;
        }
        let check = |op: &RequestOp| match &op.request {
            Some(Op::RequestRange(range)) => {
                self.check(sender, Type::Read, &range.key, &range.range_end)
            }
            Some(Op::RequestPut(put)) => self.check_put(sender, put, leased),
            Some(Op::RequestDeleteRange(delete)) => self.check_delete(sender, delete),
            Some(Op::RequestTxn(txn)) => self.check_txn(sender, txn, leased),
            None => Ok(()),
        };
        txn.success.iter().chain(&txn.failure).try_for_each(check)
    }

    /// Executes a change of users and roles. `None` for a request about something else.
    pub(super) fn administer(
        &mut self,
        sender: Sender<'_>,
        request: &InternalRaftRequest,
    ) -> Option<Result<(), EtcdError>> {
        is_administration(request).then(|| {
            self.check_admin(sender)?;
            let is_changed = self.change(request)?;
            self.revision += u64::from(is_changed);
            Ok(())
        })
    }

    /// Returns whether the revision changes.
    fn change(&mut self, request: &InternalRaftRequest) -> Result<bool, EtcdError> {
        if request.auth_enable.is_some() {
            return self.enable();
        }
        if request.auth_disable.is_some() {
            return Ok(std::mem::replace(&mut self.enabled, false));
        }
        if let Some(AuthUserAddRequest { name, .. }) = &request.auth_user_add {
            if self.users.contains_key(name) {
                return Err(EtcdError::UserAlreadyExists);
            }
            self.users.insert(name.clone(), BTreeSet::new());
        }
        if let Some(AuthUserDeleteRequest { name }) = &request.auth_user_delete {
            self.users.remove(name).ok_or(EtcdError::UserNotFound)?;
        }
        if let Some(AuthUserGrantRoleRequest { user, role }) = &request.auth_user_grant_role {
            let roles = self.users.get_mut(user).ok_or(EtcdError::UserNotFound)?;
            if role != ROOT && !self.roles.contains_key(role) {
                return Err(EtcdError::RoleNotFound);
            }
            return Ok(roles.insert(role.clone()));
        }
        if let Some(AuthUserRevokeRoleRequest { name, role }) = &request.auth_user_revoke_role {
            let roles = self.users.get_mut(name).ok_or(EtcdError::UserNotFound)?;
            if !roles.remove(role) {
                return Err(EtcdError::RoleNotGranted);
            }
        }
        if let Some(AuthRoleAddRequest { name }) = &request.auth_role_add {
            if self.roles.contains_key(name) {
                return Err(EtcdError::RoleAlreadyExists);
            }
            self.roles.insert(name.clone(), BTreeMap::new());
        }
        self.change_permission(request)?;
        Ok(true)
    }

    fn change_permission(&mut self, request: &InternalRaftRequest) -> Result<(), EtcdError> {
        let missing = EtcdError::RoleNotFound;
        if let Some(grant) = &request.auth_role_grant_permission
            && let Some(granted) = &grant.perm
        {
            let role = self.roles.get_mut(&grant.name).ok_or(missing)?;
            let range = (granted.key.to_vec(), granted.range_end.to_vec());
            role.insert(range, granted.perm_type);
        }
        if let Some(revoke) = &request.auth_role_revoke_permission {
            let role = self.roles.get_mut(&revoke.role).ok_or(missing)?;
            let range = (revoke.key.to_vec(), revoke.range_end.to_vec());
            role.remove(&range).ok_or(EtcdError::PermissionNotGranted)?;
        }
        Ok(())
    }

    fn enable(&mut self) -> Result<bool, EtcdError> {
        if !self.enabled {
            if !self.users.contains_key(ROOT) {
                return Err(EtcdError::RootUserNotExist);
            }
            if !self.is_root(ROOT) {
                return Err(EtcdError::RootRoleNotExist);
            }
        }
        self.enabled = true;
        Ok(false)
    }
}

fn is_administration(request: &InternalRaftRequest) -> bool {
    request.auth_enable.is_some()
        || request.auth_disable.is_some()
        || request.auth_user_add.is_some()
        || request.auth_user_delete.is_some()
        || request.auth_user_grant_role.is_some()
        || request.auth_user_revoke_role.is_some()
        || request.auth_role_add.is_some()
        || request.auth_role_grant_permission.is_some()
        || request.auth_role_revoke_permission.is_some()
}

/// Chooses a change of users and roles. The first ones prepare `root`, a user for all keys and one
/// for some, and enable authentication.
pub(super) fn any_administration(
    random: &mut Random,
    number: usize,
    keys: &[&str],
) -> InternalRaftRequest {
    let [(first_user, first_role), (second_user, second_role)] = USERS;
    let prepared = [
        user_add(ROOT),
        grant(ROOT, ROOT),
        user_add(first_user),
        user_add(second_user),
        role_add(first_role),
        role_add(second_role),
        permit(first_role, None, Type::Readwrite),
        permit(second_role, keys.first().copied(), Type::Readwrite),
        grant(first_user, first_role),
        grant(second_user, second_role),
        enable(),
    ];
    if let Some(request) = prepared.get(number) {
        return request.clone();
    }
    let (user, own_role) = random.choose(&USERS).copied().unwrap_or(USERS[0]);
    let other_role = random.choose(&USERS).map_or(own_role, |(_, role)| role);
    let key = random.choose(keys).copied();
    let key = key.filter(|_| random.below(4) > 0);
    let kinds = [Type::Read, Type::Write, Type::Readwrite];
    let kind = random.choose(&kinds).copied().unwrap_or(Type::Read);
    match random.below(20) {
        0 => user_add(user),
        1 => user_delete(user),
        2..5 => grant(user, other_role),
        5 => revoke(user, own_role),
        6 => role_add(own_role),
        7..14 => permit(own_role, key, kind),
        14..17 => forbid(own_role, key),
        17 => InternalRaftRequest {
            auth_disable: Some(AuthDisableRequest {}),
            ..InternalRaftRequest::default()
        },
        _ => enable(),
    }
}

fn enable() -> InternalRaftRequest {
    InternalRaftRequest {
        auth_enable: Some(AuthEnableRequest {}),
        ..InternalRaftRequest::default()
    }
}

fn user_add(name: &str) -> InternalRaftRequest {
    InternalRaftRequest {
        auth_user_add: Some(AuthUserAddRequest {
            name: name.to_owned(),
            ..AuthUserAddRequest::default()
        }),
        ..InternalRaftRequest::default()
    }
}

fn user_delete(name: &str) -> InternalRaftRequest {
    InternalRaftRequest {
        auth_user_delete: Some(AuthUserDeleteRequest {
            name: name.to_owned(),
        }),
        ..InternalRaftRequest::default()
    }
}

fn grant(user: &str, role: &str) -> InternalRaftRequest {
    InternalRaftRequest {
        auth_user_grant_role: Some(AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: role.to_owned(),
        }),
        ..InternalRaftRequest::default()
    }
}

fn revoke(user: &str, role: &str) -> InternalRaftRequest {
    InternalRaftRequest {
        auth_user_revoke_role: Some(AuthUserRevokeRoleRequest {
            name: user.to_owned(),
            role: role.to_owned(),
        }),
        ..InternalRaftRequest::default()
    }
}

fn role_add(name: &str) -> InternalRaftRequest {
    InternalRaftRequest {
        auth_role_add: Some(AuthRoleAddRequest {
            name: name.to_owned(),
        }),
        ..InternalRaftRequest::default()
    }
}

/// One key, or all keys.
fn range(key: Option<&str>) -> Range {
    match key {
        Some(key) => (key.as_bytes().to_vec(), Vec::new()),
        None => (vec![0], vec![0]),
    }
}

fn permit(role: &str, key: Option<&str>, kind: Type) -> InternalRaftRequest {
    let (key, range_end) = range(key);
    InternalRaftRequest {
        auth_role_grant_permission: Some(AuthRoleGrantPermissionRequest {
            name: role.to_owned(),
            perm: Some(Permission {
                perm_type: kind.into(),
                key: key.into(),
                range_end: range_end.into(),
            }),
        }),
        ..InternalRaftRequest::default()
    }
}

fn forbid(role: &str, key: Option<&str>) -> InternalRaftRequest {
    let (key, range_end) = range(key);
    InternalRaftRequest {
        auth_role_revoke_permission: Some(AuthRoleRevokePermissionRequest {
            role: role.to_owned(),
            key: key.into(),
            range_end: range_end.into(),
        }),
        ..InternalRaftRequest::default()
    }
}
