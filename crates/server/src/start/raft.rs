//! Starts consensus on the log of a prepared member.

use std::sync::Arc;

use portunus_consensus::bootstrap::{Boot, Identity};
use portunus_consensus::core::Role;
use portunus_consensus::{CommittedReceiver, FatalError, Handle, Hooks, Leadership};
use portunus_statemachine::wrap;

use super::{StartError, assemble};
use crate::config::Config;
use crate::handles::Process;
use crate::handles::leadership::Leaders;
use crate::peers::{Heartbeats, Peers};

/// Consensus as it was started.
pub(super) struct Raft {
    pub(super) identity: Identity,
    pub(super) handle: Handle,
    pub(super) leadership: Arc<Leaders>,
    pub(super) committed: CommittedReceiver,
    /// The newest entry of the log at the start that only members with cluster features read.
    pub(super) last_wrapped: u64,
}

/// Starts the threads of consensus.
pub(super) fn start(process: &Process, boot: Boot, peers: &Peers) -> Result<Raft, StartError> {
    let leadership = Arc::new(Leaders::default());
    let log = process.metrics.disk.measure_log(boot.wal);
    let entries = boot.initial.entries.iter();
    let wrapped = entries.filter(|entry| wrap::is_wrapped(&entry.data));
    let last_wrapped = wrapped.map(|entry| entry.index).max().unwrap_or(0);
    let hooks = hooks(process, peers, &leadership);
    let config = raft_config(&process.config);
    let (handle, committed) = portunus_consensus::start(config, log, boot.initial, hooks)?;
    Ok(Raft {
        identity: boot.identity,
        handle,
        leadership,
        committed,
        last_wrapped,
    })
}

fn raft_config(config: &Config) -> portunus_consensus::Config {
    portunus_consensus::Config {
        tick_interval: config.heartbeat_interval,
        election_ticks: config.election_ticks(),
        catch_up_entries: config.snapshot_catchup_entries,
        pre_vote: config.cluster.pre_vote,
        leads_at_once_if_alone: config.cluster.leads_at_once_if_alone,
        seed: assemble::unix_ms(),
        ..portunus_consensus::Config::default()
    }
}

fn hooks(process: &Process, peers: &Peers, leaders: &Arc<Leaders>) -> Hooks {
    let stop = Arc::clone(&process.stop);
    let leaders = Arc::clone(leaders);
    let leader_changes = process.metrics.leader_changes.clone();
    let heartbeats = Heartbeats::new(
        process.config.heartbeat_interval,
        process.metrics.heartbeat_failures.clone(),
    );
    Hooks {
        peers: peers.sink(heartbeats),
        on_fatal: Box::new(move |error: FatalError| stop.fatal(&error)),
        on_leadership: Box::new(move |leadership: Leadership| {
            if leaders.set(leadership) {
                leader_changes.inc();
            }
            tracing::info!(
                leader = %leadership.leader,
                term = leadership.term.0,
                role = role_name(leadership.role),
                "leadership changed"
            );
        }),
    }
}

/// The name of a raft state in etcd.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::Follower => "follower",
        Role::PreCandidate => "pre-candidate",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
    }
}
