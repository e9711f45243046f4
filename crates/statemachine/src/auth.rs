//! Whether data may only be shown to clients that log in.
//!
//! The Auth service does not exist yet, so such data is refused wherever it could come in: at the
//! start, in a snapshot of the leader, and before such a snapshot becomes the store.

use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;

/// The key in [`Bucket::Auth`] that records whether authentication is enabled.
pub const ENABLED_KEY: &[u8] = b"authEnabled";
const ON: &[u8] = &[1];

/// Whether this value of [`ENABLED_KEY`] means that authentication is enabled.
pub fn is_on(value: &[u8]) -> bool {
    value == ON
}

/// Whether authentication is enabled in a store.
pub fn is_enabled(store: &Store) -> bool {
    let value = store.get_raw(Bucket::Auth, ENABLED_KEY);
    value.is_some_and(|value| is_on(value))
}

/// Where the revision of users and roles is stored, in [`Bucket::Auth`].
const REVISION_KEY: &[u8] = b"authRevision";
/// The revision of a store that never had users; etcd writes it at its first start.
const REVISION_FIRST: u64 = 1;

/// The revision of users and roles in a store; `None` if the stored one is damaged.
pub fn revision(store: &Store) -> Option<u64> {
    match store.get_raw(Bucket::Auth, REVISION_KEY) {
        None => Some(REVISION_FIRST),
        Some(value) => value.as_ref().try_into().ok().map(u64::from_be_bytes),
    }
}
