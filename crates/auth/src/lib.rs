//! Users, roles, permissions and tokens: rules over the store.
//!
//! ```text
//!  log entry ──▶ administration ──▶ AuthState ──▶ buckets auth, authUsers, authRoles
//!                                      │ (immutable copies)
//!  request ──▶ Caller ────────────▶ checks: keys of ranges, puts, deletes, transactions
//!  token ───▶ SimpleTokens, jwt ─▶ Caller
//! ```
//!
//! Everything here is pure: time, randomness and the bytes of key files are arguments.
//!
//! Invariants:
//! - Users and roles change only in `administration`, which only the state machine calls, and
//!   the buckets have etcd's keys and values. So members, Go members, snapshots and `etcdutl`
//!   agree about them.
//! - [`AuthState`] is what the buckets hold: loading it from them gives the same value.
//! - While authentication is enabled, a [`Caller`] without a user passes no check, and a check of
//!   a transaction covers every compare and every operation of both branches on every level.
//! - A range is permitted only if permissions cover all of it.
//! - A token that was never assigned, has expired or belongs to a deleted user has no caller.

mod administration;
mod check;
pub mod jwt;
mod key_ranges;
mod password;
mod record;
mod simple_tokens;
mod state;

pub use check::{Caller, LeasedKeys};
pub use key_ranges::KeyRanges;
pub use password::{PasswordCheck, decode_hash, encode_hash};
pub use record::is_readable;
pub use simple_tokens::{
    SimpleTokens, TOKEN_LETTERS, TOKEN_PREFIX_LETTERS, TokenIndex, full_token,
};
pub use state::{AuthState, LoadError, User};

/// The user that administers users and roles, and the role that permits everything.
pub const ROOT: &str = "root";
