//! The command line of `portunus`: flags start a server, `gates` asks about gates.
//!
//! Output goes to the caller as text; nothing is printed here.

mod one_member;

use std::error::Error;
use std::fmt::Write;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portunus_gates::{
    Assignments, FlagError, GateSet, Origin, RegisterError, SetErrors, Status, UnknownFeature,
    VersionFlagError, Versions, known_features, to_json, to_markdown,
};
use thiserror::Error;

use self::one_member::OneMember;
use crate::config::flags::{FLAGS, Support};
use crate::config::{Config, Values};
use portunus_features::OwnFeatures;
use portunus_features::version::{ETCD_VERSION, effective_version};

/// The action that a command line requests.
pub enum Invocation {
    /// Print this text.
    Print(String),
    /// Run a server.
    Serve(Box<Config>),
}

/// Questions about the program's gates, which need no server.
#[derive(Debug, Parser)]
#[command(name = "portunus")]
pub struct Portunus {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the feature gates of this program
    #[command(subcommand)]
    Gates(Gates),
}

#[derive(Debug, Subcommand)]
enum Gates {
    /// List every gate with its value
    List {
        #[command(flatten)]
        at: At,
        /// How to print it
        #[arg(short = 'w', long, value_enum, default_value_t = Format::Table)]
        write_out: Format,
    },
    /// Explain why a gate has its value and what would change it
    Explain {
        /// The gate
        name: String,
        #[command(flatten)]
        at: At,
        /// How to print it
        #[arg(short = 'w', long, value_enum, default_value_t = Format::Table)]
        write_out: Format,
    },
}

/// Under which versions and flags.
#[derive(Debug, Default, Args)]
struct At {
    /// Behave as this version (3.5 to 3.8)
    #[arg(long, alias = "emulation-version", value_name = "MAJOR.MINOR")]
    emulated_version: Option<String>,
    /// Write only what this version can read
    #[arg(long, value_name = "MAJOR.MINOR")]
    min_compatibility_version: Option<String>,
    /// Server features to set, such as A=true,B=false
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "")]
    feature_gates: String,
    /// Cluster features to set, such as A=true,B=false, as in a cluster of one member
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "")]
    cluster_feature_gates: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Columns for people
    Table,
    /// For programs
    Json,
    /// For documentation
    Markdown,
}

impl Portunus {
    /// Parses the command line (without the program's name) and the environment.
    pub fn invoked(arguments: &[String]) -> Result<Invocation, Box<dyn Error>> {
        match arguments.first().map(String::as_str) {
            Some("gates") => {
                let all = std::iter::once("portunus".to_owned()).chain(arguments.iter().cloned());
                let text = match Portunus::try_parse_from(all) {
                    Ok(portunus) => portunus.run()?,
                    // clap returns help as an error, but the caller asked for it.
                    Err(error) if !error.use_stderr() => error.render().to_string(),
                    Err(error) => error.exit(),
                };
                Ok(Invocation::Print(text))
            }
            Some("--help" | "-help" | "-h" | "help") => Ok(Invocation::Print(help()?)),
            Some("--version" | "-version" | "version") => Ok(Invocation::Print(version())),
            _ => {
                let mut values = Values::from_arguments(arguments);
                let variables: Vec<(String, String)> = std::env::vars_os()
                    .filter_map(|(name, value)| {
                        Some((name.into_string().ok()?, value.into_string().ok()?))
                    })
                    .collect();
                values.add_environment(variables.iter().map(|(n, v)| (n.as_str(), v.as_str())));
                let file = values.get("config-file").to_owned();
                if !file.is_empty() {
                    let text = std::fs::read_to_string(&file)
                        .map_err(|source| CommandError::ConfigFile { file, source })?;
                    let said = std::mem::replace(&mut values, Values::from_config_file(&text));
                    values.add_beside_file(&said);
                }
                Ok(Invocation::Serve(Box::new(Config::from_values(&values)?)))
            }
        }
    }

    fn run(&self) -> Result<String, CommandError> {
        let own = OwnFeatures::declared()?;
        match &self.command {
            Command::Gates(Gates::List { at, write_out }) => list(&own, at, *write_out),
            Command::Gates(Gates::Explain {
                name,
                at,
                write_out,
            }) => explain(&own, name, at, *write_out),
        }
    }
}

/// The help text: every flag that works, and the gates.
fn help() -> Result<String, CommandError> {
    let mut text = String::from(
        "A strongly consistent, replicated key-value store that etcd clients use unchanged.\n\n\
         Usage:\n  portunus [flags]                 start a member\n  \
         portunus gates list|explain      show the feature gates\n  \
         portunus --version\n\n\
         Flags are etcd's; each can be set as ETCD_NAME in the environment, or all of them in a\n\
         YAML file named by --config-file.\n\n",
    );
    for flag in FLAGS.iter().filter(|flag| flag.support == Support::Works) {
        let default = match flag.default {
            "" => String::new(),
            default => format!(" [{default}]"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  --{:<32} {}{default}", flag.name, flag.help);
    }
    let own = OwnFeatures::declared()?;
    let versions = effective_version().versions();
    let of_cluster = Versions::exactly(versions.emulation);
    for (title, lines) in [
        (
            "Feature gates (--feature-gates):",
            known_features(own.server.registry(), versions),
        ),
        (
            "Cluster feature gates (--cluster-feature-gates), which all members decide together:",
            known_features(own.cluster.registry(), of_cluster),
        ),
    ] {
        let _ = writeln!(text, "\n{title}");
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
    Ok(text)
}

/// The version text. Its first line is etcd's, for tools that read it.
fn version() -> String {
    format!(
        "etcd Version: {ETCD_VERSION}.0\nPortunus Version: {}\n",
        env!("CARGO_PKG_VERSION")
    )
}

impl At {
    fn versions(&self) -> Result<Versions, CommandError> {
        let emulated = self.emulated_version.as_deref();
        let min_compat = self.min_compatibility_version.as_deref();
        let version = effective_version().with_flags(emulated, min_compat)?;
        Ok(version.versions())
    }

    fn gates(&self, own: &OwnFeatures) -> Result<GateSet, CommandError> {
        let said = Assignments::parse(Origin::Flag, &self.feature_gates)?;
        let gates = own.server.gates(self.versions()?, &said)?;
        Ok((*gates).clone())
    }

    /// The decision of a single member with these flags; `None` without cluster feature flags.
    fn one_member(
        &self,
        own: &OwnFeatures,
        gates: &GateSet,
    ) -> Result<Option<OneMember>, CommandError> {
        let flags = Assignments::parse(Origin::Flag, &self.cluster_feature_gates)
            .map_err(CommandError::ClusterFlag)?;
        if flags.is_empty() {
            return Ok(None);
        }
        let decided = OneMember::with_flags(own, gates, &flags);
        decided.map(Some).map_err(CommandError::ClusterSet)
    }
}

fn list(own: &OwnFeatures, at: &At, format: Format) -> Result<String, CommandError> {
    let registries = [&**own.server.registry(), &**own.cluster.registry()];
    match format {
        Format::Json => return Ok(to_json(registries)),
        Format::Markdown => return Ok(to_markdown(registries)),
        Format::Table => {}
    }
    let gates = at.gates(own)?;
    let mut text = format!(
        "Server features at {} (--feature-gates)\n",
        gates.versions()
    );
    table(&mut text, &gates.statuses());
    let (title, statuses) = match at.one_member(own, &gates)? {
        Some(decided) => ("as a cluster of one member decides", decided.statuses()),
        None => (
            "defaults; the members decide the values",
            cluster_defaults(own, &gates)?.statuses(),
        ),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nCluster features (--cluster-feature-gates), {title}"
    );
    table(&mut text, &statuses);
    Ok(text)
}

/// The cluster features' values where no member sets any.
fn cluster_defaults(own: &OwnFeatures, gates: &GateSet) -> Result<GateSet, CommandError> {
    let versions = Versions::exactly(gates.versions().emulation);
    let defaults = own.cluster.gates(versions, &Assignments::new())?;
    Ok((*defaults).clone())
}

fn table(text: &mut String, statuses: &[Status]) {
    let width = statuses
        .iter()
        .map(|status| status.name.len())
        .max()
        .unwrap_or(0);
    for status in statuses {
        let value = if status.enabled { "on" } else { "off" };
        let note = match &status.inert {
            Some(reason) => format!("no effect: {reason}"),
            None => status.reason.clone(),
        };
        let row = format!(
            "  {:<width$}  {value:<3}  {:<10}  {note}",
            status.name,
            status.stage.text()
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", row.trim_end());
    }
}

fn explain(own: &OwnFeatures, name: &str, at: &At, format: Format) -> Result<String, CommandError> {
    let gates = at.gates(own)?;
    let of_cluster = own.cluster.registry().get(name).is_some();
    let mut explanation = match at.one_member(own, &gates)? {
        Some(decided) if of_cluster => decided.explain(name)?,
        None if of_cluster => cluster_defaults(own, &gates)?.explain(name)?,
        _ => gates.explain(name)?,
    };
    if let Some(feature) = own.cluster.registry().get(name)
        && explanation.status.stage.exists()
    {
        explanation = explanation.written_with(feature, gates.versions().min_compat);
    }
    Ok(match format {
        Format::Json => {
            // The explanation holds only strings, numbers and lists: it always serialises.
            serde_json::to_string_pretty(&explanation).unwrap_or_default() + "\n"
        }
        Format::Table | Format::Markdown => explanation.to_string(),
    })
}

/// Why a command failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum CommandError {
    /// The program's own gates are declared wrongly.
    #[error("the features of this program are declared wrongly")]
    Declarations(#[from] RegisterError),
    /// The config file cannot be read.
    #[error("the config file {file} cannot be read: check --config-file")]
    ConfigFile {
        file: String,
        source: std::io::Error,
    },
    /// `--feature-gates` cannot be read.
    #[error("--feature-gates cannot be read")]
    Flag(#[from] FlagError),
    /// `--cluster-feature-gates` cannot be read.
    #[error("--cluster-feature-gates cannot be read")]
    ClusterFlag(#[source] FlagError),
    /// Versions that cannot be used.
    #[error("the versions are not allowed")]
    Versions(#[from] VersionFlagError),
    /// `--feature-gates` cannot be applied.
    #[error("--feature-gates cannot be applied")]
    Set(#[from] SetErrors),
    /// `--cluster-feature-gates` cannot be applied.
    #[error("--cluster-feature-gates cannot be applied")]
    ClusterSet(#[source] SetErrors),
    /// No such gate.
    #[error(transparent)]
    Unknown(#[from] UnknownFeature),
}
