//! What a call requires while authentication is enabled.
//!
//! This table is what [`Api::authorize`](super::Api) enforces and what `docs/auth.md` shows. A
//! test compares it with the services of the protocol.

/// What the caller of an RPC needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: anyone may call it.
    Public,
    /// Any user.
    Authenticated,
    /// A user with the role `root`.
    Root,
    /// Permissions for the keys of the request, as described.
    Keys(&'static str),
    /// Depends on the request, as described.
    Depends(&'static str),
}

impl Access {
    /// What the caller needs, in words.
    #[must_use]
    pub fn described(self) -> &'static str {
        match self {
            Access::Public => "nothing",
            Access::Authenticated => "any user",
            Access::Root => "role `root`",
            Access::Keys(keys) => keys,
            Access::Depends(request) => request,
        }
    }
}

macro_rules! rpcs {
    ($($service:literal { $($name:ident = $method:literal: $access:expr,)* })*) => {
        /// An RPC of the client port.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Rpc { $($(#[doc = concat!("`/", $service, "/", $method, "`")] $name,)*)* }

        impl Rpc {
            /// All RPCs that need an entry here.
            pub const ALL: &[Rpc] = &[$($(Rpc::$name,)*)*];

            /// The path on the wire.
            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $($(Rpc::$name => concat!("/", $service, "/", $method),)*)* }
            }

            /// What the caller needs.
            #[must_use]
            pub const fn access(self) -> Access {
                use Access::*;
                match self { $($(Rpc::$name => $access,)*)* }
            }
        }
    };
}

rpcs! {
    "etcdserverpb.KV" {
        Range = "Range": Keys("READ on the key or the whole range"),
        RangeStream = "RangeStream": Keys("READ on the key or the whole range, for each piece"),
        Put = "Put": Keys("WRITE on the key and on all keys of the given lease; READ on the key for `prev_kv`"),
        DeleteRange = "DeleteRange": Keys("WRITE on the key or the whole range; READ as well for `prev_kv`"),
        Txn = "Txn": Keys("READ for each compare, and what each operation needs, in both branches and on every level"),
        Compact = "Compact": Root,
    }
    "etcdserverpb.Watch" {
        Watch = "Watch": Keys("READ on the key or the whole range, at creation and for the whole life of the watch"),
    }
    "etcdserverpb.Lease" {
        LeaseGrant = "LeaseGrant": Authenticated,
        LeaseRevoke = "LeaseRevoke": Keys("WRITE on all keys of the lease"),
        LeaseKeepAlive = "LeaseKeepAlive": Keys("WRITE on all keys of the lease, at each renewal"),
        LeaseTimeToLive = "LeaseTimeToLive": Keys("any user; READ on all keys of the lease for `keys`"),
        LeaseLeases = "LeaseLeases": Keys("READ on all keys of all leases"),
    }
    "etcdserverpb.Cluster" {
        MemberAdd = "MemberAdd": Root,
        MemberRemove = "MemberRemove": Root,
        MemberUpdate = "MemberUpdate": Root,
        MemberList = "MemberList": Authenticated,
        MemberPromote = "MemberPromote": Root,
    }
    "etcdserverpb.Maintenance" {
        Alarm = "Alarm": Depends("any user to list alarms; role `root` to raise or disarm them"),
        Status = "Status": Authenticated,
        Defragment = "Defragment": Root,
        Hash = "Hash": Root,
        HashKv = "HashKV": Root,
        Snapshot = "Snapshot": Root,
        MoveLeader = "MoveLeader": Root,
        Downgrade = "Downgrade": Root,
        FeatureGateStatus = "FeatureGateStatus": Authenticated,
    }
    "etcdserverpb.Auth" {
        AuthEnable = "AuthEnable": Root,
        AuthDisable = "AuthDisable": Root,
        AuthStatus = "AuthStatus": Public,
        Authenticate = "Authenticate": Public,
        UserAdd = "UserAdd": Root,
        UserGet = "UserGet": Depends("role `root`, or the user itself"),
        UserList = "UserList": Root,
        UserDelete = "UserDelete": Root,
        UserChangePassword = "UserChangePassword": Root,
        UserGrantRole = "UserGrantRole": Root,
        UserRevokeRole = "UserRevokeRole": Root,
        RoleAdd = "RoleAdd": Root,
        RoleGet = "RoleGet": Depends("role `root`, or a user that has the role"),
        RoleList = "RoleList": Root,
        RoleDelete = "RoleDelete": Root,
        RoleGrantPermission = "RoleGrantPermission": Root,
        RoleRevokePermission = "RoleRevokePermission": Root,
    }
    "portunuspb.FeatureGates" {
        GateHistory = "History": Authenticated,
        GateWatch = "Watch": Authenticated,
    }
    "grpc.health.v1.Health" {
        HealthCheck = "Check": Public,
        HealthWatch = "Watch": Public,
    }
}
