//! Builds the in-memory state from the backend.
//!
//! One sequential scan of the `key` bucket, which is in revision order, so
//! every version is appended to its slot. The rest follows from the marks in
//! `meta` and the other buckets.

use std::{collections::VecDeque, fmt, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use portunus_proto::LeaseId;
use portunus_proto::Term;

use super::{
    EntryId, Store,
    compaction::Compactions,
    index::Index,
    log::{LogEntry, RevisionLog},
    raw::RawBuckets,
    record::Record,
    residency::Residency,
    shared::{LeasedKeys, Shared},
    slot::Slot,
};
use crate::{
    backend::{
        Backend, Bucket, meta,
        write_behind::{OnFault, WriteBehind},
    },
    config::Config,
    error::{OpenError, StoreFault},
    revision::{RecordKey, decode_mark},
    version::{Value, Version},
};

/// The revision of an empty store.
const FIRST_REVISION: i64 = 1;
const NEVER_COMPACTED: i64 = -1;

/// Records between two reports of progress.
const PROGRESS_RECORDS: u64 = 100_000;

/// Callbacks of a store.
#[derive(Default)]
pub struct Hooks {
    on_fault: Option<OnFault>,
    on_progress: Option<Box<dyn FnMut(RestoreProgress)>>,
}

impl Hooks {
    /// Sets the function called once, on the write-behind thread, when a commit
    /// failed. The process must end then; later calls into the store fail too.
    #[must_use]
    pub fn on_fault(mut self, call: impl FnOnce(&StoreFault) + Send + 'static) -> Self {
        self.on_fault = Some(Box::new(call));
        self
    }

    /// Sets the function called after every 100,000 records while the store is
    /// opened, and at the end.
    #[must_use]
    pub fn on_progress(mut self, call: impl FnMut(RestoreProgress) + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// Progress of opening a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreProgress {
    /// Records read so far.
    pub records: u64,
    /// Newest revision read so far.
    pub revision: i64,
}

/// The state found when the store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The newest entry the backend holds; the log is replayed from the next.
    pub applied: Option<EntryId>,
    /// The newest revision.
    pub revision: i64,
    /// The compact revision; −1 if there is none.
    pub compact_revision: i64,
    /// Records read.
    pub records: u64,
    /// Lease and key of every attachment, for the lessor, which may not know the lease.
    pub attachments: Vec<(LeaseId, Bytes)>,
}

impl Store {
    /// Opens the store of a backend and starts its write-behind thread.
    pub fn open(
        backend: Arc<dyn Backend>,
        config: Config,
        hooks: Hooks,
    ) -> Result<(Self, Restored), OpenError> {
        let snapshot = backend.snapshot()?;
        let raw = RawBuckets::load(&*snapshot)?;
        let finished = compaction_mark(&raw, meta::FINISHED_COMPACT)?;
        let scheduled = compaction_mark(&raw, meta::SCHEDULED_COMPACT)?;
        let applied = applied_entry(&raw)?;

        let mut memory = Memory::new(
            finished.unwrap_or(NEVER_COMPACTED),
            &config,
            backend.sizes().in_use_bytes,
        );
        let mut on_progress = hooks.on_progress.unwrap_or_else(|| Box::new(|_| {}));
        let mut failed = None;
        snapshot.scan(
            Bucket::Key,
            b"",
            &mut |key, record| match memory.add_record(key, record) {
                Ok(()) if memory.records.is_multiple_of(PROGRESS_RECORDS) => {
                    on_progress(memory.progress());
                    ControlFlow::Continue(())
                }
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        drop(snapshot);
        if let Some(error) = failed {
            return Err(error);
        }
        on_progress(memory.progress());

        let marks = [finished, scheduled].into_iter().flatten();
        let revision = marks.fold(memory.revision, i64::max);
        let unfinished = scheduled.filter(|scheduled| finished.is_none_or(|f| f < *scheduled));
        let compacted = finished.unwrap_or(NEVER_COMPACTED);
        let compact_revision = unfinished.unwrap_or(compacted);
        let leased_keys = memory.leased_keys();
        let restored = Restored {
            applied,
            revision,
            compact_revision,
            records: memory.records,
            attachments: leased_keys.iter().cloned().collect(),
        };

        let on_fault = hooks.on_fault.unwrap_or_else(|| Box::new(|_| {}));
        let write_behind = WriteBehind::start(Arc::clone(&backend), &config, revision, on_fault)
            .map_err(OpenError::Thread)?;
        let shared = Arc::new(Shared::new(
            (revision, compact_revision),
            memory.index.clone(),
            leased_keys.clone(),
            memory.log,
            Arc::clone(&backend),
            Arc::clone(write_behind.queue()),
        ));
        let mut store = Self {
            shared,
            write_behind,
            untrimmed: memory.untrimmed,
            index: memory.index,
            index_changed: false,
            compacted_records: 0,
            leased_keys,
            leased_keys_changed: false,
            revision,
            compact_revision,
            raw,
            residency: memory.residency,
            compactions: Compactions::default(),
            applied,
            open_entry: None,
            changes: Vec::new(),
            half_applied: false,
            config,
        };
        if let Some(unfinished) = unfinished {
            store.resume_compaction(unfinished, compacted);
        }
        Ok((store, restored))
    }
}

/// The in-memory state during the scan.
struct Memory {
    index: Index,
    log: RevisionLog,
    residency: Residency,
    /// Bytes of older records whose values do not become resident.
    passed_bytes_left: u64,
    /// Slots with versions that the finished compaction should have removed.
    untrimmed: VecDeque<Slot>,
    compacted: i64,
    revision: i64,
    records: u64,
}

impl Memory {
    fn new(compacted: i64, config: &Config, stored_bytes: u64) -> Self {
        let resident_bytes_max = match config.resident_value_bytes_max {
            0 => u64::MAX,
            bytes_max => bytes_max as u64,
        };
        Self {
            passed_bytes_left: stored_bytes.saturating_sub(resident_bytes_max),
            index: Index::default(),
            log: RevisionLog::default(),
            residency: Residency::new(config.resident_value_bytes_max),
            untrimmed: VecDeque::new(),
            compacted,
            revision: FIRST_REVISION,
            records: 0,
        }
    }

    fn progress(&self) -> RestoreProgress {
        RestoreProgress {
            records: self.records,
            revision: self.revision,
        }
    }

    fn add_record(&mut self, key: &[u8], record: &[u8]) -> Result<(), OpenError> {
        let RecordKey {
            revision,
            tombstone,
        } = RecordKey::decode(key).ok_or_else(|| OpenError::ForeignRecord { key: key.to_vec() })?;
        // A store whose revision was raised by a restore has one record without
        // content. It decodes to an empty key, which no request can name.
        let value_stays = self.value_stays(record.len());
        let record = Record::decode(record)
            .map_err(|source| OpenError::DamagedRecord { revision, source })?;
        let version = match tombstone {
            true => Version::tombstone(revision),
            false => Version {
                revision,
                create_revision: record.create_revision,
                version: record.version,
                lease: LeaseId(record.lease),
                value: match value_stays {
                    true => Value::resident(record.value),
                    false => Value::InBackend,
                },
            },
        };
        let slot = self.slot_for(record.key, !tombstone, revision.main);
        let versions = slot.versions();
        let previous = versions.newest();
        if revision.main <= self.compacted
            && (previous.is_some() || (tombstone && revision.main < self.compacted))
        {
            self.untrimmed.push_back(slot.clone());
        }
        self.residency
            .added(&slot, version.value.resident_bytes(), revision, previous);
        drop(versions);
        slot.push(version);
        if revision.main >= self.compacted {
            self.log.push(LogEntry { revision, slot });
        }
        self.residency.enforce(revision.main);
        self.revision = self.revision.max(revision.main);
        self.records += 1;
        Ok(())
    }

    /// Whether the value of the next record is among the newest that fit in
    /// memory. Others would be loaded only to be evicted.
    fn value_stays(&mut self, record_bytes: usize) -> bool {
        match self.passed_bytes_left.checked_sub(record_bytes as u64) {
            Some(left) if left > 0 => {
                self.passed_bytes_left = left;
                false
            }
            _ => true,
        }
    }

    fn slot_for(&mut self, key: &[u8], exists: bool, revision: i64) -> Slot {
        if let Some(indexed) = self.index.get(key) {
            let slot = indexed.slot.clone();
            if indexed.exists != exists {
                self.index.set_exists(key, exists, revision);
            }
            return slot;
        }
        let slot = Slot::new(key);
        self.index.insert(slot.clone(), exists, revision);
        slot
    }

    fn leased_keys(&self) -> LeasedKeys {
        self.index
            .slots()
            .filter_map(|slot| {
                let versions = slot.versions();
                let lease = versions.newest()?.lease;
                (lease != LeaseId::NONE).then(|| (lease, slot.key_bytes()))
            })
            .collect()
    }
}

fn compaction_mark(raw: &RawBuckets, mark: &'static str) -> Result<Option<i64>, OpenError> {
    meta_entry(raw, mark, decode_mark)
}

fn applied_entry(raw: &RawBuckets) -> Result<Option<EntryId>, OpenError> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    let index = meta_entry(raw, meta::CONSISTENT_INDEX, number)?;
    let term = meta_entry(raw, meta::TERM, number)?;
    Ok(index.map(|index| EntryId {
        index,
        term: Term(term.unwrap_or(0)),
    }))
}

fn meta_entry<T>(
    raw: &RawBuckets,
    key: &'static str,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, OpenError> {
    let Some(value) = raw.get(Bucket::Meta, key.as_bytes()) else {
        return Ok(None);
    };
    let decoded = decode(value).ok_or_else(|| OpenError::DamagedMeta {
        bucket: Bucket::Meta,
        key,
        value: value.to_vec(),
    })?;
    Ok(Some(decoded))
}
