//! Lists in parts, consistency, tables, and watches.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{Client, WIDGETS, server, widget, widgets};
use portunus_apiserver::testing;
use portunus_client::kubernetes::Memory;
use serde_json::{Value, json};

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn create_many(client: &Client, count: usize) {
    for number in 0..count {
        let color = if number % 2 == 0 { "blue" } else { "green" };
        client
            .create(&format!("w{number:03}"), json!({"color": color}))
            .await;
    }
}

/// Proves: K27
#[tokio::test]
async fn parts_of_a_list_show_one_state() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 10).await;
    let first = client.get(&format!("{WIDGETS}?limit=4")).await.json();
    assert_eq!(names(&first), ["w000", "w001", "w002", "w003"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 6);
    client.delete(&format!("{WIDGETS}/w005")).await;
    client.create("w0045", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = client
        .get(&format!("{WIDGETS}?limit=4&continue={token}"))
        .await
        .json();
    assert_eq!(names(&second), ["w004", "w005", "w006", "w007"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = client
        .get(&format!("{WIDGETS}?limit=4&continue={token}"))
        .await
        .json();
    assert_eq!(names(&last), ["w008", "w009"]);
    assert_eq!(last["metadata"]["continue"], Value::Null);
}

#[tokio::test]
async fn list_of_one_name_at_a_revision_has_no_other_part() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 4).await;
    let all = client.get(WIDGETS).await.json();
    let version = all["metadata"]["resourceVersion"].as_str().unwrap();
    client.create("w9", json!({})).await;
    for (name, expected) in [("w001", vec!["w001"]), ("w9", vec![])] {
        let target = format!(
            "{WIDGETS}?fieldSelector=metadata.name%3D{name}&limit=1\
             &resourceVersion={version}&resourceVersionMatch=Exact"
        );
        let list = client.get(&target).await.json();
        assert_eq!(names(&list), expected);
        assert_eq!(list["metadata"]["resourceVersion"], version);
        assert_eq!(list["metadata"]["continue"], Value::Null);
        assert_eq!(list["metadata"]["remainingItemCount"], Value::Null);
    }
}

/// Proves: K27
#[tokio::test]
async fn compacted_list_can_go_on_with_the_newest_state() {
    let store = Memory::new();
    let server = testing::start_on([widgets()], Arc::new(store.clone()), |_| {})
        .await
        .unwrap();
    let client = Client::new(&server);
    create_many(&client, 4).await;
    let first = client.get(&format!("{WIDGETS}?limit=2")).await.json();
    client.create("w9", json!({})).await;
    store.compact(store.revision()).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = client
        .get(&format!("{WIDGETS}?limit=9&continue={token}"))
        .await;
    assert_eq!(
        (expired.code.as_u16(), &*expired.reason()),
        (410, "Expired")
    );
    let status = expired.json();
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = client
        .get(&format!("{WIDGETS}?limit=9&continue={token}"))
        .await
        .json();
    assert_eq!(names(&rest), ["w002", "w003", "w9"]);
}

#[tokio::test]
async fn selectors_filter_lists_and_fill_pages() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 9).await;
    let target = format!("{WIDGETS}?limit=2&fieldSelector=spec.color%3Dgreen");
    let part = client.get(&target).await.json();
    assert_eq!(names(&part), ["w001", "w003"]);
    assert_eq!(part["metadata"]["remainingItemCount"], Value::Null);
    let one = client
        .get(&format!("{WIDGETS}?fieldSelector=metadata.name%3Dw004"))
        .await;
    assert_eq!(names(&one.json()), ["w004"]);
    for wrong in [
        "fieldSelector=spec.size%3D1",
        "labelSelector=%3D%3D",
        "fieldSelector=x",
    ] {
        let answer = client.get(&format!("{WIDGETS}?{wrong}")).await;
        assert_eq!(answer.code, 400, "{wrong}");
    }
}

#[tokio::test]
async fn versions_that_do_not_exist_yet_or_any_more_are_refused() {
    let store = Memory::new();
    let server = testing::start_on([widgets()], Arc::new(store.clone()), |_| {})
        .await
        .unwrap();
    let client = Client::new(&server);
    create_many(&client, 2).await;
    for target in [
        format!("{WIDGETS}?resourceVersion=999"),
        format!("{WIDGETS}?resourceVersion=999&resourceVersionMatch=Exact"),
        format!("{WIDGETS}/w000?resourceVersion=999"),
    ] {
        let answer = client.get(&target).await;
        assert_eq!(answer.code, 504, "{target}");
        assert!(answer.message().contains("Too large resource version: 999"));
        let causes = answer.json()["details"]["causes"].clone();
        assert_eq!(causes[0]["reason"], "ResourceVersionTooLarge");
    }
    let exact = format!("{WIDGETS}?resourceVersion=2&resourceVersionMatch=Exact");
    assert_eq!(names(&client.get(&exact).await.json()), ["w000"]);
    store.compact(store.revision()).unwrap();
    let gone = client.get(&exact).await;
    assert_eq!((gone.code.as_u16(), &*gone.reason()), (410, "Expired"));
}

#[tokio::test]
async fn tables_and_metadata_are_produced_on_request() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 2).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = client
        .clone()
        .with_header("accept", table)
        .get(WIDGETS)
        .await
        .json();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "w000");
    assert_eq!(table["rows"][1]["cells"][1], "green");
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = client
        .clone()
        .with_header("accept", metadata)
        .get(WIDGETS)
        .await
        .json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["spec"], Value::Null);
    let cbor = client
        .clone()
        .with_header("accept", "application/cbor")
        .get(WIDGETS)
        .await;
    assert_eq!(cbor.code, 406);
}

#[tokio::test]
async fn watch_sends_every_change_once_and_in_order() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let list = client.get(WIDGETS).await.json();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = client
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={version}"))
        .await;
    let target = format!("{WIDGETS}/a");
    client.merge(&target, &json!({"spec": {"size": 1}})).await;
    client.create("b", json!({})).await;
    client.delete(&target).await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["size"]),
        (&json!("MODIFIED"), &json!(1))
    );
    assert_eq!(events.next_name().await, ("ADDED".into(), "b".into()));
    let deleted = events.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    let newest = client.get(WIDGETS).await.json()["metadata"]["resourceVersion"].clone();
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], newest);
}

#[tokio::test]
async fn watch_without_a_version_begins_with_the_present_objects() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 2).await;
    let mut events = client.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "w000".into()));
    assert_eq!(events.next_name().await, ("ADDED".into(), "w001".into()));
    client.create("x", json!({})).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "x".into()));
}

#[tokio::test]
async fn streaming_list_ends_with_an_annotated_bookmark() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 1).await;
    let target = format!(
        "{WIDGETS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut events = client.watch(&target).await;
    assert_eq!(events.next_name().await.0, "ADDED");
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    client.create("x", json!({})).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "x".into()));
}

#[tokio::test]
async fn selector_of_a_watch_sees_objects_come_and_go() {
    let server = server().await;
    let client = Client::new(&server);
    let mut events = client
        .watch(&format!(
            "{WIDGETS}?watch=1&fieldSelector=spec.color%3Dblue"
        ))
        .await;
    client.create("a", json!({"color": "green"})).await;
    client.create("b", json!({"color": "blue"})).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "b".into()));
    let (a, b) = (format!("{WIDGETS}/a"), format!("{WIDGETS}/b"));
    client.merge(&a, &json!({"spec": {"color": "blue"}})).await;
    client.merge(&b, &json!({"spec": {"color": "green"}})).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "a".into()));
    assert_eq!(events.next_name().await, ("DELETED".into(), "b".into()));
}

/// A permission for one object is checked against its name; the watch must not show others.
#[tokio::test]
async fn watch_of_one_name_shows_only_that_object() {
    let server = server().await;
    let client = Client::new(&server);
    let target = format!("{WIDGETS}?watch=1&fieldSelector=metadata.name%3Db");
    let mut events = client.watch(&target).await;
    client.create("a", json!({})).await;
    client.create("bb", json!({})).await;
    client.create("b", json!({})).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "b".into()));
    let all = "/apis/example.io/v1/widgets?watch=1&fieldSelector=metadata.name%3Db";
    let mut events = client.watch(all).await;
    assert_eq!(events.next_name().await, ("ADDED".into(), "b".into()));
}

#[tokio::test]
async fn watch_ends_with_its_time_and_a_bookmark() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let target =
        format!("{WIDGETS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=1&resourceVersion=2");
    let mut events = client.watch(&target).await;
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(events.next().await, None);
    let long = format!("{WIDGETS}?watch=1&timeoutSeconds=9223372036854775807");
    assert_eq!(client.open("GET", &long, Vec::new()).await.status(), 200);
}

#[tokio::test]
async fn watch_from_a_compacted_version_is_expired() {
    let store = Memory::new();
    let server = testing::start_on([widgets()], Arc::new(store.clone()), |_| {})
        .await
        .unwrap();
    let client = Client::new(&server);
    create_many(&client, 5).await;
    store.compact(store.revision()).unwrap();
    let mut events = client
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion=2"))
        .await;
    let error = events.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(
        (&error["object"]["code"], &error["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn draining_ends_watches_with_a_bookmark() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let target = format!("{WIDGETS}?watch=1&allowWatchBookmarks=1&resourceVersion=2");
    let mut events = client.watch(&target).await;
    server.drain().begin(std::time::Duration::ZERO).await;
    assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn watch_as_table_has_headings_once() {
    let server = server().await;
    let client = Client::new(&server);
    create_many(&client, 2).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = client.clone().with_header("accept", table);
    let mut events = table.watch(&format!("{WIDGETS}?watch=1")).await;
    let first = events.next().await.unwrap();
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    let second = events.next().await.unwrap();
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "w001");
}

#[tokio::test]
async fn all_namespaces_are_listed_and_watched() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let other = "/apis/example.io/v1/namespaces/other/widgets";
    client.post(other, &widget("b", json!({}))).await;
    let all = "/apis/example.io/v1/widgets";
    assert_eq!(names(&client.get(all).await.json()), ["a", "b"]);
    let mut events = client.watch(&format!("{all}?watch=true")).await;
    assert_eq!(events.next_name().await.1, "a");
    assert_eq!(events.next_name().await.1, "b");
}
