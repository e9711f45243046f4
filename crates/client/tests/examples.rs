//! The examples of the client that need a server, run.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../examples/feature_aware.rs"]
#[allow(dead_code)]
mod feature_aware;
#[path = "../examples/leader_election.rs"]
#[allow(dead_code)]
mod leader_election;
#[path = "support/store.rs"]
mod store;

use std::ops::ControlFlow;
use std::time::Duration;

use feature_aware::CodePath;
use leader_election::Resource;
use portunus_client::concurrency::Election;
use portunus_client::{Delete, Range, Watch};
use portunus_testkit::program::Program;
use portunus_testkit::wait::{eventually, soon};
use tokio::sync::mpsc;

use self::store::{Store, connect};

/// Returns the fencing revision and the name of every step that was written.
async fn steps(store: &Store) -> Vec<(i64, String)> {
    let read = store
        .client
        .range(Range::key("/example/job"))
        .await
        .unwrap();
    let last = read.kvs[0].mod_revision;
    let watch = Watch::key("/example/job").from_revision(1);
    let mut watcher = store.client.watch(watch);
    let mut steps = Vec::new();
    let mut seen = 0;
    while seen < last {
        let response = soon("events", watcher.next()).await.unwrap().unwrap();
        for event in response.events {
            let kv = event.kv.unwrap();
            seen = kv.mod_revision;
            let text = String::from_utf8_lossy(&kv.value).into_owned();
            let mut words = text.split(' ');
            let revision = words.next().unwrap().parse().unwrap();
            steps.push((revision, words.next().unwrap().to_owned()));
        }
    }
    steps
}

#[tokio::test]
async fn leaders_do_the_job_one_after_another() {
    const STEPS: usize = 5;
    let test = "examples::leaders_do_the_job_one_after_another";
    for store in Store::both(test).await {
        let tasks: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let client = connect(vec![store.member.endpoint()]);
                let pause = Duration::from_millis(5);
                tokio::spawn(
                    async move { leader_election::lead(&client, name, STEPS, pause).await },
                )
            })
            .collect();
        for task in tasks {
            assert_eq!(soon("end of a leader", task).await.unwrap().unwrap(), STEPS);
        }
        let steps = steps(&store).await;
        assert_eq!(steps.len(), 3 * STEPS);
        let mut resource = Resource::default();
        for leader in steps.chunks(STEPS) {
            assert!(leader.iter().all(|step| *step == leader[0]), "{leader:?}");
            assert!(resource.act(leader[0].0, &leader[0].1));
        }
        assert!(!resource.act(steps[0].0, "of an old leader"));
        assert_eq!(resource.done.len(), 3);
    }
}

#[tokio::test]
async fn replaced_leader_cannot_write_and_stops() {
    let store = Store::portunus().await;
    let election = Election::new(&store.session().await, "/example/election");
    let leadership = election.campaign("first").await.unwrap();
    let write = leader_election::write_step(&store.client, &leadership, "first 0");
    assert!(write.await.unwrap());
    let client = connect(vec![store.member.endpoint()]);
    let next = tokio::spawn(async move {
        leader_election::lead(&client, "next", 1_000_000, Duration::from_millis(5)).await
    });
    // An operator removes the leader, which does not notice it.
    store
        .client
        .delete_range(Delete::key(leadership.key()))
        .await
        .unwrap();
    eventually("step of the next leader", async || {
        let read = store
            .client
            .range(Range::key("/example/job"))
            .await
            .unwrap();
        let value = String::from_utf8_lossy(&read.kvs[0].value).into_owned();
        value.contains("next").then_some(())
    })
    .await;
    let write = leader_election::write_step(&store.client, &leadership, "first 1");
    assert!(!write.await.unwrap());
    let prefix = Delete::prefix("/example/election/");
    store.client.delete_range(prefix).await.unwrap();
    let done = soon("end of the next leader", next).await.unwrap().unwrap();
    assert!((1..1_000_000).contains(&done));
}

#[tokio::test]
async fn client_switches_its_code_path_when_the_cluster_switches_a_feature() {
    let mut store = Store::portunus().await;
    let client = store.client.clone();
    let (paths, mut taken) = mpsc::unbounded_channel();
    let following = tokio::spawn(async move {
        feature_aware::follow(&client, |path| match paths.send(path) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        })
        .await
    });
    for (value, path) in [
        (None, CodePath::Without),
        (Some("true"), CodePath::WithFeature),
        (Some("false"), CodePath::Without),
    ] {
        if let Some(value) = value {
            store.member.kill();
            let flag = format!("--cluster-feature-gates=LeaseCheckpoint={value}");
            store.member.launch(&[flag]);
        }
        let now = soon("code path", taken.recv()).await.unwrap();
        assert_eq!(now, path);
        store.wait_until_serving().await;
        let lease = feature_aware::take_lease(&store.client, path)
            .await
            .unwrap();
        let expected = match path {
            CodePath::WithFeature => 600,
            CodePath::Without => 10,
        };
        assert_eq!(lease.ttl_s(), expected);
    }
    // The path is chosen a moment too late: the server refuses, and the client takes the other one.
    let lease = feature_aware::take_lease(&store.client, CodePath::WithFeature).await;
    assert_eq!(lease.unwrap().ttl_s(), 10);
    following.abort();
}

#[tokio::test]
async fn client_does_without_the_feature_on_a_server_without_gates() {
    let test = "examples::client_does_without_the_feature";
    let Some(etcd) = Program::etcd(test) else {
        return;
    };
    let store = Store::start(etcd).await;
    let mut paths = Vec::new();
    let followed = feature_aware::follow(&store.client, |path| {
        paths.push(path);
        ControlFlow::Continue(())
    });
    soon("end of the watch", followed).await.unwrap();
    assert_eq!(paths, [CodePath::Without]);
}
