//! The network between members fails in many ways. The majority keeps serving, members that are
//! cut off return nothing that could be wrong, and after the network heals all members hold the
//! same data and one order of all requests explains every response.
//!
//! `PORTUNUS_CLUSTER_ROUNDS` repeats each scenario that many times within one history.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::cluster::{Cluster, ELECTION_TIMEOUT};
use common::load::Load;
use common::proxy::{CUT, Link};
use common::requests::{delete, get};
use portunus_proto::etcdserverpb::LeaseKeepAliveRequest;

/// Responses of each member after which a scenario continues.
const SOME: u64 = 40;
/// The time in which members that are cut off could return something wrong.
const CUT_OFF_TIME: Duration = Duration::from_secs(4);

fn rounds() -> usize {
    let rounds = std::env::var("PORTUNUS_CLUSTER_ROUNDS");
    rounds.map_or(1, |text| text.parse().expect("a number"))
}

fn without(members: &[usize], those: &[usize]) -> Vec<usize> {
    let others = members.iter().copied();
    others.filter(|member| !those.contains(member)).collect()
}

/// Waits until the rest serves again; prints how long that took.
async fn serves_again(cluster: &Cluster, load: &Load, members: &[usize], since: Instant) {
    load.goes_on(cluster, members, 1).await;
    eprintln!(
        "served again after {} ms; an election timeout is {} ms",
        since.elapsed().as_millis(),
        ELECTION_TIMEOUT.as_millis()
    );
    load.goes_on(cluster, members, SOME).await;
}

/// Checks that a member that is cut off serves neither a write nor a linearizable read.
/// Requests from before the cut may be answered a moment later, so the requests here are new
/// ones. The write changes nothing if it is applied later.
async fn tells_nothing(cluster: &Cluster, members: &[usize]) {
    let deadline = Instant::now() + CUT_OFF_TIME;
    for member in members {
        let mut kv = cluster.clients(*member).kv;
        let mut writer = kv.clone();
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_secs(1));
        let read = tokio::time::timeout(left, kv.range(get("k0")));
        let written = tokio::time::timeout(left, writer.delete_range(delete("nobody")));
        let (read, written) = tokio::join!(read, written);
        for answer in [read.map(|it| it.map(drop)), written.map(|it| it.map(drop))] {
            assert!(
                !matches!(answer, Ok(Ok(()))),
                "m{member} is cut off and answers\n{}",
                cluster.logs()
            );
        }
    }
}

/// Cuts off some members, chosen by `choose`, and reconnects them.
async fn some_are_cut_off(
    test: &str,
    count: usize,
    mut choose: impl AsyncFnMut(&mut Cluster) -> Vec<usize>,
) {
    let mut cluster = Cluster::start(test, count, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    for _ in 0..rounds() {
        load.goes_on(&cluster, &all, SOME).await;
        let minority = choose(&mut cluster).await;
        let majority = without(&all, &minority);
        cluster.network.part(&minority, &majority);
        let since = Instant::now();
        serves_again(&cluster, &load, &majority, since).await;
        tells_nothing(&cluster, &minority).await;
        assert!(majority.contains(&cluster.leader_among(&majority).await));
        cluster.network.heal();
        serves_again(&cluster, &load, &all, Instant::now()).await;
    }
    load.judge(&cluster).await;
}

/// The old leader does not know yet that it lost leadership.
#[tokio::test(flavor = "multi_thread")]
async fn partitioned_leader_of_three_answers_no_linearizable_request() {
    let test = "partitioned_leader_of_three_answers_no_linearizable_request";
    some_are_cut_off(test, 3, async |cluster| vec![cluster.leader().await]).await;
}

/// A leader that was replaced does not know the leases that its successor grants, so it must not
/// answer that a lease does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn leader_that_is_cut_off_does_not_answer_that_a_lease_does_not_exist() {
    let cluster = Cluster::start("leader_cut_off_leases", 3, &[]).await;
    let leader = cluster.leader().await;
    let others = without(&cluster.running(), &[leader]);
    let mut lease = cluster.clients(leader).lease;
    cluster.network.part(&[leader], &others);
    let renewals = tokio_stream::iter([LeaseKeepAliveRequest { id: 4711 }]);
    let answer = async {
        let mut answers = lease.lease_keep_alive(renewals).await?.into_inner();
        answers.message().await
    };
    let answer = tokio::time::timeout(CUT_OFF_TIME, answer).await;
    let is_answered = matches!(answer, Ok(Ok(Some(_))));
    assert!(!is_answered, "{answer:?}\n{}", cluster.logs());
}

/// The leader is cut off together with a follower: it still has one active peer.
#[tokio::test(flavor = "multi_thread")]
async fn partitioned_leader_of_five_answers_no_linearizable_request() {
    let test = "partitioned_leader_of_five_answers_no_linearizable_request";
    some_are_cut_off(test, 5, async |cluster| {
        let follower = cluster.follower().await;
        vec![cluster.leader().await, follower]
    })
    .await;
}

/// Followers that are cut off neither respond nor disturb the others when they return.
#[tokio::test(flavor = "multi_thread")]
async fn partitioned_follower_answers_no_linearizable_request() {
    let test = "partitioned_follower_answers_no_linearizable_request";
    some_are_cut_off(test, 3, async |cluster| vec![cluster.follower().await]).await;
}

/// One direction of one link fails. The leader cannot send to a follower, or a follower cannot
/// send to the leader; there is a majority that can do without that link.
#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_after_a_one_way_link_failure() {
    let test = "writes_continue_after_a_one_way_link_failure";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    for to_leader in [true, false].repeat(rounds()) {
        load.goes_on(&cluster, &all, SOME).await;
        let follower = cluster.follower().await;
        let leader = cluster.leader().await;
        let (from, to) = match to_leader {
            true => (follower, leader),
            false => (leader, follower),
        };
        cluster.network.set(from, to, CUT);
        serves_again(
            &cluster,
            &load,
            &without(&all, &[follower, leader]),
            Instant::now(),
        )
        .await;
        cluster.network.heal();
        serves_again(&cluster, &load, &all, Instant::now()).await;
    }
    load.judge(&cluster).await;
}

/// The leader receives all messages, and none of its own arrive: the others elect one of them.
#[tokio::test(flavor = "multi_thread")]
async fn leader_that_cannot_send_is_replaced() {
    let test = "leader_that_cannot_send_is_replaced";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    load.goes_on(&cluster, &all, SOME).await;
    let mute = cluster.leader().await;
    let others = without(&all, &[mute]);
    for other in &others {
        cluster.network.set(mute, *other, CUT);
    }
    serves_again(&cluster, &load, &others, Instant::now()).await;
    tells_nothing(&cluster, &[mute]).await;
    cluster.network.heal();
    serves_again(&cluster, &load, &all, Instant::now()).await;
    load.judge(&cluster).await;
}

/// Links of random members come and go faster than a leader can be elected, then stay.
#[tokio::test(flavor = "multi_thread")]
async fn writes_continue_while_links_fail_and_recover() {
    let mut cluster = Cluster::start("writes_continue_while_links_fail_and_recover", 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    load.goes_on(&cluster, &all, SOME).await;
    for _ in 0..20 * rounds() {
        let one = usize::try_from(cluster.random.below(3)).unwrap();
        match cluster.random.below(3) {
            0 => cluster.network.heal(),
            1 => cluster.network.part(&[one], &without(&all, &[one])),
            _ => cluster.network.set(one, (one + 1) % 3, CUT),
        }
        let pause = Duration::from_millis(50 + cluster.random.below(400));
        tokio::time::sleep(pause).await;
    }
    cluster.network.heal();
    serves_again(&cluster, &load, &all, Instant::now()).await;
    load.judge(&cluster).await;
}

/// Every message takes a fifth of an election timeout, each way.
#[tokio::test(flavor = "multi_thread")]
async fn slow_network_loses_no_write() {
    let mut cluster = Cluster::start("a_slow_network", 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    load.goes_on(&cluster, &all, SOME / 2).await;
    let slow = Link {
        delay: Duration::from_millis(100),
        ..Link::default()
    };
    cluster.network.set_all(&all, slow);
    load.goes_on(&cluster, &all, SOME / 2).await;
    // A kill on top.
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let others = cluster.running();
    serves_again(&cluster, &load, &others, Instant::now()).await;
    cluster.start_one(leader).await;
    cluster.network.heal();
    load.judge(&cluster).await;
}

/// One piece in five is lost and sent again, and now and then a connection breaks.
#[tokio::test(flavor = "multi_thread")]
async fn lossy_network_loses_no_write() {
    let mut cluster = Cluster::start("a_lossy_network", 3, &[]).await;
    let load = Load::on_all(&mut cluster);
    let all = cluster.running();
    let lossy = Link {
        loss_percent: 20,
        ..Link::default()
    };
    for _ in 0..rounds() {
        cluster.network.set_all(&all, lossy);
        load.goes_on(&cluster, &all, SOME / 2).await;
        cluster.network.heal();
        load.goes_on(&cluster, &all, SOME / 2).await;
    }
    load.judge(&cluster).await;
}
