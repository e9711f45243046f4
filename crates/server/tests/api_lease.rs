//! Leases: keys that live as long as a client renews their lease.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::requests::{everything, get, put};
use common::watching::{WatchStream, show, watch_all};
use common::{Clients, Server, data_dir, refusal, soon};
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    PutRequest,
};
use tonic::{Code, Status};

/// The shortest TTL with the default election timeout.
const TTL_S_MIN: i64 = 2;

async fn started(flags: &[&str]) -> (tempfile::TempDir, Server, Clients) {
    let (guard, dir) = data_dir();
    let server = Server::start(&dir, flags);
    let clients = server.connect().await;
    (guard, server, clients)
}

async fn grant(clients: &mut Clients, id: i64, ttl: i64) -> LeaseGrantResponse {
    let request = LeaseGrantRequest { id, ttl };
    clients
        .lease
        .lease_grant(request)
        .await
        .unwrap()
        .into_inner()
}

async fn put_leased(clients: &mut Clients, key: &str, lease: i64) {
    let request = PutRequest {
        lease,
        ..put(key, "v")
    };
    clients.kv.put(request).await.unwrap();
}

async fn time_to_live(clients: &mut Clients, id: i64) -> LeaseTimeToLiveResponse {
    let request = LeaseTimeToLiveRequest { id, keys: true };
    clients
        .lease
        .lease_time_to_live(request)
        .await
        .unwrap()
        .into_inner()
}

async fn leases(clients: &mut Clients) -> Vec<i64> {
    let response = clients
        .lease
        .lease_leases(LeaseLeasesRequest {})
        .await
        .unwrap();
    let mut ids: Vec<i64> = response
        .into_inner()
        .leases
        .iter()
        .map(|lease| lease.id)
        .collect();
    ids.sort_unstable();
    ids
}

async fn keep_alive(clients: &Clients, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    let mut lease = clients.lease.clone();
    let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
    let mut answers = lease.lease_keep_alive(requests).await?.into_inner();
    Ok(soon("a renewal", answers.message())
        .await?
        .expect("an answer to every request"))
}

async fn count(clients: &mut Clients) -> i64 {
    clients
        .kv
        .range(everything())
        .await
        .unwrap()
        .into_inner()
        .count
}

fn error(error: EtcdError) -> (Code, String) {
    (error.code(), error.text().to_owned())
}

#[tokio::test]
async fn lease_grant_applies_minimum_and_maximum_ttl() {
    let (_guard, _server, mut clients) = started(&[]).await;
    for (name, id, ttl, granted) in [
        ("as asked", 1, 100, 100),
        ("too short", 2, 1, TTL_S_MIN),
        ("zero", 3, 0, TTL_S_MIN),
        ("negative", 4, -5, TTL_S_MIN),
        ("the longest", 5, 9_000_000_000, 9_000_000_000),
        ("a negative id", -6, 100, 100),
    ] {
        let response = grant(&mut clients, id, ttl).await;
        assert_eq!(
            (response.id, response.ttl, &*response.error),
            (id, granted, ""),
            "{name}"
        );
        assert_eq!(response.header.unwrap().revision, 1, "{name}");
    }
    let chosen = grant(&mut clients, 0, 100).await;
    let other = grant(&mut clients, 0, 100).await;
    assert!(chosen.id > 0 && other.id > 0 && chosen.id != other.id);
    for (id, ttl, expected) in [
        (1, 50, EtcdError::LeaseExists),
        (chosen.id, 50, EtcdError::LeaseExists),
        (7, 9_000_000_001, EtcdError::LeaseTtlTooLarge),
    ] {
        let request = LeaseGrantRequest { id, ttl };
        assert_eq!(
            refusal(clients.lease.lease_grant(request).await),
            error(expected),
            "{id}"
        );
    }
}

#[tokio::test]
async fn revoke_deletes_the_keys_of_the_lease() {
    let (_guard, _server, mut clients) = started(&[]).await;
    grant(&mut clients, 1, 100).await;
    grant(&mut clients, 2, 100).await;
    for (key, lease) in [("c", 1), ("a", 1), ("b", 2), ("moved", 1), ("freed", 1)] {
        put_leased(&mut clients, key, lease).await;
    }
    // The last put decides the lease of a key.
    put_leased(&mut clients, "moved", 2).await;
    clients.kv.put(put("freed", "by nobody")).await.unwrap();
    assert_eq!(
        clients.kv.range(get("a")).await.unwrap().into_inner().kvs[0].lease,
        1
    );
    let mut keys = time_to_live(&mut clients, 1).await.keys;
    keys.sort();
    assert_eq!(keys, ["a", "c"]);

    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch_all(0)).await;
    let request = LeaseRevokeRequest { id: 1 };
    let revoked = clients
        .lease
        .lease_revoke(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(revoked.header.unwrap().revision, 9);
    // In the order of the keys and in one revision.
    let events: Vec<String> = stream.next().await.events.iter().map(show).collect();
    assert_eq!(events, ["DELETE a@9", "DELETE c@9"]);
    assert_eq!(count(&mut clients).await, 3);
    assert_eq!(
        refusal(clients.lease.lease_revoke(request).await),
        error(EtcdError::LeaseNotFound)
    );
    assert_eq!(leases(&mut clients).await, [2]);
    // Revoking a lease without keys makes no revision.
    grant(&mut clients, 3, 100).await;
    let request = LeaseRevokeRequest { id: 3 };
    let revoked = clients
        .lease
        .lease_revoke(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(revoked.header.unwrap().revision, 9);
}

#[tokio::test]
async fn time_to_live_and_lease_list_report_leases() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let unknown = time_to_live(&mut clients, 5).await;
    assert_eq!((unknown.id, unknown.ttl, unknown.granted_ttl), (5, -1, 0));
    assert_eq!(unknown.header.unwrap().revision, 1);
    assert!(leases(&mut clients).await.is_empty());
    grant(&mut clients, 5, 100).await;
    grant(&mut clients, 6, 50).await;
    put_leased(&mut clients, "a", 5).await;
    let known = time_to_live(&mut clients, 5).await;
    assert_eq!((known.granted_ttl, known.keys), (100, vec!["a".into()]));
    assert!((1..=100).contains(&known.ttl), "{}", known.ttl);
    let request = LeaseTimeToLiveRequest { id: 5, keys: false };
    let without = clients
        .lease
        .lease_time_to_live(request)
        .await
        .unwrap()
        .into_inner();
    assert!(without.keys.is_empty());
    // The next lease to expire comes first.
    let response = clients
        .lease
        .lease_leases(LeaseLeasesRequest {})
        .await
        .unwrap();
    let order: Vec<i64> = response
        .into_inner()
        .leases
        .iter()
        .map(|lease| lease.id)
        .collect();
    assert_eq!(order, [6, 5]);
}

/// One lease is renewed, the other is not; the second one's keys are deleted, in one revision.
#[tokio::test]
async fn lease_expires_unless_renewed() {
    let (_guard, _server, mut clients) = started(&[]).await;
    grant(&mut clients, 1, TTL_S_MIN).await;
    grant(&mut clients, 2, TTL_S_MIN).await;
    put_leased(&mut clients, "cared for", 1).await;
    for key in ["c", "a", "b"] {
        put_leased(&mut clients, key, 2).await;
    }
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch_all(0)).await;
    let carer = {
        let clients = clients.clone();
        async move {
            loop {
                let renewed = keep_alive(&clients, 1).await.unwrap();
                assert_eq!((renewed.id, renewed.ttl), (1, TTL_S_MIN));
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    };
    let ended = tokio::select! {
        ended = stream.next() => ended,
        () = carer => unreachable!("nobody stops caring"),
    };
    let events: Vec<String> = ended.events.iter().map(show).collect();
    assert_eq!(events, ["DELETE a@6", "DELETE b@6", "DELETE c@6"]);
    assert_eq!(time_to_live(&mut clients, 2).await.ttl, -1);
    assert_eq!(time_to_live(&mut clients, 1).await.granted_ttl, TTL_S_MIN);
    assert_eq!(leases(&mut clients).await, [1]);
    // Once it is not renewed any more, it expires as well.
    let events: Vec<String> = stream.next().await.events.iter().map(show).collect();
    assert_eq!(events, ["DELETE cared for@7"]);
}

#[tokio::test]
async fn keep_alive_renews_leases_in_order_of_the_stream() {
    let (_guard, _server, mut clients) = started(&[]).await;
    let unknown = keep_alive(&clients, 5).await.unwrap();
    assert_eq!((unknown.id, unknown.ttl), (5, 0));
    grant(&mut clients, 5, 100).await;
    let renewed = keep_alive(&clients, 5).await.unwrap();
    assert_eq!(
        (renewed.id, renewed.ttl, renewed.header.unwrap().revision),
        (5, 100, 1)
    );
    // Many on one stream, each answered in turn.
    grant(&mut clients, 6, 50).await;
    let requests = [5, 6, 7, 5].map(|id| LeaseKeepAliveRequest { id });
    let mut lease = clients.lease.clone();
    let mut answers = lease
        .lease_keep_alive(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut told = Vec::new();
    while let Some(answer) = soon("an answer", answers.message()).await.unwrap() {
        told.push((answer.id, answer.ttl));
    }
    assert_eq!(told, [(5, 100), (6, 50), (7, 0), (5, 100)]);
}

/// Leases and their keys survive; the TTL starts again, and a short lease still expires.
#[tokio::test]
async fn leases_survive_restarts() {
    let (_guard, dir) = data_dir();
    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    for (id, ttl) in [(1, 1000), (2, TTL_S_MIN), (3, 1000)] {
        grant(&mut clients, id, ttl).await;
    }
    put_leased(&mut clients, "long", 1).await;
    put_leased(&mut clients, "short", 2).await;
    put_leased(&mut clients, "revoked", 3).await;
    clients
        .lease
        .lease_revoke(LeaseRevokeRequest { id: 3 })
        .await
        .unwrap();
    server.kill();

    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    let mut stream = WatchStream::open(&clients).await;
    // From before the crash, in case the short lease has expired already.
    stream.create(watch_all(6)).await;
    let events: Vec<String> = stream.next().await.events.iter().map(show).collect();
    assert_eq!(events, ["DELETE short@6"]);
    let long = time_to_live(&mut clients, 1).await;
    assert_eq!((long.granted_ttl, long.keys), (1000, vec!["long".into()]));
    assert!(long.ttl > 0 && long.ttl <= 1001, "{}", long.ttl);
    assert_eq!(leases(&mut clients).await, [1]);
    clients
        .lease
        .lease_revoke(LeaseRevokeRequest { id: 1 })
        .await
        .unwrap();
    assert_eq!(count(&mut clients).await, 0);
    server.stop();

    let server = Server::start(&dir, &[]);
    let mut clients = server.connect().await;
    assert!(leases(&mut clients).await.is_empty());
    assert_eq!(count(&mut clients).await, 0);
}
