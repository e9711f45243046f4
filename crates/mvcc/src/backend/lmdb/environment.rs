//! One open LMDB file.

use std::{
    ops::{Bound, ControlFlow},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, PutFlags, RoTxn, RwTxn,
    WithoutTls, types,
};
use prost::Message;

use super::{
    LmdbConfig,
    gate::Gate,
    long_keys::{self, LongEntry},
    no_space,
    passed::PassedPages,
};
use crate::backend::{BackendError, Bucket, Change, Sizes, Snapshot, Visit};

type Table = Database<'static, types::Bytes, types::Bytes>;

const LONG_KEYS_TABLE: &str = "long_keys";

/// The ten buckets and the table of long keys.
const TABLES: usize = Bucket::ALL.len() + 1;

/// Whether records sort after all stored ones. They do not when commits are
/// repeated on a copy that may hold some of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Append {
    Yes,
    No,
}

/// When commits are durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// When the commit returns.
    AtCommit,
    /// After an explicit sync. A crash before that leaves no usable file.
    WhenSynced,
}

pub(super) struct Environment {
    env: Env<WithoutTls>,
    tables: [Table; TABLES],
    gate: Gate,
    path: PathBuf,
    pub(super) generation: u64,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Environment {
    pub(super) fn open(
        path: &Path,
        generation: u64,
        config: LmdbConfig,
        durable: Durable,
    ) -> Result<Self, BackendError> {
        let failed = |action| failed(action, path);
        let file_bytes = path.metadata().map_or(0, |file| file.len());
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options
            .map_size(map_bytes_for(config.map_bytes, file_bytes))
            .max_readers(config.snapshots_max)
            .max_dbs(TABLES as u32);
        let flags = match durable {
            Durable::AtCommit => EnvFlags::NO_SUB_DIR,
            Durable::WhenSynced => EnvFlags::NO_SUB_DIR | EnvFlags::NO_SYNC,
        };
        // SAFETY: `NO_SUB_DIR` only means that the path is the file itself. A file under `NO_SYNC`
        // is not usable after a crash, and callers of `WhenSynced` discard it then.
        unsafe { options.flags(flags) };
        // SAFETY: the file is mapped, so no other code may write or truncate it
        // while it is open. It lies in the member's own data directory, which
        // the server locks, and no other code of this process opens it.
        let env = unsafe { options.open(path) }.map_err(failed("open"))?;
        let tables = create_tables(&env).map_err(failed("create the buckets of"))?;
        Ok(Self {
            env,
            tables,
            gate: Gate::default(),
            path: path.to_owned(),
            generation,
        })
    }

    /// Returns the environment with the new path of its file.
    pub(super) fn renamed_to(self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Commits the changes and returns the sizes after the commit.
    pub(super) fn commit(&self, changes: &[Change], append: Append) -> Result<Sizes, BackendError> {
        loop {
            match self.try_commit(changes, append) {
                // Nothing was written: the map had no free page and LMDB aborted the transaction.
                Err(heed::Error::Mdb(MdbError::MapFull)) => self.grow_map()?,
                Err(source) => return Err(self.failed("commit to")(source)),
                Ok(sizes) => return Ok(sizes),
            }
        }
    }

    /// Commits once. Measures inside its own transaction: readers may have taken all reader slots,
    /// and a commit must not depend on them.
    fn try_commit(&self, changes: &[Change], append: Append) -> heed::Result<Sizes> {
        let mut txn = self.env.write_txn()?;
        let record_flags = match append {
            Append::Yes => PutFlags::APPEND,
            Append::No => PutFlags::empty(),
        };
        let records = self.table(Bucket::Key);
        let mut encoded = Vec::new();
        for change in changes {
            match change {
                Change::PutRecord { key, record } => {
                    encoded.clear();
                    // A Vec grows as needed, so encoding cannot run out of room.
                    let _ = record.encode(&mut encoded);
                    records.put_with_flags(&mut txn, record_flags, &key.encode(), &encoded)?;
                }
                Change::PutEncodedRecord { key, record } => {
                    records.put_with_flags(&mut txn, record_flags, &key.encode(), record)?;
                }
                Change::DeleteRecord(key) => {
                    records.delete(&mut txn, &key.encode())?;
                }
                Change::Put { bucket, key, value } => self.put(&mut txn, *bucket, key, value)?,
                Change::Delete { bucket, key } => {
                    if key.len() > long_keys::KEY_BYTES_MAX {
                        let place = long_keys::place(*bucket, key);
                        self.long_keys().delete(&mut txn, &place)?;
                    } else {
                        self.table(*bucket).delete(&mut txn, key)?;
                    }
                }
            }
        }
        let in_use_bytes = self.in_use_bytes(&txn)?;
        txn.commit()?;
        Ok(Sizes {
            total_bytes: self.env.real_disk_size()?,
            in_use_bytes,
        })
    }

    fn put(
        &self,
        txn: &mut RwTxn<'_>,
        bucket: Bucket,
        key: &[u8],
        value: &[u8],
    ) -> heed::Result<()> {
        if key.len() > long_keys::KEY_BYTES_MAX {
            let place = long_keys::place(bucket, key);
            self.long_keys()
                .put(txn, &place, &long_keys::pack(key, value))
        } else {
            self.table(bucket).put(txn, key, value)
        }
    }

    pub(super) fn snapshot(this: &Arc<Self>) -> Result<LmdbSnapshot, BackendError> {
        let gate_guard = GateGuard::enter(Arc::clone(this));
        let txn = this.env.clone().static_read_txn();
        Ok(LmdbSnapshot {
            txn: txn.map_err(this.failed("read"))?,
            gate_guard,
        })
    }

    /// Returns the file length and the bytes of pages that hold data.
    pub(super) fn sizes(&self) -> Result<Sizes, BackendError> {
        self.try_sizes().map_err(self.failed("measure"))
    }

    fn try_sizes(&self) -> heed::Result<Sizes> {
        self.gate.enter();
        let measured = self.env.read_txn().and_then(|txn| {
            Ok(Sizes {
                total_bytes: self.env.real_disk_size()?,
                in_use_bytes: self.in_use_bytes(&txn)?,
            })
        });
        self.gate.leave();
        measured
    }

    fn in_use_bytes(&self, txn: &RoTxn<'_, WithoutTls>) -> heed::Result<u64> {
        let mut in_use_bytes = 0;
        for table in &self.tables {
            let stat = table.stat(txn)?;
            let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
            in_use_bytes += pages as u64 * u64::from(stat.page_size);
        }
        Ok(in_use_bytes)
    }

    /// Writes a copy without free pages. The map does not move meanwhile.
    pub(super) fn copy_compacted(this: &Arc<Self>, target: &Path) -> Result<(), BackendError> {
        let _gate_guard = GateGuard::enter(Arc::clone(this));
        let copied = this
            .env
            .copy_to_path(target, heed::CompactionOption::Enabled)
            .and_then(|file| Ok(file.sync_all()?));
        copied.map_err(this.failed("copy"))
    }

    /// Returns a function that syncs what is committed when it is called, from any thread; commits
    /// may continue.
    pub(super) fn sync_later(&self) -> impl FnOnce() -> Result<(), BackendError> + Send + use<> {
        let env = self.env.clone();
        let failed = self.failed("sync");
        move || env.force_sync().map_err(failed)
    }

    fn grow_map(&self) -> Result<(), BackendError> {
        let map_bytes = self.env.info().map_size;
        let exhausted = || BackendError::MapExhausted {
            path: self.path.clone(),
            map_bytes,
        };
        let doubled = map_bytes.checked_mul(2).ok_or_else(exhausted)?;
        self.gate.while_empty(|| {
            // SAFETY: no transaction is open: this thread's was dropped when
            // the map was full, only one commit runs at a time, and all read
            // transactions enter the gate.
            unsafe { self.env.resize(doubled) }.map_err(|_| exhausted())
        })
    }

    fn table(&self, bucket: Bucket) -> &Table {
        &self.tables[bucket as usize]
    }

    fn long_keys(&self) -> &Table {
        &self.tables[Bucket::ALL.len()]
    }

    fn failed(&self, action: &'static str) -> impl Fn(heed::Error) -> BackendError + use<> {
        failed(action, &self.path)
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(heed::Error) -> BackendError + use<> {
    let path = path.to_owned();
    move |source| {
        let path = path.clone();
        match no_space::is_no_space(&source, || no_space::free_bytes(&path)) {
            // LMDB's own error may be a misleading `EIO`.
            true => BackendError::NoSpace { action, path },
            false => BackendError::Lmdb {
                action,
                path,
                source,
            },
        }
    }
}

fn create_tables(env: &Env<WithoutTls>) -> heed::Result<[Table; TABLES]> {
    let names: [&str; TABLES] = std::array::from_fn(|index| {
        Bucket::ALL
            .get(index)
            .map_or(LONG_KEYS_TABLE, |bucket| bucket.name())
    });
    let created = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        // Filled in the order of names; `?` ends the loop at the first error.
        let first = opener.create_database(txn, Some(names[0]))?;
        let mut tables = [first; TABLES];
        for (table, name) in tables.iter_mut().zip(names).skip(1) {
            *table = opener.create_database(txn, Some(name))?;
        }
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
    })?;
    match created {
        CommitOrAbort::Commit(tables) => Ok(tables),
        CommitOrAbort::Abort(()) => Err(heed::Error::Mdb(MdbError::BadTxn)),
    }
}

/// Returns twice the file size, at least `wanted`, in whole MiB.
fn map_bytes_for(wanted: usize, file_bytes: u64) -> usize {
    const STEP: usize = 1 << 20;
    let needed = usize::try_from(file_bytes.saturating_mul(2)).unwrap_or(usize::MAX / 4);
    wanted.max(needed).max(STEP).next_multiple_of(STEP)
}

/// Keeps the gate entered until dropped.
struct GateGuard(Arc<Environment>);

impl GateGuard {
    fn enter(environment: Arc<Environment>) -> Self {
        environment.gate.enter();
        Self(environment)
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

/// A read transaction that keeps its environment open.
pub(super) struct LmdbSnapshot {
    // Dropped first: the gate may be left only after the transaction has ended.
    txn: RoTxn<'static, WithoutTls>,
    gate_guard: GateGuard,
}

impl LmdbSnapshot {
    fn environment(&self) -> &Environment {
        &self.gate_guard.0
    }

    fn try_scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> heed::Result<()> {
        let mut long_entries = self.long_entries(bucket, from)?.into_iter().peekable();
        let table = self.environment().table(bucket);
        let start = match from {
            // LMDB rejects an empty key, also in a search.
            [] => Bound::Unbounded,
            from => Bound::Included(from),
        };
        let bounds = (start, Bound::Unbounded);
        let mut passed_pages = PassedPages::none();
        for entry in table.range(&self.txn, &bounds)? {
            let (key, value) = entry?;
            while let Some(long) = long_entries.next_if(|long| *long.key < *key) {
                if visit(&long.key, &long.value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            if visit(key, value) == ControlFlow::Break(()) {
                return Ok(());
            }
            // SAFETY: a read transaction's entries are in the map, which stays
            // in place while the transaction is open. `WRITEMAP` is off, so the
            // map is read-only.
            unsafe { passed_pages.passed(value) };
        }
        for long in long_entries {
            if visit(&long.key, &long.value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn long_entries(&self, bucket: Bucket, from: &[u8]) -> heed::Result<Vec<LongEntry>> {
        let mut entries = Vec::new();
        let table = self.environment().long_keys();
        for entry in table.prefix_iter(&self.txn, &[bucket as u8])? {
            let (_, packed) = entry?;
            let entry = LongEntry::unpack(packed).ok_or(heed::Error::Mdb(MdbError::Corrupted))?;
            if *entry.key >= *from {
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(entries)
    }

    fn try_get(&self, bucket: Bucket, key: &[u8]) -> heed::Result<Option<Bytes>> {
        let environment = self.environment();
        if key.len() > long_keys::KEY_BYTES_MAX {
            let place = long_keys::place(bucket, key);
            let Some(packed) = environment.long_keys().get(&self.txn, &place)? else {
                return Ok(None);
            };
            let entry = LongEntry::unpack(packed).ok_or(heed::Error::Mdb(MdbError::Corrupted))?;
            return Ok((*entry.key == *key).then_some(entry.value));
        }
        let value = environment.table(bucket).get(&self.txn, key)?;
        Ok(value.map(Bytes::copy_from_slice))
    }
}

impl Snapshot for LmdbSnapshot {
    fn get(&self, bucket: Bucket, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        self.try_get(bucket, key)
            .map_err(self.environment().failed("read"))
    }

    fn scan(&self, bucket: Bucket, from: &[u8], visit: &mut Visit<'_>) -> Result<(), BackendError> {
        self.try_scan(bucket, from, visit)
            .map_err(self.environment().failed("read"))
    }
}
