//! Where the Go programs are that Portunus is compared with.
//!
//! Tests of several crates and the benchmark need a real etcd, etcdctl, etcdutl or bbolt.
//! They all look here, so that they mean the same programs:
//!
//! 1. what the environment names: `PORTUNUS_ETCD`, `PORTUNUS_ETCDCTL`, `PORTUNUS_ETCDUTL`,
//!    `PORTUNUS_BBOLT`, each a program or a directory that has it;
//! 2. `PATH`, if the version fits;
//! 3. `target/go-etcd/<version>/`, where `scripts/go-etcd` puts them;
//! 4. that script itself, if Go is on `PATH` and `PORTUNUS_NO_GO` is not set.
//!
//! And they take the ports for what they start from here ([`free_port`]), so that no two take the
//! same. It never starts a server. A dependency of tests and of the benchmark, of nothing that
//! ships.

mod ports;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use thiserror::Error;

pub use ports::{free_listener, free_port};

/// The version that Portunus is compared with.
pub const VERSION: &str = "3.7.1";

/// Makes a test fail instead of skipping when a program is missing.
const REQUIRE_VARIABLE: &str = "PORTUNUS_REQUIRE_GO";
/// Keeps tests from building anything.
const NO_GO_VARIABLE: &str = "PORTUNUS_NO_GO";

/// How people get what is missing.
pub const SCRIPT: &str = "scripts/go-etcd";

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The server.
    Etcd,
    /// Its command line.
    Etcdctl,
    /// Its command line for files.
    Etcdutl,
    /// The command line for its database files.
    Bbolt,
}

impl Tool {
    /// As the file is called.
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

    /// Whether the program at `path` is of the release line that Portunus is compared with;
    /// with another, differences would mean nothing. bbolt has versions of its own.
    fn is_fitting(self, path: &Path) -> bool {
        let argument = match self {
            Tool::Bbolt => return true,
            Tool::Etcd => "--version",
            Tool::Etcdctl | Tool::Etcdutl => "version",
        };
        let output = Command::new(path).arg(argument).output();
        output.is_ok_and(|output| is_of_release_line(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// Whether a program that says this is of [`VERSION`]'s minor version.
fn is_of_release_line(said: &str) -> bool {
    let line = VERSION.rsplit_once('.').map_or(VERSION, |(line, _)| line);
    said.split_whitespace().any(|word| {
        word.strip_prefix(line)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// A program that is nowhere.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum FindError {
    /// Not where it may be, and nothing was built.
    #[error(
        "there is no {tool} {VERSION} in {variable}, on PATH or in {home}: run {SCRIPT} ({why_not_built})"
    )]
    NotThere {
        tool: &'static str,
        variable: &'static str,
        home: String,
        why_not_built: String,
    },
    /// The environment names something else.
    #[error("{variable} is {value}, which is neither {tool} nor a directory that has it")]
    Misnamed {
        tool: &'static str,
        variable: &'static str,
        value: String,
    },
}

/// The program, without building anything.
pub fn find_ready(tool: Tool) -> Result<PathBuf, FindError> {
    find_among(tool, &Places::of(tool), || {
        Err("nothing was built".to_owned())
    })
}

/// The program, built if need be.
pub fn find(tool: Tool) -> Result<PathBuf, FindError> {
    find_among(tool, &Places::of(tool), || BUILT.clone())
}

/// The program, or a loud notice that this test proves nothing here. With
/// `PORTUNUS_REQUIRE_GO` in the environment the test fails instead.
#[must_use]
pub fn find_for_test(tool: Tool, test: &str) -> Option<PathBuf> {
    match find(tool) {
        Ok(path) => Some(path),
        Err(missing) => {
            let is_required = std::env::var_os(REQUIRE_VARIABLE).is_some();
            assert!(!is_required, "{REQUIRE_VARIABLE} is set, and {missing}");
            // Not `eprintln!`, which the harness swallows; one write, so that lines stay
            // whole. A closed stderr is no reason to fail.
            let notice = format!("\nSKIPPED {test}: {missing}\n");
            let _ = std::io::stderr().write_all(notice.as_bytes());
            None
        }
    }
}

/// Where to look for one program.
struct Places {
    /// What its variable says.
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

fn workspace_root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
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
    let on_path = places.search_path.iter().map(|folder| folder.join(name));
    let mut on_path = on_path.filter(|path| path.is_file());
    if let Some(found) = on_path.find(|path| tool.is_fitting(path)) {
        return Ok(found);
    }
    let built = places.home.join(name);
    let outcome = if built.is_file() { Ok(()) } else { build() };
    match outcome {
        Ok(()) if built.is_file() => Ok(built),
        outcome => Err(FindError::NotThere {
            tool: name,
            variable: tool.variable(),
            home: places.home.display().to_string(),
            why_not_built: outcome
                .err()
                .unwrap_or_else(|| "it built others".to_owned()),
        }),
    }
}

/// Once per process; processes that build at the same time wait for each other in the script.
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
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said
        .lines()
        .last()
        .unwrap_or("it failed silently")
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that claims to be of this version.
    fn program(folder: &Path, name: &str, version: &str) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        fs::write(
            &path,
            format!("#!/bin/sh\necho {name} Version: {version}\n"),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
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
    fn what_the_environment_names_comes_first_as_program_or_as_directory() {
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
    fn a_wrong_name_is_an_error_and_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        program(&folder.path().join("bin"), "etcd", VERSION);
        let mut places = places(folder.path());
        places.named = Some("/nowhere/etcd".into());
        let error = find_among(Tool::Etcd, &places, not_built).unwrap_err();
        assert!(error.to_string().contains("PORTUNUS_ETCD is /nowhere/etcd"));
    }

    #[test]
    fn the_search_path_comes_before_what_was_built_if_its_version_fits() {
        let folder = tempfile::tempdir().unwrap();
        let built = program(&folder.path().join("home"), "etcdctl", VERSION);
        let places = places(folder.path());
        program(&folder.path().join("bin"), "etcdctl", "3.4.30");
        assert_eq!(
            find_among(Tool::Etcdctl, &places, not_built).unwrap(),
            built
        );
        let fitting = program(&folder.path().join("bin"), "etcdctl", "3.7.0");
        assert_eq!(
            find_among(Tool::Etcdctl, &places, not_built).unwrap(),
            fitting
        );
    }

    #[test]
    fn nothing_anywhere_is_built_and_if_that_fails_the_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path());
        let error = find_among(Tool::Bbolt, &places, || Err("no Go".to_owned())).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("scripts/go-etcd (no Go)"), "{error}");

        let build = || {
            program(&folder.path().join("home"), "bbolt", VERSION);
            Ok(())
        };
        let built = find_among(Tool::Bbolt, &places, build).unwrap();
        assert_eq!(built, folder.path().join("home/bbolt"));
    }

    #[test]
    fn a_release_line_is_not_a_beginning_of_digits() {
        assert!(is_of_release_line("etcd Version: 3.7.4\n"));
        assert!(!is_of_release_line("etcd Version: 3.70.4\n"));
        assert!(!is_of_release_line("etcd Version: 13.7.4 of 2\n"));
    }

    #[test]
    fn the_script_exists() {
        assert!(workspace_root().join(SCRIPT).is_file());
    }
}
