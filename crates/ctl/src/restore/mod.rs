//! Makes a data directory out of a snapshot, as the first member of a new cluster.
//!
//! `snapshot restore` calls it. The result has etcd's layout, so that etcd starts on it and
//! Portunus imports it:
//!
//! ```text
//!  <data-dir>/member/wal/…wal                  identity, one AddNode per member, a mark
//!  <data-dir>/member/snap/…-….snap             the same for etcd before 3.7
//!  <data-dir>/member/snap/db                   the keys; membership replaced; written last
//! ```
//!
//! The old cluster's members, removed members, downgrade job and parameters are dropped, so that
//! its members and those of the new cluster never take each other for their own. Only its version
//! stays, as with etcdutl. A restore never writes into a directory that is not empty, and one that
//! was interrupted leaves a directory without `db`, which no server takes for a store.

mod cluster;
mod database;
mod log;
mod v2_store;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use portunus_bolt::snapshot::{VerifyError, verify_file};

pub use cluster::InitialCluster;
pub use database::RevisionBump;

use database::DatabaseError;
use log::LogError;

/// The options of a restore.
#[derive(Debug)]
pub struct RestoreOptions {
    /// The snapshot.
    pub snapshot: PathBuf,
    /// The data directory to create.
    pub data_dir: PathBuf,
    /// The directory of the log, if not in the data directory.
    pub wal_dir: Option<PathBuf>,
    /// The members of the new cluster, and which of them is restored.
    pub cluster: InitialCluster,
    /// Take a file without digest, or with a wrong one.
    pub skip_hash_check: bool,
    /// Move the revision forward and declare everything before it compacted.
    pub revision_bump: Option<RevisionBump>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// There is something in the way.
    #[error("data-dir {0:?} not empty or could not be read")]
    DataDirInUse(PathBuf),
    /// There is something in the way.
    #[error("wal-dir {0:?} exists")]
    WalDirExists(PathBuf),
    /// The snapshot has no digest.
    #[error("snapshot missing hash but --skip-hash-check=false")]
    NoDigest,
    /// The snapshot's digest is wrong, or it cannot be read.
    #[error("verification of the snapshot failed")]
    Snapshot(#[source] VerifyError),
    /// The keys could not be written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A directory could not be made or synced.
    #[error("cannot prepare {path:?}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Restores a snapshot; `progress` gets the bytes copied so far and all bytes.
pub fn restore(
    options: &RestoreOptions,
    progress: impl FnMut(u64, u64),
) -> Result<(), RestoreError> {
    refuse_occupied(&options.data_dir)?;
    if let Some(wal_dir) = options.wal_dir.as_ref().filter(|dir| dir.exists()) {
        return Err(RestoreError::WalDirExists(wal_dir.clone()));
    }
    check_digest(&options.snapshot, options.skip_hash_check)?;

    let member_dir = options.data_dir.join("member");
    let snap_dir = member_dir.join("snap");
    let wal_dir = match &options.wal_dir {
        Some(dir) => dir.clone(),
        None => member_dir.join("wal"),
    };
    make_private_dir(&snap_dir)?;
    make_private_dir(&wal_dir)?;

    let position = log::write(&wal_dir, &snap_dir, &options.cluster)?;
    database::write(
        &options.snapshot,
        &snap_dir.join("db"),
        &options.cluster,
        position,
        options.revision_bump,
        progress,
    )?;
    for dir in [&snap_dir, &member_dir, &options.data_dir] {
        sync_dir(dir)?;
    }
    Ok(())
}

fn refuse_occupied(data_dir: &Path) -> Result<(), RestoreError> {
    let empty = match fs::read_dir(data_dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if empty {
        return Ok(());
    }
    Err(RestoreError::DataDirInUse(data_dir.to_owned()))
}

fn check_digest(snapshot: &Path, skip: bool) -> Result<(), RestoreError> {
    match verify_file(snapshot) {
        Ok(_) => Ok(()),
        // Skipping the hash check does not help with a file that cannot be read.
        Err(error @ VerifyError::Io(_)) => Err(RestoreError::Snapshot(error)),
        Err(_) if skip => Ok(()),
        Err(VerifyError::NoDigest { .. }) => Err(RestoreError::NoDigest),
        Err(error) => Err(RestoreError::Snapshot(error)),
    }
}

fn make_private_dir(path: &Path) -> Result<(), RestoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| RestoreError::Directory {
        path: path.to_owned(),
        source,
    })
}

fn sync_dir(path: &Path) -> Result<(), RestoreError> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|source| RestoreError::Directory {
        path: path.to_owned(),
        source,
    })
}
