//! The table of error texts and gRPC codes.
//!
//! Go clients recognise an error by its exact text, so the texts are wire
//! format. Services build refusals from [`EtcdError`]; clients convert a status
//! back into it. This module does not decide when an error applies.

use std::fmt;

use tonic::{Code, Status};

/// Declares the enum and its three projections from one list, so that they have the same rows.
macro_rules! error_table {
    ($( $code:ident { $( $(#[$doc:meta])* $name:ident = $text:literal, )* } )*) => {
        /// An error of etcd's API; one variant per distinct text.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum EtcdError {
            $($( $(#[$doc])* #[doc = concat!("`", $text, "`")] $name, )*)*
        }

        impl EtcdError {
            /// Every row, in table order.
            pub const ALL: &'static [Self] = &[$($( Self::$name, )*)*];

            /// The exact text on the wire.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $($( Self::$name => $text, )*)* }
            }

            /// The code of the error by definition, which a client should act
            /// on. The code on the wire can differ: see [`Self::wire_code`].
            #[must_use]
            pub const fn code(self) -> Code {
                match self { $($( Self::$name => Code::$code, )*)* }
            }
        }
    };
}

error_table! {
    InvalidArgument {
        EmptyKey = "etcdserver: key is not provided",
        KeyNotFound = "etcdserver: key not found",
        ValueProvided = "etcdserver: value is provided",
        LeaseProvided = "etcdserver: lease is provided",
        TooManyOps = "etcdserver: too many operations in txn request",
        DuplicateKey = "etcdserver: duplicate key given in txn request",
        InvalidClientApiVersion = "etcdserver: invalid client api version",
        InvalidSortOption = "etcdserver: invalid sort option",
        MemberBadUrls = "etcdserver: given member URLs are invalid",
        RequestTooLarge = "etcdserver: request is too large",
        UserEmpty = "etcdserver: user name is empty",
        RoleEmpty = "etcdserver: role name is empty",
        AuthFailed = "etcdserver: authentication failed, invalid user ID or password",
        PermissionNotGiven = "etcdserver: permission not given",
        InvalidAuthManagement = "etcdserver: invalid auth management",
        AuthOldRevision = "etcdserver: revision of auth store is old",
        WrongDowngradeVersionFormat = "etcdserver: wrong downgrade target version format",
        InvalidDowngradeTargetVersion = "etcdserver: invalid downgrade target version",
    }
    OutOfRange {
        Compacted = "etcdserver: mvcc: required revision has been compacted",
        FutureRevision = "etcdserver: mvcc: required revision is a future revision",
        LeaseTtlTooLarge = "etcdserver: too large lease TTL",
    }
    ResourceExhausted {
        NoSpace = "etcdserver: mvcc: database space exceeded",
        TooManyRequests = "etcdserver: too many requests",
    }
    NotFound {
        LeaseNotFound = "etcdserver: requested lease not found",
        MemberNotFound = "etcdserver: member not found",
    }
    FailedPrecondition {
        LeaseExists = "etcdserver: lease already exists",
        MemberExists = "etcdserver: member ID already exist",
        PeerUrlExists = "etcdserver: Peer URLs already exists",
        MemberNotEnoughStarted =
            "etcdserver: re-configuration failed due to not enough started members",
        MemberNotLearner = "etcdserver: can only promote a learner member",
        LearnerNotReady =
            "etcdserver: can only promote a learner member which is in sync with leader",
        TooManyLearners = "etcdserver: too many learner members in cluster",
        ClusterIdMismatch = "etcdserver: cluster ID mismatch",
        RootUserNotExist = "etcdserver: root user does not exist",
        RootRoleNotExist = "etcdserver: root user does not have root role",
        UserAlreadyExists = "etcdserver: user name already exists",
        UserNotFound = "etcdserver: user name not found",
        RoleAlreadyExists = "etcdserver: role name already exists",
        RoleNotFound = "etcdserver: role name not found",
        RoleNotGranted = "etcdserver: role is not granted to the user",
        PermissionNotGranted = "etcdserver: permission is not granted to the role",
        AuthNotEnabled = "etcdserver: authentication is not enabled",
        NotLeader = "etcdserver: not leader",
        NotCapable = "etcdserver: not capable",
        NotSupportedForLearner = "etcdserver: rpc not supported for learner",
        BadLeaderTransferee = "etcdserver: bad leader transferee",
        ClusterVersionUnavailable = "etcdserver: cluster version not found during downgrade",
        DowngradeInProcess = "etcdserver: cluster has a downgrade job in progress",
        NoInflightDowngrade = "etcdserver: no inflight downgrade job",
        /// Specific to this project.
        RequiredFeatureOff = "etcdserver: the request requires a cluster feature that is off",
        /// Specific to this project.
        RequiredFeatureUncertain =
            "etcdserver: the request requires a cluster feature, which cannot be promised while a member does not know cluster features",
    }
    Cancelled {
        WatchCanceled = "etcdserver: watch canceled",
        RequestCanceled = "etcdserver: request canceled",
    }
    PermissionDenied {
        PermissionDenied = "etcdserver: permission denied",
    }
    Unauthenticated {
        InvalidAuthToken = "etcdserver: invalid auth token",
    }
    Unavailable {
        NoLeader = "etcdserver: no leader",
        LeaderChanged = "etcdserver: leader changed",
        Stopped = "etcdserver: server stopped",
        Timeout = "etcdserver: request timed out",
        TimeoutDueToLeaderFail =
            "etcdserver: request timed out, possibly due to previous leader failure",
        TimeoutDueToConnectionLost =
            "etcdserver: request timed out, possibly due to connection lost",
        TimeoutWaitAppliedIndex =
            "etcdserver: request timed out, waiting for the applied index took too long",
        Unhealthy = "etcdserver: unhealthy cluster",
    }
    DataLoss {
        Corrupt = "etcdserver: corrupt cluster",
    }
    DeadlineExceeded {
        DeadlineExceeded = "etcdserver: context deadline exceeded",
    }
    Unimplemented {
        RangeStreamSort = "RangeStream does not support custom sort orders",
        RangeStreamRevisionFilter = "RangeStream does not support revision filters",
    }
    // Internal errors that etcd sends without a code of their own.
    Unknown {
        PasswordForNoPasswordUser =
            "auth: authentication failed, password was given for no password user",
        UnknownMethod = "etcdserver: unknown method",
        TimeoutLeaderTransfer = "etcdserver: request timed out, leader transfer took too long",
        NotPrimaryLessor = "not a primary lessor",
        ElectionLeaderMissing = "\"leader\" field must be provided",
    }
}

impl EtcdError {
    /// The code a server of the given etcd version puts on the wire.
    ///
    /// Two rows are `Unknown` in every version, because etcd passes its
    /// client-side error to the transport there. Three rows were `Unavailable`
    /// before 3.6, which made clients retry requests that could not succeed.
    #[must_use]
    pub const fn wire_code(self, version: (u32, u32)) -> Code {
        let before_3_6 = version.0 < 3 || (version.0 == 3 && version.1 < 6);
        match self {
            Self::MemberNotEnoughStarted | Self::TooManyRequests => Code::Unknown,
            Self::NotCapable | Self::NotSupportedForLearner | Self::ClusterVersionUnavailable
                if before_3_6 =>
            {
                Code::Unavailable
            }
            _ => self.code(),
        }
    }

    /// Whether a server of the given etcd version, 3.5 or newer, can send this text.
    #[must_use]
    pub const fn exists_in(self, version: (u32, u32)) -> bool {
        let since_minor = match self {
            Self::InvalidClientApiVersion | Self::InvalidSortOption => 6,
            Self::RangeStreamSort | Self::RangeStreamRevisionFilter => 7,
            _ => 0,
        };
        version.0 > 3 || (version.0 == 3 && version.1 >= since_minor)
    }

    /// The status that a server of the given etcd version sends.
    #[must_use]
    pub fn status(self, version: (u32, u32)) -> Status {
        Status::new(self.wire_code(version), self.text())
    }

    /// Recognises an error by its text, as Go clients do. The code must be one
    /// that some etcd version sends with that text: a proxy's error that quotes
    /// the text is not etcd's error.
    #[must_use]
    pub fn from_wire(code: Code, text: &str) -> Option<Self> {
        let error = Self::ALL.iter().copied().find(|e| e.text() == text)?;
        let sent_by_some_version = code == error.code()
            || code == error.wire_code(OLDEST_DISTINCT_VERSION)
            || code == error.wire_code(NEWEST_DISTINCT_VERSION);
        sent_by_some_version.then_some(error)
    }

    /// Calls [`Self::from_wire`] for a received status.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        Self::from_wire(status.code(), status.message())
    }
}

/// The codes differ only between these two versions.
const OLDEST_DISTINCT_VERSION: (u32, u32) = (3, 5);
const NEWEST_DISTINCT_VERSION: (u32, u32) = (3, 6);

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for EtcdError {}

/// Converts to the status of the newest version; emulation uses [`EtcdError::status`].
impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Self {
        error.status(NEWEST_DISTINCT_VERSION)
    }
}
