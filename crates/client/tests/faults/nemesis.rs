//! Faults of a cluster of three members.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portunus_client::Client;
use portunus_testkit::cluster::Cluster;
use portunus_testkit::member::Member;
use portunus_testkit::wait::until;

use crate::store::connect;

/// What must still work after the faults, so that they are not the end of the test.
const PROGRESS_AFTER_FAULTS: usize = 10;
/// Longer than an election, so that the cluster changes its leader.
const PARTITION: Duration = Duration::from_secs(3);

pub struct Nemesis {
    pub cluster: Cluster,
}

impl Nemesis {
    pub async fn start(test: &str) -> Nemesis {
        let cluster = Cluster::start(test, 3, &[]).await;
        cluster.leader().await;
        Nemesis { cluster }
    }

    /// Returns a client of all members.
    pub fn client(&self) -> Client {
        connect(self.cluster.members.iter().map(Member::endpoint).collect())
    }

    pub async fn kill_the_leader(&mut self) {
        let leader = self.cluster.leader().await;
        self.cluster.kill(leader);
        let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
        self.cluster.leader_among(&others).await;
        self.cluster.start_one(leader).await;
    }

    pub async fn move_the_leader(&mut self) {
        let follower = self.cluster.follower().await;
        // A transfer that fails is a fault, too.
        let _ = self.cluster.move_leader(follower).await;
        self.cluster.leader().await;
    }

    /// Cuts the leader off: its clients have no leader.
    pub async fn isolate_the_leader(&mut self) {
        let leader = self.cluster.leader().await;
        let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
        self.cluster.network.part(&[leader], &others);
        tokio::time::sleep(PARTITION).await;
        self.cluster.network.heal();
        self.cluster.leader().await;
    }

    /// Stops all members and starts them again.
    pub async fn restart_all(&mut self) {
        for member in 0..3 {
            self.cluster.kill(member);
        }
        self.cluster.start_all(&[0, 1, 2]).await;
        self.cluster.leader().await;
    }

    /// Makes every fault, then waits until `progress` is counted as without faults.
    pub async fn every_fault(&mut self, progress: &AtomicUsize) {
        self.kill_the_leader().await;
        self.isolate_the_leader().await;
        self.move_the_leader().await;
        self.restart_all().await;
        let before = progress.load(Ordering::Relaxed);
        until("progress after the faults", async || {
            let now = progress.load(Ordering::Relaxed);
            let is_enough = now >= before + PROGRESS_AFTER_FAULTS;
            is_enough.then_some(()).ok_or(now)
        })
        .await;
    }
}
