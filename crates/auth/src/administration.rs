//! Changes of users and roles. Only the state machine makes them, entry by entry.
//!
//! Each change is refused as a whole or stored as a whole, with etcd's checks in etcd's order. Every
//! change increments the revision, except those that change nothing.

use std::sync::Arc;

use portunus_mvcc::{ApplyError, Store};
use portunus_proto::EtcdError;
use portunus_proto::authpb::{Permission, Role, User as UserRecord};
use portunus_proto::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
};

use crate::password::decode_hash;
use crate::state::{AuthState, User};
use crate::{ROOT, record};

/// The end of permissions that reach to the last key.
const OPEN_END: &[u8] = &[0];

impl AuthState {
    /// Enables authentication. The user `root` must have the role `root`.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn enable(&mut self, store: &mut Store) -> Result<(), ApplyError> {
        if self.enabled {
            tracing::info!("authentication is already enabled; ignored auth enable request");
            return Ok(());
        }
        let root = self.user(ROOT).ok_or(EtcdError::RootUserNotExist)?;
        if !root.is_root() {
            return Err(EtcdError::RootRoleNotExist.into());
        }
        record::put_enabled(store, true)?;
        self.enabled = true;
        tracing::info!("enabled authentication");
        Ok(())
    }

    /// Disables authentication.
    ///
    /// # Errors
    /// A failed store.
    pub fn disable(&mut self, store: &mut Store) -> Result<(), ApplyError> {
        if !self.enabled {
            return Ok(());
        }
        record::put_enabled(store, false)?;
        self.increment_revision(store)?;
        self.enabled = false;
        tracing::info!("disabled authentication");
        Ok(())
    }

    /// Adds a user.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn user_add(
        &mut self,
        store: &mut Store,
        request: &AuthUserAddRequest,
    ) -> Result<(), ApplyError> {
        if request.name.is_empty() {
            return Err(EtcdError::UserEmpty.into());
        }
        if self.user(&request.name).is_some() {
            return Err(EtcdError::UserAlreadyExists.into());
        }
        let options = request.options.unwrap_or_default();
        let password = match options.no_password {
            true => Vec::new(),
            false => decode_hash(&request.password, &request.hashed_password)?,
        };
        self.put_user(
            store,
            UserRecord {
                name: request.name.clone().into(),
                password: password.into(),
                roles: Vec::new(),
                options: Some(options),
            },
        )?;
        tracing::info!(user = request.name, "added a user");
        self.increment_revision(store)
    }

    /// Deletes a user. `root` cannot be deleted while authentication is enabled.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn user_delete(
        &mut self,
        store: &mut Store,
        request: &AuthUserDeleteRequest,
    ) -> Result<(), ApplyError> {
        if self.enabled && request.name == ROOT {
            tracing::error!("the user 'root' cannot be deleted while authentication is enabled");
            return Err(EtcdError::InvalidAuthManagement.into());
        }
        if self.users.remove(&request.name).is_none() {
            return Err(EtcdError::UserNotFound.into());
        }
        record::delete_user(store, &request.name)?;
        tracing::info!(user = request.name, "deleted a user");
        self.increment_revision(store)
    }

    /// Changes the password of a user. A user without a password stays without one.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn user_change_password(
        &mut self,
        store: &mut Store,
        request: &AuthUserChangePasswordRequest,
    ) -> Result<(), ApplyError> {
        let user = self.user(&request.name).ok_or(EtcdError::UserNotFound)?;
        let password = match user.has_no_password() {
            true => Vec::new(),
            false => decode_hash(&request.password, &request.hashed_password)?,
        };
        let changed = UserRecord {
            password: password.into(),
            ..user.record.clone()
        };
        self.put_user(store, changed)?;
        tracing::info!(user = request.name, "changed a password of a user");
        self.increment_revision(store)
    }

    /// Grants a role to a user. The role `root` needs no record.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn user_grant_role(
        &mut self,
        store: &mut Store,
        request: &AuthUserGrantRoleRequest,
    ) -> Result<(), ApplyError> {
        let user = self.user(&request.user).ok_or(EtcdError::UserNotFound)?;
        if request.role != ROOT && self.role(&request.role).is_none() {
            return Err(EtcdError::RoleNotFound.into());
        }
        let mut changed = user.record.clone();
        if changed.roles.binary_search(&request.role).is_ok() {
            tracing::warn!(
                user = request.user,
                role = request.role,
                "ignored grant role request to a user: it has the role"
            );
            return Ok(());
        }
        changed.roles.push(request.role.clone());
        changed.roles.sort();
        self.put_user(store, changed)?;
        tracing::info!(
            user = request.user,
            role = request.role,
            "granted a role to a user"
        );
        self.increment_revision(store)
    }

    /// Revokes a role of a user. `root` keeps the role `root` while authentication is enabled.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn user_revoke_role(
        &mut self,
        store: &mut Store,
        request: &AuthUserRevokeRoleRequest,
    ) -> Result<(), ApplyError> {
        if self.enabled && request.name == ROOT && request.role == ROOT {
            tracing::error!(
                "the role 'root' cannot be revoked from the user 'root' while authentication is enabled"
            );
            return Err(EtcdError::InvalidAuthManagement.into());
        }
        let user = self.user(&request.name).ok_or(EtcdError::UserNotFound)?;
        let changed = without_role(user, &request.role).ok_or(EtcdError::RoleNotGranted)?;
        self.put_user(store, changed)?;
        tracing::info!(
            user = request.name,
            role = request.role,
            "revoked a role from a user"
        );
        self.increment_revision(store)
    }

    /// Adds a role without permissions.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn role_add(
        &mut self,
        store: &mut Store,
        request: &AuthRoleAddRequest,
    ) -> Result<(), ApplyError> {
        if request.name.is_empty() {
            return Err(EtcdError::RoleEmpty.into());
        }
        if self.role(&request.name).is_some() {
            return Err(EtcdError::RoleAlreadyExists.into());
        }
        let role = Role {
            name: request.name.clone().into(),
            key_permission: Vec::new(),
        };
        self.put_role(store, &request.name, role)?;
        tracing::info!(role = request.name, "created a role");
        self.increment_revision(store)
    }

    /// Deletes a role, and revokes it from all users. The role `root` cannot be deleted while
    /// authentication is enabled.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn role_delete(
        &mut self,
        store: &mut Store,
        request: &AuthRoleDeleteRequest,
    ) -> Result<(), ApplyError> {
        if self.enabled && request.role == ROOT {
            tracing::error!("the role 'root' cannot be deleted while authentication is enabled");
            return Err(EtcdError::InvalidAuthManagement.into());
        }
        if self.roles.remove(&request.role).is_none() {
            return Err(EtcdError::RoleNotFound.into());
        }
        record::delete_role(store, &request.role)?;
        let users = self.users.values();
        let changed: Vec<UserRecord> = users
            .filter_map(|user| without_role(user, &request.role))
            .collect();
        for user in changed {
            self.put_user(store, user)?;
        }
        tracing::info!(role = request.role, "deleted a role");
        self.increment_revision(store)
    }

    /// Grants a permission to a role, or changes its type.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn role_grant_permission(
        &mut self,
        store: &mut Store,
        request: &AuthRoleGrantPermissionRequest,
    ) -> Result<(), ApplyError> {
        let granted = request.perm.as_ref();
        let granted = granted.ok_or(EtcdError::PermissionNotGiven)?;
        if !is_valid_range(granted) {
            return Err(EtcdError::InvalidAuthManagement.into());
        }
        let role = self.role(&request.name).ok_or(EtcdError::RoleNotFound)?;
        let mut changed = role.clone();
        let permissions = &mut changed.key_permission;
        // Like etcd, only the first permission that starts at the key is compared.
        let at = permissions.partition_point(|it| it.key < granted.key);
        match permissions.get_mut(at) {
            Some(it) if it.key == granted.key && it.range_end == granted.range_end => {
                it.perm_type = granted.perm_type;
            }
            _ => {
                permissions.push(granted.clone());
                permissions.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
        self.put_role(store, &request.name, changed)?;
        tracing::info!(
            role = request.name,
            "granted or updated a permission of a role"
        );
        self.increment_revision(store)
    }

    /// Revokes the permission of a role for exactly this range.
    ///
    /// # Errors
    /// A refusal, or a failed store.
    pub fn role_revoke_permission(
        &mut self,
        store: &mut Store,
        request: &AuthRoleRevokePermissionRequest,
    ) -> Result<(), ApplyError> {
        let role = self.role(&request.role).ok_or(EtcdError::RoleNotFound)?;
        let mut changed = role.clone();
        let is_meant = |it: &Permission| it.key == request.key && it.range_end == request.range_end;
        changed.key_permission.retain(|it| !is_meant(it));
        if changed.key_permission.len() == role.key_permission.len() {
            return Err(EtcdError::PermissionNotGranted.into());
        }
        self.put_role(store, &request.role, changed)?;
        tracing::info!(role = request.role, "revoked a permission of a role");
        self.increment_revision(store)
    }

    fn put_user(&mut self, store: &mut Store, user: UserRecord) -> Result<(), ApplyError> {
        record::put_user(store, &user)?;
        let name = String::from_utf8_lossy(&user.name).into_owned();
        let user = User::new(user, &self.roles);
        self.users.insert(name, Arc::new(user));
        Ok(())
    }

    /// Stores a role, and what it permits to the users who have it.
    fn put_role(&mut self, store: &mut Store, name: &str, role: Role) -> Result<(), ApplyError> {
        record::put_role(store, &role)?;
        self.roles.insert(name.to_owned(), Arc::new(role));
        let has_role = |user: &User| user.roles().iter().any(|role| role == name);
        let users = self.users.iter();
        let affected: Vec<(String, UserRecord)> = users
            .filter(|(_, user)| has_role(user))
            .map(|(name, user)| (name.clone(), user.record.clone()))
            .collect();
        for (name, record) in affected {
            let user = User::new(record, &self.roles);
            self.users.insert(name, Arc::new(user));
        }
        Ok(())
    }

    fn increment_revision(&mut self, store: &mut Store) -> Result<(), ApplyError> {
        self.revision += 1;
        record::put_revision(store, self.revision)
    }
}

/// Returns a user without a role; `None` if it does not have the role.
fn without_role(user: &User, role: &str) -> Option<UserRecord> {
    let mut changed = user.record.clone();
    changed.roles.retain(|it| it != role);
    (changed.roles.len() < user.record.roles.len()).then_some(changed)
}

/// Whether a permission names a key, and its range does not end before it starts.
fn is_valid_range(permission: &Permission) -> bool {
    let (key, end) = (&permission.key, &permission.range_end);
    !key.is_empty() && (end.is_empty() || key < end || end.as_ref() == OPEN_END)
}
