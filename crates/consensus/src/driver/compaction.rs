//! Letting go of the log's beginning once the state machine has it safely.
//!
//! Runs on the disk thread, between two batches, as it writes to the log. The
//! order matters: commit index, then snapshot record, then the old segments go;
//! a crash in between leaves a log that opens.

use portunus_proto::walpb::Snapshot;
use portunus_wal::ReleaseError;

use super::{
    config::LogWriter,
    errors::{CompactError, FatalError},
    inbox::CompactionRequest,
    member::Member,
};

/// What a compaction did.
#[derive(Debug)]
pub struct Compacted {
    /// Segment files removed.
    pub segments_released: usize,
    /// Why not all that could go are gone. Harmless but for the space; the next
    /// compaction tries again.
    pub release_error: Option<ReleaseError>,
    /// The log in memory starts after this index.
    pub memory_starts_after: u64,
}

/// What stays in memory for members that are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// As many entries before the index as configured.
    CatchUpEntries,
    /// Nothing: whoever is behind gets a snapshot.
    Nothing,
}

/// Carries out one request, or puts it back if something else is to be written.
pub(super) fn compact(
    member: &Member,
    log: &mut dyn LogWriter,
    request: CompactionRequest,
) -> Result<(), FatalError> {
    let index = request.index;
    let keep = match request.keep {
        Keep::CatchUpEntries => member.config.catch_up_entries,
        Keep::Nothing => 0,
    };
    let planned = member.with_engine(|engine| {
        let applied_index = engine.core.applied_index();
        if index > applied_index {
            return Err(CompactError::NotApplied {
                index,
                applied_index,
            });
        }
        let term = engine
            .core
            .term_of(index)
            .filter(|_| index > engine.snapshot_index);
        let Some(term) = term else {
            // The log is short enough on disk. In memory it may still be longer.
            if request.keep == Keep::Nothing {
                engine.core.compact(index);
            }
            return Err(CompactError::AlreadyCompacted { index });
        };
        let disk = engine.claim_idle_disk();
        if disk.is_some() {
            engine.snapshot_index = index;
        }
        Ok(disk.map(|disk| (term, disk)))
    });
    let (term, disk) = match planned {
        Ok(Some(planned)) => planned,
        Ok(None) => {
            // Something came in between; it goes first.
            member.inbox.put_back_compaction(request);
            return Ok(());
        }
        Err(refusal) => {
            // Whoever asked may have gone.
            let _ = request.reply.send(Err(refusal));
            return Ok(());
        }
    };

    // A snapshot beyond the recorded commit index would be ignored at start.
    log.append(disk.unwritten_commit.as_ref(), &[])?;
    log.save_snapshot(&Snapshot {
        index,
        term,
        conf_state: Some(request.conf_state),
    })?;
    let released = log.release_to(index);
    let memory_starts_after = member.with_engine(|engine| {
        engine.write_in_flight = false;
        engine.core.compact(index.saturating_sub(keep))
    });
    let compacted = match released {
        Ok(segments_released) => Compacted {
            segments_released,
            release_error: None,
            memory_starts_after,
        },
        Err(error) => Compacted {
            segments_released: 0,
            release_error: Some(error),
            memory_starts_after,
        },
    };
    let _ = request.reply.send(Ok(compacted));
    Ok(())
}
