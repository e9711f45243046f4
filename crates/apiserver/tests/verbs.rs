//! The verbs of a resource: answers, errors and what is stored.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Client, WIDGETS, server, widget};
use portunus_client::kubernetes::GetOptions;
use serde_json::{Value, json};

/// Proves: K3
#[tokio::test]
async fn created_object_has_system_fields_and_is_stored_like_a_custom_resource() {
    let server = server().await;
    let client = Client::new(&server);
    let created = client.create("a", json!({"size": 3})).await;
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "ns");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(created["spec"], json!({"size": 3, "color": "red"}));
    let key = b"/registry/example.io/widgets/ns/a";
    let stored = server
        .store()
        .get(key, GetOptions::default())
        .await
        .unwrap();
    let stored = stored.kv.unwrap();
    assert_eq!(metadata["resourceVersion"], stored.mod_revision.to_string());
    let mut expected = created.clone();
    expected["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    // The storage version is the newest that 1.36, the minimum compatibility version, has.
    let text = String::from_utf8(stored.value.to_vec()).unwrap();
    assert_eq!(text, format!("{expected}\n"));
    let read = client.get(&format!("{WIDGETS}/a")).await;
    assert_eq!(read.json(), created);
    assert_eq!(read.headers["cache-control"], "no-cache, private");
}

#[tokio::test]
async fn creation_is_refused_with_the_errors_of_kubernetes() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let again = client.post(WIDGETS, &widget("a", json!({}))).await;
    assert_eq!(
        (again.code.as_u16(), &*again.reason()),
        (409, "AlreadyExists")
    );
    assert_eq!(again.message(), r#"widgets.example.io "a" already exists"#);

    let cases = [
        (
            widget("A", json!({})),
            422,
            "Widget.example.io \"A\" is invalid: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
        (
            widget("b", json!({"size": -1})),
            422,
            "Widget.example.io \"b\" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
        ),
        (
            json!({"metadata": {"name": "b"}}),
            422,
            "Widget.example.io \"b\" is invalid: spec: Required value",
        ),
        (
            json!({"kind": "Gadget", "metadata": {"name": "b"}}),
            422,
            "Widget.example.io \"b\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
        ),
        (
            json!({"apiVersion": "v9", "metadata": {"name": "b"}}),
            400,
            "the API version in the data (v9) does not match the expected API version (example.io/v1)",
        ),
        (
            json!({"metadata": {"name": "b", "namespace": "other"}, "spec": {}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"metadata": {"name": "b", "resourceVersion": "5"}, "spec": {}}),
            400,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            json!({"metadata": {"labels": {"x": 1}}, "spec": {}}),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget",
        ),
        (
            json!([1]),
            400,
            "the object provided is unrecognized (must be of type Widget)",
        ),
    ];
    for (body, code, text) in cases {
        let answer = client.post(WIDGETS, &body).await;
        assert_eq!(answer.code, code, "{body}: {:?}", answer.body);
        assert!(answer.message().starts_with(text), "{}", answer.message());
    }
    let truncated = client.send("POST", WIDGETS, "{").await;
    assert_eq!(
        (truncated.code.as_u16(), &*truncated.reason()),
        (400, "BadRequest")
    );
}

#[tokio::test]
async fn unknown_fields_are_ignored_warned_about_or_refused() {
    let server = server().await;
    let client = Client::new(&server);
    let body = |name: &str| widget(name, json!({"size": 1, "odd": 2}));
    let warned = client.post(WIDGETS, &body("a")).await;
    assert_eq!(warned.code, 201);
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"spec.odd\"""#]);
    assert_eq!(warned.json()["spec"], json!({"size": 1, "color": "red"}));
    let target = format!("{WIDGETS}?fieldValidation=Ignore");
    let ignored = client.post(&target, &body("b")).await;
    assert_eq!((ignored.code.as_u16(), ignored.warnings().len()), (201, 0));
    let target = format!("{WIDGETS}?fieldValidation=Strict");
    let strict = client.post(&target, &body("c")).await;
    assert_eq!(strict.code, 400);
    assert_eq!(
        strict.message(),
        r#"Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.odd""#
    );
    let target = format!("{WIDGETS}?fieldValidation=Odd");
    assert_eq!(client.post(&target, &body("c")).await.code, 422);
}

#[tokio::test]
async fn names_are_generated() {
    let server = server().await;
    let client = Client::new(&server);
    let body = json!({"metadata": {"generateName": "a-"}, "spec": {}});
    let first = client.post(WIDGETS, &body).await.json();
    let second = client.post(WIDGETS, &body).await.json();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&first).starts_with("a-") && name(&first).len() == 7);
    assert_ne!(name(&first), name(&second));
}

#[tokio::test]
async fn update_needs_the_current_version_and_keeps_the_status() {
    let server = server().await;
    let client = Client::new(&server);
    let created = client.create("a", json!({"size": 1})).await;
    let target = format!("{WIDGETS}/a");
    let mut with_status = created.clone();
    with_status["status"] = json!({"phase": "Ready"});
    with_status["spec"]["size"] = json!(9);
    with_status["metadata"]["labels"] = json!({"x": "y"});
    let status = client.put(&format!("{target}/status"), &with_status).await;
    assert_eq!(status.code, 200, "{:?}", status.body);
    let status = status.json();
    assert_eq!(status["status"]["phase"], "Ready");
    assert_eq!(status["spec"]["size"], 1);
    assert_eq!(status["metadata"]["labels"], Value::Null);
    assert_eq!(status["metadata"]["generation"], 1);

    let stale = client.put(&target, &created).await;
    assert_eq!((stale.code.as_u16(), &*stale.reason()), (409, "Conflict"));
    assert_eq!(
        stale.message(),
        "Operation cannot be fulfilled on widgets.example.io \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );

    let mut update = status.clone();
    update["spec"]["size"] = json!(2);
    update["status"] = json!({"phase": "Broken"});
    let updated = client.put(&target, &update).await.json();
    assert_eq!(updated["spec"]["size"], 2);
    assert_eq!(updated["status"]["phase"], "Ready");
    assert_eq!(updated["metadata"]["generation"], 2);
    let unchanged = client.put(&target, &updated).await.json();
    assert_eq!(
        unchanged, updated,
        "an update without a change writes nothing"
    );

    // No version overwrites a change that the client has not seen.
    let mut zero = updated.clone();
    zero["metadata"]["resourceVersion"] = json!("0");
    assert_eq!(client.put(&target, &zero).await.code, 422);

    let mut unversioned = updated.clone();
    unversioned["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let refused = client.put(&target, &unversioned).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains(
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
        ),
        "{}",
        refused.message()
    );
    let missing = client
        .put(&format!("{WIDGETS}/b"), &widget("b", json!({})))
        .await;
    assert_eq!(
        (missing.code.as_u16(), &*missing.message()),
        (404, r#"widgets.example.io "b" not found"#)
    );
    let other = client.put(&target, &widget("b", json!({}))).await;
    assert_eq!(
        other.message(),
        "the name of the object (b) does not match the name on the URL (a)"
    );
}

#[tokio::test]
async fn patches_change_a_part() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({"size": 1})).await;
    let target = format!("{WIDGETS}/a");
    let merged = client
        .merge(&target, &json!({"spec": {"size": 2, "color": null}}))
        .await
        .json();
    assert_eq!(merged["spec"], json!({"size": 2, "color": "red"}));
    let patch = json!([{"op": "test", "path": "/spec/size", "value": 2}, {"op": "replace", "path": "/spec/size", "value": 3}]);
    let patched = client.json_patch(&target, &patch).await.json();
    assert_eq!(patched["spec"]["size"], 3);
    let failed = client.json_patch(&target, &patch).await;
    assert_eq!((failed.code.as_u16(), &*failed.reason()), (422, "Invalid"));
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    assert_eq!(client.merge(&target, &stale).await.code, 409);
    let invalid = client.merge(&target, &json!({"spec": {"size": -1}})).await;
    assert_eq!(invalid.code, 422);
    let renamed = client
        .merge(&target, &json!({"metadata": {"name": "b"}}))
        .await;
    assert_eq!(renamed.code, 400);
    let apply = client
        .clone()
        .with_header("content-type", "application/apply-patch+yaml");
    let refused = apply.send("PATCH", &target, "{}").await;
    assert_eq!(refused.code, 415);
    assert_eq!(
        refused.message(),
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json"
    );
}

/// Writers that race each other lose nothing: the server repeats a patch that lost a race.
#[tokio::test]
async fn racing_patches_are_all_applied() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let target = format!("{WIDGETS}/a");
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (client, target) = (client.clone(), target.clone());
        writers.spawn(async move {
            let patch = json!({"metadata": {"labels": {format!("l{number}"): "x"}}});
            client.merge(&target, &patch).await.code
        });
    }
    while let Some(code) = writers.join_next().await {
        assert_eq!(code.unwrap(), 200);
    }
    let labels = client.get(&target).await.json()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 8);
}

#[tokio::test]
async fn deletion_obeys_preconditions_and_finalizers() {
    let server = server().await;
    let client = Client::new(&server);
    let created = client.create("a", json!({})).await;
    let target = format!("{WIDGETS}/a");
    let wrong = json!({"preconditions": {"uid": "x"}}).to_string();
    let refused = client.send("DELETE", &target, wrong).await;
    assert_eq!(refused.code, 409);
    assert!(
        refused
            .message()
            .contains("the UID in the precondition (x) does not match the UID in record (")
    );
    let right = json!({"preconditions": {"uid": created["metadata"]["uid"]}}).to_string();
    let deleted = client.send("DELETE", &target, right).await;
    assert_eq!(
        deleted.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "group": "example.io", "kind": "widgets", "uid": created["metadata"]["uid"]}})
    );
    assert_eq!(client.delete(&target).await.code, 404);

    let mut finalized = widget("b", json!({}));
    finalized["metadata"]["finalizers"] = json!(["example.io/x"]);
    client.post(WIDGETS, &finalized).await;
    let target = format!("{WIDGETS}/b");
    let waiting = client.delete(&target).await.json();
    assert_eq!(waiting["kind"], "Widget");
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    let again = client.delete(&target).await.json();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        waiting["metadata"]["resourceVersion"]
    );
    let added = client
        .merge(
            &target,
            &json!({"metadata": {"finalizers": ["example.io/x", "example.io/y"]}}),
        )
        .await;
    assert_eq!(
        added.code, 422,
        "no finalizer is added to an object that is deleted"
    );
    let gone = client
        .merge(&target, &json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(gone.code, 200);
    assert_eq!(client.get(&target).await.code, 404);
}

#[tokio::test]
async fn dry_runs_store_nothing() {
    let server = server().await;
    let client = Client::new(&server);
    let target = format!("{WIDGETS}?dryRun=All");
    let created = client.post(&target, &widget("a", json!({}))).await;
    assert_eq!(created.code, 201);
    assert_eq!(client.get(&format!("{WIDGETS}/a")).await.code, 404);
    client.create("a", json!({"size": 1})).await;
    assert_eq!(
        client.post(&target, &widget("a", json!({}))).await.code,
        409
    );
    let target = format!("{WIDGETS}/a?dryRun=All");
    let patched = client.merge(&target, &json!({"spec": {"size": 2}})).await;
    assert_eq!(patched.json()["spec"]["size"], 2);
    assert_eq!(client.delete(&target).await.code, 200);
    assert_eq!(
        client.get(&format!("{WIDGETS}/a")).await.json()["spec"]["size"],
        1
    );
    let wrong = format!("{WIDGETS}?dryRun=Some");
    assert_eq!(client.post(&wrong, &widget("b", json!({}))).await.code, 422);
}

#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let server = server().await;
    let client = Client::new(&server);
    for name in ["a", "b", "c"] {
        let mut body = widget(name, json!({}));
        body["metadata"]["labels"] = json!({"keep": (name == "b").to_string()});
        client.post(WIDGETS, &body).await;
    }
    let deleted = client
        .delete(&format!("{WIDGETS}?labelSelector=keep%3Dfalse"))
        .await;
    assert_eq!(deleted.json()["items"].as_array().unwrap().len(), 2);
    let left = client.get(WIDGETS).await.json();
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    let everywhere = client.delete("/apis/example.io/v1/widgets").await;
    assert_eq!(everywhere.code, 405);
}

#[tokio::test]
async fn old_version_is_converted_and_warned_about() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({"size": 4})).await;
    let old = "/apis/example.io/v1beta1/namespaces/ns/widgets";
    let read = client.get(&format!("{old}/a")).await;
    assert_eq!(read.json()["apiVersion"], "example.io/v1beta1");
    assert_eq!(read.json()["spec"], json!({"length": 4, "color": "red"}));
    assert_eq!(
        read.warnings(),
        [r#"299 - "example.io/v1beta1 Widget is deprecated in v1.36+, unavailable in v1.39+""#]
    );
    let patched = client
        .merge(&format!("{old}/a"), &json!({"spec": {"length": 5}}))
        .await;
    assert_eq!(patched.code, 200);
    let new = client.get(&format!("{WIDGETS}/a")).await.json();
    assert_eq!(new["spec"]["size"], 5);
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_refused() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let cases = [
        ("GET", "/apis/example.io/v1/gadgets", 404),
        ("GET", "/apis/example.io/v9/widgets", 404),
        ("GET", "/apis/other.io/v1/widgets", 404),
        ("GET", "/apis/example.io/v1/widgets/a", 404),
        (
            "GET",
            "/apis/example.io/v1/namespaces/ns/widgets/a/scale",
            404,
        ),
        ("POST", "/apis/example.io/v1/widgets", 405),
        ("POST", "/apis/example.io/v1/namespaces/ns/widgets/a", 405),
        (
            "DELETE",
            "/apis/example.io/v1/namespaces/ns/widgets/a/status",
            405,
        ),
        ("TRACE", "/apis/example.io/v1/namespaces/ns/widgets/a", 405),
        (
            "GET",
            "/apis/example.io/v1/namespaces/ns/widgets/../widgets/a",
            404,
        ),
        ("GET", "/nothing", 404),
        ("POST", "/version", 405),
    ];
    for (method, target, code) in cases {
        let answer = client.send(method, target, "").await;
        assert_eq!(answer.code, code, "{method} {target}");
    }
    let answer = client.get("/apis/example.io/v1/gadgets").await;
    assert_eq!(
        answer.message(),
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn name_of_an_object_that_waits_for_finalizers_is_taken() {
    let server = server().await;
    let client = Client::new(&server);
    let mut object = widget("a", json!({}));
    object["metadata"]["finalizers"] = json!(["example.io/wait"]);
    assert_eq!(client.post(WIDGETS, &object).await.code, 201);
    let target = format!("{WIDGETS}/a");
    let waiting = client.delete(&target).await.json();
    let refused = client.post(WIDGETS, &object).await;
    assert_eq!(
        refused.message(),
        "object is being deleted: widgets.example.io \"a\" already exists"
    );
    let finished = client
        .merge(&target, &json!({"metadata": {"finalizers": null}}))
        .await;
    let version = |object: &serde_json::Value| object["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&finished.json()), version(&waiting));
    assert_eq!(client.get(&target).await.code, 404);
}

#[tokio::test]
async fn wrong_requests_are_refused_with_the_texts_of_kubernetes() {
    let server = server().await;
    let client = Client::new(&server);
    client.create("a", json!({})).await;
    let target = format!("{WIDGETS}/a");
    let not_allowed = "the server does not allow this method on the requested resource";
    for (method, path) in [
        ("PUT", WIDGETS),
        ("PATCH", WIDGETS),
        ("POST", target.as_str()),
        ("POST", "/apis/example.io/v1"),
    ] {
        let refused = client.send(method, path, "{}").await;
        assert_eq!(refused.code, 405, "{method} {path}");
        assert_eq!(refused.message(), not_allowed);
    }
    let uid = json!({"metadata": {"uid": "other"}});
    let cases = [
        (
            client.merge(&target, &uid).await,
            422,
            "metadata.uid: Invalid value: \"other\": field is immutable",
        ),
        (
            client.get(&format!("{WIDGETS}?labelSelector=a+in+b")).await,
            400,
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            client
                .get(&format!("{WIDGETS}?resourceVersion=900&limit=1"))
                .await,
            504,
            "Timeout: Too large resource version: 900, current: 2",
        ),
        (
            client
                .send("DELETE", &target, json!({"kind": "Other"}).to_string())
                .await,
            400,
            "it must be DeleteOptions",
        ),
        (
            client
                .post(&format!("{WIDGETS}?dryRun=Some"), &widget("b", json!({})))
                .await,
            422,
            "dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
        ),
    ];
    for (answer, code, text) in cases {
        assert_eq!(answer.code, code, "{text}");
        assert!(answer.message().contains(text), "{}", answer.message());
    }
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let lists = client
        .clone()
        .with_header("accept", metadata)
        .get(WIDGETS)
        .await;
    assert_eq!(lists.code, 406);
}
