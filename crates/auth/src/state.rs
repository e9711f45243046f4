//! Users, roles and whether authentication is enabled, as the store holds them.

use std::str::Utf8Error;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;
use portunus_proto::authpb::permission::Type;
use portunus_proto::authpb::{Role, User as UserRecord};
use prost::Message;
use thiserror::Error;

use crate::key_ranges::KeyRanges;
use crate::{ROOT, record};

/// A user, and the keys that its roles permit.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub(crate) record: UserRecord,
    is_root: bool,
    readable: KeyRanges,
    writable: KeyRanges,
}

impl User {
    pub(crate) fn new(record: UserRecord, roles: &OrdMap<String, Arc<Role>>) -> User {
        let granted: Vec<&Arc<Role>> = record.roles.iter().filter_map(|it| roles.get(it)).collect();
        let permitted = |wanted: Type| {
            let permissions = granted.iter().flat_map(|role| &role.key_permission);
            // A type that is unknown permits nothing.
            let of_type = permissions.filter(|it| {
                let kind = Type::try_from(it.perm_type).ok();
                kind == Some(wanted) || kind == Some(Type::Readwrite)
            });
            KeyRanges::union(of_type.map(|it| (&it.key, &it.range_end)))
        };
        User {
            is_root: record.roles.iter().any(|role| role == ROOT),
            readable: permitted(Type::Read),
            writable: permitted(Type::Write),
            record,
        }
    }

    /// Whether the user has the role that permits everything.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// Whether the user may read all keys of a range.
    #[must_use]
    pub fn may_read(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.is_root || self.readable.covers(key, range_end)
    }

    /// Whether the user may write all keys of a range.
    #[must_use]
    pub fn may_write(&self, key: &[u8], range_end: &[u8]) -> bool {
        self.is_root || self.writable.covers(key, range_end)
    }

    /// The names of the user's roles, sorted.
    #[must_use]
    pub fn roles(&self) -> &[String] {
        &self.record.roles
    }

    /// Whether the user cannot log in with a password.
    #[must_use]
    pub fn has_no_password(&self) -> bool {
        let options = self.record.options.as_ref();
        options.is_some_and(|options| options.no_password)
    }

    /// The bcrypt hash of the user's password.
    #[must_use]
    pub fn password_hash(&self) -> &Bytes {
        &self.record.password
    }
}

/// Users, roles, their revision, and whether authentication is enabled. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct AuthState {
    pub(crate) enabled: bool,
    pub(crate) revision: u64,
    pub(crate) users: OrdMap<String, Arc<User>>,
    pub(crate) roles: OrdMap<String, Arc<Role>>,
}

/// Damaged records of users or roles.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A damaged revision.
    #[error(
        "the stored revision of users and roles is no number: restore this member from a snapshot"
    )]
    Revision,
    /// A damaged user or role.
    #[error("a stored user or role cannot be read: restore this member from a snapshot")]
    Record(#[from] prost::DecodeError),
    /// A name that is no text.
    #[error("the name of a stored user or role is no text: restore this member from a snapshot")]
    Name(#[from] Utf8Error),
}

impl AuthState {
    /// Reads the state from a store.
    ///
    /// # Errors
    /// If a record is damaged.
    pub fn load(store: &Store) -> Result<AuthState, LoadError> {
        let mut roles = OrdMap::new();
        for (name, value) in store.iter_raw(Bucket::AuthRoles) {
            let role = Role::decode(value.clone())?;
            roles.insert(std::str::from_utf8(name)?.to_owned(), Arc::new(role));
        }
        let mut users = OrdMap::new();
        for (name, value) in store.iter_raw(Bucket::AuthUsers) {
            let user = User::new(UserRecord::decode(value.clone())?, &roles);
            users.insert(std::str::from_utf8(name)?.to_owned(), Arc::new(user));
        }
        Ok(AuthState {
            enabled: record::read_enabled(store),
            revision: record::read_revision(store).ok_or(LoadError::Revision)?,
            users,
            roles,
        })
    }

    /// Whether authentication is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The revision of users and roles, which every change increments.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|user| user.as_ref())
    }

    /// The names of all users, sorted.
    pub fn user_names(&self) -> impl Iterator<Item = &String> {
        self.users.keys()
    }

    /// A role.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(name).map(|role| role.as_ref())
    }

    /// The names of all roles, sorted.
    pub fn role_names(&self) -> impl Iterator<Item = &String> {
        self.roles.keys()
    }
}
