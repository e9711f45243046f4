//! A data directory that nobody uses: do its log and its backend tell one story?
//!
//! The log is read and carried out by the model, which shares no code with the server. At
//! the entry the backend says it has applied, the backend must hold exactly what the model
//! holds; and the log may never end before that entry. What the log says beyond it is what
//! the member has to be after its next start.
//!
//! Called between the end of a process and the next start. The log is only read; the
//! backend is opened as a copy.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use portunus_mvcc::backend::{BackendError, Bucket, Lmdb, LmdbConfig};
use portunus_mvcc::lease::{RecordError, decode_record};
use portunus_mvcc::{Config, EntryId, Hooks, OpenError, ReadError, Store as MemberStore};
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_wal::{Record, read_records};
use prost::Message;
use thiserror::Error;

use crate::linearizability::etcd::{Keys, Store};
use crate::watch_events::{Event, between};
use crate::wire;

/// A member's directory through all its crashes.
#[derive(Debug, Default)]
pub struct AtRest {
    /// The entry that the backend had applied when it was last looked at.
    applied: EntryId,
    /// The store after that entry.
    store: Store,
}

/// What the directory says.
#[derive(Debug)]
pub struct Found {
    /// The store after the last entry of the log.
    pub store: Store,
    /// Every change since the backend was last looked at.
    pub events: Vec<Event>,
    /// Entries of the log that the backend has not applied.
    pub entries_ahead: u64,
}

/// A directory that contradicts itself, or cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum AtRestError {
    /// The log.
    #[error("the log cannot be read")]
    Log(#[from] portunus_wal::ReadError),
    /// A hole in the log.
    #[error("the log goes on with entry {found} after entry {last}")]
    Gap { last: u64, found: u64 },
    /// An entry that is no request.
    #[error("entry {index} of the log cannot be decoded")]
    Entry {
        index: u64,
        source: prost::DecodeError,
    },
    /// A request that clients of this run never send.
    #[error("entry {index} of the log holds what the model cannot say: {what}")]
    Foreign { index: u64, what: &'static str },
    /// A copy of the backend.
    #[error("the backend cannot be copied")]
    Copy(#[source] io::Error),
    /// The backend.
    #[error("the backend cannot be opened")]
    Backend(#[from] BackendError),
    /// The store in it.
    #[error("the store in the backend cannot be opened")]
    Store(#[from] OpenError),
    /// Its keys.
    #[error("the keys in the backend cannot be read")]
    Keys(#[from] ReadError),
    /// Its leases.
    #[error("a lease in the backend cannot be read")]
    Lease(#[from] RecordError),
    /// Synced writes are gone.
    #[error(
        "the backend has applied {applied:?}, but the log ends at {last} or has another entry there"
    )]
    LogBehindBackend { applied: EntryId, last: u64 },
    /// Committed changes are gone.
    #[error("the backend has applied {now:?}, but had applied {before:?}")]
    BackendWentBack { before: EntryId, now: EntryId },
    /// The two tell different stories.
    #[error("at entry {index} the log makes\n    {log:?}\nbut the backend holds\n    {backend:?}")]
    Differ {
        index: u64,
        log: Box<Store>,
        backend: Box<Store>,
    },
}

impl AtRest {
    /// Reads a data directory. Nobody may be using it.
    pub fn read(&mut self, data_dir: &Path) -> Result<Found, AtRestError> {
        let member = data_dir.join("member");
        let (applied, backend) = read_backend(&member.join("portunus"))?;
        if applied.index < self.applied.index {
            return Err(AtRestError::BackendWentBack {
                before: self.applied,
                now: applied,
            });
        }
        let entries = read_log(&member.join("wal"), self.applied.index)?;
        let in_log = |id: EntryId| {
            let same = |entry: &Entry| entry.index == id.index && entry.term == id.term;
            id == self.applied || entries.iter().any(same)
        };
        if !in_log(applied) {
            return Err(AtRestError::LogBehindBackend {
                applied,
                last: entries
                    .last()
                    .map_or(self.applied.index, |entry| entry.index),
            });
        }
        let split = entries.partition_point(|entry| entry.index <= applied.index);
        let (behind, ahead) = entries.split_at(split);
        let mut events = Vec::new();
        let mut store = self.store.clone();
        carry_out(&mut store, behind, &mut events)?;
        if store != backend {
            return Err(AtRestError::Differ {
                index: applied.index,
                log: Box::new(store),
                backend: Box::new(backend),
            });
        }
        self.applied = applied;
        self.store = store.clone();
        carry_out(&mut store, ahead, &mut events)?;
        Ok(Found {
            store,
            events,
            entries_ahead: ahead.len() as u64,
        })
    }
}

fn carry_out(
    store: &mut Store,
    entries: &[Entry],
    events: &mut Vec<Event>,
) -> Result<(), AtRestError> {
    for entry in entries {
        let index = entry.index;
        if entry.r#type() != EntryType::EntryNormal || entry.data.is_empty() {
            continue;
        }
        let logged = InternalRaftRequest::decode(entry.data.clone())
            .map_err(|source| AtRestError::Entry { index, source })?;
        let request = wire::logged(&logged).map_err(|what| AtRestError::Foreign { index, what })?;
        if let Some(request) = request {
            let before = store.clone();
            let _ = store.apply(&request);
            events.extend(between(&before, store));
        }
    }
    Ok(())
}

/// The entries after one index; of several with one index the newest.
fn read_log(dir: &Path, after: u64) -> Result<Vec<Entry>, AtRestError> {
    let mut entries: Vec<Entry> = Vec::new();
    for record in read_records(dir)? {
        let Record::Entry(entry) = record?.record else {
            continue;
        };
        if entry.index <= after {
            // It replaces whatever came after it.
            entries.clear();
            continue;
        }
        entries.truncate(entries.partition_point(|old| old.index < entry.index));
        let last = entries.last().map_or(after, |last| last.index);
        if entry.index != last + 1 {
            return Err(AtRestError::Gap {
                last,
                found: entry.index,
            });
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// What a backend has applied, and what it holds.
fn read_backend(dir: &Path) -> Result<(EntryId, Store), AtRestError> {
    let copy = tempfile::tempdir().map_err(AtRestError::Copy)?;
    for file in fs::read_dir(dir).map_err(AtRestError::Copy)? {
        let file = file.map_err(AtRestError::Copy)?;
        let to = copy.path().join(file.file_name());
        fs::copy(file.path(), to).map_err(AtRestError::Copy)?;
    }
    let backend = Arc::new(Lmdb::open(copy.path(), LmdbConfig::default())?);
    let (member, _) = MemberStore::open(backend, Config::default(), Hooks::default())?;
    let leases: Result<BTreeSet<i64>, RecordError> = member
        .iter_raw(Bucket::Lease)
        .map(|(_, record)| decode_record(record).map(|lease| lease.id))
        .collect();
    let everything = member.reader().range(&wire::range(&Keys::All))?;
    let store = Store {
        revision: member.revision(),
        keys: wire::entries(&everything.kvs).into_iter().collect(),
        leases: leases?,
    };
    Ok((member.applied().unwrap_or_default(), store))
}
