//! Users, roles and permissions.
//!
//! A change is sent once, like other writes. The token of the client itself is managed in
//! [`token`](crate::token).

use portunus_proto::etcdserverpb::auth_client::AuthClient;
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

use crate::calls;
use crate::connection::Client;
use crate::error::ClientError;

impl Client {
    /// Turns authentication on. The user `root` with the role `root` must exist.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn auth_enable(&self) -> Result<AuthEnableResponse, ClientError> {
        self.call(calls::AUTH_ENABLE, |channel| {
            let request = self.request(AuthEnableRequest {});
            async move { AuthClient::new(channel).auth_enable(request).await }
        })
        .await
    }

    /// Turns authentication off.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn auth_disable(&self) -> Result<AuthDisableResponse, ClientError> {
        self.call(calls::AUTH_DISABLE, |channel| {
            let request = self.request(AuthDisableRequest {});
            async move { AuthClient::new(channel).auth_disable(request).await }
        })
        .await
    }

    /// Returns whether authentication is on, and the auth revision.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn auth_status(&self) -> Result<AuthStatusResponse, ClientError> {
        self.call(calls::AUTH_STATUS, |channel| {
            let request = self.request(AuthStatusRequest {});
            async move { AuthClient::new(channel).auth_status(request).await }
        })
        .await
    }

    /// Exchanges a user name and a password for a token. Clients with credentials do it themselves.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn authenticate(
        &self,
        request: AuthenticateRequest,
    ) -> Result<AuthenticateResponse, ClientError> {
        self.call(calls::AUTHENTICATE, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).authenticate(request).await }
        })
        .await
    }

    /// Adds a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_add(
        &self,
        request: AuthUserAddRequest,
    ) -> Result<AuthUserAddResponse, ClientError> {
        self.call(calls::USER_ADD, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_add(request).await }
        })
        .await
    }

    /// Returns the roles of a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_get(
        &self,
        request: AuthUserGetRequest,
    ) -> Result<AuthUserGetResponse, ClientError> {
        self.call(calls::USER_GET, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_get(request).await }
        })
        .await
    }

    /// Lists the users.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_list(&self) -> Result<AuthUserListResponse, ClientError> {
        self.call(calls::USER_LIST, |channel| {
            let request = self.request(AuthUserListRequest {});
            async move { AuthClient::new(channel).user_list(request).await }
        })
        .await
    }

    /// Deletes a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_delete(
        &self,
        request: AuthUserDeleteRequest,
    ) -> Result<AuthUserDeleteResponse, ClientError> {
        self.call(calls::USER_DELETE, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_delete(request).await }
        })
        .await
    }

    /// Changes the password of a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_change_password(
        &self,
        request: AuthUserChangePasswordRequest,
    ) -> Result<AuthUserChangePasswordResponse, ClientError> {
        self.call(calls::USER_CHANGE_PASSWORD, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_change_password(request).await }
        })
        .await
    }

    /// Grants a role to a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_grant_role(
        &self,
        request: AuthUserGrantRoleRequest,
    ) -> Result<AuthUserGrantRoleResponse, ClientError> {
        self.call(calls::USER_GRANT_ROLE, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_grant_role(request).await }
        })
        .await
    }

    /// Revokes a role from a user.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn user_revoke_role(
        &self,
        request: AuthUserRevokeRoleRequest,
    ) -> Result<AuthUserRevokeRoleResponse, ClientError> {
        self.call(calls::USER_REVOKE_ROLE, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).user_revoke_role(request).await }
        })
        .await
    }

    /// Adds a role.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_add(
        &self,
        request: AuthRoleAddRequest,
    ) -> Result<AuthRoleAddResponse, ClientError> {
        self.call(calls::ROLE_ADD, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).role_add(request).await }
        })
        .await
    }

    /// Returns the permissions of a role.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_get(
        &self,
        request: AuthRoleGetRequest,
    ) -> Result<AuthRoleGetResponse, ClientError> {
        self.call(calls::ROLE_GET, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).role_get(request).await }
        })
        .await
    }

    /// Lists the roles.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_list(&self) -> Result<AuthRoleListResponse, ClientError> {
        self.call(calls::ROLE_LIST, |channel| {
            let request = self.request(AuthRoleListRequest {});
            async move { AuthClient::new(channel).role_list(request).await }
        })
        .await
    }

    /// Deletes a role.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_delete(
        &self,
        request: AuthRoleDeleteRequest,
    ) -> Result<AuthRoleDeleteResponse, ClientError> {
        self.call(calls::ROLE_DELETE, |channel| {
            let request = self.request(request.clone());
            async move { AuthClient::new(channel).role_delete(request).await }
        })
        .await
    }

    /// Grants a permission on a key or range to a role.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_grant_permission(
        &self,
        request: AuthRoleGrantPermissionRequest,
    ) -> Result<AuthRoleGrantPermissionResponse, ClientError> {
        self.call(calls::ROLE_GRANT_PERMISSION, |channel| {
            let request = self.request(request.clone());
            async move {
                AuthClient::new(channel)
                    .role_grant_permission(request)
                    .await
            }
        })
        .await
    }

    /// Revokes the permission on a key or range from a role.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn role_revoke_permission(
        &self,
        request: AuthRoleRevokePermissionRequest,
    ) -> Result<AuthRoleRevokePermissionResponse, ClientError> {
        self.call(calls::ROLE_REVOKE_PERMISSION, |channel| {
            let request = self.request(request.clone());
            async move {
                AuthClient::new(channel)
                    .role_revoke_permission(request)
                    .await
            }
        })
        .await
    }
}
