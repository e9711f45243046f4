//! Snapshots that take a while: the receiving member is killed, cut off and stopped in the
//! middle, and has all data in the end.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::held_thread::HeldThread;
use common::{WAIT_MAX, eventually};
use portunus_proto::etcdserverpb::{PutRequest, RangeRequest};

/// Such that a member which is down for a moment needs a snapshot.
const SHORT_LOG: [&str; 2] = ["--snapshot-count=10", "--snapshot-catchup-entries=2"];

const VALUE_BYTES: usize = 1 << 20;
/// Enough for the file to exceed all buffers on the way.
const VALUES: usize = 48;
/// More than the log keeps.
const VALUES_AFTERWARDS: usize = 30;
/// How often a test tries to act while a snapshot arrives.
const TRIES: usize = 5;
/// The log line of an installed snapshot.
const INSTALLED: &str = "the snapshot of the leader is installed";

async fn fill(cluster: &Cluster, member: usize, values: usize) {
    let mut kv = cluster.clients(member).kv;
    for number in 0..values {
        let put = PutRequest {
            key: format!("large/{number}").into(),
            value: vec![b'x'; VALUE_BYTES].into(),
            ..PutRequest::default()
        };
        kv.put(put).await.unwrap();
    }
}

/// Returns the path of a snapshot that is being received or waits for its installation.
fn incoming(dir: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(dir.join("member")).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("receiving-") || name.starts_with("incoming-")
    })
}

/// Returns how often a member has logged a text since it was started.
fn said(cluster: &Cluster, member: usize, what: &str) -> usize {
    cluster.members[member].log().matches(what).count()
}

/// Waits until a snapshot arrives; `false` if one more than `before` were installed before it
/// was seen to arrive.
async fn is_receiving(cluster: &Cluster, member: usize, before: usize) -> bool {
    let node = &cluster.members[member];
    let deadline = Instant::now() + WAIT_MAX;
    while Instant::now() < deadline {
        if incoming(&node.dir).is_some() {
            return true;
        }
        if said(cluster, member, INSTALLED) > before {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no snapshot comes to {}:\n{}", node.name, cluster.logs());
}

#[tokio::test(flavor = "multi_thread")]
async fn member_killed_while_receiving_a_snapshot_installs_the_next() {
    let test = "member_killed_while_receiving_a_snapshot_installs_the_next";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    let lost = cluster.follower().await;
    cluster.kill(lost);
    let leader = cluster.leader().await;
    fill(&cluster, leader, VALUES).await;
    let mut kills_on_the_way = 0;
    for _ in 0..4 {
        cluster.launch(lost);
        if !is_receiving(&cluster, lost, 0).await {
            break;
        }
        let moment = Duration::from_millis(cluster.random.below(100));
        tokio::time::sleep(moment).await;
        kills_on_the_way += usize::from(incoming(&cluster.members[lost].dir).is_some());
        cluster.kill(lost);
        fill(&cluster, leader, VALUES_AFTERWARDS).await;
    }
    assert!(kills_on_the_way > 0, "no kill met a snapshot on its way");
    cluster.start_one(lost).await;
    cluster.agree().await;
    eventually("the end of what nobody waits for", async || {
        incoming(&cluster.members[lost].dir).is_none().then_some(())
    })
    .await;
}

/// Makes a follower need a snapshot, and cuts it off while it receives it; `None` if it was too
/// fast for that.
async fn cut_off_while_receiving(cluster: &mut Cluster, is_serving: bool) -> Option<usize> {
    let lost = cluster.follower().await;
    let others: Vec<usize> = (0..cluster.members.len())
        .filter(|it| *it != lost)
        .collect();
    let leader = cluster.leader().await;
    let given_up = "peer became inactive";
    let given_up_before = said(cluster, leader, given_up);
    let mut installed_before = said(cluster, lost, INSTALLED);
    if is_serving {
        cluster.network.part(&[lost], &others);
        // Otherwise the entries would be buffered in connections and delivered from there.
        eventually("the leader to give the connections up", async || {
            (said(cluster, leader, given_up) > given_up_before).then_some(())
        })
        .await;
    } else {
        cluster.kill(lost);
        installed_before = 0;
    }
    fill(cluster, leader, VALUES).await;
    if is_serving {
        cluster.network.heal();
    } else {
        cluster.launch(lost);
    }
    let receives = is_receiving(cluster, lost, installed_before).await;
    cluster.network.part(&[lost], &others);
    let is_caught = receives && incoming(&cluster.members[lost].dir).is_some();
    is_caught.then_some(lost)
}

/// The sender stops sending, without closing the connection, and the receiver is stopped: once
/// while it serves, once while it starts.
#[tokio::test(flavor = "multi_thread")]
async fn member_waiting_for_a_snapshot_can_be_stopped() {
    let test = "member_waiting_for_a_snapshot_can_be_stopped";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    for is_serving in [true, false] {
        let mut tries = 0;
        let lost = loop {
            if let Some(lost) = cut_off_while_receiving(&mut cluster, is_serving).await {
                break lost;
            }
            tries += 1;
            assert!(tries < TRIES, "it was too quick each time");
            cluster.network.heal();
            cluster.agree().await;
        };
        cluster.stop(lost).await;
        cluster.network.heal();
        cluster.start_one(lost).await;
        cluster.agree().await;
    }
}

/// Values that a follower misses each time it lags.
const VALUES_MISSED: usize = 12;
/// How often a follower is made to lag.
const ROUNDS: usize = 6;

/// A follower gets one snapshot after the other, so that the next one is complete while the
/// previous one is still being installed; and it is killed at random moments.
#[tokio::test(flavor = "multi_thread")]
async fn member_restarts_after_kills_while_snapshots_follow_each_other() {
    let test = "member_restarts_after_kills_while_snapshots_follow_each_other";
    let flags = ["--snapshot-count=2", "--snapshot-catchup-entries=1"];
    let mut cluster = Cluster::start(test, 3, &flags).await;
    let lost = cluster.follower().await;
    let leader = cluster.leader().await;
    fill(&cluster, leader, VALUES_MISSED).await;
    for _ in 0..ROUNDS {
        cluster.kill(lost);
        fill(&cluster, leader, VALUES_MISSED).await;
        cluster.launch(lost);
        // The log grows and is compacted all the time, so each snapshot is out of date when it
        // arrives.
        let moment = Duration::from_millis(200 + cluster.random.below(1500));
        let deadline = Instant::now() + moment;
        while Instant::now() < deadline {
            fill(&cluster, leader, 1).await;
        }
        let process = cluster.members[lost].process.as_mut().unwrap();
        let log = process.log();
        assert!(!process.has_ended(), "{log}");
    }
    cluster.ready(lost).await;
    cluster.agree().await;
    eventually("the removal of snapshots that are not needed", async || {
        incoming(&cluster.members[lost].dir).is_none().then_some(())
    })
    .await;
}

/// The request waits for the leader while a snapshot replaces the store.
#[tokio::test(flavor = "multi_thread")]
async fn linearizable_range_stream_reads_the_installed_store() {
    let test = "linearizable_range_stream_reads_the_installed_store";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    for _ in 0..TRIES {
        let lost = cluster.follower().await;
        let others: Vec<usize> = (0..cluster.members.len())
            .filter(|it| *it != lost)
            .collect();
        let leader = cluster.leader().await;
        let given_up = "peer became inactive";
        let given_up_before = said(&cluster, leader, given_up);
        let installed_before = said(&cluster, lost, INSTALLED);
        cluster.network.part(&[lost], &others);
        // Otherwise the entries would be buffered in connections and delivered from there.
        eventually("the leader to give the connections up", async || {
            (said(&cluster, leader, given_up) > given_up_before).then_some(())
        })
        .await;
        fill(&cluster, leader, VALUES_MISSED).await;
        let last_put = PutRequest {
            key: "last".into(),
            ..PutRequest::default()
        };
        let last = cluster.clients(leader).kv.put(last_put).await.unwrap();
        let written = last.into_inner().header.unwrap().revision;
        let mut kv = cluster.clients(lost).kv;
        let request = RangeRequest {
            key: "last".into(),
            ..RangeRequest::default()
        };
        let read = tokio::spawn(async move {
            let mut pieces = kv.range_stream(request).await?.into_inner();
            let first = pieces.message().await?;
            Ok::<_, tonic::Status>(first.unwrap().range_response.unwrap())
        });
        // Long enough to arrive; it cannot be answered before the network heals.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!read.is_finished(), "answered without a leader");
        cluster.network.heal();
        let answer = read.await.unwrap();
        cluster.agree().await;
        match answer {
            Ok(answer) => {
                let revision = answer.header.unwrap().revision;
                assert!(revision >= written, "{revision} is before {written}");
            }
            // It timed out; once more.
            Err(_) => continue,
        }
        if said(&cluster, lost, INSTALLED) > installed_before {
            return;
        }
    }
    panic!("no read waited while a snapshot was installed");
}

/// Entries that a log keeps before the index of its compaction; see [`SHORT_LOG`].
const CATCH_UP_ENTRIES: u64 = 2;

/// Returns the index of a member's last compaction of its log.
fn compacted_index(log: &str) -> u64 {
    let lines = log
        .lines()
        .filter(|line| line.contains("snapshot of the log taken"));
    let index = |line: &str| {
        let fields: serde_json::Value = serde_json::from_str(line).ok()?;
        fields["index"].as_u64()
    };
    lines.filter_map(index).max().unwrap_or(0)
}

/// A follower whose raft has a snapshot and whose apply thread is blocked still votes and
/// acknowledges entries: the two remaining members elect a leader and serve.
#[tokio::test(flavor = "multi_thread")]
async fn two_of_three_elect_a_leader_while_one_installs_a_snapshot() {
    let test = "two_of_three_elect_a_leader_while_one_installs_a_snapshot";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    let lost = cluster.follower().await;
    let leader = cluster.leader().await;
    let other = 3 - lost - leader;
    // A snapshot waits for entries that are committed and not applied: there must be none.
    cluster.agree().await;
    let given_up = "peer became inactive";
    let given_up_before = said(&cluster, leader, given_up);
    cluster.network.part(&[lost], &[leader, other]);
    // Otherwise the entries would be buffered in connections and delivered from there.
    eventually("the leader to give the connections up", async || {
        (said(&cluster, leader, given_up) > given_up_before).then_some(())
    })
    .await;
    let applied = cluster.status(lost).await.unwrap().raft_applied_index;
    fill(&cluster, leader, VALUES_AFTERWARDS).await;
    eventually("the entries to leave the leader's log", async || {
        let compacted = compacted_index(&cluster.members[leader].log());
        (compacted > applied + CATCH_UP_ENTRIES).then_some(())
    })
    .await;
    let written = cluster.status(leader).await.unwrap();
    let process = cluster.members[lost].process.as_ref().unwrap().id();
    let held = match HeldThread::hold(process, "apply") {
        Ok(held) => held,
        Err(error) => {
            eprintln!("SKIPPED {test}: threads cannot be traced here: {error}");
            return;
        }
    };
    cluster.network.heal();
    // Only a snapshot gets it there: the log of the leader begins later.
    let before = eventually("raft to take the snapshot", async || {
        let status = cluster.status(lost).await?;
        (status.raft_index >= written.raft_index).then_some(status)
    })
    .await;
    assert!(before.raft_applied_index < written.raft_index, "{before:?}");
    assert!(incoming(&cluster.members[lost].dir).is_some());

    cluster.kill(leader);
    let elected = eventually("a leader of the two", async || {
        let status = cluster.status(other).await?;
        let leads = |member: usize| status.leader == cluster.members[member].id;
        (status.raft_term > before.raft_term && (leads(other) || leads(lost))).then_some(status)
    })
    .await;
    let mut kv = cluster.clients(other).kv;
    let put = common::requests::put("elected", "1");
    common::soon("a write without the old leader", kv.put(put))
        .await
        .unwrap();
    let during = cluster.status(lost).await.unwrap();
    assert_eq!(during.raft_applied_index, before.raft_applied_index);
    assert_eq!(during.raft_term, elected.raft_term, "{during:?}");
    assert_eq!(said(&cluster, lost, INSTALLED), 0, "{}", cluster.logs());

    drop(held);
    cluster.agree().await;
    assert!(said(&cluster, lost, INSTALLED) > 0);
    cluster.start_one(leader).await;
    cluster.agree().await;
}
