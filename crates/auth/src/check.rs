//! Whether a caller may do what a request asks. The order of the checks is etcd's, because
//! members have to agree on the error as well.

use std::sync::Arc;

use bytes::Bytes;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use portunus_proto::{EtcdError, LeaseId};

use crate::state::{AuthState, User};

/// The user that a token or a certificate identifies as the sender of a request. The default is a
/// request with neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    username: Option<Arc<str>>,
    revision: u64,
}

impl Caller {
    /// Returns the caller for a user that was identified at a revision.
    #[must_use]
    pub fn new(username: impl Into<Arc<str>>, revision: u64) -> Caller {
        Caller {
            username: Some(username.into()),
            revision,
        }
    }

    /// The name of the user; empty for a request without one.
    #[must_use]
    pub fn username(&self) -> &str {
        self.username.as_deref().unwrap_or_default()
    }

    /// The revision of users and roles at which the caller was identified; 0 for a request without
    /// a user.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the request names no user.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.username().is_empty()
    }
}

/// Returns the keys that are attached to a lease; none for a lease that does not exist.
pub type LeasedKeys<'a> = dyn Fn(LeaseId) -> Vec<Bytes> + 'a;

impl AuthState {
    /// Checks that the caller administers the cluster. Like etcd, it checks the present roles of
    /// the user and ignores the caller's revision.
    ///
    /// # Errors
    /// [`EtcdError::UserEmpty`], [`EtcdError::UserNotFound`] or [`EtcdError::PermissionDenied`].
    pub fn check_admin(&self, caller: &Caller) -> Result<(), EtcdError> {
        if !self.enabled {
            return Ok(());
        }
        if caller.is_anonymous() {
            return Err(EtcdError::UserEmpty);
        }
        let user = self
            .user(caller.username())
            .ok_or(EtcdError::UserNotFound)?;
        match user.is_root() {
            true => Ok(()),
            false => Err(EtcdError::PermissionDenied),
        }
    }

    /// Checks that the request names a user.
    ///
    /// # Errors
    /// [`EtcdError::UserEmpty`].
    pub fn check_authenticated(&self, caller: &Caller) -> Result<(), EtcdError> {
        match self.enabled && caller.is_anonymous() {
            true => Err(EtcdError::UserEmpty),
            false => Ok(()),
        }
    }

    /// Checks that the caller may read all keys of a range.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_range(
        &self,
        caller: &Caller,
        key: &[u8],
        range_end: &[u8],
    ) -> Result<(), EtcdError> {
        self.check_keys(caller, |user| user.may_read(key, range_end))
    }

    /// Checks that the caller may make a put: write the key and all keys of the lease, and read
    /// the key if the previous value is wanted.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_put(
        &self,
        caller: &Caller,
        put: &PutRequest,
        leased: &LeasedKeys<'_>,
    ) -> Result<(), EtcdError> {
        if !self.enabled {
            return Ok(());
        }
        self.check_write(caller, &put.key, &[])?;
        // Without permission for the keys of the lease, the caller could not revoke it either.
        self.check_lease_writable(caller, LeaseId(put.lease), leased)?;
        match put.prev_kv {
            true => self.check_range(caller, &put.key, &[]),
            false => Ok(()),
        }
    }

    /// Checks that the caller may make a delete.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_delete_range(
        &self,
        caller: &Caller,
        delete: &DeleteRangeRequest,
    ) -> Result<(), EtcdError> {
        self.check_write(caller, &delete.key, &delete.range_end)?;
        match delete.prev_kv {
            true => self.check_range(caller, &delete.key, &delete.range_end),
            false => Ok(()),
        }
    }

    /// Checks every compare and every operation of a transaction, in both branches, whichever of
    /// them is taken.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_txn(
        &self,
        caller: &Caller,
        txn: &TxnRequest,
        leased: &LeasedKeys<'_>,
    ) -> Result<(), EtcdError> {
        if !self.enabled {
            return Ok(());
        }
        for compare in &txn.compare {
            self.check_range(caller, &compare.key, &compare.range_end)?;
        }
        for operation in txn.success.iter().chain(&txn.failure) {
            self.check_operation(caller, operation, leased)?;
        }
        Ok(())
    }

    fn check_operation(
        &self,
        caller: &Caller,
        operation: &RequestOp,
        leased: &LeasedKeys<'_>,
    ) -> Result<(), EtcdError> {
        match &operation.request {
            None => Ok(()),
            Some(Request::RequestRange(range)) => {
                self.check_range(caller, &range.key, &range.range_end)
            }
            Some(Request::RequestPut(put)) => self.check_put(caller, put, leased),
            Some(Request::RequestDeleteRange(delete)) => {
                if delete.prev_kv {
                    self.check_range(caller, &delete.key, &delete.range_end)?;
                }
                self.check_write(caller, &delete.key, &delete.range_end)
            }
            Some(Request::RequestTxn(txn)) => self.check_txn(caller, txn, leased),
        }
    }

    /// Checks that the caller may write every key of a lease, which revoking it or attaching
    /// another key to it requires.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_lease_writable(
        &self,
        caller: &Caller,
        lease: LeaseId,
        leased: &LeasedKeys<'_>,
    ) -> Result<(), EtcdError> {
        if lease == LeaseId::NONE || self.check_admin(caller).is_ok() {
            return Ok(());
        }
        let keys = leased(lease);
        keys.iter()
            .try_for_each(|key| self.check_write(caller, key, &[]))
    }

    /// Checks that the caller may read every key of a lease.
    ///
    /// # Errors
    /// The error that the client gets.
    pub fn check_lease_readable(
        &self,
        caller: &Caller,
        lease: LeaseId,
        leased: &LeasedKeys<'_>,
    ) -> Result<(), EtcdError> {
        if self.check_admin(caller).is_ok() {
            return Ok(());
        }
        let keys = leased(lease);
        keys.iter()
            .try_for_each(|key| self.check_range(caller, key, &[]))
    }

    /// Whether a watch may go on: whether its user still exists and may read the range. The
    /// revision at which the watch was created does not matter.
    #[must_use]
    pub fn may_watch(&self, username: &str, key: &[u8], range_end: &[u8]) -> bool {
        if !self.enabled {
            return true;
        }
        let user = self.user(username);
        user.is_some_and(|user| user.may_read(key, range_end))
    }

    fn check_write(&self, caller: &Caller, key: &[u8], range_end: &[u8]) -> Result<(), EtcdError> {
        self.check_keys(caller, |user| user.may_write(key, range_end))
    }

    fn check_keys(
        &self,
        caller: &Caller,
        is_permitted: impl FnOnce(&User) -> bool,
    ) -> Result<(), EtcdError> {
        if !self.enabled {
            return Ok(());
        }
        if caller.revision == 0 {
            return Err(EtcdError::UserEmpty);
        }
        if caller.revision < self.revision {
            return Err(EtcdError::AuthOldRevision);
        }
        match self.user(caller.username()).is_some_and(is_permitted) {
            true => Ok(()),
            false => Err(EtcdError::PermissionDenied),
        }
    }
}
