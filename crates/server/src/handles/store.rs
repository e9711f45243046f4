//! Access to the store: its reader, how far the log is applied to it, and the read barrier.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use portunus_consensus::bootstrap::Identity;
use portunus_consensus::{Handle, ReadIndexError};
use portunus_mvcc::{EntryId, Reader};
use portunus_proto::EtcdError;
use portunus_proto::LogIndex;
use portunus_proto::etcdserverpb::ResponseHeader;

use super::applied::Applied;
use super::compactions::CompactionProgress;
use super::hashing::HashSlots;
use super::process::Process;
use super::range_budget::RangeBudget;
use super::snapshot_slots::SnapshotSlots;
use super::watches::StoreHistory;
use crate::coarse_timeout::coarse_timeout;

/// Reads of the store that a member serves. Only the apply thread publishes to it.
pub struct StoreAccess {
    process: Arc<Process>,
    identity: Identity,
    /// Answers the read index of the barrier.
    consensus: Handle,
    reader: ArcSwap<Reader>,
    /// How far the log is applied.
    pub applied: Applied,
    /// How far compactions are finished.
    pub compactions: CompactionProgress,
    /// Limits the snapshots that clients request.
    pub snapshot_slots: SnapshotSlots,
    /// Limits the large ranges that wait for their clients.
    pub range_budget: Arc<RangeBudget>,
    /// Limits the hashes that clients request.
    pub client_hashes: HashSlots,
    /// Limits the hashes that peers request.
    pub peer_hashes: HashSlots,
}

impl StoreAccess {
    /// Starts with a store that was applied to up to `applied`.
    pub fn new(
        process: Arc<Process>,
        identity: Identity,
        consensus: Handle,
        reader: Reader,
        applied: EntryId,
    ) -> StoreAccess {
        let hashes_refused = process.metrics.hashes_refused.clone();
        let limits = process.config.limits;
        let range_gauge = process.metrics.limits.range_bytes_in_flight.clone();
        let range_budget = RangeBudget::new(limits.range_bytes_max, range_gauge);
        StoreAccess {
            process,
            identity,
            consensus,
            reader: ArcSwap::from_pointee(reader),
            applied: Applied::new(LogIndex(applied.index), applied.term),
            compactions: CompactionProgress::default(),
            snapshot_slots: SnapshotSlots::new(limits.snapshots_max),
            range_budget: Arc::new(range_budget),
            client_hashes: HashSlots::new(hashes_refused.clone()),
            peer_hashes: HashSlots::new(hashes_refused),
        }
    }

    /// The reader of the present store. A snapshot of the leader may replace the store, so
    /// callers must not keep the reader for long.
    pub fn reader(&self) -> Guard<Arc<Reader>> {
        self.reader.load()
    }

    /// Replaces the store that later reads use.
    pub fn replace_reader(&self, reader: Reader) {
        self.reader.store(Arc::new(reader));
    }

    /// The history of the store for watches, also after a snapshot of the leader replaced it.
    pub fn history(&self) -> StoreHistory<'_> {
        StoreHistory::new(&self.reader, &self.process.stop)
    }

    /// A response header with the given revision.
    pub fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.identity.cluster_id.0,
            member_id: self.identity.member_id.0,
            revision,
            raft_term: self.applied.term().0,
        }
    }

    /// A response header with the newest revision.
    pub fn newest_header(&self) -> ResponseHeader {
        self.header(self.reader().revision())
    }

    /// Completes the header the store made, which has only the revision.
    pub fn complete(&self, header: &mut Option<ResponseHeader>) {
        let revision = header
            .as_ref()
            .map_or_else(|| self.reader().revision(), |h| h.revision);
        *header = Some(self.header(revision));
    }

    /// Returns once this member has applied every entry that any member had committed at the time
    /// of the call.
    pub async fn linearizable(&self) -> Result<(), EtcdError> {
        let barrier = async {
            let index = loop {
                match self.consensus.read_index().await {
                    Ok(index) => break index,
                    // A read changes nothing, so the next leader can be asked instead.
                    Err(ReadIndexError::LeaderChanged) => {}
                    Err(_) => return Err(EtcdError::Stopped),
                }
            };
            self.applied.wait_for(index).await;
            Ok(())
        };
        let read = match coarse_timeout(self.process.request_timeout(), barrier).await {
            Some(result) => result,
            None => Err(EtcdError::Timeout),
        };
        match read {
            Ok(()) => {}
            Err(EtcdError::Timeout) => self.process.metrics.read_indexes_slow.inc(),
            Err(_) => self.process.metrics.read_indexes_failed.inc(),
        }
        read
    }
}
