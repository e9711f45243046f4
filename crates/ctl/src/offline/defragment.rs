//! Releases the unused space of the database of a stopped member.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use portunus_bolt::{BulkOptions, FileWriter, Reader};
use portunus_mvcc::backend::{Backend, Lmdb, LmdbConfig};

use super::{OfflineError, lock_database, open_data_dir, require_path};

/// Bytes of the database before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defragmented {
    /// Bytes of the file before.
    pub bytes_before: u64,
    /// Bytes of the file now.
    pub bytes_after: u64,
}

/// Defragments the data directory of a stopped member, of Portunus or of etcd; `progress` gets the
/// bytes copied so far and all bytes.
pub fn defragment(
    data_dir: &Path,
    timeout: Duration,
    progress: impl FnMut(u64, u64),
) -> Result<Defragmented, OfflineError> {
    let database = data_dir.join("member").join("snap").join("db");
    // A directory without any data is reported as etcdutl does.
    if database.exists() || !data_dir.join("member").is_dir() {
        require_path(&database)?;
        return defragment_etcd(&database, timeout, progress);
    }
    let locked = open_data_dir(data_dir, timeout)?;
    let backend = Lmdb::open(&locked.backend(), LmdbConfig::default())?;
    let bytes_before = backend.sizes().total_bytes;
    backend.defragment()?;
    Ok(Defragmented {
        bytes_before,
        bytes_after: backend.sizes().total_bytes,
    })
}

/// Writes a database of etcd anew beside its name, and renames it when it is whole and durable.
fn defragment_etcd(
    database: &Path,
    timeout: Duration,
    progress: impl FnMut(u64, u64),
) -> Result<Defragmented, OfflineError> {
    let failed = |source| OfflineError::File {
        path: database.to_owned(),
        source,
    };
    let _lock = lock_database(database, timeout)?;
    let bytes_before = database.metadata().map_err(failed)?.len();
    let part = database.with_extension("tmp");
    let copied = copy(database, &part, progress);
    let bytes_after = copied?;
    fs::rename(&part, database).map_err(failed)?;
    if let Some(dir) = database.parent() {
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(failed)?;
    }
    Ok(Defragmented {
        bytes_before,
        bytes_after,
    })
}

/// Copies every bucket into a new file, durably; returns its size.
fn copy(
    database: &Path,
    part: &Path,
    mut progress: impl FnMut(u64, u64),
) -> Result<u64, OfflineError> {
    let path = || database.to_owned();
    let damaged = |source| OfflineError::Read {
        path: path(),
        source,
    };
    let unwritten = |source| OfflineError::Write {
        path: part.to_owned(),
        source,
    };
    let failed = |source| OfflineError::File {
        path: part.to_owned(),
        source,
    };
    let reader = Reader::open(database).map_err(|source| OfflineError::Open {
        path: path(),
        source,
    })?;
    let options = BulkOptions::with_page_bytes(reader.meta().page_bytes).map_err(|source| {
        OfflineError::Pages {
            path: path(),
            source,
        }
    })?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(part)
        .map_err(failed)?;
    // A second defragmentation at the same time must not write to the same file.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(OfflineError::InUse {
            path: part.to_owned(),
        });
    }
    // What an interrupted one has left.
    file.set_len(0).map_err(failed)?;
    let mut writer = FileWriter::new(options, BufWriter::new(file)).map_err(unwritten)?;
    let bytes_all = reader.database_bytes();
    let mut bytes_copied = 0;
    for bucket in reader.buckets() {
        let (name, bucket) = bucket.map_err(damaged)?;
        writer.bucket(name).map_err(unwritten)?;
        for pair in bucket.iter() {
            let (key, value) = pair.map_err(damaged)?;
            writer.entry(key, value).map_err(unwritten)?;
            bytes_copied += (key.len() + value.len()) as u64;
            progress(bytes_copied, bytes_all);
        }
    }
    let (out, layout) = writer.finish().map_err(unwritten)?;
    let file = out
        .into_inner()
        .map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(layout.file_bytes())
}
