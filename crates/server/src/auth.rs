//! Whether data may only be shown to clients that log in.
//!
//! The Auth service does not exist yet, so such data is refused wherever it could come in: at the
//! start, in a snapshot of the leader, and before such a snapshot becomes the store.

use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;

/// Where the data says so, in [`Bucket::Auth`].
pub const ENABLED_KEY: &[u8] = b"authEnabled";
const ON: &[u8] = &[1];

/// Whether the value of [`ENABLED_KEY`] says that authentication is enabled.
pub fn is_on(value: &[u8]) -> bool {
    value == ON
}

/// Whether authentication is enabled in a store.
pub fn is_enabled(store: &Store) -> bool {
    let value = store.get_raw(Bucket::Auth, ENABLED_KEY);
    value.is_some_and(|value| is_on(value))
}
