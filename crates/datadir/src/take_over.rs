//! Takes over the data of etcd in the directory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::data_dir::{DataDir, DataDirError};
use crate::import::{self, ImportError};

impl DataDir {
    /// Copies the data of etcd to a backend, if there is any and etcd does not run here. etcd's
    /// files are only renamed, and only after everything in them is durable in the backend; a
    /// crash in between is harmless.
    pub fn take_over(&self) -> Result<(), DataDirError> {
        let snap = self.path.join("member").join("snap");
        let database = snap.join("db");
        if !database.exists() {
            return Ok(());
        }
        let refused = |source| DataDirError::Io {
            path: database.clone(),
            source,
        };
        let importing = |source: ImportError| DataDirError::Import {
            path: self.path.clone(),
            source: Box::new(source),
        };
        let index = import::applied_index(&database).map_err(importing)?;
        if let Some(path) = pending_snapshot(&snap, index).map_err(refused)? {
            return Err(DataDirError::SnapshotPending { path });
        }
        let backend = self.backend();
        if backend.exists() {
            let own = import::backend_index(&backend).map_err(importing)?;
            if index > own {
                return Err(DataDirError::TwoOwners {
                    path: self.path.clone(),
                    etcd: index,
                    own,
                });
            }
        } else {
            tracing::info!(path = %database.display(), index, "taking over the data of etcd");
            let imported = import::import_taken_over(&database, &backend).map_err(importing)?;
            tracing::info!(entries = imported.entries, "the data of etcd is copied");
        }
        let aside = free_name(&snap);
        fs::rename(&snap, &aside).map_err(refused)?;
        tracing::info!(
            path = %aside.display(),
            "etcd's files are set aside; delete them when you are sure not to go back"
        );
        Ok(())
    }
}

/// Returns a snapshot beyond `index` that etcd received and did not install.
fn pending_snapshot(snap: &Path, index: u64) -> io::Result<Option<PathBuf>> {
    for file in fs::read_dir(snap)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let received = name
            .and_then(|name| name.strip_suffix(".snap.db"))
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        if received.is_some_and(|received| received > index) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Returns a free name for etcd's files: `snap.imported`, or with a number if that is taken.
fn free_name(snap: &Path) -> PathBuf {
    let first = snap.with_extension("imported");
    let numbered = (2..).map(|number: u32| snap.with_extension(format!("imported-{number}")));
    // The first that does not exist; the numbers never run out.
    std::iter::once(first.clone())
        .chain(numbered)
        .find(|path| !path.exists())
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_no_etcd_database_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(dir.path()).unwrap();
        data_dir.take_over().unwrap();
        let snap = dir.path().join("member/snap");
        fs::create_dir_all(&snap).unwrap();
        fs::write(snap.join("db"), b"no database").unwrap();
        assert!(matches!(
            data_dir.take_over(),
            Err(DataDirError::Import { .. })
        ));
        assert_eq!(fs::read(snap.join("db")).unwrap(), b"no database");
        assert!(!data_dir.backend().exists());
    }

    #[test]
    fn snapshot_that_is_not_installed_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("000000000000000a.snap.db"), b"").unwrap();
        fs::write(
            dir.path().join("0000000000000002-000000000000000f.snap"),
            b"",
        )
        .unwrap();
        assert!(pending_snapshot(dir.path(), 9).unwrap().is_some());
        assert!(pending_snapshot(dir.path(), 10).unwrap().is_none());
    }
}
