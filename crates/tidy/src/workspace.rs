//! The files of the repository, read once, and the part of a crate that each path is in.
//!
//! The only module that reads the disk. It takes the tracked files from git, so that scratch
//! files of a developer are not checked; in a source tarball without git it walks the tree
//! and skips build output.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use walkdir::WalkDir;

use crate::finding::Finding;
use crate::rust_file::{self, RustFile};

/// A tracked file that is valid UTF-8.
#[derive(Debug, Clone)]
pub struct TextFile {
    /// Path from the root of the repository, with forward slashes.
    pub path: String,
    /// The whole content.
    pub text: String,
}

impl TextFile {
    /// Creates a file from memory, for tests of the rules.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }
}

/// Every tracked path, and the content of those that are text.
#[derive(Debug)]
pub struct Workspace {
    /// All tracked paths, sorted, binary files included.
    pub paths: Vec<String>,
    /// The text files among them, in the same order.
    pub files: Vec<TextFile>,
}

impl Workspace {
    /// Reads the repository whose root folder is `root`.
    pub fn load(root: &Path) -> io::Result<Self> {
        let mut paths = match tracked_by_git(root) {
            Some(paths) => paths,
            None => found_by_walking(root)?,
        };
        paths.sort();
        paths.dedup();
        // A tracked file may be deleted in the work tree and the deletion not staged yet.
        paths.retain(|path| root.join(path).is_file());
        let mut files = Vec::new();
        for path in &paths {
            if let Ok(text) = String::from_utf8(fs::read(root.join(path))?) {
                files.push(TextFile {
                    path: path.clone(),
                    text,
                });
            }
        }
        Ok(Self { paths, files })
    }

    /// Returns the content of one file, if it is tracked and text.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        let found = self.files.iter().find(|file| file.path == path)?;
        Some(&found.text)
    }

    /// Returns the manifests of the crates, in path order.
    #[must_use]
    pub fn crate_manifests(&self) -> Vec<&TextFile> {
        let is_manifest = |file: &&TextFile| {
            crate_folder(&file.path)
                .is_some_and(|folder| file.path == format!("crates/{folder}/Cargo.toml"))
        };
        self.files.iter().filter(is_manifest).collect()
    }

    /// Returns every folder directly inside `crates/`, sorted.
    #[must_use]
    pub fn crate_folders(&self) -> Vec<String> {
        let mut folders: Vec<_> = self
            .paths
            .iter()
            .filter_map(|path| crate_folder(path))
            .map(str::to_owned)
            .collect();
        folders.dedup();
        folders
    }

    /// Parses every Rust file of every crate. Files that exist only under `#[cfg(test)]` are
    /// marked in a second pass, once all files are known.
    #[must_use]
    pub fn rust_files(&self) -> (Vec<RustFile>, Vec<Finding>) {
        let mut parsed = Vec::new();
        let mut findings = Vec::new();
        for file in &self.files {
            if area(&file.path) == Area::Elsewhere || !file.path.ends_with(".rs") {
                continue;
            }
            match RustFile::parse(&file.path, &file.text) {
                Ok(rust) => parsed.push(rust),
                Err(finding) => findings.push(finding),
            }
        }
        rust_file::mark_test_only(&mut parsed);
        (parsed, findings)
    }
}

/// The part of a crate that a path belongs to; the rules differ between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// `crates/<name>/src/`: shipped code.
    Src,
    /// `crates/<name>/tests/`.
    Tests,
    /// `crates/<name>/benches/`.
    Benches,
    /// `crates/<name>/examples/`.
    Examples,
    /// `crates/<name>/build.rs`.
    BuildScript,
    /// Not Rust code of a crate.
    Elsewhere,
}

/// Returns the part of a crate that `path` is in.
#[must_use]
pub fn area(path: &str) -> Area {
    let mut parts = path.split('/');
    if parts.next() != Some("crates") || parts.next().is_none() {
        return Area::Elsewhere;
    }
    match (parts.next(), parts.next()) {
        (Some("src"), Some(_)) => Area::Src,
        (Some("tests"), Some(_)) => Area::Tests,
        (Some("benches"), Some(_)) => Area::Benches,
        (Some("examples"), Some(_)) => Area::Examples,
        (Some("build.rs"), None) => Area::BuildScript,
        _ => Area::Elsewhere,
    }
}

/// Returns the folder below `crates/` that `path` is in.
#[must_use]
pub fn crate_folder(path: &str) -> Option<&str> {
    let (folder, _) = path.strip_prefix("crates/")?.split_once('/')?;
    Some(folder)
}

/// Returns the tracked files; `None` if git is missing, fails, or lists another repository: a
/// tarball unpacked inside another checkout would otherwise look empty and pass every rule.
fn tracked_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let paths: Vec<_> = String::from_utf8(output.stdout)
        .ok()?
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    paths
        .iter()
        .any(|path| path == "Cargo.toml")
        .then_some(paths)
}

fn found_by_walking(root: &Path) -> io::Result<Vec<String>> {
    let is_output = |entry: &walkdir::DirEntry| {
        entry.file_type().is_dir()
            && entry.depth() > 0
            && matches!(entry.file_name().to_str(), Some("target" | ".git"))
    };
    let mut paths = Vec::new();
    for entry in WalkDir::new(root)
        .into_iter()
        .filter_entry(|entry| !is_output(entry))
    {
        let entry = entry?;
        if entry.file_type().is_file() {
            paths.push(relative(root, entry.path()));
        }
    }
    Ok(paths)
}

fn relative(root: &Path, path: &Path) -> String {
    let below: PathBuf = path.strip_prefix(root).unwrap_or(path).into();
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_follows_from_the_path() {
        assert_eq!(area("crates/wal/src/lib.rs"), Area::Src);
        assert_eq!(area("crates/wal/src/bin/tool.rs"), Area::Src);
        assert_eq!(area("crates/wal/tests/replay.rs"), Area::Tests);
        assert_eq!(area("crates/wal/benches/append.rs"), Area::Benches);
        assert_eq!(area("crates/wal/examples/read.rs"), Area::Examples);
        assert_eq!(area("crates/wal/build.rs"), Area::BuildScript);
        assert_eq!(area("crates/wal/Cargo.toml"), Area::Elsewhere);
        assert_eq!(area("docs/requirements.md"), Area::Elsewhere);
    }

    #[test]
    fn crate_folder_is_the_folder_below_crates() {
        assert_eq!(crate_folder("crates/wal/src/lib.rs"), Some("wal"));
        assert_eq!(crate_folder("crates/README.md"), None);
        assert_eq!(crate_folder("docs/a.md"), None);
    }

    #[test]
    fn walking_skips_build_output_and_git() {
        let root = std::env::temp_dir().join(format!("portunus-tidy-walk-{}", std::process::id()));
        for folder in ["crates/a/src", "target/debug", ".git", ".ci"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in [
            "crates/a/src/lib.rs",
            "target/debug/x.rs",
            ".git/config",
            ".ci/run",
        ] {
            fs::write(root.join(file), "x").unwrap();
        }
        let mut found = found_by_walking(&root).unwrap();
        found.sort();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [".ci/run", "crates/a/src/lib.rs"]);
    }
}
