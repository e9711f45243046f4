use std::time::Duration;

use portunus_client::concurrency::{Mutex, Session, SessionOptions};
use portunus_client::{ClientError, LeaseLost, Put, Range};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{LeaseRevokeRequest, LeaseTimeToLiveRequest};
use portunus_testkit::wait::soon;
use tokio::time::Instant;

use crate::store::Store;

async fn time_to_live(store: &Store, id: i64) -> i64 {
    let request = LeaseTimeToLiveRequest { id, keys: false };
    let answer = store.client.lease_time_to_live(request).await.unwrap();
    answer.ttl
}

#[tokio::test]
async fn lease_lives_while_its_guard_is_polled_and_its_revocation_is_reported() {
    let test = "concurrency::lease_lives_while_its_guard_is_polled";
    for store in Store::both(test).await {
        let mut lease = store.client.lease(2).await.unwrap();
        let put = Put::new("key", "value").lease(lease.id());
        store.client.put(put).await.unwrap();
        // Longer than the TTL.
        let work = tokio::time::sleep(Duration::from_secs(5));
        lease.while_held(work).await.unwrap();
        let read = store.client.range(Range::key("key")).await.unwrap();
        assert_eq!(read.kvs.len(), 1);

        let id = lease.id();
        let revoke = LeaseRevokeRequest { id };
        store.client.lease_revoke(revoke).await.unwrap();
        let lost = soon("report of the loss", lease.lost()).await;
        assert!(matches!(lost, LeaseLost::NotFound { id: lost } if lost == id));
    }
}

#[tokio::test]
async fn lease_is_reported_as_lost_before_a_server_that_is_away_could_expire_it() {
    let mut store = Store::portunus().await;
    let mut lease = store.client.lease(3).await.unwrap();
    let granted = Instant::now();
    store.member.kill();
    // Counted from the request: the server counts from its answer, which was later.
    let ttl = Duration::from_secs(lease.ttl_s().unsigned_abs());
    let expires = lease.expires();
    assert!(expires < granted + ttl);
    let lost = soon("report of the loss", lease.lost()).await;
    assert!(matches!(lost, LeaseLost::Expired { .. }), "{lost:?}");
    assert!((expires..expires + ttl).contains(&Instant::now()));
}

#[tokio::test]
async fn session_ends_with_its_lease_and_closing_it_revokes_the_lease() {
    let test = "concurrency::session_ends_with_its_lease";
    for store in Store::both(test).await {
        let session = store.session().await;
        assert!(session.loss().is_none());
        assert!(time_to_live(&store, session.lease()).await > 0);
        session.close().await.unwrap();
        // Nothing is left to release.
        session.close().await.unwrap();
        assert!(matches!(session.loss(), Some(LeaseLost::Closed { .. })));
        assert_eq!(time_to_live(&store, session.lease()).await, -1);

        let session = Session::start(&store.client, SessionOptions::with_ttl(3)).await;
        let session = session.unwrap();
        let id = session.lease();
        store
            .client
            .lease_revoke(LeaseRevokeRequest { id })
            .await
            .unwrap();
        let lost = soon("report of the loss", session.lost()).await;
        assert!(matches!(lost, LeaseLost::NotFound { .. }), "{lost:?}");
        let refused = Mutex::new(&session, "a").lock().await.unwrap_err();
        assert!(refused.to_string().contains("session is lost"), "{refused}");
    }
}

#[tokio::test]
async fn session_adopts_a_lease_that_exists_and_refuses_one_that_does_not() {
    let store = Store::portunus().await;
    let lease = store.client.lease(30).await.unwrap();
    let options = |lease| SessionOptions {
        lease,
        ..SessionOptions::default()
    };
    let session = Session::start(&store.client, options(lease.id())).await;
    assert_eq!(session.unwrap().lease(), lease.id());
    let refused = Session::start(&store.client, options(4711)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.etcd(), Some(EtcdError::LeaseNotFound));
    assert!(matches!(refused, ClientError::Etcd(_)));
}

#[tokio::test]
async fn session_that_is_dropped_is_not_renewed() {
    let store = Store::portunus().await;
    let session = Session::start(&store.client, SessionOptions::with_ttl(2)).await;
    let session = session.unwrap();
    let id = session.lease();
    drop(session);
    portunus_testkit::wait::eventually("expired lease", async || {
        (time_to_live(&store, id).await == -1).then_some(())
    })
    .await;
}
