//! Compacts old revisions as `--auto-compaction-mode` and `--auto-compaction-retention` ask.

use std::time::Duration;

use portunus_proto::etcdserverpb::{CompactionRequest, InternalRaftRequest};

use crate::config::AutoCompaction;
use crate::handles::{Process, StoreAccess};
use crate::proposals::Proposals;

/// Time between two compactions in revision mode.
const REVISION_COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Periodic mode keeps this many samples per interval.
const SAMPLES_PER_INTERVAL: u32 = 10;
/// Periodic mode never waits longer than this between two compactions.
const PERIODIC_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Compacts old revisions as configured.
pub async fn compact_automatically(process: &Process, store: &StoreAccess, proposals: &Proposals) {
    match process.config.auto_compaction {
        AutoCompaction::Off => {}
        AutoCompaction::Revision(keep) => loop {
            if process.stops_within(REVISION_COMPACTION_INTERVAL).await {
                return;
            }
            compact(store, proposals, store.reader().revision() - keep).await;
        },
        AutoCompaction::Periodic(retention) => {
            let interval = retention.min(PERIODIC_INTERVAL_MAX);
            let step = interval / SAMPLES_PER_INTERVAL;
            let samples_kept = (retention.as_nanos() / step.as_nanos().max(1)) as usize;
            let mut samples = std::collections::VecDeque::new();
            let mut until_compaction = samples_kept;
            loop {
                samples.push_back(store.reader().revision());
                if samples.len() > samples_kept + 1 {
                    samples.pop_front();
                }
                if process.stops_within(step).await {
                    return;
                }
                until_compaction = until_compaction.saturating_sub(1);
                if until_compaction == 0 && samples.len() > samples_kept {
                    if let Some(&revision) = samples.front() {
                        compact(store, proposals, revision).await;
                    }
                    until_compaction = SAMPLES_PER_INTERVAL as usize;
                }
            }
        }
    }
}

async fn compact(store: &StoreAccess, proposals: &Proposals, revision: i64) {
    if revision <= store.reader().compact_revision().max(0) {
        return;
    }
    let request = InternalRaftRequest {
        compaction: Some(CompactionRequest {
            revision,
            physical: false,
        }),
        ..InternalRaftRequest::default()
    };
    match proposals.propose(request).await {
        Ok(_) => tracing::info!(revision, "auto-compaction proposed"),
        Err(error) => {
            tracing::warn!(%error, revision, "auto-compaction failed; retrying with the next one")
        }
    }
}
