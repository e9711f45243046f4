//! Every verb of `Api`.

use kube::ResourceExt;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
    ValidationDirective, WatchEvent, WatchParams,
};
use kube::core::response::Status;
use serde_json::json;
use tokio_stream::StreamExt;

use crate::gadget::{Gadget, GadgetStatus, client, gadget, start};

/// Returns the answer of the server to a request that failed.
fn refusal<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> Box<Status> {
    match outcome {
        Err(kube::Error::Api(status)) => status,
        other => panic!("no refusal: {other:?}"),
    }
}

fn names(gadgets: impl IntoIterator<Item = Gadget>) -> Vec<String> {
    gadgets.into_iter().map(|it| it.name_any()).collect()
}

#[tokio::test]
async fn object_is_created_read_replaced_and_deleted() {
    let (_server, gadgets) = start().await;
    let options = PostParams::default();
    let created = gadgets.create(&options, &gadget("a", 1)).await.unwrap();
    assert_eq!(created.spec.size, 1);
    assert_eq!(created.metadata.generation, Some(1));
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    assert_eq!(gadgets.get("a").await.unwrap(), created);
    assert_eq!(gadgets.get_opt("none").await.unwrap(), None);

    let again = refusal(gadgets.create(&options, &gadget("a", 1)).await);
    assert!(again.is_already_exists(), "{again:?}");
    let wrong = refusal(gadgets.create(&options, &gadget("b", -1)).await);
    assert_eq!((wrong.code, &*wrong.reason), (422, "Invalid"));
    assert_eq!(wrong.details.unwrap().causes[0].field, "spec.size");

    let mut wanted = created.clone();
    wanted.spec.size = 2;
    wanted.spec.part_names = vec!["wheel".to_owned()];
    let replaced = gadgets.replace("a", &options, &wanted).await.unwrap();
    assert_eq!(replaced.spec, wanted.spec);
    assert_eq!(replaced.metadata.generation, Some(2));
    let stale = refusal(gadgets.replace("a", &options, &wanted).await);
    assert!(stale.is_conflict(), "{stale:?}");

    let of_another = Preconditions {
        uid: Some("none".to_owned()),
        resource_version: None,
    };
    let of_another = DeleteParams::default().preconditions(of_another);
    assert!(refusal(gadgets.delete("a", &of_another).await).is_conflict());
    let deleted = gadgets.delete("a", &DeleteParams::default()).await.unwrap();
    let status = deleted
        .right()
        .expect("an object without finalizers is gone");
    assert_eq!(status.details.unwrap().uid, created.uid().unwrap());
    let gone = refusal(gadgets.get("a").await);
    assert!(gone.is_not_found(), "{gone:?}");
}

#[tokio::test]
async fn object_with_a_finalizer_is_deleted_when_the_finalizer_is_removed() {
    let (_server, gadgets) = start().await;
    let mut wanted = gadget("a", 1);
    wanted.finalizers_mut().push("example.io/wait".to_owned());
    gadgets
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap();
    let waiting = gadgets
        .delete("a", &DeleteParams::background())
        .await
        .unwrap();
    let waiting = waiting.left().expect("the finalizer keeps the object");
    assert!(waiting.metadata.deletion_timestamp.is_some());
    let removal = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let options = PatchParams::default();
    gadgets.patch("a", &options, &removal).await.unwrap();
    assert_eq!(gadgets.get_opt("a").await.unwrap(), None);
}

#[tokio::test]
async fn patches_change_parts_and_server_side_apply_is_refused() {
    let (_server, gadgets) = start().await;
    let wanted = gadget("a", 1);
    let created = gadgets
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap();
    let options = PatchParams::default();
    let merge = Patch::Merge(json!({"spec": {"color": "red"}, "metadata": {"labels": {"x": "y"}}}));
    let merged = gadgets.patch("a", &options, &merge).await.unwrap();
    assert_eq!(
        (merged.spec.size, merged.spec.color.as_deref()),
        (1, Some("red"))
    );
    assert_eq!(merged.labels()["x"], "y");

    let json = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 5},
        {"op": "add", "path": "/spec/partNames/-", "value": "wheel"},
    ]));
    let json = Patch::Json::<()>(json.unwrap());
    let patched = gadgets.patch("a", &options, &json).await.unwrap();
    assert_eq!(patched.spec.size, 5);
    assert_eq!(patched.spec.part_names, ["wheel"]);
    assert_eq!(patched.uid(), created.uid());
    let failed = refusal(gadgets.patch("a", &options, &json).await);
    assert_eq!(failed.code, 422, "{failed:?}");

    let unknown = Patch::Merge(json!({"spec": {"weight": 1}}));
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let unknown = refusal(gadgets.patch("a", &strict, &unknown).await);
    assert_eq!(unknown.code, 400, "{unknown:?}");
    let apply = Patch::Apply(json!({"apiVersion": "example.io/v1", "kind": "Gadget"}));
    let apply = gadgets
        .patch("a", &PatchParams::apply("test"), &apply)
        .await;
    assert_eq!(refusal(apply).code, 415);
}

#[tokio::test]
async fn status_is_changed_by_its_subresource_only() {
    let (_server, gadgets) = start().await;
    let mut wanted = gadget("a", 1);
    wanted.status = Some(GadgetStatus {
        phase: "Early".to_owned(),
    });
    let options = PostParams::default();
    let created = gadgets.create(&options, &wanted).await.unwrap();
    assert_eq!(created.status, None);

    let mut changed = created.clone();
    changed.spec.size = 9;
    changed.status = Some(GadgetStatus {
        phase: "Ready".to_owned(),
    });
    let replaced = gadgets.replace_status("a", &options, &changed).await;
    let replaced = replaced.unwrap();
    assert_eq!(replaced.status, changed.status);
    assert_eq!(
        (replaced.spec.size, replaced.metadata.generation),
        (1, Some(1))
    );

    let options = PatchParams::default();
    let patch = Patch::Merge(json!({"status": {"phase": "Gone"}}));
    let patched = gadgets.patch_status("a", &options, &patch).await.unwrap();
    assert_eq!(patched.status.unwrap().phase, "Gone");
    assert_eq!(
        gadgets.get_status("a").await.unwrap().status.unwrap().phase,
        "Gone"
    );
    let ignored = Patch::Merge(json!({"status": {"phase": "Other"}}));
    let unchanged = gadgets.patch("a", &options, &ignored).await.unwrap();
    assert_eq!(unchanged.status.unwrap().phase, "Gone");
}

#[tokio::test]
async fn lists_come_in_parts_and_by_label_and_collections_are_deleted() {
    let (server, gadgets) = start().await;
    for number in 0..7_i64 {
        let mut wanted = gadget(&format!("g{number}"), number);
        let parity = if number % 2 == 0 { "even" } else { "odd" };
        wanted
            .labels_mut()
            .insert("parity".to_owned(), parity.to_owned());
        gadgets
            .create(&PostParams::default(), &wanted)
            .await
            .unwrap();
    }
    let part = gadgets.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(part.metadata.remaining_item_count, Some(4));
    let token = part.metadata.continue_.clone().unwrap();
    assert_eq!(names(part), ["g0", "g1", "g2"]);
    let rest = ListParams::default().continue_token(&token);
    assert_eq!(
        names(gadgets.list(&rest).await.unwrap()),
        ["g3", "g4", "g5", "g6"]
    );

    let odd = ListParams::default().labels("parity=odd");
    assert_eq!(names(gadgets.list(&odd).await.unwrap()), ["g1", "g3", "g5"]);
    let everywhere: Api<Gadget> = Api::all(client(&server));
    let one = ListParams::default().fields("metadata.name=g4");
    assert_eq!(names(everywhere.list(&one).await.unwrap()), ["g4"]);
    let metadata = gadgets.list_metadata(&odd).await.unwrap();
    assert_eq!(metadata.items[0].name_any(), "g1");

    let deleted = gadgets
        .delete_collection(&DeleteParams::default(), &odd)
        .await;
    assert_eq!(names(deleted.unwrap().left().unwrap()), ["g1", "g3", "g5"]);
    let left = gadgets.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(left), ["g0", "g2", "g4", "g6"]);
}

#[tokio::test]
async fn watch_sends_changes_after_its_version() {
    let (_server, gadgets) = start().await;
    let options = PostParams::default();
    let first = gadgets.create(&options, &gadget("a", 1)).await.unwrap();
    let watch = WatchParams::default().timeout(20);
    let version = first.resource_version().unwrap();
    let mut events = Box::pin(gadgets.watch(&watch, &version).await.unwrap());
    let mut wanted = first.clone();
    wanted.spec.size = 2;
    let second = gadgets.replace("a", &options, &wanted).await.unwrap();
    gadgets.create(&options, &gadget("b", 1)).await.unwrap();
    gadgets.delete("a", &DeleteParams::default()).await.unwrap();
    let mut next = async || events.next().await.unwrap().unwrap();
    match next().await {
        WatchEvent::Modified(object) => assert_eq!(object, second),
        other => panic!("{other:?}"),
    }
    match next().await {
        WatchEvent::Added(object) => assert_eq!(object.name_any(), "b"),
        other => panic!("{other:?}"),
    }
    match next().await {
        WatchEvent::Deleted(object) => {
            assert_eq!(object.name_any(), "a");
            // The version of the deletion, so that a watch can go on after it.
            assert_ne!(object.resource_version(), second.resource_version());
        }
        other => panic!("{other:?}"),
    }
}
