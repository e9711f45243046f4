//! Hashes over stored records, for comparing members.

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use portunus_proto::EtcdError;

use super::Reader;
use crate::{
    backend::{Bucket, Snapshot},
    error::ReadError,
    revision::{RecordKey, Revision},
    rules::{
        hash::{BucketsHasher, KeepSet, KvHasher},
        keep,
    },
    store::{index::Index, shared::Shared, slot::Versions},
    version::Version,
};

/// Maximum number of cached compaction hashes.
const CACHED_HASHES_MAX: usize = 10;

/// The hash of all revisions up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvHash {
    /// CRC-32C, equal on all members that hold the same history.
    pub hash: u32,
    /// Newest revision of the hash.
    pub revision: i64,
    /// The compact revision of the store at that time; only hashes with equal ones are comparable.
    pub compact_revision: i64,
}

/// Hashes computed before compactions, which remove records the hashes need.
#[derive(Debug, Default)]
pub(crate) struct HashCache {
    /// By ascending revision. Locked by readers and hash jobs, never by the
    /// apply thread.
    hashes: Mutex<Vec<KvHash>>,
}

impl HashCache {
    fn get(&self, revision: i64) -> Option<KvHash> {
        let hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes
            .iter()
            .find(|hash| hash.revision == revision)
            .copied()
    }

    fn store(&self, hash: KvHash) {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.push(hash);
        hashes.sort_unstable_by_key(|hash| hash.revision);
        let too_many = hashes.len().saturating_sub(CACHED_HASHES_MAX);
        hashes.drain(..too_many);
    }

    fn all(&self) -> Vec<KvHash> {
        let hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.clone()
    }
}

impl Reader {
    /// Returns the hash up to a revision; 0 means the newest. For the revision
    /// of a recent compaction it is the cached hash.
    pub fn hash_kv(&self, revision: i64) -> Result<KvHash, ReadError> {
        // 0 means the newest revision. After a compaction to revision 0 etcd returns the cached
        // hash of that compaction instead, until ten more are cached.
        if revision != 0
            && let Some(cached) = self.shared.hashes.get(revision)
        {
            return Ok(cached);
        }
        loop {
            let view = self.shared.view();
            let compact_revision = view.compact_revision;
            if revision > 0 && revision < compact_revision {
                return Err(EtcdError::Compacted.into());
            }
            if revision > view.revision {
                return Err(EtcdError::FutureRevision.into());
            }
            let revision = if revision == 0 {
                view.revision
            } else {
                revision
            };
            let snapshot = self.snapshot()?;
            let keep = KeepSet::new(
                kept(&view.index, revision, |versions, newest| {
                    let in_it = |it: &&Version| it.revision.main == revision;
                    // Most keys have no change at the revision, so their versions are not scanned.
                    let changes = Some(versions).filter(|_| in_it(&newest));
                    let changes = changes.into_iter().flat_map(Versions::iter);
                    keep::kept_for_hash(newest, changes.filter(in_it))
                }),
                compact_revision,
            )
            .or_all(|| {
                kept(&view.index, compact_revision, |_, version| {
                    keep::kept_by_compaction(version, compact_revision)
                })
            });
            let hash = hash_records(&*snapshot, KvHasher::new(revision, compact_revision, keep))?;
            // A compaction in between may have removed records.
            if self.compact_revision() == compact_revision {
                return Ok(KvHash {
                    hash,
                    revision,
                    compact_revision,
                });
            }
        }
    }

    /// Returns the hash of all buckets, and the revision at or after which it was taken.
    pub fn hash(&self) -> Result<(u32, i64), ReadError> {
        let revision = self.revision();
        let snapshot = self.snapshot()?;
        let mut hasher = BucketsHasher::default();
        for bucket in Bucket::ALL {
            hasher.bucket(bucket);
            snapshot.scan(bucket, b"", &mut |key, value| {
                hasher.entry(bucket, key, value);
                ControlFlow::Continue(())
            })?;
        }
        Ok((hasher.finish(), revision))
    }

    /// Returns the cached compaction hashes, by ascending revision.
    #[must_use]
    pub fn compaction_hashes(&self) -> Vec<KvHash> {
        self.shared.hashes.all()
    }
}

/// Computes the hash of one compaction from the records before any is removed.
///
/// The store continues meanwhile; only the next compaction waits.
pub struct CompactionHashJob {
    shared: Arc<Shared>,
    index: Arc<Index>,
    snapshot: Box<dyn Snapshot>,
    revision: i64,
    previous: i64,
    running: Arc<AtomicBool>,
}

impl std::fmt::Debug for CompactionHashJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactionHashJob")
            .field("revision", &self.revision)
            .field("previous", &self.previous)
            .finish_non_exhaustive()
    }
}

impl CompactionHashJob {
    /// Returns the job, and a flag that stays set until the job is dropped.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        revision: i64,
        previous: i64,
    ) -> Result<(Self, Arc<AtomicBool>), ReadError> {
        let running = Arc::new(AtomicBool::new(true));
        let job = Self {
            shared: Arc::clone(shared),
            index: shared.view().index,
            snapshot: shared.backend.snapshot()?,
            revision,
            previous,
            running: Arc::clone(&running),
        };
        Ok((job, running))
    }

    /// Computes the hash and caches it.
    pub fn run(self) -> Result<KvHash, ReadError> {
        let kept_by =
            |_: &Versions, version: &Version| keep::kept_by_compaction(version, self.revision);
        let keep = KeepSet::new(kept(&self.index, self.revision, kept_by), self.previous);
        let hasher = KvHasher::new(self.revision, self.previous, keep);
        let hash = KvHash {
            hash: hash_records(&*self.snapshot, hasher)?,
            revision: self.revision,
            compact_revision: self.previous,
        };
        self.shared.hashes.store(hash);
        Ok(hash)
    }
}

impl Drop for CompactionHashJob {
    fn drop(&mut self) {
        self.running.store(false, Ordering::Release);
    }
}

/// The newest version's revision of each key at `revision`, if `is_kept` accepts it.
fn kept(
    index: &Index,
    revision: i64,
    is_kept: impl Fn(&Versions, &Version) -> bool,
) -> impl Iterator<Item = Revision> {
    index.slots().filter_map(move |slot| {
        let versions = slot.versions();
        let version = versions.at(revision)?;
        is_kept(&versions, version).then_some(version.revision)
    })
}

fn hash_records(snapshot: &dyn Snapshot, mut hasher: KvHasher) -> Result<u32, ReadError> {
    snapshot.scan(Bucket::Key, b"", &mut |key_bytes, record| {
        // Keys that are no revision are skipped; opening the store refuses them.
        let Some(key) = RecordKey::decode(key_bytes) else {
            return ControlFlow::Continue(());
        };
        if hasher.is_beyond(key.revision.main) {
            return ControlFlow::Break(());
        }
        hasher.write(key, key_bytes, record);
        ControlFlow::Continue(())
    })?;
    Ok(hasher.finish())
}
