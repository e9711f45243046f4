//! `user`: adds, changes and shows users.

use clap::{Args, Subcommand};
use portunus_proto::authpb::UserAddOptions;
use portunus_proto::etcdserverpb::{
    AuthRoleGetRequest, AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest,
    AuthUserGetRequest, AuthUserGrantRoleRequest, AuthUserRevokeRoleRequest,
};

use super::no_args::NoArgs;
use crate::globals::Globals;
use crate::go::boolean;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::{Answer, AuthAnswer};
use crate::prompt;

/// What to do with users.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Adds a new user
    Add(AddArgs),
    /// Deletes a user
    Delete(NameArgs),
    /// Gets detailed information of a user
    Get(GetArgs),
    /// Lists all users
    List(NoArgs),
    /// Changes password of user
    Passwd(PasswdArgs),
    /// Grants a role to a user
    GrantRole(RoleArgs),
    /// Revokes a role from a user
    RevokeRole(RoleArgs),
}

/// Where a new password comes from.
#[derive(Debug, Args)]
pub struct PasswordSource {
    /// Ask for the password on the terminal; if false, read it from standard input without a
    /// question
    #[arg(
        long,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true",
        value_parser = boolean::parse,
        value_name = "BOOL"
    )]
    interactive: bool,
}

/// Flags of `user add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    #[arg(value_name = "USER_NAME or USER:PASSWORD")]
    arguments: Vec<String>,
    #[command(flatten)]
    source: PasswordSource,
    /// The password; others can see it in the list of processes
    #[arg(long, default_value = "", value_name = "PASSWORD")]
    new_user_password: String,
    /// Create a user without password, who is identified by a client certificate only
    #[arg(long)]
    no_password: bool,
}

/// Flags of `user delete`.
#[derive(Debug, Args)]
pub struct NameArgs {
    #[arg(value_name = "USER_NAME")]
    arguments: Vec<String>,
}

/// Flags of `user get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    #[arg(value_name = "USER_NAME")]
    arguments: Vec<String>,
    /// Show permissions of roles granted to the user
    #[arg(long)]
    detail: bool,
}

/// Flags of `user passwd`.
#[derive(Debug, Args)]
pub struct PasswdArgs {
    #[arg(value_name = "USER_NAME")]
    arguments: Vec<String>,
    #[command(flatten)]
    source: PasswordSource,
}

/// Flags of `user grant-role` and `user revoke-role`.
#[derive(Debug, Args)]
pub struct RoleArgs {
    #[arg(value_name = "USER_NAME ROLE_NAME")]
    arguments: Vec<String>,
}

/// Runs the command.
pub async fn run(command: UserCommand, globals: &Globals) -> Result<(), Failure> {
    match command {
        UserCommand::Add(args) => add(args, globals).await,
        UserCommand::Delete(args) => delete(args, globals).await,
        UserCommand::Get(args) => get(args, globals).await,
        UserCommand::List(args) => list(args, globals).await,
        UserCommand::Passwd(args) => change_password(args, globals).await,
        UserCommand::GrantRole(args) => grant_role(args, globals).await,
        UserCommand::RevokeRole(args) => revoke_role(args, globals).await,
    }
}

fn bad_args(message: &str) -> Failure {
    Failure::new(ExitWith::BadArgs, message)
}

fn print(answer: AuthAnswer<'_>, globals: &Globals) -> Result<(), Failure> {
    globals.printer.print(&Answer::Auth(answer))
}

/// The only argument.
fn name(arguments: &[String], command: &str) -> Result<String, Failure> {
    match arguments {
        [name] => Ok(name.clone()),
        _ => {
            let message = format!("user {command} command requires user name as its argument");
            Err(bad_args(&message))
        }
    }
}

async fn add(args: AddArgs, globals: &Globals) -> Result<(), Failure> {
    let argument = name(&args.arguments, "add")?;
    let no_password = args.no_password;
    let (name, password) = if no_password {
        (argument, String::new())
    } else if !args.new_user_password.is_empty() {
        (argument, args.new_user_password)
    } else {
        match argument.split_once(':') {
            None => {
                let password = args.source.read(&argument)?;
                (argument, password)
            }
            Some(("", _)) => return Err(bad_args("empty user name is not allowed")),
            Some((name, password)) => (name.to_owned(), password.to_owned()),
        }
    };
    let request = AuthUserAddRequest {
        name: name.clone(),
        password,
        options: Some(UserAddOptions { no_password }),
        ..AuthUserAddRequest::default()
    };
    let response = globals.connect().await?.user_add(request).await?;
    print(AuthAnswer::UserAdd(&name, &response), globals)
}

async fn delete(args: NameArgs, globals: &Globals) -> Result<(), Failure> {
    let name = name(&args.arguments, "delete")?;
    let request = AuthUserDeleteRequest { name: name.clone() };
    let response = globals.connect().await?.user_delete(request).await?;
    print(AuthAnswer::UserDelete(&name, &response), globals)
}

async fn get(args: GetArgs, globals: &Globals) -> Result<(), Failure> {
    let name = name(&args.arguments, "get")?;
    let client = globals.connect().await?;
    let request = AuthUserGetRequest { name: name.clone() };
    let user = client.user_get(request).await?;
    if !args.detail {
        return print(AuthAnswer::UserGet(&name, &user), globals);
    }
    write_out(format!("User: {name}\n").as_bytes())?;
    for role in user.roles {
        write_out(b"\n")?;
        let request = AuthRoleGetRequest { role: role.clone() };
        let response = client.role_get(request).await?;
        print(AuthAnswer::RoleGet(&role, &response), globals)?;
    }
    Ok(())
}

async fn list(args: NoArgs, globals: &Globals) -> Result<(), Failure> {
    if !args.arguments.is_empty() {
        return Err(bad_args("user list command requires no arguments"));
    }
    let response = globals.connect().await?.user_list().await?;
    print(AuthAnswer::UserList(&response), globals)
}

async fn change_password(args: PasswdArgs, globals: &Globals) -> Result<(), Failure> {
    let name = name(&args.arguments, "passwd")?;
    let password = args.source.read(&name)?;
    let request = AuthUserChangePasswordRequest {
        name,
        password,
        ..AuthUserChangePasswordRequest::default()
    };
    let client = globals.connect().await?;
    let response = client.user_change_password(request).await?;
    print(AuthAnswer::UserChangePassword(&response), globals)
}

async fn grant_role(args: RoleArgs, globals: &Globals) -> Result<(), Failure> {
    let [user, role] = args.arguments.as_slice() else {
        return Err(bad_args(
            "user grant command requires user name and role name as its argument",
        ));
    };
    let request = AuthUserGrantRoleRequest {
        user: user.clone(),
        role: role.clone(),
    };
    let response = globals.connect().await?.user_grant_role(request).await?;
    print(AuthAnswer::UserGrantRole(user, role, &response), globals)
}

async fn revoke_role(args: RoleArgs, globals: &Globals) -> Result<(), Failure> {
    let [user, role] = args.arguments.as_slice() else {
        return Err(bad_args(
            "user revoke-role requires user name and role name as its argument",
        ));
    };
    let request = AuthUserRevokeRoleRequest {
        name: user.clone(),
        role: role.clone(),
    };
    let response = globals.connect().await?.user_revoke_role(request).await?;
    print(AuthAnswer::UserRevokeRole(user, role, &response), globals)
}

impl PasswordSource {
    /// Reads the new password of a user; asks twice on the terminal.
    fn read(&self, user: &str) -> Result<String, Failure> {
        if !self.interactive {
            return prompt::scan_password();
        }
        let ask = |question: String| {
            prompt::ask_password(&question).map_err(|mut failure| {
                failure.message = failure
                    .message
                    .map(|message| format!("failed to ask password: {message}"));
                failure.exiting_with(ExitWith::BadArgs)
            })
        };
        let password = ask(format!("Password of {user}: "))?;
        if password.is_empty() {
            return Err(bad_args("empty password"));
        }
        let again = ask(format!("Type password of {user} again for confirmation: "))?;
        if again != password {
            return Err(bad_args("given passwords are different"));
        }
        Ok(password)
    }
}
