use portunus_client::{OrderingError, Put, Range, Txn};
use portunus_testkit::cluster::Cluster;
use portunus_testkit::member::Member;
use portunus_testkit::wait::until;

use crate::store::connect;

#[tokio::test]
async fn ordered_view_refuses_the_answer_of_a_member_that_is_behind() {
    let test = "views::ordered_view_refuses_the_answer_of_a_member_that_is_behind";
    let mut cluster = Cluster::start(test, 3, &[]).await;
    let behind = cluster.follower().await;
    let endpoint = cluster.members[behind].endpoint();
    let others: Vec<usize> = (0..3).filter(|member| *member != behind).collect();
    cluster.network.part(&[behind], &others);
    cluster.leader_among(&others).await;
    let majority = others
        .iter()
        .map(|member| cluster.members[*member].endpoint());
    let newest = until("write", async || {
        let client = connect(majority.clone().collect());
        client.put(Put::new("k", "new")).await
    })
    .await;
    let newest = newest.header.unwrap().revision;
    let read = || Range::key("k").serializable();

    // With all endpoints, the read is repeated at one that is not behind.
    let everywhere = connect(cluster.members.iter().map(Member::endpoint).collect());
    let ordered = everywhere.ordered();
    ordered.range(Range::key("k")).await.unwrap();
    assert!(ordered.revision() >= newest);
    for _ in 0..6 {
        let answer = ordered.range(read()).await.unwrap();
        assert_eq!(answer.kvs[0].value, "new");
        let answer = ordered.txn(Txn::new().then(read())).await.unwrap();
        assert!(answer.header.unwrap().revision >= newest);
    }

    // The member that is behind answers alone: the plain client goes back, the view does not.
    let alone = connect(vec![endpoint]);
    assert!(alone.range(read()).await.unwrap().kvs.is_empty());
    let ordered = alone.ordered();
    ordered.range(read()).await.unwrap();
    let known = ordered.revision();
    assert!(known < newest);
    assert!(ordered.range(read()).await.is_ok());
    cluster.network.heal();
    until("member that caught up", async || {
        match ordered.range(read()).await.unwrap().kvs.is_empty() {
            true => Err(ordered.revision()),
            false => Ok(()),
        }
    })
    .await;
    assert!(ordered.revision() >= newest);
}

#[tokio::test]
async fn view_that_knows_a_newer_revision_than_all_members_reports_it() {
    // A store that was restored from an old backup looks like this.
    let old = crate::store::Store::portunus().await;
    let mut new = crate::store::Store::portunus().await;
    for _ in 0..5 {
        new.client.put(Put::new("k", "1")).await.unwrap();
    }
    let ordered = new.client.ordered();
    ordered.range(Range::key("k")).await.unwrap();
    let known = ordered.revision();
    new.member.kill();
    let mut old = old;
    old.member.kill();
    // The data of the old store, at the address of the new one.
    std::mem::swap(&mut old.member.dir, &mut new.member.dir);
    new.member.launch(&[]);
    let error = until("answer", async || {
        match ordered.range(Range::key("k")).await {
            Err(error @ OrderingError::Stale { .. }) => Ok(error),
            other => Err(other),
        }
    })
    .await;
    let OrderingError::Stale {
        revision,
        known: before,
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!((revision, before), (1, known));
}
