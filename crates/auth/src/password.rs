//! Passwords: only their bcrypt hashes are stored or logged, and they travel through the log as
//! base64. This crate does not hash: that takes a tenth of a second and randomness.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portunus_proto::EtcdError;

use crate::state::AuthState;

/// Returns the text of a hash for a request to the log.
#[must_use]
pub fn encode_hash(hash: &[u8]) -> String {
    STANDARD.encode(hash)
}

/// Returns the hash of a request from the log.
///
/// Members before etcd 3.5 put the password itself into the log, and each member hashed it with a
/// salt of its own, so that their records differed. Such a request is refused here.
///
/// # Errors
/// [`EtcdError::PasswordForNoPasswordUser`], which is etcd's error for a hash that is no base64.
pub fn decode_hash(password: &str, hash: &str) -> Result<Vec<u8>, EtcdError> {
    let error = EtcdError::PasswordForNoPasswordUser;
    if !password.is_empty() && hash.is_empty() {
        return Err(error);
    }
    STANDARD.decode(hash).map_err(|_| error)
}

/// What has to be done to check a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordCheck {
    /// Compare the password with this hash, which was the user's at a revision of users and
    /// roles.
    Compare {
        /// The stored hash.
        hash: Bytes,
        /// The revision.
        revision: u64,
    },
    /// There is no such user. Compare the password with any hash, so that the answer takes as
    /// long as for a user that exists; the result is always [`EtcdError::AuthFailed`].
    Pretend,
}

impl AuthState {
    /// Begins the check of a password.
    ///
    /// # Errors
    /// [`EtcdError::AuthNotEnabled`] or [`EtcdError::PasswordForNoPasswordUser`].
    pub fn check_password(&self, username: &str) -> Result<PasswordCheck, EtcdError> {
        if !self.enabled {
            return Err(EtcdError::AuthNotEnabled);
        }
        match self.user(username) {
            None => Ok(PasswordCheck::Pretend),
            Some(user) if user.has_no_password() => Err(EtcdError::PasswordForNoPasswordUser),
            Some(user) => Ok(PasswordCheck::Compare {
                hash: user.password_hash().clone(),
                revision: self.revision,
            }),
        }
    }

    /// Checks, when the login is applied, that the user can still log in.
    ///
    /// # Errors
    /// [`EtcdError::AuthNotEnabled`] or [`EtcdError::AuthFailed`].
    pub fn check_login(&self, username: &str) -> Result<(), EtcdError> {
        if !self.enabled {
            return Err(EtcdError::AuthNotEnabled);
        }
        match self.user(username) {
            Some(user) if !user.has_no_password() => Ok(()),
            _ => Err(EtcdError::AuthFailed),
        }
    }
}
