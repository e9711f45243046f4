//! The consensus of one member at run time: core, log, threads, queues.
//!
//! ```text
//!  propose ──▶ inbox ──┐
//!  read_index ─▶ reads ┤            ┌──▶ peers
//!  step, applied ──────┼──▶ engine ─┼──▶ apply queue ──▶ apply thread
//!  turn thread: tick ──┘     ▲      └──▶ jobs ──▶ disk thread: write, fdatasync
//!                            └───────── persisted ─────────┘
//! ```
//! A single write changes threads twice: caller to disk thread, disk thread to apply thread.
//! Entries that arrive during a sync go with the next one.

mod apply_queue;
mod compaction;
mod config;
mod errors;
mod handle;
mod inbox;
mod member;
mod proposal;
mod reads;
mod status;
mod threads;
mod turn;

use portunus_gates::cluster::MemberId;
use portunus_proto::LogIndex;
use std::{
    sync::{Arc, Mutex, atomic::AtomicBool},
    thread,
};

use self::{
    apply_queue::ApplyQueue,
    inbox::Inbox,
    member::{LockedHooks, Member},
    reads::Reads,
    status::StatusCell,
};
pub use self::{
    apply_queue::{Committed, CommittedReceiver, RecvTimeoutError},
    compaction::Compacted,
    config::{Config, Hooks, LogWriter, NoPeers, PeerSink},
    errors::{CompactError, FatalError, ProposeError, ReadIndexError, StartError},
    handle::Handle,
    proposal::{Proposal, ProposalProgress, ProposalTicket},
    reads::ReadIndexFuture,
    status::Status,
};
use crate::{
    core::{Core, CoreConfig, InitialState},
    engine::Engine,
};

/// Starts a member. `log` must be the one that `initial` came from.
///
/// # Errors
/// If the initial state is inconsistent, or a thread cannot be started.
pub fn start(
    config: Config,
    log: impl LogWriter + 'static,
    initial: InitialState,
    hooks: Hooks,
) -> Result<(Handle, CommittedReceiver), StartError> {
    let id = initial.member_id;
    let core_config = CoreConfig {
        election_ticks: config.election_ticks,
        pre_vote: config.pre_vote,
        seed: config.seed ^ id,
        ..CoreConfig::new(id)
    };
    let (applied_index, base_index) = (initial.applied_index, initial.base_index);
    let core = Core::new(&core_config, initial)?;
    let (apply, receiver) = ApplyQueue::new();
    let status = StatusCell::new(MemberId(id), LogIndex(applied_index));
    status.publish(&core);
    status.publish_membership(&core);
    // Contexts must differ between members and between starts.
    let first_read_context = (config.seed ^ id.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let engine = Engine::new(core, base_index, config.leads_at_once_if_alone);
    let member = Arc::new(Member {
        config,
        hooks: LockedHooks {
            peers: hooks.peers,
            on_leadership: hooks.on_leadership,
        },
        on_fatal: Mutex::new(Some(hooks.on_fatal)),
        engine: Mutex::new(engine),
        inbox: Inbox::default(),
        reads: Mutex::new(Reads::new(first_read_context)),
        apply,
        status,
        applied_is_urgent: AtomicBool::new(true),
    });

    let turns = spawn("raft-turn", {
        let member = Arc::clone(&member);
        move || threads::run_turns(member)
    })?;
    let disk = spawn("raft-disk", {
        let member = Arc::clone(&member);
        move || threads::run_disk(member, log)
    });
    let disk = match disk {
        Ok(disk) => disk,
        Err(error) => {
            member.end();
            return Err(error);
        }
    };
    Ok((Handle::new(member, vec![turns, disk]), receiver))
}

fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, StartError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(StartError::Thread)
}
