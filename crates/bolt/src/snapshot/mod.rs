//! Snapshot functions of etcd: the digest at the end of the file, the hash over the contents, and
//! the summary that `etcdutl snapshot status` prints.
//!
//! Callers are the snapshot RPC (digest), `Maintenance.Hash` (hash) and `portctl` (all three). The
//! restore of a member is not part of this module; it needs a log and a membership.

mod digest;
mod hash;
mod status;

pub use digest::{DIGEST_BYTES, DigestWriter, VerifyError, carries_digest, verify, verify_file};
pub use hash::{excluded_from_hash_rpc, hash};
pub use status::{Status, StatusError, status};
