//! Objects that expire: Events, in memory and on a real store.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "resources")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::Client;
use portunus_apiserver::resources::{EVENT_TTL, Resources};
use portunus_apiserver::testing::{self, TestServer};
use portunus_client::Options;
use portunus_client::kubernetes::{Interface, Kubernetes, ListOptions, Memory};
use portunus_testkit::standalone::{Server, data_dir};
use portunus_testkit::wait;
use serde_json::{Value, json};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const SECOND: Duration = Duration::from_secs(1);

async fn start(store: Arc<dyn Interface>, ttl: Duration) -> TestServer {
    let resources = Resources::new(1).with_event_ttl(ttl);
    let definitions = resources.definitions().unwrap();
    testing::start_on(definitions, store, |_| {}).await.unwrap()
}

async fn create_event(client: &Client, name: &str) -> Value {
    let event = json!({"metadata": {"name": name}, "reason": "Started"});
    let created = client.post(EVENTS, &event).await;
    assert_eq!(created.code, 201, "{:?}", created.body);
    created.json()
}

async fn create_namespace(client: &Client) {
    let namespace = json!({"metadata": {"name": "default"}});
    let created = client.post("/api/v1/namespaces", &namespace).await;
    assert_eq!(created.code, 201, "{:?}", created.body);
}

/// Returns the lease of every object of a resource.
async fn leases(store: &dyn Interface, resource: &str) -> Vec<i64> {
    let prefix = format!("/registry/{resource}/");
    let list = store.list(prefix.as_bytes(), ListOptions::default()).await;
    list.unwrap().kvs.iter().map(|kv| kv.lease).collect()
}

async fn count(client: &Client, target: &str) -> usize {
    client.get(target).await.json()["items"]
        .as_array()
        .unwrap()
        .len()
}

/// Proves: K16
#[tokio::test]
async fn events_share_a_lease_and_expire_after_their_time() {
    let store = Memory::new();
    let server = start(Arc::new(store.clone()), EVENT_TTL).await;
    let client = Client::new(&server);
    create_namespace(&client).await;
    for name in ["a", "b", "c"] {
        create_event(&client, name).await;
    }
    let leased = leases(&store, "events").await;
    assert!(leased.len() == 3 && leased[0] != 0, "{leased:?}");
    assert!(leased.iter().all(|lease| *lease == leased[0]), "{leased:?}");
    assert_eq!(leases(&store, "namespaces").await, [0]);
    let mut events = client.watch(&format!("{EVENTS}?watch=1")).await;
    // A minute more than an hour: an object that joins the lease later has its hour, too.
    store.advance(EVENT_TTL + 59 * SECOND);
    assert_eq!(count(&client, EVENTS).await, 3);
    store.advance(SECOND);
    assert_eq!(count(&client, EVENTS).await, 0);
    assert_eq!(count(&client, "/api/v1/namespaces").await, 1);
    let mut seen = Vec::new();
    while seen.iter().filter(|(kind, _)| kind == "DELETED").count() < 3 {
        seen.push(events.next_name().await);
    }
}

/// Proves: K16
#[tokio::test(start_paused = true)]
async fn event_that_is_changed_later_moves_to_a_newer_lease() {
    let store = Memory::new();
    let server = start(Arc::new(store.clone()), EVENT_TTL).await;
    let client = Client::new(&server);
    create_event(&client, "changed").await;
    create_event(&client, "unchanged").await;
    let minutes = Duration::from_secs(30 * 60);
    tokio::time::advance(minutes).await;
    store.advance(minutes);
    let target = format!("{EVENTS}/changed");
    let changed = client.merge(&target, &json!({"count": 2})).await;
    assert_eq!(changed.code, 200, "{:?}", changed.body);
    store.advance(minutes + 60 * SECOND);
    assert_eq!(client.get(&target).await.code, 200);
    assert_eq!(client.get(&format!("{EVENTS}/unchanged")).await.code, 404);
    store.advance(minutes);
    assert_eq!(client.get(&target).await.code, 404);
}

/// A lease can end early: an operator revokes it, or a backup is restored into the store.
#[tokio::test]
async fn lease_that_the_store_lost_is_replaced() {
    let store = Memory::new();
    let server = start(Arc::new(store.clone()), EVENT_TTL).await;
    let client = Client::new(&server);
    create_event(&client, "a").await;
    store
        .revoke_lease(leases(&store, "events").await[0])
        .unwrap();
    assert_eq!(count(&client, EVENTS).await, 0);
    create_event(&client, "b").await;
    store
        .revoke_lease(leases(&store, "events").await[0])
        .unwrap();
    create_event(&client, "c").await;
    assert_eq!(count(&client, EVENTS).await, 1);
}

/// Proves: K16
#[tokio::test(start_paused = true)]
async fn lease_has_a_limited_number_of_objects() {
    let store = Memory::new();
    let server = start(Arc::new(store.clone()), EVENT_TTL).await;
    let client = Client::new(&server);
    for number in 0..1001 {
        create_event(&client, &format!("e{number}")).await;
    }
    let leased = leases(&store, "events").await;
    let different: BTreeSet<&i64> = leased.iter().collect();
    assert_eq!(different.len(), 2);
    for lease in different {
        assert!(store.lease_keys(*lease).unwrap().len() <= 1000);
    }
}

#[tokio::test]
async fn events_without_a_time_are_kept() {
    let store = Memory::new();
    let server = start(Arc::new(store.clone()), Duration::ZERO).await;
    create_event(&Client::new(&server), "a").await;
    assert_eq!(leases(&store, "events").await, [0]);
}

/// Proves: K16
#[tokio::test(flavor = "multi_thread")]
async fn events_expire_in_a_real_store() {
    let (_guard, dir) = data_dir();
    let member = Server::start(&dir, &[]);
    let options = Options {
        endpoints: vec![member.url()],
        ..Options::default()
    };
    let store = portunus_client::Client::connect(options).unwrap();
    let store = Kubernetes::new(store);
    let server = start(Arc::new(store.clone()), 2 * SECOND).await;
    let client = Client::new(&server);
    create_namespace(&client).await;
    for name in ["a", "b"] {
        create_event(&client, name).await;
    }
    let leased = leases(&store, "events").await;
    assert!(leased.iter().all(|lease| *lease != 0), "{leased:?}");
    wait::until("the expiry of the events", async || {
        match count(&client, EVENTS).await {
            0 => Ok(()),
            left => Err(left),
        }
    })
    .await;
    assert_eq!(count(&client, "/api/v1/namespaces").await, 1);
    drop(server);
    member.stop();
}
