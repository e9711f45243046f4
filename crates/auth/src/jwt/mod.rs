//! JSON web tokens: the tokens of `--auth-token jwt,…`.
//!
//! The server signs a token at login and verifies the token of each request. Tokens are etcd's:
//! members of both kinds with the same key accept each other's.
//!
//! ```text
//!  --auth-token ──▶ JwtOptions ──key files──▶ JwtTokens ──sign──▶ token ──verify──▶ Claims
//! ```
//!
//! | file | concept |
//! | --- | --- |
//! | `algorithm.rs` | the algorithms by name |
//! | `options.rs` | the value of `--auth-token` |
//! | `keys.rs`, `der.rs` | key files in the formats that etcd reads |
//! | `tokens.rs` | signing and verifying |
//!
//! This module reads no file and no clock. The nonces of ECDSA and RSA-PSS signatures come from
//! the random numbers of the cryptographic library, which takes them from nowhere else; no state
//! depends on them.

mod algorithm;
mod der;
mod keys;
mod options;
mod tokens;

pub use algorithm::{Algorithm, UnsupportedAlgorithm};
pub use keys::KeyError;
pub use options::{JwtOptions, OptionsError};
pub use tokens::{Claims, JwtTokens, SignError, TOKEN_BYTES_MAX, VerifyError};

#[cfg(test)]
mod tests;
