//! The directory of a development server.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use thiserror::Error;

use crate::flags::DevFlags;

/// A directory that only its owner can read.
pub enum Directory {
    /// Kept at the end.
    Kept(PathBuf),
    /// Removed at the end.
    Ephemeral(TempDir),
}

/// Why there is no directory.
#[derive(Debug, Error)]
#[error("cannot create the directory {}: give another with --data-dir", path.display())]
pub struct DirectoryError {
    path: PathBuf,
    source: io::Error,
}

impl Directory {
    /// Creates the directory unless it is there.
    pub fn open(flags: &DevFlags) -> Result<Directory, DirectoryError> {
        if flags.ephemeral {
            let created = tempfile::Builder::new().prefix("portunus-dev-").tempdir();
            return created
                .map(Directory::Ephemeral)
                .map_err(|source| DirectoryError {
                    path: std::env::temp_dir(),
                    source,
                });
        }
        let path = flags.data_dir.clone();
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        match created {
            Ok(()) => Ok(Directory::Kept(path)),
            Err(source) => Err(DirectoryError { path, source }),
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Directory::Kept(path) => path,
            Directory::Ephemeral(directory) => directory.path(),
        }
    }
}
