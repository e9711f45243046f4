//! `role`: adds, changes and shows roles.

use std::ffi::OsString;

use bytes::Bytes;
use clap::{Args, Subcommand};
use portunus_proto::authpb::Permission;
use portunus_proto::authpb::permission::Type;
use portunus_proto::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGetRequest, AuthRoleGrantPermissionRequest,
    AuthRoleRevokePermissionRequest,
};

use super::keys::{ZERO, argument_bytes, prefix_end};
use super::no_args::NoArgs;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};
use crate::print::{Answer, AuthAnswer};

/// What to do with roles.
#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Adds a new role
    Add(NameArgs),
    /// Deletes a role
    Delete(NameArgs),
    /// Gets detailed information of a role
    Get(NameArgs),
    /// Lists all roles
    List(NoArgs),
    /// Grants a key to a role
    GrantPermission(GrantArgs),
    /// Revokes a key from a role
    RevokePermission(RevokeArgs),
}

/// Flags of `role add`, `role delete` and `role get`.
#[derive(Debug, Args)]
pub struct NameArgs {
    #[arg(value_name = "ROLE_NAME")]
    arguments: Vec<String>,
}

/// Which keys, in addition to the first one.
#[derive(Debug, Clone, Copy, Args)]
struct RangeFlags {
    /// The permission of all keys with the given prefix
    #[arg(long)]
    prefix: bool,
    /// The permission of all keys that are greater than or equal to the given key using byte
    /// compare
    #[arg(long)]
    from_key: bool,
}

/// Flags of `role grant-permission`.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The permission is read, write or readwrite
    #[arg(value_name = "ROLE_NAME PERMISSION KEY [ENDKEY]")]
    arguments: Vec<OsString>,
    #[command(flatten)]
    range: RangeFlags,
}

/// Flags of `role revoke-permission`.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    #[arg(value_name = "ROLE_NAME KEY [ENDKEY]")]
    arguments: Vec<OsString>,
    #[command(flatten)]
    range: RangeFlags,
}

/// Runs the command.
pub async fn run(command: RoleCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        RoleCommand::Add(args) => {
            let name = &name(args, "add")?;
            let request = AuthRoleAddRequest { name: name.clone() };
            let response = globals.connect().await?.role_add(request).await?;
            print(AuthAnswer::RoleAdd(name, &response), globals)
        }
        RoleCommand::Delete(args) => {
            let name = &name(args, "delete")?;
            let request = AuthRoleDeleteRequest { role: name.clone() };
            let response = globals.connect().await?.role_delete(request).await?;
            print(AuthAnswer::RoleDelete(name, &response), globals)
        }
        RoleCommand::Get(args) => {
            let name = &name(args, "get")?;
            let request = AuthRoleGetRequest { role: name.clone() };
            let response = globals.connect().await?.role_get(request).await?;
            print(AuthAnswer::RoleGet(name, &response), globals)
        }
        RoleCommand::List(args) => {
            if !args.arguments.is_empty() {
                return Err(bad_args("role list command requires no arguments"));
            }
            let response = globals.connect().await?.role_list().await?;
            print(AuthAnswer::RoleList(&response), globals)
        }
        RoleCommand::GrantPermission(args) => grant(&args, globals).await,
        RoleCommand::RevokePermission(args) => revoke(&args, globals).await,
    }
}

async fn grant(args: &GrantArgs, globals: &Globals) -> Result<(), Failure> {
    let [role, permission, keys @ ..] = args.arguments.as_slice() else {
        return Err(bad_args(GRANT_ARGUMENTS_NEEDED));
    };
    if keys.is_empty() {
        return Err(bad_args(GRANT_ARGUMENTS_NEEDED));
    }
    let perm_type = permission_type(text(permission)?)?;
    let (key, range_end) = permitted_range(keys, args.range)?;
    let role = text(role)?;
    let request = AuthRoleGrantPermissionRequest {
        name: role.to_owned(),
        perm: Some(Permission {
            perm_type: perm_type.into(),
            key,
            range_end,
        }),
    };
    let client = globals.connect().await?;
    let response = client.role_grant_permission(request).await?;
    print(AuthAnswer::RoleGrantPermission(role, &response), globals)
}

async fn revoke(args: &RevokeArgs, globals: &Globals) -> Result<(), Failure> {
    let [role, keys @ ..] = args.arguments.as_slice() else {
        return Err(bad_args(REVOKE_ARGUMENTS_NEEDED));
    };
    let Some(given_key) = keys.first() else {
        return Err(bad_args(REVOKE_ARGUMENTS_NEEDED));
    };
    let (key, range_end) = permitted_range(keys, args.range)?;
    let role = text(role)?;
    let request = AuthRoleRevokePermissionRequest {
        role: role.to_owned(),
        key,
        range_end: range_end.clone(),
    };
    let client = globals.connect().await?;
    let response = &client.role_revoke_permission(request).await?;
    let answer = AuthAnswer::RoleRevokePermission {
        role,
        key: given_key.as_encoded_bytes(),
        range_end: &range_end,
        response,
    };
    print(answer, globals)
}

const GRANT_ARGUMENTS_NEEDED: &str =
    "role grant command requires role name, permission type, and key [endkey] as its argument";
const REVOKE_ARGUMENTS_NEEDED: &str =
    "role revoke-permission command requires role name and key [endkey] as its argument";
const EXCLUSIVE_FLAGS: &str = "--from-key and --prefix flags are mutually exclusive";

fn bad_args(message: &str) -> Failure {
    Failure::new(ExitWith::BadArgs, message)
}

fn print(answer: AuthAnswer<'_>, globals: &Globals) -> Result<(), Failure> {
    globals.printer.print(&Answer::Auth(answer))
}

fn name(args: NameArgs, command: &str) -> Result<String, Failure> {
    <[String; 1]>::try_from(args.arguments)
        .map(|[name]| name)
        .map_err(|_| {
            let message = format!("role {command} command requires role name as its argument");
            bad_args(&message)
        })
}

/// An argument that is not a key.
fn text(argument: &OsString) -> Result<&str, Failure> {
    argument
        .to_str()
        .ok_or_else(|| bad_args(&format!("{argument:?} is not valid UTF-8")))
}

fn permission_type(name: &str) -> Result<Type, Failure> {
    Type::from_str_name(&name.to_uppercase())
        .ok_or_else(|| bad_args(&format!("invalid permission type: {name}")))
}

/// The key and range end of a permission. `arguments` has a key.
fn permitted_range(arguments: &[OsString], flags: RangeFlags) -> Result<(Bytes, Bytes), Failure> {
    let key = arguments.first().map(argument_bytes).unwrap_or_default();
    let end = arguments.get(1).map(argument_bytes);
    let exclusive = flags.prefix && flags.from_key;
    let zero = Bytes::from_static(ZERO);
    if key.is_empty() {
        if exclusive {
            return Err(bad_args(EXCLUSIVE_FLAGS));
        }
        // The smallest key; as with etcdctl, an end key beside it has no effect.
        let end = match flags.prefix || flags.from_key {
            true => zero.clone(),
            false => Bytes::new(),
        };
        return Ok((zero, end));
    }
    let end = match end {
        None if exclusive => return Err(bad_args(EXCLUSIVE_FLAGS)),
        None if flags.prefix => prefix_end(&key),
        None if flags.from_key => zero,
        None => Bytes::new(),
        Some(_) if flags.prefix => {
            return Err(bad_args("unexpected endkey argument with --prefix flag"));
        }
        Some(_) if flags.from_key => {
            return Err(bad_args("unexpected endkey argument with --from-key flag"));
        }
        Some(end) => end,
    };
    Ok((key, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(arguments: &[&str], prefix: bool, from_key: bool) -> Result<(Bytes, Bytes), String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let flags = RangeFlags { prefix, from_key };
        permitted_range(&arguments, flags).map_err(|failure| failure.message.unwrap())
    }

    #[test]
    fn ranges_are_those_of_etcdctl() {
        for (arguments, prefix, from_key, key, end) in [
            (&["a"][..], false, false, "a", ""),
            (&["a", "b"], false, false, "a", "b"),
            (&["a"], true, false, "a", "b"),
            (&["a"], false, true, "a", "\0"),
            (&[""], false, false, "\0", ""),
            (&[""], true, false, "\0", "\0"),
            (&[""], false, true, "\0", "\0"),
            (&["", "b"], false, false, "\0", ""),
        ] {
            let expected = (
                Bytes::from_static(key.as_bytes()),
                Bytes::from_static(end.as_bytes()),
            );
            assert_eq!(range(arguments, prefix, from_key).unwrap(), expected);
        }
    }

    #[test]
    fn contradictory_flags_are_refused() {
        for (arguments, prefix, from_key, message) in [
            (&["a"][..], true, true, EXCLUSIVE_FLAGS),
            (&[""], true, true, EXCLUSIVE_FLAGS),
            (
                &["a", "b"],
                true,
                false,
                "unexpected endkey argument with --prefix flag",
            ),
            (
                &["a", "b"],
                false,
                true,
                "unexpected endkey argument with --from-key flag",
            ),
        ] {
            assert_eq!(range(arguments, prefix, from_key).unwrap_err(), message);
        }
    }

    #[test]
    fn permission_types_are_read_in_any_case() {
        assert_eq!(permission_type("readwrite").unwrap(), Type::Readwrite);
        assert_eq!(permission_type("Read").unwrap(), Type::Read);
        let refused = permission_type("rw").unwrap_err();
        assert_eq!(refused.message.unwrap(), "invalid permission type: rw");
    }
}
