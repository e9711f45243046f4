//! Members fail, restart, are replaced, lag and are restarted one after the other. Meanwhile
//! clients write and read through all of them; in the end one order of all requests explains
//! every response, and all members hold the same data.
//!
//! `PORTUNUS_CLUSTER_ROUNDS` repeats each scenario that many times within one history, and in
//! clusters of every size.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::cluster::Cluster;
use common::eventually;
use common::load::Load;
use common::requests::put;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::MemberPromoteRequest;

/// Responses of each member after which a scenario continues.
const SOME: u64 = 40;
/// Such that a member which is down for a moment needs a snapshot.
const SHORT_LOG: [&str; 2] = ["--snapshot-count=100", "--snapshot-catchup-entries=10"];

fn rounds() -> usize {
    let rounds = std::env::var("PORTUNUS_CLUSTER_ROUNDS");
    rounds.map_or(1, |text| text.parse().expect("a number"))
}

/// Returns the cluster sizes to test: the usual one, or all.
fn sizes(usual: usize) -> Vec<usize> {
    match rounds() {
        1 => vec![usual],
        _ => vec![3, 5],
    }
}

fn without(members: &[usize], one: usize) -> Vec<usize> {
    let others = members.iter().copied();
    others.filter(|member| *member != one).collect()
}

/// The leader is killed. The others elect one of them, and the killed one returns as a
/// follower.
async fn the_leader_is_killed(test: &str, count: usize) {
    let mut cluster = Cluster::start(test, count, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    for _ in 0..rounds() {
        load.goes_on(&cluster, &all, SOME).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        let others = without(&all, leader);
        load.goes_on(&cluster, &others, SOME).await;
        assert_ne!(cluster.leader().await, leader);
        cluster.start_one(leader).await;
        load.goes_on(&cluster, &all, SOME).await;
    }
    load.judge(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_elect_after_the_loss_of_their_leader() {
    the_leader_is_killed("three_members_elect_after_the_loss_of_their_leader", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_members_elect_after_the_loss_of_their_leader() {
    the_leader_is_killed("five_members_elect_after_the_loss_of_their_leader", 5).await;
}

/// As many followers are lost as a quorum can do without, and return.
#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_while_followers_fail_and_restart() {
    for count in sizes(5) {
        let mut cluster = Cluster::start(
            "writes_continue_while_followers_fail_and_restart",
            count,
            &[],
        )
        .await;
        let load = Load::on_all(&mut cluster);
        let all = cluster.running();
        for _ in 0..rounds() {
            load.goes_on(&cluster, &all, SOME).await;
            let mut killed = Vec::new();
            for _ in 0..count / 2 {
                let follower = cluster.follower().await;
                cluster.kill(follower);
                killed.push(follower);
            }
            let others = cluster.running();
            load.goes_on(&cluster, &others, SOME).await;
            cluster.start_all(&killed).await;
            load.goes_on(&cluster, &all, SOME).await;
        }
        load.judge(&cluster).await;
    }
}

/// All members lose power at once.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_crash_of_all_members() {
    for count in sizes(5) {
        let mut cluster = Cluster::start(
            "acknowledged_writes_survive_a_crash_of_all_members",
            count,
            &[],
        )
        .await;
        let load = Load::on_all(&mut cluster);
        let all = cluster.running();
        for _ in 0..rounds() {
            load.goes_on(&cluster, &all, SOME).await;
            for member in &all {
                cluster.kill(*member);
            }
            cluster.start_all(&all).await;
            load.goes_on(&cluster, &all, SOME).await;
        }
        load.judge(&cluster).await;
    }
}

/// A follower loses its disk. It is removed, added again under a new id, and catches up from an
/// empty log.
#[tokio::test(flavor = "multi_thread")]
async fn member_that_lost_its_data_is_replaced() {
    let test = "member_that_lost_its_data_is_replaced";
    for flags in [&[][..], &SHORT_LOG[..]] {
        let mut cluster = Cluster::start(test, 3, flags).await;
        let load = Load::on_all(&mut cluster);
        let all = cluster.running();
        load.goes_on(&cluster, &all, SOME).await;
        let lost = cluster.follower().await;
        let (old_id, others) = (cluster.members[lost].id, without(&all, lost));
        cluster.kill(lost);
        cluster.wipe(lost);
        cluster.remove_member(others[0], old_id).await;
        let new_id = cluster.add_member(lost, false).await;
        assert_ne!(new_id, old_id);
        cluster.start_one(lost).await;
        assert_eq!(cluster.members[lost].id, new_id);
        load.goes_on(&cluster, &all, SOME).await;
        load.judge(&cluster).await;
    }
}

/// A new member starts as learner. It serves no client before it is promoted, and votes after.
#[tokio::test(flavor = "multi_thread")]
async fn learner_is_added_and_promoted_under_load() {
    let test = "learner_is_added_and_promoted_under_load";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    let mut load = Load::on_all(&mut cluster);
    let voters = cluster.running();
    load.goes_on(&cluster, &voters, 2 * SOME).await;
    let learner = cluster.prepare_member();
    let id = cluster.add_member(learner, true).await;
    cluster.launch(learner);
    cluster.ready(learner).await;
    let status = cluster.status(learner).await.unwrap();
    assert!(status.is_learner);
    let refused = cluster.clients(learner).kv.put(put("a", "b")).await;
    let refused = EtcdError::from_status(&refused.unwrap_err());
    assert_eq!(refused, Some(EtcdError::NotSupportedForLearner));

    // Through a follower, which forwards to the leader.
    let by = cluster.leader_among(&voters).await;
    let by = without(&voters, by)[0];
    eventually("the learner to be ready", async || {
        let request = MemberPromoteRequest { id };
        match cluster.clients(by).cluster.member_promote(request).await {
            Ok(promoted) => {
                let members = promoted.into_inner().members;
                assert!(
                    members.iter().all(|member| !member.is_learner),
                    "{members:?}"
                );
                Some(())
            }
            Err(status) => {
                let refusal = EtcdError::from_status(&status);
                assert_eq!(refusal, Some(EtcdError::LearnerNotReady), "{status}");
                None
            }
        }
    })
    .await;
    load.add(&cluster, learner);
    load.goes_on(&cluster, &[0, 1, 2, learner], SOME).await;
    // It counts: with one of four down, three are the quorum.
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let others = cluster.running();
    load.goes_on(&cluster, &others, SOME).await;
    cluster.start_one(leader).await;
    load.judge(&cluster).await;
}

/// Leadership is transferred several times. No write has to fail for it, but some may.
#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_under_load() {
    let mut cluster = Cluster::start("leadership_moves_under_load", 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    for _ in 0..3 * rounds() {
        let to = cluster.follower().await;
        cluster.move_leader(to).await.unwrap();
        assert_eq!(cluster.leader().await, to);
        load.goes_on(&cluster, &all, SOME / 2).await;
    }
    // A follower cannot transfer leadership.
    let leader = cluster.leader().await;
    let follower = without(&all, leader)[0];
    let request = portunus_proto::etcdserverpb::MoveLeaderRequest {
        target_id: cluster.members[follower].id,
    };
    let refused = cluster
        .clients(follower)
        .maintenance
        .move_leader(request)
        .await;
    let refused = EtcdError::from_status(&refused.unwrap_err());
    assert_eq!(refused, Some(EtcdError::NotLeader));
    let request = portunus_proto::etcdserverpb::MoveLeaderRequest { target_id: 7 };
    let refused = cluster
        .clients(leader)
        .maintenance
        .move_leader(request)
        .await;
    let refused = EtcdError::from_status(&refused.unwrap_err());
    assert_eq!(refused, Some(EtcdError::BadLeaderTransferee));
    load.judge(&cluster).await;
}

/// A follower is down for longer than the log is kept, while writes continue. It catches up by
/// a snapshot; with the files it had, after a kill in the middle of it, and once more.
#[tokio::test(flavor = "multi_thread")]
async fn lagging_member_gets_a_snapshot() {
    let test = "lagging_member_gets_a_snapshot";
    let mut cluster = Cluster::start(test, 3, &SHORT_LOG).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    for _ in 0..2 * rounds() {
        load.goes_on(&cluster, &all, SOME).await;
        let lost = cluster.follower().await;
        let others = without(&all, lost);
        cluster.kill(lost);
        load.goes_on(&cluster, &others, 5 * SOME).await;
        // Killed at a random point while it catches up.
        cluster.launch(lost);
        let moment = Duration::from_millis(cluster.random.below(800));
        tokio::time::sleep(moment).await;
        cluster.kill(lost);
        load.goes_on(&cluster, &others, 5 * SOME).await;
        cluster.start_one(lost).await;
        // It may serve a moment before it logs it.
        eventually("a snapshot that was needed", async || {
            let log = cluster.members[lost].log();
            let is_installed = log.contains("the snapshot of the leader is installed");
            is_installed.then_some(())
        })
        .await;
        load.goes_on(&cluster, &all, SOME).await;
    }
    load.judge(&cluster).await;
}

/// Each member is stopped cleanly and started again, the leader among them.
#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_during_a_rolling_restart() {
    for count in sizes(3) {
        let test = "writes_continue_during_a_rolling_restart";
        let mut cluster = Cluster::start(test, count, &[]).await;
        let load = Load::on_all(&mut cluster);
        let all = cluster.running();
        for _ in 0..rounds() {
            for member in &all {
                cluster.stop(*member).await;
                load.goes_on(&cluster, &without(&all, *member), SOME / 4)
                    .await;
                cluster.start_one(*member).await;
            }
        }
        load.goes_on(&cluster, &all, SOME).await;
        load.judge(&cluster).await;
    }
}

/// Each member requests the hash of the others before it serves, and none of them serves yet.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_check_for_corruption_restart_together() {
    let test = "members_that_check_for_corruption_restart_together";
    let flags = ["--feature-gates=InitialCorruptCheck=true"];
    let mut cluster = Cluster::start(test, 3, &flags).await;
    let leader = cluster.leader().await;
    let mut kv = cluster.clients(leader).kv;
    kv.put(put("before", "1")).await.unwrap();
    cluster.agree().await;
    for member in 0..3 {
        cluster.kill(member);
    }
    // Takes no longer than any other start.
    cluster.start_all(&[0, 1, 2]).await;
    cluster.agree().await;

    // A member that finds the others running is compared with them.
    let follower = cluster.follower().await;
    cluster.kill(follower);
    cluster.start_one(follower).await;
    let log = cluster.members[follower].log();
    assert!(!log.contains("the data could not be compared"), "{log}");
    cluster.agree().await;
}
