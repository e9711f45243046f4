//! Shortens the log: the thread `log-snapshots`.

use std::sync::mpsc::Receiver;

use portunus_consensus::{CompactError, Handle};
use portunus_mvcc::StoreFault;
use portunus_statemachine::SnapshotRequest;

use crate::handles::{Process, StoreAccess};

/// Shortens the log when apply requests it, once the backend holds the removed entries.
pub fn run_snapshots(
    process: &Process,
    store: &StoreAccess,
    consensus: &Handle,
    orders: &Receiver<SnapshotRequest>,
) {
    while let Ok(order) = orders.recv() {
        if process.stop.is_stopping() {
            return;
        }
        match store.reader().flush() {
            Ok(()) => {}
            // A snapshot of the leader has replaced the store, and is in the log itself.
            Err(StoreFault::Closed) => continue,
            Err(fault) => {
                process.stop.fatal(&fault);
                return;
            }
        }
        let shortened = match order.keeps_no_entries {
            true => consensus.forget_log(order.index, order.conf_state),
            false => consensus.compact_log(order.index, order.conf_state),
        };
        match shortened {
            Ok(compacted) => tracing::info!(
                index = order.index,
                segments_released = compacted.segments_released,
                "snapshot of the log taken"
            ),
            Err(CompactError::Stopped) => return,
            // Nothing was written since the last snapshot; the entries in memory are released.
            Err(CompactError::AlreadyCompacted { .. }) if order.keeps_no_entries => {}
            Err(error) => tracing::warn!(%error, index = order.index, "the log was not shortened"),
        }
    }
}
