//! `--require-feature`: cluster features without which a data command must not run.
//!
//! Each level of the command line has a flag of its own instead of one global flag: clap replaces
//! the values of a global flag by those given after the subcommand, and a requirement must never
//! be dropped.

use clap::{Arg, ArgAction, ArgMatches, Command};
use portunus_client::{Client, ClientError, Options};
use portunus_proto::etcdserverpb::FeatureGateStatusRequest;
use tokio::task::JoinSet;

use crate::globals::Globals;
use crate::outcome::{ExitWith, Failure};

/// The flag, also its ID.
const FLAG: &str = "require-feature";

/// The commands that read or write data.
const DATA_COMMANDS: [&str; 7] = ["get", "put", "del", "txn", "compaction", "watch", "lease"];

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
pub fn given(matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let mut given = Vec::new();
    let mut level = Some(matches);
    while let Some(matches) = level {
        // An error means that this command does not have the flag.
        if let Ok(Some(values)) = matches.try_get_many::<String>(FLAG) {
            given.extend(values.cloned());
        }
        level = matches.subcommand().map(|(_, matches)| matches);
    }
    let command = matches.subcommand_name().unwrap_or_default();
    if !given.is_empty() && !DATA_COMMANDS.contains(&command) {
        let message = format!(
            "--{FLAG} cannot be used with {command}: use it with one of {}",
            DATA_COMMANDS.join(", ")
        );
        return Err(Failure::new(ExitWith::BadArgs, message));
    }
    Ok(given)
}

/// Reads feature names separated by commas.
pub fn names(text: &str) -> Result<Vec<String>, String> {
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
        return Ok(Client::connect(options)?);
    }
    let endpoints = endpoints_with_gates(globals).await?;
    let client = Client::connect(Options {
        endpoints,
        ..options
    })?;
    Ok(client.requiring(globals.required.iter().map(String::as_str))?)
}

async fn endpoints_with_gates(globals: &Globals) -> Result<Vec<String>, Failure> {
    let mut asked = JoinSet::new();
    for (number, endpoint) in globals.client.endpoints.iter().enumerate() {
        let client = globals.connect_to(endpoint)?;
        let endpoint = endpoint.clone();
        asked.spawn(async move { (number, endpoint, ask(&client).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(number, ..)| *number);
    let answers = answers
        .into_iter()
        .map(|(_, endpoint, answer)| (endpoint, answer));
    usable(answers.collect())
}

/// What an endpoint answers about feature gates.
enum Answer {
    KnowsGates,
    KnowsNoGates,
    Failed(ClientError),
}

async fn ask(client: &Client) -> Answer {
    if let Err(error) = client.ready().await {
        return Answer::Failed(error);
    }
    let request = FeatureGateStatusRequest {
        serializable: true,
        ..FeatureGateStatusRequest::default()
    };
    match client.feature_gate_status(request).await {
        Ok(_) => Answer::KnowsGates,
        Err(error) if error.is_unimplemented() => Answer::KnowsNoGates,
        Err(error) => Answer::Failed(error),
    }
}

/// Returns the endpoints that answered.
///
/// # Errors
/// If a server does not know feature gates, or no endpoint answered.
fn usable(answers: Vec<(String, Answer)>) -> Result<Vec<String>, Failure> {
    let mut usable = Vec::new();
    let mut last_error = None;
    for (endpoint, answer) in answers {
        match answer {
            Answer::KnowsGates => usable.push(endpoint),
            Answer::KnowsNoGates => {
                let message = format!(
                    "--{FLAG} cannot be enforced: the server at {endpoint} does not know feature \
                     gates and would ignore it; leave out that endpoint or the flag"
                );
                return Err(Failure::new(ExitWith::BadFeature, message));
            }
            Answer::Failed(error) => last_error = Some(error),
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

    fn given_in(line: &str) -> Result<Vec<String>, Failure> {
        given(&program().try_get_matches_from(line.split(' ')).unwrap())
    }

    #[test]
    fn flag_counts_at_every_level_of_the_command_line() {
        let line = "portctl --require-feature=A get --require-feature B --require-feature C,D";
        assert_eq!(given_in(line).unwrap(), ["A", "B", "C,D"]);
        let line = "portctl lease --require-feature A grant --require-feature B";
        assert_eq!(given_in(line).unwrap(), ["A", "B"]);
        assert!(given_in("portctl get").unwrap().is_empty());
    }

    #[test]
    fn commands_without_data_refuse_the_flag() {
        let refused = given_in("portctl --require-feature A endpoint").unwrap_err();
        assert_eq!(refused.exit, ExitWith::BadArgs);
        let line = "portctl endpoint --require-feature A";
        assert!(program().try_get_matches_from(line.split(' ')).is_err());
    }

    #[test]
    fn names_are_separated_by_commas_and_never_empty() {
        assert_eq!(names("A, B").unwrap(), ["A", "B"]);
        for text in ["", ",", "A,", "A,,B", " "] {
            assert!(names(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn endpoints_that_did_not_answer_are_left_out() {
        let named = |name: &str, answer| (name.to_owned(), answer);
        let silent = || Answer::Failed(ClientError::DeadlineExceeded { last_attempt: None });
        let some = vec![named("a", Answer::KnowsGates), named("b", silent())];
        assert_eq!(usable(some).unwrap(), ["a"]);
        assert!(usable(vec![named("b", silent())]).unwrap_err().timed_out);
    }

    #[test]
    fn one_server_without_feature_gates_is_refused_by_name() {
        let answers = [("a", Answer::KnowsGates), ("b", Answer::KnowsNoGates)];
        let answers = answers.map(|(name, answer)| (name.to_owned(), answer));
        let refused = usable(answers.into()).unwrap_err();
        assert_eq!(refused.exit, ExitWith::BadFeature);
        let message = refused.message.unwrap();
        assert!(message.contains("server at b does not know"), "{message}");
    }
}
