//! Founding a cluster with members of different minor versions: no member serves before it
//! has compared its version with the others', and the same directories start afterwards.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::cluster::Cluster;
use common::gates::MECHANISM;
use common::requests::{get, put};
use common::versions::{emulate, until_cluster_version, versions};
use common::{READY, eventually};

/// The versions of the three founders; the last differs from the majority.
const MAJORITY: &str = "3.8";
const MINORITY: &str = "3.7";
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

/// The outcome of a founder's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Serves,
    Stopped,
}

/// Waits until every launched member serves or has ended.
async fn fates(cluster: &mut Cluster) -> Vec<Fate> {
    eventually("every founder to serve or stop", async || {
        let nodes = cluster.members.iter_mut();
        let fates = nodes.map(|node| {
            let process = node.process.as_mut()?;
            match (process.has_ended(), process.has_logged(READY)) {
                (true, _) => Some(Fate::Stopped),
                (false, true) => Some(Fate::Serves),
                (false, false) => None,
            }
        });
        fates.collect::<Option<Vec<Fate>>>()
    })
    .await
}

/// In any order of starts, either all founders stop, or the majority serves and the member of
/// the other version stops. Each logs the versions, and no member that stopped has served. With
/// one version the same directories start, and the version is decided.
/// Proves: S0-21, S0-A2
#[tokio::test(flavor = "multi_thread")]
async fn founders_of_two_versions_stop_or_a_majority_serves_in_every_order() {
    for (number, order) in ORDERS.into_iter().enumerate() {
        let test = format!("founders-{number}");
        let mut cluster = Cluster::prepare(&test, 3, &[MECHANISM]).await;
        cluster.members[2].flags = vec![emulate(MINORITY)];
        for (place, member) in order.into_iter().enumerate() {
            cluster.launch(member);
            if place == number % 3 {
                // Some start together, some after another one listens.
                let process = cluster.members[member].process.as_ref().unwrap();
                process.find_line("listening for peers");
            }
        }
        let fates = fates(&mut cluster).await;
        eprintln!("{order:?}: {fates:?}");
        assert!(
            fates == [Fate::Stopped; 3] || fates == [Fate::Serves, Fate::Serves, Fate::Stopped],
            "{fates:?}\n{}",
            cluster.logs()
        );
        if fates[0] == Fate::Serves {
            cluster.clients(0).kv.put(put("kept", "x")).await.unwrap();
        }
        for (member, fate) in fates.iter().enumerate() {
            if *fate == Fate::Serves {
                continue;
            }
            let (ended_well, log) = cluster.ended(member).await;
            assert!(!ended_well && !log.contains(READY), "{log}");
            let why = log.lines().last().unwrap();
            assert!(why.contains(MAJORITY) && why.contains(MINORITY), "{log}");
            assert!(why.contains("--emulated-version"), "{log}");
            assert!(!log.contains("panic"), "{log}");
        }
        cluster.members[2].flags.clear();
        let stopped: Vec<usize> = (0..3)
            .filter(|it| cluster.members[*it].process.is_none())
            .collect();
        cluster.start_all(&stopped).await;
        until_cluster_version(&cluster, "3.8.0").await;
        if fates[0] == Fate::Serves {
            let read = cluster.clients(2).kv.range(get("kept")).await.unwrap();
            assert_eq!(read.into_inner().kvs.len(), 1);
        }
        cluster.agree().await;
    }
}

/// Two of three founders form the cluster and serve. The third starts later with another
/// version and stops before it has published anything; the others continue, also through a
/// restart.
#[tokio::test(flavor = "multi_thread")]
async fn late_founder_of_another_version_stops_and_the_majority_serves() {
    let mut cluster = Cluster::prepare("founder-late", 3, &[MECHANISM]).await;
    cluster.members[2].flags = vec![emulate(MINORITY)];
    cluster.start_all(&[0, 1]).await;
    cluster.clients(0).kv.put(put("a", "b")).await.unwrap();
    for _ in 0..2 {
        cluster.launch(2);
        let (ended_well, log) = cluster.ended(2).await;
        let why = log.lines().last().unwrap();
        assert!(!ended_well && !log.contains(READY), "{log}");
        assert!(why.contains("serve as 3.8 (m0, m1)"), "{log}");
        assert!(why.contains("--emulated-version=3.8"), "{log}");
    }
    let members = cluster.member_list(0).await;
    let published = members.iter().filter(|it| !it.client_urls.is_empty());
    let published = published.count();
    assert_eq!(published, 2, "{members:?}");
    cluster.clients(1).kv.put(put("a", "c")).await.unwrap();
    // Without a decided version a restart compares again.
    cluster.stop(1).await;
    cluster.start_one(1).await;
    cluster.clients(1).kv.put(put("a", "d")).await.unwrap();

    cluster.members[2].flags.clear();
    cluster.start_one(2).await;
    until_cluster_version(&cluster, "3.8.0").await;
    cluster.agree().await;
}

/// Founders that have published under one version and were all stopped before the version was
/// decided may start with another: their earlier attributes do not prevent it.
#[tokio::test(flavor = "multi_thread")]
async fn undecided_cluster_starts_with_another_version_in_the_same_directories() {
    let mut cluster = Cluster::prepare("founders-again", 3, &[MECHANISM]).await;
    // Without the third the version stays undecided.
    cluster.start_all(&[0, 1]).await;
    assert!(!versions(&cluster, 0).await.1.starts_with("3.8"));
    for member in [0, 1] {
        cluster.stop(member).await;
    }
    for node in &mut cluster.members {
        node.flags = vec![emulate(MINORITY)];
    }
    cluster.start_all(&[0, 1, 2]).await;
    until_cluster_version(&cluster, "3.7.0").await;
    cluster.agree().await;
}
