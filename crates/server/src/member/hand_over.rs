//! Transfers leadership before this member stops, so that the cluster need not wait for an
//! election timeout.

use std::cmp::Reverse;

use portunus_consensus::Leadership;
use portunus_gates::cluster::MemberId;

use super::Member;

impl Member {
    /// Transfers leadership to the connected voter that has most of the log, if this member
    /// leads. Returns once another member leads, or after an election timeout at the latest.
    pub async fn hand_leadership_over(&self) {
        let own = self.cluster.own_id();
        if self.consensus.led_term().is_none() {
            return;
        }
        let Some(to) = self.most_caught_up_voter() else {
            tracing::info!("leadership not transferred: no other voter is connected");
            return;
        };
        let mut leadership = self.cluster.leadership.subscribe();
        self.consensus.transfer_leader(to);
        let is_moved = |now: &Leadership| now.leader != MemberId::NONE && now.leader != own;
        let moved = leadership.wait_for(is_moved);
        match tokio::time::timeout(self.process.config.election_timeout, moved).await {
            Ok(_) => {
                tracing::info!(to = %format_args!("{to:x}"), "leadership transferred before the stop");
            }
            Err(_) => {
                tracing::warn!(to = %format_args!("{to:x}"), "leadership transfer timed out; stopping as leader");
            }
        }
    }

    /// The other connected voter that has most of the log; among equals the one that is connected
    /// longest.
    fn most_caught_up_voter(&self) -> Option<u64> {
        let own = self.cluster.own_id();
        let membership = self.cluster.membership();
        let candidates = membership.iter().filter_map(|member| {
            let since = self.peers.active_since(member.id)?;
            let is_candidate = member.id != own.0 && !member.is_learner;
            let matched = self.consensus.matched(member.id)?;
            is_candidate.then_some((matched, Reverse(since), member.id))
        });
        candidates.max().map(|(_, _, id)| id)
    }
}
