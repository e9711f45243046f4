//! Every unary call, and whether it is repeated when a member is unavailable.
//!
//! | rule | applies to | repeated after `Unavailable` | repeated if it was not sent |
//! | --- | --- | --- | --- |
//! | repeatable | calls that change nothing, or nothing more when they run twice | yes | yes |
//! | non-repeatable | calls that may have been applied although they were not answered | no | yes |
//!
//! The assignment is that of clientv3 (`retry.go`), which does not repeat `AuthStatus` and transactions
//! that only read. Repetitions go to the next endpoint, after a pause, until the deadline of the call. Any
//! call is repeated with a new token if its token was refused, and at another endpoint if a learner
//! refused it: both have changed nothing. A granted lease whose answer was lost expires by itself.

use self::RetryPolicy::{NonRepeatable, Repeatable};

/// Whether a call may be retried on another endpoint. A call that certainly changed nothing,
/// because it was not sent or a learner refused it, is always retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryPolicy {
    /// Reads and other calls that change nothing, or nothing more when they run twice.
    Repeatable,
    /// Calls that may have been applied although they were not answered.
    NonRepeatable,
}

/// A call of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// The service and the method.
    pub(crate) name: &'static str,
    pub(crate) retry: RetryPolicy,
}

/// Declares calls as constants and as a table.
macro_rules! calls {
    ($($constant:ident = $name:literal, $retry:ident;)*) => {
        $(pub(crate) const $constant: Call = Call { name: $name, retry: $retry };)*

        /// All calls, for the test of the table.
        #[cfg(test)]
        pub(crate) const ALL: &[Call] = &[$($constant),*];
    };
}

calls! {
    RANGE = "KV/Range", Repeatable;
    RANGE_STREAM = "KV/RangeStream", Repeatable;
    PUT = "KV/Put", NonRepeatable;
    DELETE_RANGE = "KV/DeleteRange", NonRepeatable;
    TXN = "KV/Txn", NonRepeatable;
    COMPACT = "KV/Compact", NonRepeatable;

    LEASE_GRANT = "Lease/LeaseGrant", Repeatable;
    LEASE_REVOKE = "Lease/LeaseRevoke", Repeatable;
    LEASE_KEEP_ALIVE = "Lease/LeaseKeepAlive", Repeatable;
    LEASE_TIME_TO_LIVE = "Lease/LeaseTimeToLive", Repeatable;
    LEASE_LEASES = "Lease/LeaseLeases", Repeatable;

    MEMBER_LIST = "Cluster/MemberList", Repeatable;
    MEMBER_ADD = "Cluster/MemberAdd", NonRepeatable;
    MEMBER_REMOVE = "Cluster/MemberRemove", NonRepeatable;
    MEMBER_UPDATE = "Cluster/MemberUpdate", NonRepeatable;
    MEMBER_PROMOTE = "Cluster/MemberPromote", NonRepeatable;

    STATUS = "Maintenance/Status", Repeatable;
    HASH = "Maintenance/Hash", Repeatable;
    HASH_KV = "Maintenance/HashKV", Repeatable;
    ALARM = "Maintenance/Alarm", Repeatable;
    SNAPSHOT = "Maintenance/Snapshot", Repeatable;
    MOVE_LEADER = "Maintenance/MoveLeader", Repeatable;
    DEFRAGMENT = "Maintenance/Defragment", NonRepeatable;
    DOWNGRADE = "Maintenance/Downgrade", NonRepeatable;
    FEATURE_GATE_STATUS = "Maintenance/FeatureGateStatus", Repeatable;
    GATE_HISTORY = "FeatureGates/History", Repeatable;

    AUTH_ENABLE = "Auth/AuthEnable", NonRepeatable;
    AUTH_DISABLE = "Auth/AuthDisable", NonRepeatable;
    AUTH_STATUS = "Auth/AuthStatus", Repeatable;
    AUTHENTICATE = "Auth/Authenticate", NonRepeatable;
    USER_ADD = "Auth/UserAdd", NonRepeatable;
    USER_GET = "Auth/UserGet", Repeatable;
    USER_LIST = "Auth/UserList", Repeatable;
    USER_DELETE = "Auth/UserDelete", NonRepeatable;
    USER_CHANGE_PASSWORD = "Auth/UserChangePassword", NonRepeatable;
    USER_GRANT_ROLE = "Auth/UserGrantRole", NonRepeatable;
    USER_REVOKE_ROLE = "Auth/UserRevokeRole", NonRepeatable;
    ROLE_ADD = "Auth/RoleAdd", NonRepeatable;
    ROLE_GET = "Auth/RoleGet", Repeatable;
    ROLE_LIST = "Auth/RoleList", Repeatable;
    ROLE_DELETE = "Auth/RoleDelete", NonRepeatable;
    ROLE_GRANT_PERMISSION = "Auth/RoleGrantPermission", NonRepeatable;
    ROLE_REVOKE_PERMISSION = "Auth/RoleRevokePermission", NonRepeatable;
}

/// The stream of decisions about features; its watcher opens it again.
pub(crate) const GATE_WATCH: Call = Call {
    name: "FeatureGates/Watch",
    retry: Repeatable,
};

/// A transaction that only reads.
pub(crate) const READ_ONLY_TXN: Call = Call {
    retry: Repeatable,
    ..TXN
};

#[cfg(test)]
mod tests;
