//! The users of a comparison with authentication.
//!
//! Both servers get the same users and hash passwords with the same cost. The load logs in once:
//! a login is not part of the measurement, the check of its token at every request is.

use bytes::Bytes;
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthEnableRequest, AuthRoleAddRequest, AuthRoleGrantPermissionRequest, AuthUserAddRequest,
    AuthUserGrantRoleRequest, AuthenticateRequest, AuthenticateResponse,
};
use prost::Message;
use thiserror::Error;

use crate::client::{self, PREFIX, PREFIX_END};
use crate::endpoint::Endpoint;
use crate::wire::Method;

/// Flags of servers with authentication: the lowest cost of a password's hash.
pub const FLAGS: &[&str] = &["--bcrypt-cost=4"];

/// The user and role that authentication requires.
const ROOT: &str = "root";
/// The user of the load, and its role.
const BENCH: &str = "bench";
const PASSWORD: &str = "secret";

/// A step of the administration that a server refused.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum UsersError {
    /// The server refused a request, or did not answer in time.
    #[error("the server refused to {step}")]
    Refused { step: &'static str },
    /// The answer to a login has no token.
    #[error("the answer to the login of user {BENCH} has no token")]
    NoToken,
}

/// Adds the users, enables authentication and returns a token of the user of the load.
pub async fn enable(endpoint: &Endpoint) -> Result<String, UsersError> {
    for role in [ROOT, BENCH] {
        let add = AuthRoleAddRequest {
            name: role.to_owned(),
        };
        call(endpoint, Method::RoleAdd, &add, "add a role").await?;
    }
    let grant = AuthRoleGrantPermissionRequest {
        name: BENCH.to_owned(),
        perm: Some(Permission {
            perm_type: Type::Readwrite.into(),
            key: Bytes::from_static(PREFIX),
            range_end: Bytes::from_static(PREFIX_END),
        }),
    };
    let step = "grant a permission to a role";
    call(endpoint, Method::RoleGrantPermission, &grant, step).await?;
    for user in [ROOT, BENCH] {
        let add = AuthUserAddRequest {
            name: user.to_owned(),
            password: PASSWORD.to_owned(),
            ..AuthUserAddRequest::default()
        };
        call(endpoint, Method::UserAdd, &add, "add a user").await?;
        let grant = AuthUserGrantRoleRequest {
            user: user.to_owned(),
            role: user.to_owned(),
        };
        let step = "grant a role to a user";
        call(endpoint, Method::UserGrantRole, &grant, step).await?;
    }
    let (enable, step) = (AuthEnableRequest {}, "enable authentication");
    call(endpoint, Method::AuthEnable, &enable, step).await?;
    let log_in = AuthenticateRequest {
        name: BENCH.to_owned(),
        password: PASSWORD.to_owned(),
    };
    let answer = call(endpoint, Method::Authenticate, &log_in, "log a user in").await?;
    match AuthenticateResponse::decode(answer) {
        Ok(answer) if !answer.token.is_empty() => Ok(answer.token),
        _ => Err(UsersError::NoToken),
    }
}

async fn call(
    endpoint: &Endpoint,
    method: Method,
    request: &impl Message,
    step: &'static str,
) -> Result<Bytes, UsersError> {
    let answer = client::call(endpoint, method, request).await;
    answer.ok_or(UsersError::Refused { step })
}
