//! `migrate`: etcdutl's command for the data directory of a stopped member.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use portunus_datadir::migrate::{MigrateOptions, migrate};
use portunus_features::version::EMULATION_FLOOR;
use portunus_gates::MajorMinor;

use crate::globals::Globals;
use crate::offline::open_data_dir;
use crate::outcome::{ExitWith, Failure, with_causes};
use crate::print::{Answer, Format};
use crate::terminal::Progress;

/// Flags of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Path to the data directory of a stopped member
    #[arg(long, value_name = "DIR", required = true)]
    data_dir: PathBuf,
    /// Path to the WAL directory of the member (in --data-dir if none given)
    #[arg(long, value_name = "DIR")]
    wal_dir: Option<OsString>,
    /// Target etcd version, such as 3.6; at least 3.5
    #[arg(long, value_name = "X.Y", required = true)]
    target_version: String,
    /// Set the storage version even if a check fails. Not recommended
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(args: MigrateArgs, globals: &Globals) -> Result<(), Failure> {
    let target =
        target(&args.target_version).map_err(|message| Failure::new(ExitWith::BadArgs, message))?;
    if !matches!(globals.printer.format, Format::Simple | Format::Json) {
        // Checked before anything is changed.
        let message = "only simple and json are supported as output format";
        return Err(Failure::new(ExitWith::BadFeature, message));
    }
    // Waits for the lock; the migration takes it again.
    let waited = open_data_dir(&args.data_dir, globals.lock_timeout);
    drop(waited.map_err(|error| Failure::new(ExitWith::Error, with_causes(&error)))?);
    let wal_dir = args.wal_dir.filter(|dir| !dir.is_empty());
    let mut progress = Progress::new("migrating");
    progress.text(|| args.data_dir.display().to_string());
    let done = migrate(&MigrateOptions {
        data_dir: args.data_dir,
        wal_dir: wal_dir.map(PathBuf::from),
        target,
        force: args.force,
    });
    drop(progress);
    let done = done.map_err(|error| Failure::new(ExitWith::Error, with_causes(&error)))?;
    globals.printer.print(&Answer::Migrated(&done))
}

/// Reads the version with etcdutl's checks and error texts.
fn target(text: &str) -> Result<MajorMinor, String> {
    if text.matches('.').count() != 1 {
        return Err(format!(
            "wrong target version format, expected \"X.Y\", got {text:?}"
        ));
    }
    let version: MajorMinor = text
        .parse()
        .map_err(|_| "failed to parse target version: invalid semantic version".to_owned())?;
    if version < EMULATION_FLOOR {
        return Err(format!(
            "target version \"{version}\" not supported. Minimal \"{EMULATION_FLOOR}\""
        ));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_target_version_is_refused_with_etcdutl_text() {
        assert_eq!(target("3.6").unwrap(), MajorMinor::literal("3.6"));
        for (text, refusal) in [
            (
                "abc",
                r#"wrong target version format, expected "X.Y", got "abc""#,
            ),
            (
                "3",
                r#"wrong target version format, expected "X.Y", got "3""#,
            ),
            (
                "3.6.0",
                r#"wrong target version format, expected "X.Y", got "3.6.0""#,
            ),
            (
                "3.a",
                "failed to parse target version: invalid semantic version",
            ),
            (
                "3.4",
                r#"target version "3.4" not supported. Minimal "3.5""#,
            ),
        ] {
            assert_eq!(target(text).unwrap_err(), refusal);
        }
    }
}
