//! What etcd puts around a database when it calls it a snapshot: the digest at its end, the hash
//! over its contents, and the summary that `etcdutl snapshot status` prints.
//!
//! Callers are the snapshot RPC (digest), `Maintenance.Hash` (hash) and `portctl` (all three).
//! Restoring a member from a snapshot is not done here; that needs a log and a membership.

mod digest;
mod hash;
mod status;

pub use digest::{DIGEST_BYTES, DigestWriter, VerifyError, carries_digest, verify, verify_file};
pub use hash::{excluded_from_hash_rpc, hash};
pub use status::{Status, StatusError, status};
