//! The hash of the key history in a database file, as a member computes it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portunus_datadir::import::import;
use portunus_mvcc::backend::{Lmdb, LmdbConfig};
use portunus_mvcc::{Config, Hooks, KvHash, Store};

use super::{OfflineError, lock_database, open_data_dir, require_path};

/// Returns the hash up to a revision (0: the newest) of a database file of etcd or a snapshot, or of
/// the data directory of a stopped member of Portunus.
///
/// A file is copied to a temporary directory first: it is not changed, and the store reads its own
/// format only.
pub fn hash_kv(path: &Path, revision: i64, timeout: Duration) -> Result<KvHash, OfflineError> {
    require_path(path)?;
    if path.is_dir() {
        let locked = open_data_dir(path, timeout)?;
        return hash_of_backend(&locked.backend(), revision);
    }
    let failed = |source| OfflineError::File {
        path: path.to_owned(),
        source,
    };
    let _lock = lock_database(path, timeout)?;
    let copy = tempfile::tempdir().map_err(failed)?;
    let backend = copy.path().join("backend");
    import(path, &backend).map_err(|source| OfflineError::Import {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    hash_of_backend(&backend, revision)
}

fn hash_of_backend(backend: &Path, revision: i64) -> Result<KvHash, OfflineError> {
    let backend = Lmdb::open(backend, LmdbConfig::default())?;
    let (store, _) = Store::open(Arc::new(backend), Config::default(), Hooks::default())?;
    Ok(store.reader().hash_kv(revision)?)
}
