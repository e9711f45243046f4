//! `--require-feature`: cluster features without which a data command must not run.
//!
//! Each level of the command line has a flag of its own instead of one global flag: clap replaces
//! the values of a global flag by those given after the subcommand, and a requirement must never
//! be dropped.

use clap::{Arg, ArgAction, ArgMatches, Command};
use portunus_client::{Client, ClientError, Options};
use portunus_proto::etcdserverpb::FeatureGateStatusRequest;
use tokio::task::JoinSet;

use crate::globals::{Globals, open};
use crate::outcome::{ExitWith, Failure};

/// The flag, also its ID.
const FLAG: &str = "require-feature";

/// The commands that read or write data.
const DATA_COMMANDS: [&str; 10] = [
    "get",
    "put",
    "del",
    "txn",
    "compaction",
    "watch",
    "lease",
    "lock",
    "elect",
    "make-mirror",
];

/// Adds the flag to the program and to every data command.
pub fn add_flag(portctl: Command) -> Command {
    portctl.arg(flag()).mut_subcommands(|command| {
        if !DATA_COMMANDS.contains(&command.get_name()) {
            return command;
        }
        command
            .arg(flag())
            .mut_subcommands(|command| command.arg(flag()))
    })
}

fn flag() -> Arg {
    Arg::new(FLAG)
        .long(FLAG)
        .value_name("NAME,...")
        .action(ArgAction::Append)
        .help_heading("Global options")
        .help("Cluster features that must be on for a data command; may be repeated")
}

/// Returns the values of the flag at every level of the command line.
///
/// # Errors
/// If a command was given the flag that has no use for it.
pub fn flag_values(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let mut values = Vec::new();
    let mut level = Some(matches);
    while let Some(matches) = level {
        // An error means that this command does not have the flag.
        if let Ok(Some(given)) = matches.try_get_many::<String>(FLAG) {
            values.extend(given.cloned());
        }
        level = matches.subcommand().map(|(_, matches)| matches);
    }
    let command = matches.subcommand_name().unwrap_or_default();
    if !values.is_empty() && !DATA_COMMANDS.contains(&command) {
        let message = format!(
            "--{FLAG} cannot be used with {command}: use it with one of {}",
            DATA_COMMANDS.join(", ")
        );
        return Err(Failure::new(ExitWith::BadArgs, message));
    }
    Ok(values)
}

/// Reads feature names separated by commas.
pub fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err("a feature name is empty: write NAME or NAME,NAME".to_owned());
    }
    Ok(names)
}

/// Returns a client whose calls the server refuses while a required feature is off.
///
/// A server that does not know feature gates ignores the requirement, so the client uses only
/// endpoints that answered a question about them.
pub async fn connect(globals: &Globals, options: Options) -> Result<Client, Failure> {
    if globals.required.is_empty() {
        return open(options).await;
    }
    let endpoints = endpoints_with_gates(globals).await?;
    let options = Options {
        endpoints,
        ..options
    };
    let client = open(options).await?;
    Ok(client.requiring(globals.required.iter().map(String::as_str))?)
}

async fn endpoints_with_gates(globals: &Globals) -> Result<Vec<String>, Failure> {
    let mut probes = JoinSet::new();
    for (number, endpoint) in globals.client.endpoints.iter().enumerate() {
        let client = globals.client_of(endpoint)?;
        let endpoint = endpoint.clone();
        probes.spawn(async move { (number, endpoint, probe(&client).await) });
    }
    let mut answers = probes.join_all().await;
    answers.sort_by_key(|(number, ..)| *number);
    let answers = answers
        .into_iter()
        .map(|(_, endpoint, answer)| (endpoint, answer));
    usable_endpoints(answers.collect())
}

/// What an endpoint answers about feature gates.
enum GateSupport {
    Known,
    Unknown,
    Failed(ClientError),
}

async fn probe(client: &Client) -> GateSupport {
    if let Err(error) = client.ready().await {
        return GateSupport::Failed(error);
    }
    let request = FeatureGateStatusRequest {
        serializable: true,
        ..FeatureGateStatusRequest::default()
    };
    match client.feature_gate_status(request).await {
        Ok(_) => GateSupport::Known,
        Err(error) if error.is_unimplemented() => GateSupport::Unknown,
        Err(error) => GateSupport::Failed(error),
    }
}

/// Returns the endpoints that answered.
///
/// # Errors
/// If a server does not know feature gates, or no endpoint answered.
fn usable_endpoints(answers: Vec<(String, GateSupport)>) -> Result<Vec<String>, Failure> {
    let mut usable = Vec::new();
    let mut last_error = None;
    for (endpoint, answer) in answers {
        match answer {
            GateSupport::Known => usable.push(endpoint),
            GateSupport::Unknown => {
                let message = format!(
                    "--{FLAG} cannot be enforced: the server at {endpoint} does not know feature \
                     gates and would ignore it; leave out that endpoint or the flag"
                );
                return Err(Failure::new(ExitWith::BadFeature, message));
            }
            GateSupport::Failed(error) => last_error = Some(error),
        }
    }
    match last_error {
        Some(error) if usable.is_empty() => Err(error.into()),
        _ => Ok(usable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Command {
        let leaf = |name: &'static str| Command::new(name);
        add_flag(
            Command::new("portctl")
                .subcommand(leaf("get"))
                .subcommand(leaf("lease").subcommand(leaf("grant")))
                .subcommand(leaf("endpoint")),
        )
    }

    fn flag_values_in(line: &str) -> Result<Vec<String>, Failure> {
        flag_values(&program().try_get_matches_from(line.split(' ')).unwrap())
    }

    #[test]
    fn flag_counts_at_every_level_of_the_command_line() {
        let line = "portctl --require-feature=A get --require-feature B --require-feature C,D";
        assert_eq!(flag_values_in(line).unwrap(), ["A", "B", "C,D"]);
        let line = "portctl lease --require-feature A grant --require-feature B";
        assert_eq!(flag_values_in(line).unwrap(), ["A", "B"]);
        assert!(flag_values_in("portctl get").unwrap().is_empty());
    }

    #[test]
    fn commands_without_data_refuse_the_flag() {
        let refused = flag_values_in("portctl --require-feature A endpoint").unwrap_err();
        assert_eq!(refused.exit, ExitWith::BadArgs);
        let line = "portctl endpoint --require-feature A";
        assert!(program().try_get_matches_from(line.split(' ')).is_err());
    }

    #[test]
    fn names_are_separated_by_commas_and_never_empty() {
        assert_eq!(parse_names("A, B").unwrap(), ["A", "B"]);
        for text in ["", ",", "A,", "A,,B", " "] {
            assert!(parse_names(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn endpoints_that_did_not_answer_are_left_out() {
        let named = |name: &str, answer| (name.to_owned(), answer);
        let silent = || GateSupport::Failed(ClientError::DeadlineExceeded { last_attempt: None });
        let some = vec![named("a", GateSupport::Known), named("b", silent())];
        assert_eq!(usable_endpoints(some).unwrap(), ["a"]);
        assert!(
            usable_endpoints(vec![named("b", silent())])
                .unwrap_err()
                .timed_out
        );
    }

    #[test]
    fn one_server_without_feature_gates_is_refused_by_name() {
        let answers = [("a", GateSupport::Known), ("b", GateSupport::Unknown)];
        let answers = answers.map(|(name, answer)| (name.to_owned(), answer));
        let refused = usable_endpoints(answers.into()).unwrap_err();
        assert_eq!(refused.exit, ExitWith::BadFeature);
        let message = refused.message.unwrap();
        assert!(message.contains("server at b does not know"), "{message}");
    }
}
