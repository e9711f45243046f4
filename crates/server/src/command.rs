//! The command line of `portunus`, as far as it needs no running server.
//!
//! Output goes to the caller as text; nothing is printed here.

use std::fmt::Write;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portunus_gates::{
    Assignments, EffectiveVersion, FlagError, GateSet, MajorMinor, Origin, RegisterError,
    SetErrors, Status, UnknownFeature, VersionRangeErrors, Versions, to_json, to_markdown,
};
use thiserror::Error;

use crate::gates::OwnFeatures;
use crate::version::effective_version;

/// A strongly consistent, replicated key-value store that etcd clients use unchanged, with
/// feature gates decided by the whole cluster.
///
/// This version holds the gates; there is no server in it yet.
#[derive(Debug, Parser)]
#[command(name = "portunus", version)]
pub struct Portunus {
    /// What to do. Without one: the list of gates.
    #[command(subcommand)]
    command: Option<Command>,
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
    /// Say why a gate has its value and what would change it
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
    /// Does what was asked and returns what to print.
    pub fn run(&self) -> Result<String, CommandError> {
        let own = OwnFeatures::declared()?;
        match &self.command {
            None => {
                let mut text = list(&own, &At::default(), Format::Table)?;
                text.push_str("\nThere is no server in this version. See portunus --help.\n");
                Ok(text)
            }
            Some(Command::Gates(Gates::List { at, write_out })) => list(&own, at, *write_out),
            Some(Command::Gates(Gates::Explain {
                name,
                at,
                write_out,
            })) => explain(&own, name, at, *write_out),
        }
    }
}

impl At {
    fn versions(&self) -> Result<Versions, CommandError> {
        let mut version: EffectiveVersion = effective_version();
        if let Some(text) = &self.emulated_version {
            version.set_emulation(major_minor("--emulated-version", text)?);
        }
        if let Some(text) = &self.min_compatibility_version {
            version.set_min_compat(major_minor("--min-compatibility-version", text)?);
        }
        version.validate()?;
        Ok(version.versions())
    }

    fn gates(&self, own: &OwnFeatures) -> Result<GateSet, CommandError> {
        let said = Assignments::parse(Origin::Flag, &self.feature_gates)?;
        let gates = own.server.gates(self.versions()?, &said)?;
        Ok((*gates).clone())
    }
}

/// A version without a patch part.
fn major_minor(flag: &'static str, text: &str) -> Result<MajorMinor, CommandError> {
    let version = portunus_gates::Version::parse(text)
        .map_err(|source| CommandError::BadVersion { flag, source })?;
    if version.components().iter().skip(2).any(|&part| part != 0) {
        return Err(CommandError::Patch {
            flag,
            wanted: version.major_minor(),
        });
    }
    Ok(version.major_minor())
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
    let versions = Versions::exactly(gates.versions().emulation);
    let cluster = own.cluster.gates(versions, &Assignments::new())?;
    text.push_str(
        "\nCluster features (--cluster-feature-gates), defaults; the members decide the values\n",
    );
    table(&mut text, &cluster.statuses());
    Ok(text)
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
    let explanation = if own.cluster.registry().get(name).is_some() {
        let versions = Versions::exactly(gates.versions().emulation);
        own.cluster
            .gates(versions, &Assignments::new())?
            .explain(name)?
    } else {
        gates.explain(name)?
    };
    Ok(match format {
        Format::Json => {
            // The explanation holds only strings, numbers and lists: it always serialises.
            serde_json::to_string_pretty(&explanation).unwrap_or_default() + "\n"
        }
        Format::Table | Format::Markdown => explanation.to_string(),
    })
}

/// Why a command could not be done.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum CommandError {
    /// The program's own declarations are illegal.
    #[error("the features of this program are declared wrongly")]
    Declarations(#[from] RegisterError),
    /// A gate text cannot be read.
    #[error("--feature-gates cannot be read")]
    Flag(#[from] FlagError),
    /// A version cannot be read.
    #[error("{flag} cannot be read")]
    BadVersion {
        flag: &'static str,
        source: portunus_gates::VersionError,
    },
    /// A version with a patch.
    #[error("{flag} takes major.minor: write {wanted}")]
    Patch {
        flag: &'static str,
        wanted: MajorMinor,
    },
    /// A version out of range.
    #[error("the versions are not allowed")]
    Range(#[from] VersionRangeErrors),
    /// Gates that cannot be set.
    #[error("--feature-gates cannot be applied")]
    Set(#[from] SetErrors),
    /// No such gate.
    #[error(transparent)]
    Unknown(#[from] UnknownFeature),
}
