//! The two threads of a member: one for the disk, one for turns of the engine.
//!
//! ```text
//!  raft-disk:  turn ─▶ batch ─▶ write, fdatasync ─▶ persisted, turn ─▶ batch ─▶ …
//!  raft-turn:  sleep until the next tick, or until called ─▶ tick, turn ─▶ …
//! ```
//! The turn thread never waits for the disk, so a slow disk delays writes but not
//! heartbeats and elections. The disk thread is the only one that touches the
//! log.
//!
//! | | one voter | several voters |
//! |---|---|---|
//! | `raft-disk` | takes proposals, writes and syncs them, which commits them | writes and syncs what turns produced, then reports it as persisted |
//! | `raft-turn` | ticks | ticks; takes proposals, so that entries are sent to peers before the own disk has them |

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use portunus_proto::walpb;

use super::{
    compaction::compact,
    config::LogWriter,
    errors::FatalError,
    inbox::Phase,
    member::{FailOnPanic, Member},
    turn::AfterTurn,
};
use crate::engine::Batch;

pub(super) fn run_disk(member: Arc<Member>, mut log: impl LogWriter) {
    let _guard = FailOnPanic(Arc::clone(&member));
    if let Err(error) = write_until_ended(&member, &mut log) {
        member.fail(error);
    }
    member.end();
}

fn write_until_ended(member: &Member, log: &mut dyn LogWriter) -> Result<(), FatalError> {
    let mut written: Option<Batch> = None;
    loop {
        // One lock for both: effects of the last batch are carried out, and jobs queued
        // meanwhile become the next batch.
        let mut engine = member.lock_engine();
        let mut finished = AfterTurn::default();
        if let Some(batch) = written.take() {
            let effects = engine.finish_write(batch);
            member.carry_out(&engine, effects, &mut finished);
        }
        let after = member.turn(&mut engine);
        let batch = engine.take_batch();
        drop(engine);
        member.settle(finished);
        member.settle(after);

        if let Some(batch) = batch {
            member
                .apply
                .wait_for_room(member.config.apply_backlog_entries_max);
            if member.inbox.phase() == Phase::Ended {
                return Ok(());
            }
            write(&batch, member, log)?;
            written = Some(batch);
            continue;
        }
        if let Some(request) = member.inbox.take_compaction() {
            compact(member, log, request)?;
            continue;
        }
        match member.inbox.phase() {
            Phase::Running => {
                member.inbox.wait_for_disk_call();
            }
            Phase::Draining => {
                // Everything is written except the last commit index.
                let Some(commit) = member.lock_engine().take_last_commit() else {
                    continue;
                };
                if commit.is_some() {
                    log.append(commit.as_ref(), &[])?;
                    log.sync()?;
                }
                return Ok(());
            }
            Phase::Ended => return Ok(()),
        }
    }
}

fn write(batch: &Batch, member: &Member, log: &mut dyn LogWriter) -> Result<(), FatalError> {
    let mut entry_count = 0;
    let mut is_empty = true;
    for write in batch.writes() {
        if let Some(snapshot) = write.snapshot {
            // Buffered records must be written before the snapshot.
            log.sync()?;
            log.save_snapshot(&walpb::Snapshot {
                index: snapshot.index,
                term: snapshot.term,
                conf_state: snapshot.conf_state.clone(),
            })?;
        }
        log.append(write.hard_state, write.entries)?;
        entry_count += write.entries.len() as u64;
        is_empty = false;
    }
    if !is_empty {
        log.sync()?;
        let status = &member.status;
        status.wal_syncs.fetch_add(1, Ordering::AcqRel);
        status.wal_entries.fetch_add(entry_count, Ordering::AcqRel);
    }
    Ok(())
}

pub(super) fn run_turns(member: Arc<Member>) {
    let _guard = FailOnPanic(Arc::clone(&member));
    let interval = member.config.tick_interval;
    let mut due = Instant::now() + interval;
    loop {
        if member.inbox.wait_for_turn_call(due) != Phase::Running {
            return;
        }
        let now = Instant::now();
        let is_due = now >= due;
        if is_due {
            // After a pause (a stopped process, a suspended machine) missed ticks are skipped:
            // they would all be election timeouts.
            due = (due + interval).max(now);
        }
        member.with_engine(|engine| {
            if is_due {
                engine.tick();
                member
                    .lock_reads()
                    .tick(|context| engine.read_index(context).is_ok());
            }
        });
        if is_due {
            member.status.ticked();
        }
    }
}
