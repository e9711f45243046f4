//! The server programs: Portunus, freshly built, and Go's etcd.
//!
//! The binary of Portunus is, in this order:
//!
//! 1. the file that `PORTUNUS_SERVER` names;
//! 2. in the server's own tests, the binary that cargo built for them;
//! 3. the binary in this test's target directory, if it is newer than its sources and has test
//!    features: a test of the whole workspace has just built it;
//! 4. a binary that is built now, as for the server's own tests.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;

use crate::go::{EARLIER_VERSIONS, Tool, find_earlier_etcd, find_for_test};

/// Names the binary of Portunus to test.
const SERVER_VARIABLE: &str = "PORTUNUS_SERVER";
/// Set by cargo for the tests of the crate that has the binary.
const CARGO_VARIABLE: &str = "CARGO_BIN_EXE_portunus";
const PACKAGE: &str = "portunus-server";
const PACKAGE_FOLDER: &str = "server";
const BINARY: &str = "portunus";
/// An integration test of the server. Cargo builds the binary for it, with the features that the
/// server's tests have and `cargo build` leaves out.
const SERVER_TEST: &str = "own_gates";
/// A feature that only a binary with test features has.
const TEST_FEATURE: &str = "ApplyTag";

/// The two implementations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This repository's server.
    Portunus,
    /// Go's etcd.
    Etcd,
}

/// A server program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The implementation.
    pub kind: Kind,
    /// The path of the binary.
    pub path: PathBuf,
}

impl Program {
    /// Returns Portunus; builds it if necessary.
    ///
    /// # Panics
    /// If it does not build.
    #[must_use]
    pub fn portunus() -> Program {
        static PATH: LazyLock<PathBuf> = LazyLock::new(find_or_build_portunus);
        Program {
            kind: Kind::Portunus,
            path: PATH.clone(),
        }
    }

    /// Returns Go's etcd, or prints a notice that the test is skipped; see [`find_for_test`].
    #[must_use]
    pub fn etcd(test: &str) -> Option<Program> {
        Some(Program {
            kind: Kind::Etcd,
            path: find_for_test(Tool::Etcd, test)?,
        })
    }

    /// Returns the earlier versions of Go's etcd that were built, and prints a notice for each
    /// other one; see [`EARLIER_VERSIONS`].
    #[must_use]
    pub fn earlier_etcds(test: &str) -> Vec<Program> {
        let versions = EARLIER_VERSIONS.iter();
        let paths = versions.filter_map(|version| find_earlier_etcd(version, test));
        let programs = paths.map(|path| Program {
            kind: Kind::Etcd,
            path,
        });
        programs.collect()
    }

    /// Returns a command without the environment variables of etcd.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        command
    }
}

fn find_or_build_portunus() -> PathBuf {
    for variable in [SERVER_VARIABLE, CARGO_VARIABLE] {
        if let Some(path) = std::env::var_os(variable) {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "{variable} names no file: {path:?}");
            return path;
        }
    }
    let (target_dir, profile_dir) = target_dirs();
    // One test process builds; the others wait and find the binary.
    let lock = target_dir.join("portunus-testkit.lock");
    let lock = File::create(&lock).unwrap_or_else(|error| panic!("{lock:?}: {error}"));
    lock.lock().unwrap();
    let binary = profile_dir.join(BINARY);
    if !(is_newer_than_sources(&binary, workspace_root()) && has_test_features(&binary)) {
        build_portunus(&target_dir, &profile_dir);
        assert!(has_test_features(&binary), "{binary:?} was built elsewhere");
    }
    binary
}

fn build_portunus(target_dir: &Path, profile_dir: &Path) {
    let profile = match profile_dir.file_name() {
        Some(name) if name != "debug" => name,
        _ => "dev".as_ref(),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--package", PACKAGE])
        .args(["--test", SERVER_TEST, "--profile"])
        .arg(profile)
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(workspace_root())
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be run");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{PACKAGE} does not build:\n{messages}"
    );
}

/// Returns the target directory of this test and the directory of its profile: the test's program
/// is in `<target>/<profile>/deps`.
fn target_dirs() -> (PathBuf, PathBuf) {
    let own = std::env::current_exe().expect("a process has a program");
    let mut ancestors = own.ancestors().skip(2);
    match (ancestors.next(), ancestors.next()) {
        (Some(profile_dir), Some(target_dir)) => (target_dir.to_owned(), profile_dir.to_owned()),
        _ => panic!("{own:?} is in no target directory: set {SERVER_VARIABLE}"),
    }
}

/// Returns whether the binary is newer than everything that it is made from.
fn is_newer_than_sources(binary: &Path, root: &Path) -> bool {
    let Ok(built) = modified(binary) else {
        return false;
    };
    let mut newest = modified(&root.join("Cargo.lock"));
    newest = newest.and_then(|newest| Ok(newest.max(modified(&root.join("Cargo.toml"))?)));
    for folder in own_crates(root, PACKAGE_FOLDER) {
        let crate_dir = root.join("crates").join(folder);
        newest = newest.and_then(|newest| Ok(newest.max(newest_in(&crate_dir)?)));
    }
    newest.is_ok_and(|newest| newest <= built)
}

/// Returns the folders of a crate and of the crates of this workspace that it depends on.
fn own_crates(root: &Path, folder: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut to_read = vec![folder.to_owned()];
    while let Some(folder) = to_read.pop() {
        let manifest = root.join("crates").join(&folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
        if found.insert(folder) {
            let dependencies = manifest.split("\n[").find_map(|section| {
                section
                    .strip_prefix("dependencies]")
                    .or_else(|| section.strip_prefix("[dependencies]"))
            });
            let dependencies = dependencies.unwrap_or_default().lines();
            let own = dependencies.filter_map(|line| line.strip_prefix("portunus-"));
            to_read.extend(own.filter_map(|line| Some(line.split(['.', ' ']).next()?.to_owned())));
        }
    }
    found
}

/// Returns when the newest file in a directory was changed; tests and benchmarks do not count.
fn newest_in(directory: &Path) -> io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if ["tests", "benches"].iter().any(|name| path.ends_with(name)) {
            continue;
        }
        newest = newest.max(match path.is_dir() {
            true => newest_in(&path)?,
            false => modified(&path)?,
        });
    }
    Ok(newest)
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    path.metadata()?.modified()
}

fn has_test_features(binary: &Path) -> bool {
    let listed = Command::new(binary).args(["gates", "list"]).output();
    listed.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(TEST_FEATURE))
}

/// Returns the root of the repository.
pub(crate) fn workspace_root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn binary_is_stale_when_a_source_of_a_dependency_is_newer() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (path, text) in [
            ("Cargo.lock", ""),
            ("Cargo.toml", ""),
            (
                "crates/server/Cargo.toml",
                "[package]\n\n[dependencies]\nportunus-wal.workspace = true\n\n[dev-dependencies]\nportunus-sim.workspace = true\n",
            ),
            ("crates/server/src/main.rs", ""),
            ("crates/server/tests/start.rs", ""),
            ("crates/wal/Cargo.toml", "[dependencies]\n"),
            ("crates/wal/src/record/mod.rs", ""),
            ("crates/sim/Cargo.toml", ""),
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let binary = root.join("portunus");
        assert!(!is_newer_than_sources(&binary, root));
        File::create(&binary).unwrap();
        assert!(is_newer_than_sources(&binary, root));
        let later = SystemTime::now() + Duration::from_secs(60);
        let touch = |path: &str| {
            let file = File::options().append(true).open(root.join(path)).unwrap();
            file.set_modified(later).unwrap();
        };
        touch("crates/server/tests/start.rs");
        touch("crates/sim/Cargo.toml");
        assert!(is_newer_than_sources(&binary, root));
        touch("crates/wal/src/record/mod.rs");
        assert!(!is_newer_than_sources(&binary, root));
    }

    #[test]
    fn sources_of_the_server_are_those_of_its_dependencies() {
        let folders = own_crates(workspace_root(), PACKAGE_FOLDER);
        for folder in ["server", "consensus", "wal", "gates"] {
            assert!(folders.contains(folder), "{folders:?}");
        }
        for folder in ["ctl", "sim", "testkit"] {
            assert!(!folders.contains(folder), "{folders:?}");
        }
    }
}
