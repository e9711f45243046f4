//! Shortens the first election timeout of a member with peers.
//!
//! A starting member does not know how long its cluster was without a leader, and would wait for
//! a whole election timeout after its peers are connected. Once a quorum is connected most of
//! that wait is skipped, as in etcd (`--initial-election-tick-advance`).

use std::time::Duration;

use portunus_consensus::Handle;
use portunus_gates::cluster::MemberId;

use crate::handles::{ClusterState, Process};
use crate::peers::Peers;

/// Time between two checks of the connections.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Checks after which the whole election timeout applies: five seconds, as in etcd.
const LOOKS_MAX: u32 = 250;
/// Ticks of the timeout that are left, so that a leader's message can arrive before the end.
const TICKS_LEFT: usize = 2;

/// Skips most of the first election timeout once a quorum is connected and no leader known.
pub async fn hasten(process: &Process, cluster: &ClusterState, consensus: &Handle, peers: &Peers) {
    let flags = &process.config.cluster;
    // Without pre-vote, a restarted member could depose a leader.
    if !flags.leads_at_once_if_alone || !flags.pre_vote {
        return;
    }
    for _ in 0..LOOKS_MAX {
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            () = process.stop.stopped() => return,
        }
        if consensus.status().leader != MemberId::NONE {
            return;
        }
        // Founders compare their versions first, and may have to stop.
        if !cluster.founding.is_over() {
            continue;
        }
        let membership = cluster.membership();
        let voters = membership.iter().filter(|member| !member.is_learner);
        let voters: Vec<u64> = voters.map(|member| member.id).collect();
        let count = voters.len();
        let connected = peers.active_for(voters, Duration::ZERO);
        if let Some(ticks) = ticks_to_skip(process.config.election_ticks(), count, connected) {
            tracing::info!(
                forward_ticks = ticks,
                "initialized peer connections; fast-forwarding election ticks"
            );
            consensus.skip_ticks_without_leader(ticks);
            return;
        }
    }
}

/// The ticks to skip when `connected` of the voters are connected, this member included.
fn ticks_to_skip(election_ticks: usize, voters: usize, connected: usize) -> Option<usize> {
    let has_quorum = voters > 1 && connected > voters / 2;
    has_quorum.then(|| election_ticks.saturating_sub(TICKS_LEFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn election_is_hastened_once_a_quorum_is_connected() {
        for (voters, connected, skipped) in [
            (0, 1, None),
            (1, 1, None),
            (2, 1, None),
            (2, 2, Some(8)),
            (3, 1, None),
            (3, 2, Some(8)),
            (4, 2, None),
            (5, 3, Some(8)),
        ] {
            let ticks = ticks_to_skip(10, voters, connected);
            assert_eq!(ticks, skipped, "{connected} of {voters}");
        }
        assert_eq!(ticks_to_skip(2, 3, 3), Some(0));
    }
}
