//! Copies a bbolt file, as etcd stores and sends it, into a backend.
//!
//! Used when a data directory of etcd is taken over and when a leader sends its snapshot, from
//! the stored file or while it arrives. The buckets are etcd's, so this is a copy: record by
//! record, in order, with bounded memory. The result gets its name only when it is complete and
//! durable; a failed import leaves nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portunus_bolt::{OpenError, ReadError, Reader, StreamError, StreamReader};
use portunus_mvcc::backend::{
    Backend, BackendError, Bucket, Change, Lmdb, LmdbConfig, LmdbLoad, meta,
};
use portunus_mvcc::revision::RecordKey;
use portunus_proto::mvccpb::KeyValue;
use prost::Message;
use thiserror::Error;

use portunus_statemachine::membership::{CLUSTER_PARAMS, CLUSTER_PARAMS_HISTORY};

/// Bytes copied per commit.
const COMMIT_BYTES: usize = 8 * 1024 * 1024;

/// Memory of an entry besides its content.
const ENTRY_BYTES: usize = 128;

/// The time between two log lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Why a file could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ImportError {
    /// The file is no bbolt file.
    #[error("{} cannot be opened as a database of etcd", path.display())]
    Open { path: PathBuf, source: OpenError },
    /// The file is damaged.
    #[error("{} is damaged: restore it from a snapshot", path.display())]
    Read { path: PathBuf, source: ReadError },
    /// A record of the history, a user or a role cannot be read.
    #[error("{} has a record that cannot be read: restore it from a snapshot", path.display())]
    Record { path: PathBuf },
    /// The stream is truncated or damaged.
    #[error("the database of the sender could not be taken")]
    Stream(#[from] StreamError),
    /// A record of the history, a user or a role in the stream cannot be read.
    #[error("the database of the sender has a record that cannot be read")]
    ArrivingRecord,
    /// The applied index is below that of the raft message.
    #[error("the snapshot holds index {applied}, not {index}")]
    TooOld { applied: u64, index: u64 },
    /// The new backend could not be written.
    #[error("the imported data could not be written")]
    Backend(#[from] BackendError),
    /// The file system returned an error.
    #[error("{} could not be written", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// The number of entries of all buckets.
    pub entries: u64,
}

/// Copies the bbolt file `database` into a new backend at `backend`, which must not exist.
pub fn import(database: &Path, backend: &Path) -> Result<Imported, ImportError> {
    import_entries(database, backend, |_, _| true)
}

/// Copies the database of a directory that is taken over, without decisions about cluster
/// features: a database in etcd's layout is that of an etcd member, which does not follow them,
/// or was restored from a snapshot of another cluster.
pub fn import_taken_over(database: &Path, backend: &Path) -> Result<Imported, ImportError> {
    import_entries(database, backend, |bucket, key| {
        bucket != Bucket::Cluster || (key != CLUSTER_PARAMS && key != CLUSTER_PARAMS_HISTORY)
    })
}

fn import_entries(
    database: &Path,
    backend: &Path,
    is_taken: impl Fn(Bucket, &[u8]) -> bool,
) -> Result<Imported, ImportError> {
    let damaged = |source| ImportError::Read {
        path: database.to_owned(),
        source,
    };
    let reader = open(database)?;
    fill(backend, |filling| {
        for bucket in Bucket::ALL {
            let from = reader.bucket(bucket.name().as_bytes()).map_err(damaged)?;
            for pair in from.iter().flat_map(portunus_bolt::Bucket::iter) {
                let (key, value) = pair.map_err(damaged)?;
                if !is_taken(bucket, key) {
                    continue;
                }
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                if !filling.entry(bucket, key, value)? {
                    return Err(ImportError::Record {
                        path: database.to_owned(),
                    });
                }
            }
        }
        Ok(())
    })
}

/// Copies a database that arrives into a backend at `backend`, which it replaces. Nothing of it
/// is kept if it is truncated or damaged, or if its applied index is below `index`.
pub fn import_stream<R: Read>(
    arriving: StreamReader<R>,
    backend: &Path,
    index: u64,
) -> Result<Imported, ImportError> {
    fill(backend, |filling| {
        let mut applied = 0;
        arriving.read(|name, key, value| {
            let Some(bucket) = Bucket::ALL
                .into_iter()
                .find(|bucket| bucket.name().as_bytes() == name)
            else {
                // As from a file: only etcd's ten buckets are copied.
                return Ok(());
            };
            if bucket == Bucket::Meta && *key == *meta::CONSISTENT_INDEX.as_bytes() {
                applied = big_endian(&value);
            }
            let is_readable = filling.entry(bucket, key, value)?;
            is_readable.then_some(()).ok_or(ImportError::ArrivingRecord)
        })?;
        if applied < index {
            return Err(ImportError::TooOld { applied, index });
        }
        Ok(())
    })
}

/// Creates a backend from what `entries` adds, and names it when it is complete and durable.
fn fill(
    backend: &Path,
    entries: impl FnOnce(&mut Filling) -> Result<(), ImportError>,
) -> Result<Imported, ImportError> {
    let part = backend.with_extension("part");
    remove_directory(&part)?;
    let filled = Filling::create(&part).and_then(|mut filling| {
        entries(&mut filling)?;
        filling.finish()
    });
    if filled.is_err() {
        // Leftovers are removed by the next attempt or the next start.
        let _ = remove_directory(&part);
    }
    let imported = filled?;
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| ImportError::File { path, source }
    };
    remove_directory(backend)?;
    fs::rename(&part, backend).map_err(refused(backend))?;
    let parent = backend.parent().unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(refused(parent))?;
    Ok(imported)
}

fn remove_directory(path: &Path) -> Result<(), ImportError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(ImportError::File {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Returns the applied index in a bbolt file; 0 if there is none.
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

/// Returns the applied index in a backend; 0 if there is none.
pub fn backend_index(backend: &Path) -> Result<u64, ImportError> {
    let snapshot = Lmdb::open(backend, LmdbConfig::default())?.snapshot()?;
    let value = snapshot.get(Bucket::Meta, meta::CONSISTENT_INDEX.as_bytes())?;
    Ok(value.map_or(0, |value| big_endian(&value)))
}

/// Decodes a number as etcd writes it, in eight bytes; 0 for anything else.
fn big_endian(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_be_bytes)
}

fn open(database: &Path) -> Result<Reader, ImportError> {
    Reader::open(database).map_err(|source| ImportError::Open {
        path: database.to_owned(),
        source,
    })
}

/// A backend under construction.
struct Filling {
    load: LmdbLoad,
    changes: Vec<Change>,
    bytes: usize,
    entries: u64,
    last_word: Instant,
}

impl Filling {
    fn create(path: &Path) -> Result<Filling, ImportError> {
        Ok(Filling {
            load: LmdbLoad::create(path)?,
            changes: Vec::new(),
            bytes: 0,
            entries: 0,
            last_word: Instant::now(),
        })
    }

    /// Adds an entry. False if it belongs to the history and cannot be read.
    fn entry(&mut self, bucket: Bucket, key: Bytes, value: Bytes) -> Result<bool, BackendError> {
        self.entries += 1;
        self.bytes += key.len() + value.len() + ENTRY_BYTES;
        let change = match bucket {
            Bucket::Key => {
                let place = RecordKey::decode(&key);
                let Some(key) = place.filter(|_| KeyValue::decode(value.clone()).is_ok()) else {
                    return Ok(false);
                };
                Change::PutEncodedRecord { key, record: value }
            }
            bucket if !portunus_auth::is_readable(bucket, &key, &value) => return Ok(false),
            bucket => Change::Put { bucket, key, value },
        };
        self.changes.push(change);
        if self.bytes >= COMMIT_BYTES {
            self.commit()?;
        }
        Ok(true)
    }

    fn commit(&mut self) -> Result<(), BackendError> {
        self.load.add(&self.changes)?;
        self.changes.clear();
        self.bytes = 0;
        if self.last_word.elapsed() >= PROGRESS_INTERVAL {
            self.last_word = Instant::now();
            tracing::info!(entries = self.entries, "copying data of etcd");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.commit()?;
        self.load.finish()?;
        Ok(Imported {
            entries: self.entries,
        })
    }
}
