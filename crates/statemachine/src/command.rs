//! The request of a log entry, decoded once.

use portunus_proto::etcdserverpb::{
    AlarmRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest, AuthUserAddRequest, AuthUserChangePasswordRequest,
    AuthUserDeleteRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest, CompactionRequest,
    DeleteRangeRequest, InternalAuthenticateRequest, InternalRaftRequest, LeaseCheckpointRequest,
    LeaseGrantRequest, LeaseRevokeRequest, PutRequest, TxnRequest,
};
use portunus_proto::membershippb::{
    ClusterMemberAttrSetRequest, ClusterVersionSetRequest, DowngradeInfoSetRequest,
};

/// What a request asks the state machine to do.
#[derive(Debug)]
pub(crate) enum Command {
    Cluster(ClusterCommand),
    Data(DataCommand),
    Auth(AuthCommand),
}

/// A request about keys, leases or alarms.
#[derive(Debug)]
pub(crate) enum DataCommand {
    Put(PutRequest),
    DeleteRange(DeleteRangeRequest),
    Txn(TxnRequest),
    Compaction(CompactionRequest),
    LeaseGrant(LeaseGrantRequest),
    LeaseRevoke(LeaseRevokeRequest),
    LeaseCheckpoint(LeaseCheckpointRequest),
    Alarm(AlarmRequest),
    /// Changes nothing. Only the member that proposed it would answer it, and no member of this
    /// program proposes ranges.
    Range,
}

/// A request about the cluster itself. No alarm refuses it.
#[derive(Debug)]
pub(crate) enum ClusterCommand {
    Version(ClusterVersionSetRequest),
    MemberAttributes(ClusterMemberAttrSetRequest),
    Downgrade(DowngradeInfoSetRequest),
}

/// A request about users and roles. No alarm refuses it.
#[derive(Debug)]
pub(crate) enum AuthCommand {
    Enable,
    Disable,
    Authenticate(InternalAuthenticateRequest),
    UserAdd(AuthUserAddRequest),
    UserDelete(AuthUserDeleteRequest),
    UserChangePassword(AuthUserChangePasswordRequest),
    UserGrantRole(AuthUserGrantRoleRequest),
    UserRevokeRole(AuthUserRevokeRoleRequest),
    RoleAdd(AuthRoleAddRequest),
    RoleDelete(AuthRoleDeleteRequest),
    RoleGrantPermission(AuthRoleGrantPermissionRequest),
    RoleRevokePermission(AuthRoleRevokePermissionRequest),
    /// Changes nothing. Only the member that proposed it would answer it, and members of this
    /// program read users and roles without an entry.
    Read,
}

impl Command {
    /// Returns the command of a request; `None` for one that this version does not know.
    pub(crate) fn of(request: InternalRaftRequest) -> Option<Command> {
        let cluster = |command| Some(Command::Cluster(command));
        if let Some(set) = request.cluster_version_set {
            return cluster(ClusterCommand::Version(set));
        }
        if let Some(set) = request.cluster_member_attr_set {
            return cluster(ClusterCommand::MemberAttributes(set));
        }
        if let Some(set) = request.downgrade_info_set {
            return cluster(ClusterCommand::Downgrade(set));
        }
        let is_data = request.put.is_some() || request.txn.is_some();
        if !is_data && let Some(command) = AuthCommand::of(&request) {
            return Some(Command::Auth(command));
        }
        DataCommand::of(request).map(Command::Data)
    }
}

impl DataCommand {
    fn of(request: InternalRaftRequest) -> Option<DataCommand> {
        let key = request.put.map(DataCommand::Put);
        let key = key
            .or_else(|| request.delete_range.map(DataCommand::DeleteRange))
            .or_else(|| request.txn.map(DataCommand::Txn))
            .or_else(|| request.compaction.map(DataCommand::Compaction));
        let lease = || {
            let grant = request.lease_grant.map(DataCommand::LeaseGrant);
            grant
                .or_else(|| request.lease_revoke.map(DataCommand::LeaseRevoke))
                .or_else(|| request.lease_checkpoint.map(DataCommand::LeaseCheckpoint))
        };
        key.or_else(lease)
            .or_else(|| request.alarm.map(DataCommand::Alarm))
            .or_else(|| request.range.map(|_| DataCommand::Range))
    }
}

impl AuthCommand {
    fn of(request: &InternalRaftRequest) -> Option<AuthCommand> {
        macro_rules! of_field {
            ($field:ident, $command:ident) => {
                if let Some(request) = &request.$field {
                    return Some(AuthCommand::$command(request.clone()));
                }
            };
        }
        if request.auth_enable.is_some() {
            return Some(AuthCommand::Enable);
        }
        if request.auth_disable.is_some() {
            return Some(AuthCommand::Disable);
        }
        of_field!(authenticate, Authenticate);
        of_field!(auth_user_add, UserAdd);
        of_field!(auth_user_delete, UserDelete);
        of_field!(auth_user_change_password, UserChangePassword);
        of_field!(auth_user_grant_role, UserGrantRole);
        of_field!(auth_user_revoke_role, UserRevokeRole);
        of_field!(auth_role_add, RoleAdd);
        of_field!(auth_role_delete, RoleDelete);
        of_field!(auth_role_grant_permission, RoleGrantPermission);
        of_field!(auth_role_revoke_permission, RoleRevokePermission);
        let is_read = request.auth_status.is_some()
            || request.auth_user_get.is_some()
            || request.auth_user_list.is_some()
            || request.auth_role_get.is_some()
            || request.auth_role_list.is_some();
        is_read.then_some(AuthCommand::Read)
    }
}
