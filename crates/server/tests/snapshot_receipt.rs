//! One member, and a handmade leader that sends it one snapshot after the other: snapshots that
//! were received and are in the log must be there when the member restarts.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::Cluster;
use common::eventually;
use common::leader_snapshot::{Database, envelope};
use portunus_consensus::bootstrap;
use portunus_proto::raftpb::{ConfState, Message, MessageType, Snapshot, SnapshotMetadata};

const TERM: u64 = 5;
/// So many that opening the store takes longer than receiving a small snapshot.
const RECORDS: usize = 60_000;
const ROUNDS: u64 = 3;

/// The only member of three that runs, and the ids of all.
struct Receiver {
    cluster: Cluster,
    ids: Vec<u64>,
}

impl Receiver {
    async fn start(test: &str) -> Receiver {
        let mut cluster = Cluster::prepare(test, 3, &[]).await;
        let id = |url: String| bootstrap::member_id(&[url], "test");
        let ids = cluster.members.iter().map(|node| id(node.peer_url()));
        let ids = ids.collect();
        cluster.launch(0);
        let receiver = Receiver { cluster, ids };
        receiver.listens().await;
        receiver
    }

    fn log(&self) -> String {
        self.cluster.members[0].log()
    }

    async fn listens(&self) {
        eventually("the member to listen", async || {
            self.log().contains("listening for peers").then_some(())
        })
        .await;
    }

    async fn restart(&mut self) {
        self.cluster.kill(0);
        self.cluster.launch(0);
        self.listens().await;
    }

    /// Sends a snapshot as the leader of a later term; returns the status.
    async fn send(&self, index: u64, records: usize) -> u16 {
        let message = Message {
            r#type: MessageType::MsgSnap.into(),
            from: self.ids[1],
            to: self.ids[0],
            term: TERM,
            snapshot: Some(Snapshot {
                data: Default::default(),
                metadata: Some(SnapshotMetadata {
                    index,
                    term: TERM,
                    conf_state: Some(ConfState {
                        voters: self.ids.clone(),
                        ..ConfState::default()
                    }),
                }),
            }),
            ..Message::default()
        };
        let database = Database {
            records,
            ..Database::at(index)
        };
        let body = [envelope(&message), database.encode()].concat();
        let cluster_id = format!("{:x}", bootstrap::cluster_id(&self.ids));
        let from = format!("{:x}", self.ids[1]);
        let to = format!("{:x}", self.ids[0]);
        let headers = [
            ("X-Server-From", from.as_str()),
            ("X-Server-Version", "3.8.0"),
            ("X-Min-Cluster-Version", "3.0.0"),
            ("X-Etcd-Cluster-ID", cluster_id.as_str()),
            ("X-Raft-To", to.as_str()),
        ];
        let asked = self
            .cluster
            .ask_peer_port(0, "POST", "/raft/snapshot", &headers, &body);
        asked.await.status
    }

    async fn has_installed(&mut self, index: u64) {
        let line = format!(r#""index":{index},"revision""#);
        eventually("the installation", async || {
            let log = self.log();
            let process = self.cluster.members[0].process.as_mut().unwrap();
            assert!(!process.has_ended(), "{log}");
            let mut lines = log.lines().filter(|it| it.contains("is installed"));
            lines.any(|it| it.contains(&line)).then_some(())
        })
        .await;
    }

    /// Returns the names of the backends and snapshots on disk.
    fn stored(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.cluster.members[0].dir.join("member")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "wal").collect();
        names.sort();
        names
    }
}

/// The second snapshot is complete while the first is being installed.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_received_during_an_installation_survives_it() {
    let test = "snapshot_received_during_an_installation_survives_it";
    let mut receiver = Receiver::start(test).await;
    for round in 1..=ROUNDS {
        let (first, second) = (round * 1000, round * 1000 + 500);
        assert_eq!(receiver.send(first, RECORDS).await, 204);
        assert_eq!(receiver.send(second, 1).await, 204);
        receiver.has_installed(second).await;
        eventually("the removal of what was replaced", async || {
            let current = format!("portunus-{second:016x}");
            (receiver.stored() == [current]).then_some(())
        })
        .await;
        receiver.restart().await;
    }
}

/// The same snapshot arrives again while the first one of its index is being installed, and
/// after that; older ones arrive, too. The member is killed in between.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_received_again_does_not_change_its_installation() {
    let test = "snapshot_received_again_does_not_change_its_installation";
    let mut receiver = Receiver::start(test).await;
    for round in 1..=ROUNDS {
        let index = round * 1000;
        assert_eq!(receiver.send(index, RECORDS).await, 204);
        for again in [index, index - 1, index] {
            assert_eq!(receiver.send(again, RECORDS).await, 204);
        }
        if round % 2 == 1 {
            receiver.has_installed(index).await;
            assert_eq!(receiver.send(index, RECORDS).await, 204);
        }
        receiver.restart().await;
        eventually("nothing but the backend", async || {
            (receiver.stored() == [format!("portunus-{index:016x}")]).then_some(())
        })
        .await;
    }
}
