//! A bbolt file, as etcd keeps and sends it, becomes a backend.
//!
//! Used when a data directory of etcd is taken over. The buckets are etcd's, so this is a
//! copy: record by record, in order, with bounded memory. The result appears under its
//! name only when it is whole and durable.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portunus_bolt::{OpenError, ReadError, Reader};
use portunus_mvcc::backend::{Backend, BackendError, Bucket, Change, Lmdb, LmdbConfig, meta};
use portunus_mvcc::revision::RecordKey;
use portunus_proto::mvccpb::KeyValue;
use prost::Message;
use thiserror::Error;

/// Bytes copied per commit.
const COMMIT_BYTES: usize = 8 * 1024 * 1024;

/// What an entry takes in memory besides its content.
const ENTRY_BYTES: usize = 128;

/// Between two lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Why a file could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ImportError {
    /// No bbolt file.
    #[error("{} cannot be opened as a database of etcd", path.display())]
    Open { path: PathBuf, source: OpenError },
    /// Damaged.
    #[error("{} is damaged: restore it from a snapshot", path.display())]
    Read { path: PathBuf, source: ReadError },
    /// A record that is none.
    #[error("{} has a record in its history that cannot be read: restore it from a snapshot", path.display())]
    Record { path: PathBuf },
    /// The new backend.
    #[error("the imported data could not be written")]
    Backend(#[from] BackendError),
    /// The file system.
    #[error("{} could not be written", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Entries of all buckets.
    pub entries: u64,
}

/// Copies the bbolt file `database` into a new backend at `backend`, which must not exist.
pub fn import(database: &Path, backend: &Path) -> Result<Imported, ImportError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| ImportError::File { path, source }
    };
    let reader = open(database)?;
    let part = backend.with_extension("part");
    match fs::remove_dir_all(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(&part)(error)),
        _ => {}
    }
    let mut copy = Copy {
        lmdb: Lmdb::open(&part, LmdbConfig::default())?,
        changes: Vec::new(),
        bytes: 0,
        entries: 0,
        last_word: Instant::now(),
    };
    for bucket in Bucket::ALL {
        copy.bucket(&reader, bucket, database)?;
    }
    copy.commit()?;
    let imported = Imported {
        entries: copy.entries,
    };
    drop(copy);
    sync_directory(&part).map_err(refused(&part))?;
    fs::rename(&part, backend).map_err(refused(backend))?;
    let parent = backend.parent().unwrap_or(Path::new("."));
    sync_directory(parent).map_err(refused(parent))?;
    Ok(imported)
}

/// How far the log is applied in a bbolt file; 0 where it does not say.
pub fn applied_index(database: &Path) -> Result<u64, ImportError> {
    let damaged = |source| ImportError::Read {
        path: database.to_owned(),
        source,
    };
    let reader = open(database)?;
    let Some(bucket) = reader
        .bucket(Bucket::Meta.name().as_bytes())
        .map_err(damaged)?
    else {
        return Ok(0);
    };
    let value = bucket
        .get(meta::CONSISTENT_INDEX.as_bytes())
        .map_err(damaged)?;
    Ok(value.map_or(0, big_endian))
}

/// The same for a backend.
pub fn backend_index(backend: &Path) -> Result<u64, ImportError> {
    let snapshot = Lmdb::open(backend, LmdbConfig::default())?.snapshot()?;
    let value = snapshot.get(Bucket::Meta, meta::CONSISTENT_INDEX.as_bytes())?;
    Ok(value.map_or(0, |value| big_endian(&value)))
}

/// Eight bytes as etcd writes numbers; 0 for anything else.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn open(database: &Path) -> Result<Reader, ImportError> {
    Reader::open(database).map_err(|source| ImportError::Open {
        path: database.to_owned(),
        source,
    })
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

struct Copy {
    lmdb: Lmdb,
    changes: Vec<Change>,
    bytes: usize,
    entries: u64,
    last_word: Instant,
}

impl Copy {
    fn bucket(
        &mut self,
        reader: &Reader,
        bucket: Bucket,
        database: &Path,
    ) -> Result<(), ImportError> {
        let damaged = |source| ImportError::Read {
            path: database.to_owned(),
            source,
        };
        let Some(from) = reader.bucket(bucket.name().as_bytes()).map_err(damaged)? else {
            return Ok(());
        };
        for pair in from.iter() {
            let (key, value) = pair.map_err(damaged)?;
            let change = match bucket {
                Bucket::Key => record(key, value).ok_or_else(|| ImportError::Record {
                    path: database.to_owned(),
                })?,
                bucket => Change::Put {
                    bucket,
                    key: Bytes::copy_from_slice(key),
                    value: Bytes::copy_from_slice(value),
                },
            };
            self.changes.push(change);
            self.entries += 1;
            self.bytes += key.len() + value.len() + ENTRY_BYTES;
            if self.bytes >= COMMIT_BYTES {
                self.commit()?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), BackendError> {
        self.lmdb.commit(&self.changes)?;
        self.changes.clear();
        self.bytes = 0;
        if self.last_word.elapsed() >= PROGRESS_INTERVAL {
            self.last_word = Instant::now();
            tracing::info!(entries = self.entries, "copying data of etcd");
        }
        Ok(())
    }
}

fn record(key: &[u8], value: &[u8]) -> Option<Change> {
    Some(Change::PutRecord {
        key: RecordKey::decode(key)?,
        record: KeyValue::decode(Bytes::copy_from_slice(value)).ok()?,
    })
}
