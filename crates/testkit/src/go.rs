//! Finds the Go programs that Portunus is compared with.
//!
//! Tests of several crates and the benchmark need a real etcd, etcdctl, etcdutl or bbolt. They
//! are searched, in order, in:
//!
//! 1. the environment: `PORTUNUS_ETCD`, `PORTUNUS_ETCDCTL`, `PORTUNUS_ETCDUTL`,
//!    `PORTUNUS_BBOLT`, each a program or a directory that contains it;
//! 2. `target/go-etcd/<version>/`, into which `scripts/go-etcd` builds them;
//! 3. `PATH`, if the program's version is the pinned one;
//! 4. the result of the script, which runs if Go is on `PATH` and `PORTUNUS_NO_GO` is not set.
//!
//! A version other than the pinned one is used only if the environment names it: a comparison
//! with an unknown version proves nothing. Each test prints the program and version that it
//! compares with.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use thiserror::Error;

use crate::program::workspace_root;

/// The version of etcd, etcdctl and etcdutl that Portunus is compared with.
pub const VERSION: &str = "3.7.1";
/// The version of bbolt that this etcd requires; `scripts/go-etcd` has the same.
pub const BBOLT_VERSION: &str = "1.5.0";
/// Earlier versions of etcd that a client has to work with. Tests use them if
/// `scripts/go-etcd VERSION` was run.
pub const EARLIER_VERSIONS: [&str; 2] = ["3.6.16", "3.5.35"];
/// Lists the programs of a directory and their versions, one per line; written by the script.
const VERSIONS_FILE: &str = "versions";

/// Makes a test fail instead of skipping when a program is missing.
const REQUIRE_VARIABLE: &str = "PORTUNUS_REQUIRE_GO";
/// Prevents tests from running the script.
pub(crate) const NO_GO_VARIABLE: &str = "PORTUNUS_NO_GO";

/// The script that builds the programs.
pub const SCRIPT: &str = "scripts/go-etcd";

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The server.
    Etcd,
    /// The client command line.
    Etcdctl,
    /// The command line for data files.
    Etcdutl,
    /// The command line for database files.
    Bbolt,
}

impl Tool {
    /// Returns the file name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tool::Etcd => "etcd",
            Tool::Etcdctl => "etcdctl",
            Tool::Etcdutl => "etcdutl",
            Tool::Bbolt => "bbolt",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Tool::Etcd => "PORTUNUS_ETCD",
            Tool::Etcdctl => "PORTUNUS_ETCDCTL",
            Tool::Etcdutl => "PORTUNUS_ETCDUTL",
            Tool::Bbolt => "PORTUNUS_BBOLT",
        }
    }

    /// Returns the pinned version of this program.
    #[must_use]
    pub fn pinned_version(self) -> &'static str {
        match self {
            Tool::Etcd | Tool::Etcdctl | Tool::Etcdutl => VERSION,
            Tool::Bbolt => BBOLT_VERSION,
        }
    }

    /// Returns the version of the program at `path`, if it can be determined.
    fn version_of(self, path: &Path) -> Option<String> {
        let mut command = match self {
            // `bbolt version` prints a constant that its releases do not update, so the version
            // comes from the module information that Go builds into the program.
            Tool::Bbolt => Command::new("go"),
            Tool::Etcd | Tool::Etcdctl | Tool::Etcdutl => Command::new(path),
        };
        match self {
            Tool::Bbolt => command.args(["version", "-m"]).arg(path),
            Tool::Etcd => command.arg("--version"),
            Tool::Etcdctl | Tool::Etcdutl => command.arg("version"),
        };
        let output = command.stderr(Stdio::null()).output().ok()?;
        version_in(self, &String::from_utf8_lossy(&output.stdout))
    }
}

/// Parses the output of `etcd --version`, `etcdctl version` or `go version -m bbolt`.
fn version_in(tool: Tool, printed: &str) -> Option<String> {
    let mut versions = printed.lines().filter_map(|line| {
        let line = line.trim();
        match tool {
            Tool::Bbolt => line.strip_prefix("mod\tgo.etcd.io/bbolt\tv"),
            Tool::Etcd => line.strip_prefix("etcd Version: "),
            Tool::Etcdctl => line.strip_prefix("etcdctl version: "),
            Tool::Etcdutl => line.strip_prefix("etcdutl version: "),
        }
    });
    let version = versions.next()?.split_whitespace().next()?;
    Some(version.to_owned())
}

/// A program that was not found.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum FindError {
    /// The program is in none of the places and was not built.
    #[error(
        "there is no {tool} {version} in {variable}, on PATH or in {home}: run {SCRIPT} ({why_not_built})"
    )]
    NotThere {
        tool: &'static str,
        version: &'static str,
        variable: &'static str,
        home: String,
        why_not_built: String,
    },
    /// The environment names another file or nothing.
    #[error("{variable} is {value}, which is neither {tool} nor a directory that has it")]
    Misnamed {
        tool: &'static str,
        variable: &'static str,
        value: String,
    },
}

/// Finds the program without building it.
pub fn find_ready(tool: Tool) -> Result<PathBuf, FindError> {
    find_among(tool, &Places::of(tool), || {
        Err("nothing was built".to_owned())
    })
}

/// Finds the program; builds it if necessary.
pub fn find(tool: Tool) -> Result<PathBuf, FindError> {
    find_among(tool, &Places::of(tool), || BUILT.clone())
}

/// Finds the program, or prints a notice that the test is skipped. With `PORTUNUS_REQUIRE_GO`
/// in the environment the test fails instead.
#[must_use]
pub fn find_for_test(tool: Tool, test: &str) -> Option<PathBuf> {
    match find(tool) {
        Ok(path) => {
            let version = tool.version_of(&path);
            let version = version.as_deref().unwrap_or("of an unknown version");
            let name = tool.name();
            print_notice(&format!(
                "COMPARED {test}: with {name} {version}, {}",
                path.display()
            ));
            Some(path)
        }
        missing => found_or_skipped(missing, test),
    }
}

/// Returns a program, or prints a notice that the test is skipped, unless a program is required.
pub(crate) fn found_or_skipped(
    found: Result<PathBuf, impl std::fmt::Display>,
    test: &str,
) -> Option<PathBuf> {
    match found {
        Ok(path) => Some(path),
        Err(missing) => {
            let is_required = std::env::var_os(REQUIRE_VARIABLE).is_some();
            assert!(!is_required, "{REQUIRE_VARIABLE} is set, and {missing}");
            print_notice(&format!("SKIPPED {test}: {missing}"));
            None
        }
    }
}

/// Returns an earlier version of etcd, or prints a notice that a part of the test is skipped: it
/// is used only where the script has built it, because that takes minutes.
#[must_use]
pub fn find_earlier_etcd(version: &str, test: &str) -> Option<PathBuf> {
    let home = workspace_root().join("target/go-etcd").join(version);
    let versions = std::fs::read_to_string(home.join(VERSIONS_FILE)).unwrap_or_default();
    let path = home.join(Tool::Etcd.name());
    let expected = format!("{} {version}", Tool::Etcd.name());
    if versions.lines().any(|line| line == expected) && path.is_file() {
        print_notice(&format!("COMPARED {test}: with {expected}"));
        return Some(path);
    }
    print_notice(&format!(
        "SKIPPED {test} with {expected}: run {SCRIPT} {version}"
    ));
    None
}

/// Prints a line past the test harness, which captures `eprintln!`.
fn print_notice(notice: &str) {
    // One write, so that lines are not interleaved. A closed stderr is ignored.
    let _ = std::io::stderr().write_all(format!("\n{notice}\n").as_bytes());
}

/// The places to search for a program.
struct Places {
    /// The value of its variable.
    named: Option<PathBuf>,
    search_path: Vec<PathBuf>,
    home: PathBuf,
}

impl Places {
    fn of(tool: Tool) -> Places {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Places {
            named: std::env::var_os(tool.variable()).map(PathBuf::from),
            search_path: std::env::split_paths(&path).collect(),
            home: workspace_root().join("target/go-etcd").join(VERSION),
        }
    }
}

fn find_among(
    tool: Tool,
    places: &Places,
    build: impl FnOnce() -> Result<(), String>,
) -> Result<PathBuf, FindError> {
    let name = tool.name();
    if let Some(named) = &places.named {
        let candidates = [named.clone(), named.join(name)];
        let found = candidates.into_iter().find(|path| path.is_file());
        return found.ok_or_else(|| FindError::Misnamed {
            tool: name,
            variable: tool.variable(),
            value: named.display().to_string(),
        });
    }
    let built = places.home.join(name);
    if is_built(tool, places) {
        return Ok(built);
    }
    let on_path = places.search_path.iter().map(|folder| folder.join(name));
    let mut on_path = on_path.filter(|path| path.is_file());
    let is_pinned =
        |path: &PathBuf| tool.version_of(path).as_deref() == Some(tool.pinned_version());
    if let Some(found) = on_path.find(is_pinned) {
        return Ok(found);
    }
    match build() {
        Ok(()) if is_built(tool, places) => Ok(built),
        outcome => Err(FindError::NotThere {
            tool: name,
            version: tool.pinned_version(),
            variable: tool.variable(),
            home: places.home.display().to_string(),
            why_not_built: outcome
                .err()
                .unwrap_or_else(|| "the script did not build it".to_owned()),
        }),
    }
}

/// Returns whether the script has built the pinned version of the program.
fn is_built(tool: Tool, places: &Places) -> bool {
    let versions = std::fs::read_to_string(places.home.join(VERSIONS_FILE)).unwrap_or_default();
    let expected = format!("{} {}", tool.name(), tool.pinned_version());
    versions.lines().any(|line| line == expected) && places.home.join(tool.name()).is_file()
}

/// The result of the script, run once per process. The script serialises concurrent runs.
static BUILT: LazyLock<Result<(), String>> = LazyLock::new(|| {
    if std::env::var_os(NO_GO_VARIABLE).is_some() {
        return Err(format!("{NO_GO_VARIABLE} is set"));
    }
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|output| output.status.success()) {
        return Err("Go is not on PATH".to_owned());
    }
    run_script(workspace_root().join(SCRIPT).as_os_str())
});

fn run_script(script: &OsStr) -> Result<(), String> {
    let output = Command::new(script)
        .arg(VERSION)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{SCRIPT} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr
        .lines()
        .last()
        .unwrap_or("it failed without a message")
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Creates a program that prints this version as etcd's programs do.
    fn program(folder: &Path, name: &str, version: &str) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        let label = if name == "etcd" { "Version" } else { "version" };
        fs::write(
            &path,
            format!("#!/bin/sh\necho '{name} {label}: {version}'\n"),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Creates such a program in the script's directory.
    fn built(folder: &Path, name: &str, version: &str) -> PathBuf {
        let home = folder.join("home");
        let path = program(&home, name, version);
        fs::write(home.join(VERSIONS_FILE), format!("{name} {version}\n")).unwrap();
        path
    }

    fn places(folder: &Path) -> Places {
        Places {
            named: None,
            search_path: vec![folder.join("bin")],
            home: folder.join("home"),
        }
    }

    fn not_built() -> Result<(), String> {
        Err("nothing was built".to_owned())
    }

    #[test]
    fn program_or_directory_of_the_environment_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let other = program(&folder.path().join("other"), "etcd", "3.5.0");
        program(&folder.path().join("bin"), "etcd", VERSION);
        for named in [other.clone(), folder.path().join("other")] {
            let mut places = places(folder.path());
            places.named = Some(named);
            assert_eq!(find_among(Tool::Etcd, &places, not_built).unwrap(), other);
        }
    }

    #[test]
    fn invalid_path_of_the_environment_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        program(&folder.path().join("bin"), "etcd", VERSION);
        let mut places = places(folder.path());
        places.named = Some("/nowhere/etcd".into());
        let error = find_among(Tool::Etcd, &places, not_built).unwrap_err();
        assert!(error.to_string().contains("PORTUNUS_ETCD is /nowhere/etcd"));
    }

    #[test]
    fn search_path_program_of_another_version_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        let on_path = folder.path().join("bin");
        for (tool, other) in [
            (Tool::Etcd, "3.7.0"),
            (Tool::Etcdctl, "3.7.0"),
            (Tool::Etcdutl, "3.70.1"),
            // Its printed version is not used, and this script has no module information.
            (Tool::Bbolt, BBOLT_VERSION),
        ] {
            program(&on_path, tool.name(), other);
            assert!(find_among(tool, &places, not_built).is_err(), "{tool:?}");
        }
        let pinned = program(&on_path, "etcdctl", VERSION);
        let found = find_among(Tool::Etcdctl, &places, not_built);
        assert_eq!(found.unwrap(), pinned);
    }

    #[test]
    fn built_program_comes_before_the_search_path() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        program(&folder.path().join("bin"), "etcdctl", VERSION);
        let built = built(folder.path(), "etcdctl", VERSION);
        let found = find_among(Tool::Etcdctl, &places, not_built);
        assert_eq!(found.unwrap(), built);
    }

    #[test]
    fn built_program_of_another_version_is_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        built(folder.path(), "bbolt", "1.4.3");
        let found = find_among(Tool::Bbolt, &places, || {
            built(folder.path(), "bbolt", BBOLT_VERSION);
            Ok(())
        });
        assert_eq!(found.unwrap(), folder.path().join("home/bbolt"));
        built(folder.path(), "bbolt", "1.4.3");
        assert!(find_among(Tool::Bbolt, &places, not_built).is_err());
    }

    #[test]
    fn missing_program_is_built_and_a_failed_build_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        let error = find_among(Tool::Bbolt, &places, || Err("no Go".to_owned())).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("scripts/go-etcd (no Go)"), "{error}");

        let build = || {
            built(folder.path(), "bbolt", BBOLT_VERSION);
            Ok(())
        };
        let built = find_among(Tool::Bbolt, &places, build).unwrap();
        assert_eq!(built, folder.path().join("home/bbolt"));
    }

    #[test]
    fn version_is_parsed_from_the_output_of_the_programs() {
        for (tool, printed, version) in [
            (
                Tool::Etcd,
                "etcd Version: 3.7.1\nGit SHA: none\n",
                Some("3.7.1"),
            ),
            (
                Tool::Etcdctl,
                "etcdctl version: 3.7.1\nAPI version: 3.7\n",
                Some("3.7.1"),
            ),
            (Tool::Etcdutl, "etcdutl version: 3.5.0\n", Some("3.5.0")),
            (
                Tool::Bbolt,
                "bbolt: go1.26\n\tpath\tgo.etcd.io/bbolt/cmd/bbolt\n\tmod\tgo.etcd.io/bbolt\tv1.5.0\th1:S7=\n",
                Some("1.5.0"),
            ),
            (Tool::Bbolt, "bbolt Version: 1.5.0\n", None),
            (Tool::Etcd, "", None),
        ] {
            assert_eq!(version_in(tool, printed).as_deref(), version, "{printed}");
        }
    }

    #[test]
    fn script_pins_the_same_versions() {
        let script = fs::read_to_string(workspace_root().join(SCRIPT)).unwrap();
        for pinned in [
            format!("pinned_etcd={VERSION}\n"),
            format!("pinned_bbolt={BBOLT_VERSION}\n"),
        ] {
            assert!(script.contains(&pinned), "{pinned}");
        }
    }

    #[test]
    fn script_exists() {
        assert!(workspace_root().join(SCRIPT).is_file());
    }
}
