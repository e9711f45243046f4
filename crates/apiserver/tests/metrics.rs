//! The metrics of a server that served requests.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Client, WIDGETS, server};

/// Returns the values of the series of a metric whose labels contain a text.
async fn values(client: &Client, metric: &str, label: &str) -> Vec<String> {
    let answer = client.send("GET", "/metrics", "").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let series = text
        .lines()
        .filter(|line| line.starts_with(&format!("{metric}{{")));
    let series = series.filter(|line| line.contains(label));
    series
        .map(|line| line.rsplit(' ').next().unwrap().to_owned())
        .collect()
}

/// Proves: G118
#[tokio::test]
async fn requests_events_objects_and_deprecated_versions_are_counted() {
    let server = server().await;
    let client = Client::new(&server);
    for name in ["a", "b", "c"] {
        let body = format!(
            r#"{{"apiVersion":"example.io/v1","kind":"Widget","metadata":{{"name":"{name}"}},"spec":{{}}}}"#
        );
        assert_eq!(client.send("POST", WIDGETS, body).await.code, 201);
    }
    let created = values(&client, "apiserver_request_total", "verb=\"POST\"").await;
    assert_eq!(created, ["3"]);

    let watch = format!("{WIDGETS}?watch=1&resourceVersion=1&timeoutSeconds=1");
    let watched = client.send("GET", &watch, "").await;
    let lines = watched.body.split(|byte| *byte == b'\n');
    let events = lines.filter(|line| !line.is_empty()).count();
    assert!(events >= 2, "{watched:?}");
    let counted = values(&client, "apiserver_watch_events_total", "widgets").await;
    assert_eq!(counted, [events.to_string()]);
    let open = values(&client, "apiserver_longrunning_requests", "widgets").await;
    assert_eq!(open, ["0"]);

    assert!(
        values(&client, "apiserver_storage_objects", "widgets")
            .await
            .is_empty()
    );
    server.service().count_objects().await;
    let objects = values(&client, "apiserver_storage_objects", "widgets.example.io").await;
    assert_eq!(objects, ["3"]);

    let metric = "apiserver_requested_deprecated_apis";
    assert!(values(&client, metric, "").await.is_empty());
    client
        .send("GET", "/apis/example.io/v1beta1/widgets", "")
        .await;
    assert_eq!(
        values(&client, metric, "removed_release=\"1.39\"").await,
        ["1"]
    );

    client.send("GET", "/apis/none.io/v1/nothings", "").await;
    assert!(
        values(&client, "apiserver_request_total", "none")
            .await
            .is_empty()
    );
}
