//! Probes the peers that the leader holds entries back from
//! ([`ReplicationHold`](crate::peers::replication_hold::ReplicationHold)).

use std::time::Duration;

use crate::handles::{ClusterState, Process};
use crate::peers::Peers;
use crate::peers::ask::Asked;

/// Time between two probes of peers whose feature support is unknown.
const HELD_PEERS_INTERVAL: Duration = Duration::from_millis(500);

/// Asks held peers whether they support cluster features, and releases those that do, so that
/// they receive the log.
pub async fn probe_held_peers(process: &Process, cluster: &ClusterState, peers: &Peers) {
    let hold = peers.replication_hold();
    loop {
        tokio::select! {
            () = tokio::time::sleep(HELD_PEERS_INTERVAL) => {}
            () = hold.held_changed() => {}
            () = process.stop.stopped() => return,
        }
        for id in hold.held() {
            let membership = cluster.membership_full();
            let Some(record) = membership.get(id).filter(|_| id != cluster.own_id().0) else {
                continue;
            };
            let asked = Asked {
                client: peers.client().clone(),
                urls: record.peer_urls.clone().unwrap_or_default(),
                timeout: HELD_PEERS_INTERVAL,
            };
            if asked.versions().await.is_some_and(|it| it.knows_gates) {
                let membership = cluster.membership();
                hold.release(id, &membership);
            }
        }
    }
}
