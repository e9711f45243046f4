//! Starts the threads of a member besides those of consensus and of the listeners.

use std::sync::Arc;
use std::thread::JoinHandle;

use portunus_consensus::CommittedReceiver;
use portunus_statemachine::StateMachine;

use super::StartError;
use crate::apply::{ApplyThread, Outputs};
use crate::member::{
    Member, attributes, auto_compaction, corruption, downgrade, first_election, held_peers, leases,
    log_snapshots, settings, versions,
};

/// Starts the apply thread and the background threads.
pub(super) fn start(
    member: &Arc<Member>,
    machine: StateMachine,
    committed: CommittedReceiver,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let (orders, order_receiver) = std::sync::mpsc::channel();
    let apply = ApplyThread::new(outputs(member), machine, committed, orders);
    let log_snapshots = {
        let (process, store) = (Arc::clone(&member.process), Arc::clone(&member.store));
        let consensus = member.consensus.clone();
        move || log_snapshots::run_snapshots(&process, &store, &consensus, &order_receiver)
    };
    let watch_catch_up = {
        let (watches, store) = (Arc::clone(&member.watches), Arc::clone(&member.store));
        move || watches.run_catch_up(&store.history())
    };
    let upkeep = {
        let member = Arc::clone(member);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .thread_name("upkeep-blocking")
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        move || runtime.block_on(run_upkeep(member))
    };
    Ok(vec![
        spawn("apply", move || apply.run())?,
        spawn("log-snapshots", log_snapshots)?,
        spawn("watch-catch-up", watch_catch_up)?,
        spawn("upkeep", upkeep)?,
    ])
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(StartError::Thread)
}

fn outputs(member: &Member) -> Outputs {
    Outputs {
        process: Arc::clone(&member.process),
        store: Arc::clone(&member.store),
        cluster: Arc::clone(&member.cluster),
        auth: Arc::clone(&member.auth),
        consensus: member.consensus.clone(),
        proposals: Arc::clone(&member.proposals),
        leases: Arc::clone(&member.leases),
        watches: Arc::clone(&member.watches),
        peers: Arc::clone(&member.peers),
    }
}

/// Runs the background tasks until the member stops.
async fn run_upkeep(member: Arc<Member>) {
    tokio::join!(
        leases::revoke_expired(&member),
        leases::follow_leadership(&member.process, &member.cluster, &member.leases),
        first_election::hasten(
            &member.process,
            &member.cluster,
            &member.consensus,
            &member.peers
        ),
        attributes::keep_announced(&member),
        held_peers::probe_held_peers(&member.process, &member.cluster, &member.peers),
        leases::checkpoint(&member),
        versions::monitor(&member),
        downgrade::end_downgrades(&member),
        settings::warn_about_differences(&member),
        corruption::check_periodically(&member),
        corruption::check_compactions(&member),
        auto_compaction::compact_automatically(&member.process, &member.store, &member.proposals),
    );
}
