//! Checks that log and backend of a data directory agree while no process uses it.
//!
//! The model, which shares no code with the server, applies the entries of the log. At the
//! applied index of the backend, the backend must equal the model's store, and the log must
//! not end before that index. The store after the last entry is the state that the member
//! must have after its next start.
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

/// The state of a member's directory at the previous check.
#[derive(Debug, Default)]
pub struct AtRest {
    /// The last entry that the backend had applied at the previous check.
    applied: EntryId,
    /// The store after that entry.
    store: Store,
}

/// The content of a directory.
#[derive(Debug)]
pub struct DirectoryState {
    /// The store after the last entry of the log.
    pub store: Store,
    /// Every change since the applied index of the previous check.
    pub events: Vec<Event>,
    /// Entries of the log that the backend has not applied.
    pub entries_ahead: u64,
}

/// A directory that is inconsistent or cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum AtRestError {
    /// Reading the log failed.
    #[error("the log cannot be read")]
    Log(#[from] portunus_wal::ReadError),
    /// The log has a gap.
    #[error("entry {found} of the log follows entry {last}")]
    Gap { last: u64, found: u64 },
    /// An entry cannot be decoded.
    #[error("entry {index} of the log cannot be decoded")]
    Entry {
        index: u64,
        source: prost::DecodeError,
    },
    /// An entry that the clients of a run never propose.
    #[error("entry {index} of the log cannot be expressed in the model: {what}")]
    Foreign { index: u64, what: &'static str },
    /// Copying the backend failed.
    #[error("the backend cannot be copied")]
    Copy(#[source] io::Error),
    /// Opening the backend failed.
    #[error("the backend cannot be opened")]
    Backend(#[from] BackendError),
    /// Opening the store failed.
    #[error("the store in the backend cannot be opened")]
    Store(#[from] OpenError),
    /// Reading the keys failed.
    #[error("the keys in the backend cannot be read")]
    Keys(#[from] ReadError),
    /// Reading a lease failed.
    #[error("a lease in the backend cannot be read")]
    Lease(#[from] RecordError),
    /// The log lacks entries that the backend has applied.
    #[error(
        "the backend has applied {applied:?}, but the log ends at {last} or has another entry there"
    )]
    LogBehindBackend { applied: EntryId, last: u64 },
    /// The applied index of the backend decreased.
    #[error("the backend has applied {now:?}, but had applied {before:?}")]
    BackendWentBack { before: EntryId, now: EntryId },
    /// Log and backend disagree.
    #[error("at entry {index} the log gives\n    {log:?}\nbut the backend holds\n    {backend:?}")]
    Differ {
        index: u64,
        log: Box<Store>,
        backend: Box<Store>,
    },
}

impl AtRest {
    /// Reads and checks a data directory, which no process may be using.
    pub fn read(&mut self, data_dir: &Path) -> Result<DirectoryState, AtRestError> {
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
            let same = |entry: &Entry| entry.index == id.index && entry.term == id.term.0;
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
        apply_entries(&mut store, behind, &mut events)?;
        if store != backend {
            return Err(AtRestError::Differ {
                index: applied.index,
                log: Box::new(store),
                backend: Box::new(backend),
            });
        }
        self.applied = applied;
        self.store = store.clone();
        apply_entries(&mut store, ahead, &mut events)?;
        Ok(DirectoryState {
            store,
            events,
            entries_ahead: ahead.len() as u64,
        })
    }
}

fn apply_entries(
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

/// Reads the entries after an index; of several with the same index, the newest.
fn read_log(dir: &Path, after: u64) -> Result<Vec<Entry>, AtRestError> {
    let mut entries: Vec<Entry> = Vec::new();
    for record in read_records(dir)? {
        let Record::Entry(entry) = record?.record else {
            continue;
        };
        if entry.index <= after {
            // It replaces all entries after it.
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

/// Returns the last applied entry and the content of a backend.
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
