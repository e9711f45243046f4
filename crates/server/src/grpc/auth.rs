//! The Auth service: only `AuthStatus`, which reports that authentication is disabled.
//!
//! Data with authentication enabled is not served (see [`portunus_statemachine::LoadError`]). Calls that would
//! change users, roles or the setting are refused with `UNIMPLEMENTED`.

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
    AuthUserRevokeRoleResponse, AuthenticateRequest, AuthenticateResponse,
};
use tonic::{Request, Response, Status};

use super::Api;
use crate::metrics::Kind;

const NOT_SUPPORTED: &str = "authentication is not supported by this version: it cannot be enabled, and there are no users or roles";

impl Api {
    async fn answer_auth_status(
        &self,
        request: Request<AuthStatusRequest>,
    ) -> Result<Response<AuthStatusResponse>, Status> {
        self.check_metadata(Kind::Unary, request.metadata())?;
        let member = &self.member;
        let barrier = member.store.linearizable().await;
        barrier.map_err(|error| self.refuse(error))?;
        Ok(Response::new(AuthStatusResponse {
            header: Some(member.store.newest_header()),
            enabled: false,
            auth_revision: member.store.auth_revision(),
        }))
    }
}

/// Implements the service: `AuthStatus`, and the calls that are refused.
macro_rules! auth_service {
    ($($method:ident: $request:ty => $response:ty),* $(,)?) => {
        #[tonic::async_trait]
        impl Auth for Api {
            async fn auth_status(
                &self,
                request: Request<AuthStatusRequest>,
            ) -> Result<Response<AuthStatusResponse>, Status> {
                self.answer_auth_status(request).await
            }

            $(async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                self.check_metadata(Kind::Unary, request.metadata())?;
                Err(Status::unimplemented(NOT_SUPPORTED))
            })*
        }
    };
}

auth_service! {
    auth_enable: AuthEnableRequest => AuthEnableResponse,
    auth_disable: AuthDisableRequest => AuthDisableResponse,
    authenticate: AuthenticateRequest => AuthenticateResponse,
    user_add: AuthUserAddRequest => AuthUserAddResponse,
    user_get: AuthUserGetRequest => AuthUserGetResponse,
    user_list: AuthUserListRequest => AuthUserListResponse,
    user_delete: AuthUserDeleteRequest => AuthUserDeleteResponse,
    user_change_password: AuthUserChangePasswordRequest => AuthUserChangePasswordResponse,
    user_grant_role: AuthUserGrantRoleRequest => AuthUserGrantRoleResponse,
    user_revoke_role: AuthUserRevokeRoleRequest => AuthUserRevokeRoleResponse,
    role_add: AuthRoleAddRequest => AuthRoleAddResponse,
    role_get: AuthRoleGetRequest => AuthRoleGetResponse,
    role_list: AuthRoleListRequest => AuthRoleListResponse,
    role_delete: AuthRoleDeleteRequest => AuthRoleDeleteResponse,
    role_grant_permission: AuthRoleGrantPermissionRequest => AuthRoleGrantPermissionResponse,
    role_revoke_permission: AuthRoleRevokePermissionRequest => AuthRoleRevokePermissionResponse,
}
