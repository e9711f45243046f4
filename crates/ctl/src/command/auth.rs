//! `auth`: turns authentication on and off, and shows whether it is on.

use clap::Subcommand;
use portunus_client::{Client, ClientError};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{AuthRoleAddRequest, AuthUserGrantRoleRequest};

use super::no_args::NoArgs;
use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure, write_out};
use crate::print::{Answer, AuthAnswer};

/// The user, and the role, that may do everything.
const ROOT: &str = "root";

/// What to do with authentication.
#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Enables authentication; grants the role root to the user root if it has not got it
    Enable(NoArgs),
    /// Disables authentication
    Disable(NoArgs),
    /// Prints whether authentication is on, and the auth revision
    Status(NoArgs),
}

/// Runs the command.
pub async fn run(command: AuthCommand, globals: &Globals) -> Result<(), Failure> {
    let (name, args) = match &command {
        AuthCommand::Enable(args) => ("enable", args),
        AuthCommand::Disable(args) => ("disable", args),
        AuthCommand::Status(args) => ("status", args),
    };
    if !args.arguments.is_empty() {
        let message = format!("auth {name} command does not accept any arguments");
        return Err(Failure::new(ExitWith::BadArgs, message));
    }
    let client = globals.connect().await?;
    match command {
        AuthCommand::Enable(_) => {
            enable(&client).await?;
            write_out(b"Authentication Enabled\n")
        }
        AuthCommand::Disable(_) => {
            client.auth_disable().await?;
            write_out(b"Authentication Disabled\n")
        }
        AuthCommand::Status(_) => {
            let status = client.auth_status().await?;
            let answer = Answer::Auth(AuthAnswer::Status(&status));
            globals.printer.print(&answer)
        }
    }
}

async fn enable(client: &Client) -> Result<(), ClientError> {
    loop {
        match client.auth_enable().await {
            Err(ClientError::Etcd(EtcdError::RootRoleNotExist)) => {
                let name = ROOT.to_owned();
                client.role_add(AuthRoleAddRequest { name }).await?;
                let (user, role) = (ROOT.to_owned(), ROOT.to_owned());
                let request = AuthUserGrantRoleRequest { user, role };
                client.user_grant_role(request).await?;
            }
            enabled => return enabled.map(drop),
        }
    }
}
