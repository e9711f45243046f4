//! The command line: the commands, how flags are read, and the exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand,
};

use crate::command;
use crate::diagnose::explain_timeout;
use crate::globals::{GlobalArgs, Globals};
use crate::go::boolean;
use crate::help;
use crate::next_step::next_step;
use crate::outcome::{ExitWith, Failure, write_err, write_out};
use crate::required;
use crate::terminal::{Colour, is_coloured_stderr, is_coloured_stdout};

/// Controls Portunus and etcd clusters; accepts the commands, flags and environment variables of
/// etcdctl and etcdutl (PORTCTL_* before ETCDCTL_*).
#[derive(Debug, Parser)]
#[command(
    name = "portctl",
    version,
    infer_subcommands = true,
    args_override_self = true
)]
struct Portctl {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(subcommand)]
    command: PortctlCommand,
}

#[derive(Debug, Subcommand)]
enum PortctlCommand {
    /// Gets the key or a range of keys
    Get(command::get::GetArgs),
    /// Puts the given key into the store
    Put(command::put::PutArgs),
    /// Removes the specified key or range of keys [key, range_end)
    Del(command::del::DelArgs),
    /// Processes all the requests in one transaction
    Txn(command::txn::TxnArgs),
    /// Compacts the event history
    Compaction(command::compaction::CompactionArgs),
    /// Watches events on keys or prefixes
    Watch(command::watch::WatchArgs),
    /// Leases: grant, revoke, timetolive, list, keep-alive
    #[command(subcommand)]
    Lease(command::lease::LeaseCommand),
    /// Members of the cluster: list, add, remove, update, promote
    #[command(subcommand)]
    Member(command::member::MemberCommand),
    /// Transfers leadership to another member
    MoveLeader(command::move_leader::MoveLeaderArgs),
    /// Downgrades of the cluster: validate, enable, cancel, status
    #[command(subcommand)]
    Downgrade(command::downgrade::DowngradeCommand),
    /// Health, status, hash and features of endpoints
    Endpoint(command::endpoint::EndpointArgs),
    /// Feature gates: list, status, explain, plan, history, watch
    #[command(subcommand)]
    Gate(command::gate::GateCommand),
    /// APIs of the API server: explain, plan
    #[command(subcommand)]
    Api(command::api::ApiCommand),
    /// Alarms: list, disarm
    #[command(subcommand)]
    Alarm(command::alarm::AlarmCommand),
    /// Defragments the storage of the members with given endpoints, or of a stopped member
    Defrag(command::defrag::DefragArgs),
    /// Snapshots: save, status, restore
    #[command(subcommand)]
    Snapshot(command::snapshot::SnapshotCommand),
    /// Prints the hash of the key history in a file, without a server
    Hashkv(command::hashkv::HashkvArgs),
    /// Migrates the data directory of a stopped member to another etcd version
    Migrate(command::migrate::MigrateArgs),
    /// Authentication: enable, disable, status
    #[command(subcommand)]
    Auth(command::auth::AuthCommand),
    /// Users: add, delete, get, list, passwd, grant-role, revoke-role
    #[command(subcommand)]
    User(command::user::UserCommand),
    /// Roles: add, delete, get, list, grant-permission, revoke-permission
    #[command(subcommand)]
    Role(command::role::RoleCommand),
    /// Checks properties of the cluster
    #[command(subcommand)]
    Check(command::check::CheckCommand),
    /// Acquires a named lock, and may run a command under it
    Lock(command::lock::LockArgs),
    /// Takes part in a leader election, or follows one
    Elect(command::elect::ElectArgs),
    /// Mirrors the keys of the cluster at another cluster
    MakeMirror(command::make_mirror::MakeMirrorArgs),
    /// Prints the flags that every command has
    Options,
    /// Prints the version of portctl
    Version,
    /// Generates a completion script
    Completion(command::completion::CompletionArgs),
}

/// Runs the program: arguments and environment in, exit code out.
#[must_use]
pub fn run() -> ExitCode {
    let mut path = String::new();
    match run_command(std::env::args_os().collect(), &mut path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let next_step = next_step(&failure, &path);
            if let Some(note) = failure.note {
                write_err(format!("{note}\n").as_bytes());
            }
            if let Some(message) = failure.message {
                let error = Colour::Red.paint("Error:", is_coloured_stderr());
                write_err(format!("{error} {message}\n").as_bytes());
            }
            // Scripts compare standard error with etcdctl's.
            if let Some(step) = next_step.filter(|_| io::stderr().is_terminal()) {
                write_err(format!("Next step: {step}\n").as_bytes());
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

/// Runs the command of the arguments and sets its path, such as `lease grant`.
fn run_command(arguments: Vec<OsString>, path: &mut String) -> Result<(), Failure> {
    let portctl = help::shape(command_line());
    let matches = match portctl.try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return report_parse_error(&error),
    };
    *path = path_of(&matches);
    let mut portctl = match Portctl::from_arg_matches(&matches) {
        Ok(portctl) => portctl,
        Err(error) => return report_parse_error(&error),
    };
    portctl.globals.require_feature = required::flag_values(&matches)?;
    // These need neither server nor settings.
    match &portctl.command {
        PortctlCommand::Version => return command::version::run(),
        PortctlCommand::Options => return command::options::run(&command_line()),
        PortctlCommand::Completion(args) => {
            return command::completion::run(args, &mut command_line());
        }
        _ => {}
    }
    let globals = Globals::resolve(&portctl.globals)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        match dispatch(portctl.command, &globals, &arguments).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(explain_timeout(failure, &globals).await),
        }
    });
    // A thread that waits for standard input must not keep the process.
    runtime.shutdown_background();
    outcome
}

/// Returns the names of the command and its subcommands.
fn path_of(matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    let mut level = matches.subcommand();
    while let Some((name, below)) = level {
        names.push(name);
        level = below.subcommand();
    }
    names.join(" ")
}

async fn dispatch(
    command: PortctlCommand,
    globals: &Globals,
    arguments: &[OsString],
) -> Result<(), Failure> {
    match command {
        PortctlCommand::Get(args) => command::get::run(args, globals).await,
        PortctlCommand::Put(args) => command::put::run(args, globals).await,
        PortctlCommand::Del(args) => command::del::run(args, globals).await,
        PortctlCommand::Txn(args) => command::txn::run(args, globals).await,
        PortctlCommand::Compaction(args) => command::compaction::run(args, globals).await,
        PortctlCommand::Watch(args) => command::watch::run(args, globals, arguments).await,
        PortctlCommand::Lease(command) => command::lease::run(command, globals).await,
        PortctlCommand::Member(command) => command::member::run(command, globals).await,
        PortctlCommand::MoveLeader(args) => command::move_leader::run(args, globals).await,
        PortctlCommand::Downgrade(command) => command::downgrade::run(command, globals).await,
        PortctlCommand::Endpoint(args) => command::endpoint::run(args, globals).await,
        PortctlCommand::Gate(command) => command::gate::run(command, globals).await,
        PortctlCommand::Api(command) => command::api::run(command, globals),
        PortctlCommand::Alarm(command) => command::alarm::run(command, globals).await,
        PortctlCommand::Defrag(args) => command::defrag::run(args, globals).await,
        PortctlCommand::Snapshot(command) => command::snapshot::run(command, globals).await,
        PortctlCommand::Hashkv(args) => command::hashkv::run(&args, globals),
        PortctlCommand::Migrate(args) => command::migrate::run(args, globals),
        PortctlCommand::Auth(command) => command::auth::run(command, globals).await,
        PortctlCommand::User(command) => command::user::run(command, globals).await,
        PortctlCommand::Role(command) => command::role::run(command, globals).await,
        PortctlCommand::Check(command) => command::check::run(command, globals).await,
        PortctlCommand::Lock(args) => command::lock::run(args, globals).await,
        PortctlCommand::Elect(args) => command::elect::run(args, globals).await,
        PortctlCommand::MakeMirror(args) => command::make_mirror::run(args, globals).await,
        // Handled before there was a runtime.
        PortctlCommand::Options | PortctlCommand::Version | PortctlCommand::Completion(_) => Ok(()),
    }
}

/// Returns the definition of every command and flag.
#[must_use]
pub fn command_line() -> Command {
    go_style(required::add_flag(Portctl::command()))
}

/// Makes flags read like Go's: a switch may be written `--prefix=true`, and a flag that takes a
/// value takes the next argument, even one with a hyphen.
pub fn go_style(command: Command) -> Command {
    command.mut_args(go_style_arg).mut_subcommands(go_style)
}

fn go_style_arg(arg: Arg) -> Arg {
    if arg.is_positional() {
        return arg;
    }
    match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_name("BOOL")
            .value_parser(boolean::parse)
            .default_value("false")
            .hide_default_value(true)
            .default_missing_value("true"),
        ArgAction::Set | ArgAction::Append => arg.allow_hyphen_values(true),
        _ => arg,
    }
}

/// Prints help to standard output; any other error ends with etcdctl's exit code for a command
/// line that it cannot parse.
fn report_parse_error(error: &clap::Error) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            write_out(rendered(error, is_coloured_stdout()).as_bytes())
        }
        _ => {
            write_err(rendered(error, is_coloured_stderr()).as_bytes());
            Err(Failure::reported(ExitWith::Error))
        }
    }
}

fn rendered(error: &clap::Error, is_coloured: bool) -> String {
    let text = error.render();
    match is_coloured {
        true => text.ansi().to_string(),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    fn parse(line: &str) -> Result<Portctl, clap::Error> {
        let words = line.split(' ');
        let matches = command_line().try_get_matches_from(words)?;
        Portctl::from_arg_matches(&matches)
    }

    #[test]
    fn clap_definition_passes_its_debug_assertions() {
        command_line().debug_assert();
    }

    #[test]
    fn switches_take_an_optional_value_after_an_equals_sign() {
        for (line, expected) in [
            ("portctl get --prefix a", true),
            ("portctl get --prefix=true a", true),
            ("portctl get a --prefix=0", false),
            ("portctl get a --prefix --prefix=false", false),
            ("portctl get a", false),
        ] {
            let PortctlCommand::Get(args) = parse(line).unwrap().command else {
                panic!("{line}");
            };
            assert_eq!(args.prefix, expected, "{line}");
        }
        assert!(parse("portctl get a --prefix=perhaps").is_err());
    }

    #[test]
    fn commands_may_be_shortened_and_flags_repeated() {
        let PortctlCommand::Get(args) = parse("portctl ge a --rev 1 --rev -2").unwrap().command
        else {
            panic!();
        };
        assert_eq!(args.rev, -2);
    }

    /// Calls `check` with the path and the definition of every command without subcommands.
    fn for_each_leaf(command: &Command, path: &str, check: &mut dyn FnMut(&str, &Command)) {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            match below.has_subcommands() {
                true => for_each_leaf(below, &path, check),
                false => check(path.trim_start(), below),
            }
        }
    }

    #[test]
    fn every_command_has_examples_and_they_parse() {
        let mut problems = Vec::new();
        for_each_leaf(&help::shape(command_line()), "", &mut |path, command| {
            let examples = examples::of(path);
            let help = command.clone().render_help().to_string();
            if examples.is_empty() {
                problems.push(format!("{path} has no example"));
            }
            for (what, line) in examples {
                if !line.starts_with(&format!("portctl {path}")) {
                    problems.push(format!("{path}: {line} is of another command"));
                }
                if !help.contains(what) || !help.contains(line) {
                    problems.push(format!("{path}: {line} is not in its help"));
                }
                let own = line.split(" > ").next().unwrap();
                let words = crate::line_args::split(own).unwrap();
                let words = words.iter().map(|word| str::from_utf8(word).unwrap());
                if let Err(error) = command_line().try_get_matches_from(words) {
                    problems.push(format!("{line}: {error}"));
                }
            }
        });
        assert!(problems.is_empty(), "{problems:#?}");
    }
}
