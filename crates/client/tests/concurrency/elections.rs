use portunus_client::concurrency::{ConcurrencyError, Election, Observer};
use portunus_client::{Delete, Put, Range, Txn};
use portunus_testkit::wait::{eventually, soon};
use tokio_stream::StreamExt;

use crate::store::Store;

async fn candidates(store: &Store, name: &str) -> usize {
    let read = Range::prefix(format!("{name}/")).keys_only();
    store.client.range(read).await.unwrap().kvs.len()
}

#[tokio::test]
async fn candidates_lead_one_after_another_and_observers_see_each_proposal() {
    let test = "concurrency::candidates_lead_one_after_another";
    for store in Store::both(test).await {
        let mut observer = Observer::new(&store.client, "e");
        let first = Election::new(&store.session().await, "e");
        let second = Election::new(&store.session().await, "e");
        assert!(first.leader().await.unwrap().is_none());
        let mut vacant = Box::pin(observer.next());
        let pending = tokio::time::timeout(std::time::Duration::from_millis(200), &mut vacant);
        assert!(pending.await.is_err());
        drop(vacant);

        let mut leadership = first.campaign("one").await.unwrap();
        assert_eq!(
            soon("proposal", observer.next()).await.unwrap().kv.value,
            "one"
        );
        let found = second.leader().await.unwrap().unwrap();
        assert_eq!(&found.kv.key, leadership.key());
        assert_eq!(found.kv.create_revision, leadership.revision());

        let waiter = tokio::spawn(async move { second.campaign("two").await });
        eventually("second candidate", async || {
            (candidates(&store, "e").await == 2).then_some(())
        })
        .await;
        leadership.proclaim("one, again").await.unwrap();
        let seen = soon("proposal", observer.next()).await.unwrap();
        assert_eq!(seen.kv.value, "one, again");
        assert_eq!(seen.kv.create_revision, leadership.revision());
        let before = leadership.revision();
        leadership.resign().await.unwrap();
        let leadership = soon("election", waiter).await.unwrap().unwrap();
        assert!(leadership.revision() > before);
        assert_eq!(
            soon("proposal", observer.next()).await.unwrap().kv.value,
            "two"
        );

        let mut stream = Box::pin(first.observe().into_stream());
        let current = soon("proposal", stream.next()).await.unwrap().unwrap();
        assert_eq!(current.kv.value, "two");
    }
}

#[tokio::test]
async fn leader_whose_key_was_deleted_cannot_proclaim_or_write() {
    let store = Store::portunus().await;
    let election = Election::new(&store.session().await, "e");
    let mut leadership = election.campaign("one").await.unwrap();
    let write = Txn::new()
        .when(leadership.is_leader())
        .then(Put::new("data", "1"));
    assert!(store.client.txn(write.clone()).await.unwrap().succeeded);
    store
        .client
        .delete_range(Delete::prefix("e/"))
        .await
        .unwrap();
    let refused = leadership.proclaim("two").await.unwrap_err();
    assert!(
        matches!(refused, ConcurrencyError::KeyDeleted { .. }),
        "{refused:?}"
    );
    assert!(!store.client.txn(write).await.unwrap().succeeded);
    leadership.resign().await.unwrap();
}

#[tokio::test]
async fn campaign_that_is_dropped_withdraws_the_candidate() {
    let store = Store::portunus().await;
    let leader = Election::new(&store.session().await, "e");
    let leadership = leader.campaign("one").await.unwrap();
    let other = Election::new(&store.session().await, "e");
    let campaign = other.campaign("two");
    let limit = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(limit, campaign).await.is_err());
    eventually("candidate withdrawn", async || {
        (candidates(&store, "e").await == 1).then_some(())
    })
    .await;
    drop(leadership);
    eventually("leader resigned", async || {
        (candidates(&store, "e").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn etcdctl_takes_part_in_an_election_of_this_client() {
    let test = "concurrency::etcdctl_takes_part_in_an_election";
    for store in Store::both(test).await {
        let election = Election::new(&store.session().await, "shared");
        let leadership = election.campaign("rust").await.unwrap();
        let Some(etcdctl) = store.etcdctl(test, &["elect", "shared", "go"]) else {
            return;
        };
        eventually("etcdctl as a candidate", async || {
            (candidates(&store, "shared").await == 2).then_some(())
        })
        .await;
        let mut observer = election.observe();
        assert_eq!(
            soon("proposal", observer.next()).await.unwrap().kv.value,
            "rust"
        );
        leadership.resign().await.unwrap();
        assert_eq!(
            soon("proposal", observer.next()).await.unwrap().kv.value,
            "go"
        );
        let waiter = tokio::spawn(async move { election.campaign("rust again").await });
        eventually("candidate", async || {
            (candidates(&store, "shared").await == 2).then_some(())
        })
        .await;
        tokio::task::spawn_blocking(|| etcdctl.terminate())
            .await
            .unwrap();
        let _leadership = soon("election", waiter).await.unwrap().unwrap();
        let seen = soon("proposal", observer.next()).await.unwrap();
        assert_eq!(seen.kv.value, "rust again");
    }
}
