//! Compaction of the log once the state machine is durable.
//!
//! Runs on the disk thread, between two batches, as it writes to the log. The order matters:
//! commit index, then snapshot record, then removal of old segments; a crash in between leaves
//! a log that opens.

use portunus_wal::ReleaseError;

use super::{config::LogWriter, errors::FatalError, inbox::CompactionRequest, member::Member};
use crate::engine::CompactionRefused;

/// The result of a compaction.
#[derive(Debug)]
pub struct Compacted {
    /// Segment files removed.
    pub segments_released: usize,
    /// Why some segments were not removed. They only take space; the next compaction tries
    /// again.
    pub release_error: Option<ReleaseError>,
    /// The log in memory starts after this index.
    pub memory_starts_after: u64,
}

/// The entries that stay in memory for members that are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// As many entries before the index as configured.
    CatchUpEntries,
    /// None: a member that is behind gets a snapshot.
    Nothing,
}

/// Carries out one request, or puts it back if a batch has to be written first.
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
    let begun = member.with_engine(|engine| {
        let begun = engine.begin_compaction(index, &request.conf_state);
        let is_short = matches!(begun, Err(CompactionRefused::AlreadyCompacted { .. }));
        if is_short && request.keep == Keep::Nothing {
            // The log is short enough on disk. In memory it may be longer.
            engine.forget_in_memory(index);
        }
        begun
    });
    let write = match begun {
        Ok(Some(write)) => write,
        Ok(None) => {
            // A batch was queued meanwhile; it is written first.
            member.inbox.put_back_compaction(request);
            return Ok(());
        }
        Err(refusal) => {
            // The caller may have given up.
            let _ = request.reply.send(Err(refusal.into()));
            return Ok(());
        }
    };

    // A snapshot beyond the recorded commit index would be ignored at start.
    log.append(write.hard_state.as_ref(), &[])?;
    log.save_snapshot(&write.snapshot)?;
    let released = log.release_to(index);
    let forget_to = index.saturating_sub(keep);
    let memory_starts_after = member.with_engine(|engine| engine.finish_compaction(forget_to));
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
