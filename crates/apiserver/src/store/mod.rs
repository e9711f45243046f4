//! Objects in the store: keys, bytes, and the errors of the interface as answers.

mod codec;
mod continue_token;
mod failures;
mod keys;

pub(crate) use codec::{Stored, decode, encode};
pub(crate) use continue_token::{ContinueToken, INCONSISTENT};
pub(crate) use failures::{expired_continue, store_failure};
pub(crate) use keys::Keys;
