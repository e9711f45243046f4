//! Requests that are wrong in every way: each gets an answer of Kubernetes' form.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Client, WIDGETS, server, widget};
use portunus_apiserver::BODY_BYTES_MAX;
use portunus_testkit::random::Random;
use serde_json::{Value, json};

#[tokio::test]
async fn large_and_deep_bodies_are_refused() {
    let server = server().await;
    let client = Client::new(&server);
    let large = client
        .send("POST", WIDGETS, vec![b' '; BODY_BYTES_MAX + 1])
        .await;
    assert_eq!(
        (large.code.as_u16(), &*large.reason()),
        (413, "RequestEntityTooLarge")
    );
    assert_eq!(
        large.message(),
        "Request entity too large: limit is 3145728"
    );
    for deep in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        let answer = client.send("POST", WIDGETS, deep).await;
        assert_eq!(answer.code, 400, "{:?}", answer.body);
    }
    client.create("a", json!({})).await;
    let target = format!("{WIDGETS}/a");
    let many = json!(vec![
        json!({"op": "test", "path": "/kind", "value": "Widget"});
        10_001
    ]);
    assert_eq!(client.json_patch(&target, &many).await.code, 413);
    let not_utf8 = client
        .send("POST", WIDGETS, b"{\"kind\": \"\xff\"}".to_vec())
        .await;
    assert_eq!(not_utf8.code, 400);
}

const METHODS: [&str; 8] = [
    "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PURGE",
];
const SEGMENTS: [&str; 18] = [
    "api",
    "apis",
    "example.io",
    "v1",
    "v1beta1",
    "namespaces",
    "ns",
    "widgets",
    "a",
    "status",
    "..",
    "%2e",
    "%2f",
    "",
    "%00",
    "healthz",
    "openapi",
    "v3",
];
const PARAMETERS: [&str; 16] = [
    "watch=1&timeoutSeconds=1",
    "limit=1",
    "limit=-5",
    "limit=x",
    "continue=abc",
    "resourceVersion=1",
    "resourceVersion=-1",
    "resourceVersion=999999999999",
    "resourceVersionMatch=Exact",
    "labelSelector=a in (b",
    "fieldSelector=%3D",
    "fieldValidation=Strict",
    "dryRun=All",
    "dryRun=x",
    "sendInitialEvents=true",
    "timeoutSeconds=1",
];
const BODIES: [&str; 10] = [
    "",
    "{",
    "null",
    "[]",
    "{}",
    r#"{"metadata":{"name":"a"},"spec":{}}"#,
    r#"{"apiVersion":"example.io/v1","kind":"Widget","metadata":{"generateName":"x"},"spec":{"size":1}}"#,
    r#"[{"op":"add","path":"/spec/size","value":1}]"#,
    r#"{"metadata":{"finalizers":["a/b"]}}"#,
    r#"{"preconditions":{"uid":1}}"#,
];
const TYPES: [&str; 6] = [
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/yaml",
    "",
    ";;;=",
];

fn pick<'item>(random: &mut Random, items: &[&'item str]) -> &'item str {
    let at = random.below(items.len() as u64);
    items[usize::try_from(at).unwrap()]
}

fn target(random: &mut Random) -> String {
    let mut path = match random.below(3) {
        0 => "/apis/example.io/v1/namespaces/ns/widgets".to_owned(),
        1 => "/apis/example.io/v1beta1/namespaces/ns/widgets/a".to_owned(),
        _ => String::new(),
    };
    for _ in 0..random.below(4) {
        path.push('/');
        path.push_str(pick(random, &SEGMENTS));
    }
    if path.is_empty() {
        path.push('/');
    }
    let parameters: Vec<&str> = (0..random.below(4))
        .map(|_| pick(random, &PARAMETERS))
        .collect();
    let query = parameters.join("&").replace(' ', "%20");
    format!("{path}?{query}")
}

#[tokio::test(start_paused = true)]
async fn random_requests_get_answers_of_kubernetes() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({"size": 1})).await;
    let mut random = Random::seeded("random_requests_get_answers_of_kubernetes");
    for _ in 0..5000 {
        let method = pick(&mut random, &METHODS);
        let target = target(&mut random);
        let client = client
            .clone()
            .with_header("content-type", pick(&mut random, &TYPES));
        let body = pick(&mut random, &BODIES);
        let answer = client.send(method, &target, body).await;
        let request = format!("{method} {target} {body}");
        assert_ne!(answer.code, 500, "{request}: {:?}", answer.body);
        let is_failure = answer.code.is_client_error() || answer.code.is_server_error();
        if is_failure && method != "HEAD" && answer.headers["content-type"] == "application/json" {
            let status: Value = answer.json();
            assert_eq!(status["kind"], "Status", "{request}");
            assert_eq!(status["code"], answer.code.as_u16(), "{request}");
            assert_ne!(status["message"], "", "{request}");
        }
        if random.below(50) == 0 {
            client.post(WIDGETS, &widget("a", json!({}))).await;
        }
    }
    assert_eq!(client.get("/readyz").await.code, 200);
}
