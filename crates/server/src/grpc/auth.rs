//! The Auth service: users, roles, permissions, logins.
//!
//! Changes go through the log and are checked there; before that, here, so that a caller without
//! permission costs no entry and no hash of a password. Reads wait for the read barrier.

use portunus_auth::{AuthState, Caller, ROOT, encode_hash};
use portunus_proto::EtcdError;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::auth_server::Auth;
use portunus_proto::etcdserverpb::{
    AuthDisableRequest, AuthDisableResponse, AuthEnableRequest, AuthEnableResponse,
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse,
    AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
    AuthRoleGrantPermissionResponse, AuthRoleListRequest, AuthRoleListResponse,
    AuthRoleRevokePermissionRequest, AuthRoleRevokePermissionResponse, AuthStatusRequest,
    AuthStatusResponse, AuthUserAddRequest, AuthUserAddResponse, AuthUserChangePasswordRequest,
    AuthUserChangePasswordResponse, AuthUserDeleteRequest, AuthUserDeleteResponse,
    AuthUserGetRequest, AuthUserGetResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse,
    AuthUserListRequest, AuthUserListResponse, AuthUserRevokeRoleRequest,
    AuthUserRevokeRoleResponse, AuthenticateRequest, AuthenticateResponse, InternalRaftRequest,
    ResponseHeader,
};
use portunus_statemachine as statemachine;
use tonic::{Request, Response, Status};

use super::access::Rpc;
use super::authorize::{Permit, too_many_requests};
use super::kv::unexpected;
use super::required::Required;
use super::{Api, Kind};
use crate::handles::caller_limits::ClientAddress;

#[tonic::async_trait]
impl Auth for Api {
    async fn auth_enable(
        &self,
        request: Request<AuthEnableRequest>,
    ) -> Result<Response<AuthEnableResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_enable: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::AuthEnable, request, change).await?;
        Ok(Response::new(AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<AuthDisableRequest>,
    ) -> Result<Response<AuthDisableResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_disable: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::AuthDisable, request, change).await?;
        Ok(Response::new(AuthDisableResponse { header }))
    }

    async fn user_delete(
        &self,
        request: Request<AuthUserDeleteRequest>,
    ) -> Result<Response<AuthUserDeleteResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_user_delete: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::UserDelete, request, change).await?;
        Ok(Response::new(AuthUserDeleteResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<AuthUserGrantRoleRequest>,
    ) -> Result<Response<AuthUserGrantRoleResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_user_grant_role: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::UserGrantRole, request, change).await?;
        Ok(Response::new(AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<AuthUserRevokeRoleRequest>,
    ) -> Result<Response<AuthUserRevokeRoleResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_user_revoke_role: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self
            .administer(Rpc::UserRevokeRole, request, change)
            .await?;
        Ok(Response::new(AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<AuthRoleAddRequest>,
    ) -> Result<Response<AuthRoleAddResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_role_add: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::RoleAdd, request, change).await?;
        Ok(Response::new(AuthRoleAddResponse { header }))
    }

    async fn role_delete(
        &self,
        request: Request<AuthRoleDeleteRequest>,
    ) -> Result<Response<AuthRoleDeleteResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_role_delete: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self.administer(Rpc::RoleDelete, request, change).await?;
        Ok(Response::new(AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<AuthRoleGrantPermissionResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_role_grant_permission: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self
            .administer(Rpc::RoleGrantPermission, request, change)
            .await?;
        Ok(Response::new(AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<AuthRoleRevokePermissionResponse>, Status> {
        let change = |message| InternalRaftRequest {
            auth_role_revoke_permission: Some(message),
            ..InternalRaftRequest::default()
        };
        let header = self
            .administer(Rpc::RoleRevokePermission, request, change)
            .await?;
        Ok(Response::new(AuthRoleRevokePermissionResponse { header }))
    }

    async fn user_add(
        &self,
        request: Request<AuthUserAddRequest>,
    ) -> Result<Response<AuthUserAddResponse>, Status> {
        let options = request.get_ref().options.unwrap_or_default();
        if !options.no_password {
            self.check_length(&request.get_ref().password)?;
        }
        let (required, permit, mut user) = self.administrator(Rpc::UserAdd, request).await?;
        let password = std::mem::take(&mut user.password);
        user.hashed_password = match options.no_password {
            true => String::new(),
            false => self.hashed(password).await?,
        };
        let change = InternalRaftRequest {
            auth_user_add: Some(user),
            ..InternalRaftRequest::default()
        };
        let header = self.changed(change, &required, &permit).await?;
        Ok(Response::new(AuthUserAddResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<AuthUserChangePasswordRequest>,
    ) -> Result<Response<AuthUserChangePasswordResponse>, Status> {
        self.check_length(&request.get_ref().password)?;
        let (required, permit, mut user) =
            self.administrator(Rpc::UserChangePassword, request).await?;
        let password = std::mem::take(&mut user.password);
        // Without a password the client's own hash is stored, as in etcd.
        if !password.is_empty() {
            user.hashed_password = self.hashed(password).await?;
        }
        let change = InternalRaftRequest {
            auth_user_change_password: Some(user),
            ..InternalRaftRequest::default()
        };
        let header = self.changed(change, &required, &permit).await?;
        Ok(Response::new(AuthUserChangePasswordResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        self.check_metadata(Kind::Unary, request.metadata())?;
        // Public, but a wrong token is refused, as in etcd.
        let permit = self.authorize(Rpc::AuthStatus, request.metadata(), request.extensions());
        permit.await?;
        self.read_barrier(false).await?;
        let auth = self.member.auth.state();
        Ok(Response::new(AuthStatusResponse {
            header: Some(self.member.store.newest_header()),
            enabled: auth.is_enabled(),
            auth_revision: auth.revision(),
        }))
    }

    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> Result<Response<AuthenticateResponse>, Status> {
        self.check_metadata(Kind::Unary, request.metadata())?;
        let address = request.extensions().get::<ClientAddress>().copied();
        let login = request.into_inner();
        let limits = &self.member.auth.limits;
        if !limits.allow_unauthenticated(address) || !limits.allow_login(&login.name, address) {
            return Err(too_many_requests());
        }
        let answer = self.member.log_in(&login.name, &login.password, address);
        Ok(Response::new(answer.await?))
    }

    async fn user_get(
        &self,
        request: Request<AuthUserGetRequest>,
    ) -> Result<Response<AuthUserGetResponse>, Status> {
        let name = request.get_ref().name.clone();
        // Like etcd, an anonymous caller may ask for the empty name, which no user has.
        let check = |auth: &AuthState, caller: &Caller| match caller.username() == name {
            true => Ok(()),
            false => auth.check_admin(caller),
        };
        let permit = self.reader_of_auth(Rpc::UserGet, request, check).await?;
        let auth = self.member.auth.state();
        let user = auth.user(&name);
        let user = user.ok_or_else(|| self.refuse(EtcdError::UserNotFound))?;
        let roles = user.roles().to_vec();
        self.confirm(&permit, check)?;
        Ok(Response::new(AuthUserGetResponse {
            header: Some(self.member.store.newest_header()),
            roles,
        }))
    }

    async fn user_list(
        &self,
        request: Request<AuthUserListRequest>,
    ) -> Result<Response<AuthUserListResponse>, Status> {
        let check = AuthState::check_admin;
        let permit = self.reader_of_auth(Rpc::UserList, request, check).await?;
        let users = self.member.auth.state().user_names().cloned().collect();
        self.confirm(&permit, check)?;
        Ok(Response::new(AuthUserListResponse {
            header: Some(self.member.store.newest_header()),
            users,
        }))
    }

    async fn role_get(
        &self,
        request: Request<AuthRoleGetRequest>,
    ) -> Result<Response<AuthRoleGetResponse>, Status> {
        let name = request.get_ref().role.clone();
        let check = |auth: &AuthState, caller: &Caller| {
            let user = auth.user(caller.username());
            match user.is_some_and(|user| user.roles().contains(&name)) {
                true => Ok(()),
                false => auth.check_admin(caller),
            }
        };
        let permit = self.reader_of_auth(Rpc::RoleGet, request, check).await?;
        let auth = self.member.auth.state();
        let role = auth.role(&name);
        let role = role.ok_or_else(|| self.refuse(EtcdError::RoleNotFound))?;
        let perm = match name == ROOT {
            true => vec![everything()],
            false => role.key_permission.clone(),
        };
        self.confirm(&permit, check)?;
        Ok(Response::new(AuthRoleGetResponse {
            header: Some(self.member.store.newest_header()),
            perm,
        }))
    }

    async fn role_list(
        &self,
        request: Request<AuthRoleListRequest>,
    ) -> Result<Response<AuthRoleListResponse>, Status> {
        let check = AuthState::check_admin;
        let permit = self.reader_of_auth(Rpc::RoleList, request, check).await?;
        let roles = self.member.auth.state().role_names().cloned().collect();
        self.confirm(&permit, check)?;
        Ok(Response::new(AuthRoleListResponse {
            header: Some(self.member.store.newest_header()),
            roles,
        }))
    }
}

/// What the role `root` permits.
fn everything() -> Permission {
    Permission {
        perm_type: Type::Readwrite.into(),
        key: bytes::Bytes::new(),
        range_end: bytes::Bytes::from_static(&[0]),
    }
}

impl Api {
    /// Checks a request that changes users or roles.
    async fn administrator<T>(
        &self,
        rpc: Rpc,
        request: Request<T>,
    ) -> Result<(Required, Permit, T), Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let (metadata, extensions, message) = request.into_parts();
        let permit = self.authorize(rpc, &metadata, &extensions).await?;
        Ok((required, permit, message))
    }

    /// Checks a request that changes users or roles, and proposes it.
    async fn administer<T>(
        &self,
        rpc: Rpc,
        request: Request<T>,
        change: impl FnOnce(T) -> InternalRaftRequest,
    ) -> Result<Option<ResponseHeader>, Status> {
        let (required, permit, message) = self.administrator(rpc, request).await?;
        self.changed(change(message), &required, &permit).await
    }

    /// Checks a request that reads users or roles, after the read barrier.
    async fn reader_of_auth<T>(
        &self,
        rpc: Rpc,
        request: Request<T>,
        check: impl Fn(&AuthState, &Caller) -> Result<(), EtcdError>,
    ) -> Result<Permit, Status> {
        let required = self.check_metadata(Kind::Unary, request.metadata())?;
        let permit = self.authorize(rpc, request.metadata(), request.extensions());
        let caller = permit.await?.caller;
        self.read_barrier(false).await?;
        let permit = self.permit(caller, check).await?;
        self.check_required(&required)?;
        Ok(permit)
    }

    /// Proposes a change of users or roles.
    async fn changed(
        &self,
        change: InternalRaftRequest,
        required: &Required,
        permit: &Permit,
    ) -> Result<Option<ResponseHeader>, Status> {
        match self.proposed(change, required, permit).await? {
            statemachine::Response::AuthChanged(header) => {
                let mut header = Some(header);
                self.member.store.complete(&mut header);
                Ok(header)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Refuses a password that is too long to be hashed, whoever sent it, as etcd does.
    fn check_length(&self, password: &str) -> Result<(), Status> {
        let checked = self.member.auth.passwords.check_length(password);
        checked.map_err(|error| error.status())
    }

    /// Returns the hash of a password, for the log.
    async fn hashed(&self, password: String) -> Result<String, Status> {
        let hash = self.member.auth.passwords.hash(password).await;
        let hash = hash.map_err(|error| error.status())?;
        Ok(encode_hash(hash.as_bytes()))
    }
}
