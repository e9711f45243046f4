//! The records of users and roles in the store: etcd's keys and values.

use bytes::Bytes;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::{ApplyError, Store};
use portunus_proto::authpb::{Role, User};
use prost::Message;

/// The key in [`Bucket::Auth`] that records whether authentication is enabled.
const ENABLED_KEY: &[u8] = b"authEnabled";
/// The key in [`Bucket::Auth`] of the revision of users and roles.
const REVISION_KEY: &[u8] = b"authRevision";
/// The revision of a store that never had users; etcd writes it at its first start.
const REVISION_FIRST: u64 = 1;
const ENABLED: &[u8] = &[1];
const DISABLED: &[u8] = &[0];

/// Whether an entry of a bucket can be loaded. Entries of other buckets than those of users and
/// roles always can, as far as this crate is concerned.
#[must_use]
pub fn is_readable(bucket: Bucket, key: &[u8], value: &Bytes) -> bool {
    let is_name = || std::str::from_utf8(key).is_ok();
    match bucket {
        Bucket::Auth => key != REVISION_KEY || value.len() == size_of::<u64>(),
        Bucket::AuthUsers => is_name() && User::decode(value.clone()).is_ok(),
        Bucket::AuthRoles => is_name() && Role::decode(value.clone()).is_ok(),
        _ => true,
    }
}

pub(crate) fn read_enabled(store: &Store) -> bool {
    let value = store.get_raw(Bucket::Auth, ENABLED_KEY);
    value.is_some_and(|value| value.as_ref() == ENABLED)
}

pub(crate) fn put_enabled(store: &mut Store, enabled: bool) -> Result<(), ApplyError> {
    let value = if enabled { ENABLED } else { DISABLED };
    let key = Bytes::from_static(ENABLED_KEY);
    store.put_raw(Bucket::Auth, key, Bytes::from_static(value))
}

/// Returns the stored revision; `None` if it is damaged.
pub(crate) fn read_revision(store: &Store) -> Option<u64> {
    match store.get_raw(Bucket::Auth, REVISION_KEY) {
        None => Some(REVISION_FIRST),
        Some(value) => value.as_ref().try_into().ok().map(u64::from_be_bytes),
    }
}

pub(crate) fn put_revision(store: &mut Store, revision: u64) -> Result<(), ApplyError> {
    let value = Bytes::copy_from_slice(&revision.to_be_bytes());
    store.put_raw(Bucket::Auth, Bytes::from_static(REVISION_KEY), value)
}

pub(crate) fn put_user(store: &mut Store, user: &User) -> Result<(), ApplyError> {
    let value = Bytes::from(user.encode_to_vec());
    store.put_raw(Bucket::AuthUsers, user.name.clone(), value)
}

pub(crate) fn delete_user(store: &mut Store, name: &str) -> Result<(), ApplyError> {
    store.delete_raw(Bucket::AuthUsers, name.as_bytes())
}

pub(crate) fn put_role(store: &mut Store, role: &Role) -> Result<(), ApplyError> {
    let value = Bytes::from(role.encode_to_vec());
    store.put_raw(Bucket::AuthRoles, role.name.clone(), value)
}

pub(crate) fn delete_role(store: &mut Store, name: &str) -> Result<(), ApplyError> {
    store.delete_raw(Bucket::AuthRoles, name.as_bytes())
}
