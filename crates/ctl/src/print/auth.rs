//! Answers about users, roles and authentication in every format. etcdctl has no table of them,
//! and `fields` only for some.

use std::io::Write;

use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthRoleAddResponse, AuthRoleDeleteResponse, AuthRoleGetResponse,
    AuthRoleGrantPermissionResponse, AuthRoleListResponse, AuthRoleRevokePermissionResponse,
    AuthStatusResponse, AuthUserAddResponse, AuthUserChangePasswordResponse,
    AuthUserDeleteResponse, AuthUserGetResponse, AuthUserGrantRoleResponse, AuthUserListResponse,
    AuthUserRevokeRoleResponse, ResponseHeader,
};
use prost::Message;

use super::fields::Lines;
use super::json::with_header;
use crate::command::keys::{ZERO, prefix_end};
use crate::go::json::{Object, string};
use crate::go::quote::quote;

/// The role that may do everything.
const ROOT: &str = "root";

/// An answer of the Auth service, with the arguments that etcdctl repeats.
#[derive(Debug, Clone, Copy)]
pub enum AuthAnswer<'a> {
    /// `auth status`
    Status(&'a AuthStatusResponse),
    /// `user add`: the name
    UserAdd(&'a str, &'a AuthUserAddResponse),
    /// `user delete`: the name
    UserDelete(&'a str, &'a AuthUserDeleteResponse),
    /// `user get`: the name
    UserGet(&'a str, &'a AuthUserGetResponse),
    /// `user list`
    UserList(&'a AuthUserListResponse),
    /// `user passwd`
    UserChangePassword(&'a AuthUserChangePasswordResponse),
    /// `user grant-role`: user and role
    UserGrantRole(&'a str, &'a str, &'a AuthUserGrantRoleResponse),
    /// `user revoke-role`: user and role
    UserRevokeRole(&'a str, &'a str, &'a AuthUserRevokeRoleResponse),
    /// `role add`: the name
    RoleAdd(&'a str, &'a AuthRoleAddResponse),
    /// `role delete`: the name
    RoleDelete(&'a str, &'a AuthRoleDeleteResponse),
    /// `role get`: the name
    RoleGet(&'a str, &'a AuthRoleGetResponse),
    /// `role list`
    RoleList(&'a AuthRoleListResponse),
    /// `role grant-permission`: the role
    RoleGrantPermission(&'a str, &'a AuthRoleGrantPermissionResponse),
    /// `role revoke-permission`
    RoleRevokePermission {
        /// The role.
        role: &'a str,
        /// The key as the user gave it.
        key: &'a [u8],
        /// The end of the range that was revoked.
        range_end: &'a [u8],
        /// The server's response.
        response: &'a AuthRoleRevokePermissionResponse,
    },
}

impl AuthAnswer<'_> {
    fn header(&self) -> Option<&ResponseHeader> {
        let header = match self {
            Self::Status(response) => &response.header,
            Self::UserAdd(_, response) => &response.header,
            Self::UserDelete(_, response) => &response.header,
            Self::UserGet(_, response) => &response.header,
            Self::UserList(response) => &response.header,
            Self::UserChangePassword(response) => &response.header,
            Self::UserGrantRole(_, _, response) => &response.header,
            Self::UserRevokeRole(_, _, response) => &response.header,
            Self::RoleAdd(_, response) => &response.header,
            Self::RoleDelete(_, response) => &response.header,
            Self::RoleGet(_, response) => &response.header,
            Self::RoleList(response) => &response.header,
            Self::RoleGrantPermission(_, response) => &response.header,
            Self::RoleRevokePermission { response, .. } => &response.header,
        };
        header.as_ref()
    }
}

/// Appends a line; writing to memory cannot fail.
macro_rules! line {
    ($out:expr, $($format:tt)*) => {{
        let _ = writeln!($out, $($format)*);
    }};
}

pub(super) fn simple(out: &mut Vec<u8>, answer: AuthAnswer<'_>) {
    match answer {
        AuthAnswer::Status(response) => {
            line!(out, "Authentication Status: {}", response.enabled);
            line!(out, "AuthRevision: {}", response.auth_revision);
        }
        AuthAnswer::UserAdd(name, _) => line!(out, "User {name} created"),
        AuthAnswer::UserDelete(name, _) => line!(out, "User {name} deleted"),
        AuthAnswer::UserGet(name, response) => {
            let roles = response.roles.iter().map(|role| format!(" {role}"));
            line!(
                out,
                "User: {name}\nRoles:{}",
                roles.collect::<Vec<_>>().concat()
            );
        }
        AuthAnswer::UserList(response) => names(out, &response.users),
        AuthAnswer::UserChangePassword(_) => line!(out, "Password updated"),
        AuthAnswer::UserGrantRole(user, role, _) => {
            line!(out, "Role {role} is granted to user {user}");
        }
        AuthAnswer::UserRevokeRole(user, role, _) => {
            line!(out, "Role {role} is revoked from user {user}");
        }
        AuthAnswer::RoleAdd(role, _) => line!(out, "Role {role} created"),
        AuthAnswer::RoleDelete(role, _) => line!(out, "Role {role} deleted"),
        AuthAnswer::RoleGet(role, response) => role_get(out, role, &response.perm),
        AuthAnswer::RoleList(response) => names(out, &response.roles),
        AuthAnswer::RoleGrantPermission(role, _) => line!(out, "Role {role} updated"),
        AuthAnswer::RoleRevokePermission {
            role,
            key,
            range_end,
            ..
        } => {
            let mut text = match range_end {
                [] => [b"Permission of key ", key].concat(),
                _ => [b"Permission of range ", range(key, range_end).as_slice()].concat(),
            };
            out.append(&mut text);
            line!(out, " is revoked from role {role}");
        }
    }
}

fn names(out: &mut Vec<u8>, names: &[String]) {
    for name in names {
        line!(out, "{name}");
    }
}

fn role_get(out: &mut Vec<u8>, role: &str, permissions: &[Permission]) {
    line!(out, "Role {role}");
    // Nobody has to grant anything to it.
    let is_bare_root = role == ROOT && permissions.is_empty();
    for (title, kind) in [("KV Read:", Type::Read), ("KV Write:", Type::Write)] {
        line!(out, "{title}");
        if is_bare_root {
            line!(out, "\t[, <open ended>");
        }
        let granted = permissions.iter().filter(|permission| {
            let granted = permission.perm_type();
            granted == kind || granted == Type::Readwrite
        });
        for permission in granted {
            out.push(b'\t');
            out.extend(permitted(permission));
            out.push(b'\n');
        }
    }
}

/// The keys of a permission.
fn permitted(permission: &Permission) -> Vec<u8> {
    let (key, range_end) = (&permission.key, &permission.range_end);
    if range_end.is_empty() {
        return key.to_vec();
    }
    let mut text = range(key, range_end);
    if !key.is_empty() && prefix_end(key) == *range_end {
        text.extend([b" (prefix ", key.as_ref(), b")"].concat());
    }
    text
}

/// A range, which is open at its end if that is a zero byte.
fn range(key: &[u8], range_end: &[u8]) -> Vec<u8> {
    match range_end {
        ZERO => [b"[", key, b", <open ended>"].concat(),
        _ => [b"[", key, b", ", range_end, b")"].concat(),
    }
}

pub(super) fn json(answer: AuthAnswer<'_>) -> String {
    let texts = |list: &[String]| list.iter().map(|text| string(text)).collect::<Vec<_>>();
    let object = with_header(answer.header());
    let object = match answer {
        AuthAnswer::Status(response) => object
            .bool_omit_empty("enabled", response.enabled)
            .number_omit_empty("authRevision", response.auth_revision),
        AuthAnswer::UserGet(_, response) => object.list_omit_empty("roles", texts(&response.roles)),
        AuthAnswer::UserList(response) => object.list_omit_empty("users", texts(&response.users)),
        AuthAnswer::RoleList(response) => object.list_omit_empty("roles", texts(&response.roles)),
        AuthAnswer::RoleGet(_, response) => {
            let permissions = response.perm.iter().map(|permission| {
                Object::default()
                    .number_omit_empty("permType", permission.perm_type)
                    .bytes_omit_empty("key", &permission.key)
                    .bytes_omit_empty("range_end", &permission.range_end)
                    .end()
            });
            object.list_omit_empty("perm", permissions)
        }
        _ => object,
    };
    object.end()
}

/// Appends the fields; returns `None` if etcdctl has none of this answer.
pub(super) fn fields(lines: &mut Lines, answer: AuthAnswer<'_>) -> Option<()> {
    match answer {
        AuthAnswer::Status(_) | AuthAnswer::UserGet(..) | AuthAnswer::UserList(_) => return None,
        _ => lines.header(answer.header()),
    }
    match answer {
        AuthAnswer::RoleGet(_, response) => {
            for permission in &response.perm {
                let kind = permission.perm_type().as_str_name();
                // etcdctl prints two blanks here.
                lines.field("PermType", format_args!(" {kind}"));
                lines.field("Key", quote(&permission.key));
                lines.field("RangeEnd", quote(&permission.range_end));
            }
        }
        AuthAnswer::RoleList(response) => {
            let roles = response.roles.iter().map(|role| quote(role.as_bytes()));
            lines.list("Roles", roles);
        }
        _ => {}
    }
    Some(())
}

pub(super) fn protobuf(answer: AuthAnswer<'_>) -> Vec<u8> {
    match answer {
        AuthAnswer::Status(response) => response.encode_to_vec(),
        AuthAnswer::UserAdd(_, response) => response.encode_to_vec(),
        AuthAnswer::UserDelete(_, response) => response.encode_to_vec(),
        AuthAnswer::UserGet(_, response) => response.encode_to_vec(),
        AuthAnswer::UserList(response) => response.encode_to_vec(),
        AuthAnswer::UserChangePassword(response) => response.encode_to_vec(),
        AuthAnswer::UserGrantRole(_, _, response) => response.encode_to_vec(),
        AuthAnswer::UserRevokeRole(_, _, response) => response.encode_to_vec(),
        AuthAnswer::RoleAdd(_, response) => response.encode_to_vec(),
        AuthAnswer::RoleDelete(_, response) => response.encode_to_vec(),
        AuthAnswer::RoleGet(_, response) => response.encode_to_vec(),
        AuthAnswer::RoleList(response) => response.encode_to_vec(),
        AuthAnswer::RoleGrantPermission(_, response) => response.encode_to_vec(),
        AuthAnswer::RoleRevokePermission { response, .. } => response.encode_to_vec(),
    }
}
