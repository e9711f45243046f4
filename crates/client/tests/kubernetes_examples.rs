//! The examples of the Kubernetes interface, run.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../examples/in_memory_test.rs"]
#[allow(dead_code)]
mod in_memory_test;
#[path = "../examples/list_and_watch.rs"]
#[allow(dead_code)]
mod list_and_watch;
#[path = "../examples/optimistic_update.rs"]
#[allow(dead_code)]
mod optimistic_update;

use portunus_client::kubernetes::{Interface, Memory, PutOptions, Write};

fn put(key: &str, value: &str) -> Write {
    Write::Put {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        lease: 0,
    }
}

/// Proves: S4-2, S4-19, K29
#[tokio::test]
async fn controller_follows_changes_and_lists_again_after_a_compaction() {
    let store = Memory::new();
    for index in 0..1200 {
        let key = format!("/registry/pods/{index:04}");
        store.write(vec![put(&key, "1")]).unwrap();
    }
    let mut listed = 0;
    let writer = store.clone();
    let cache = list_and_watch::follow(&store, |cache| {
        if listed == 0 {
            listed = cache.objects.len();
            writer.write(vec![put("/registry/pods/0000", "2")]).unwrap();
        }
        cache.objects.get(&b"/registry/pods/0000"[..]).unwrap() == "2"
    })
    .await
    .unwrap();
    assert_eq!(listed, 1200);
    assert_eq!(cache.objects.len(), 1200);
    assert_eq!(cache.revision, store.revision());

    // More changes than a watch keeps for a slow consumer, then a compaction.
    let mut is_behind = true;
    let cache = list_and_watch::follow(&store, |cache| {
        if std::mem::take(&mut is_behind) {
            for index in 0..5000 {
                let value = index.to_string();
                writer
                    .write(vec![put("/registry/pods/0001", &value)])
                    .unwrap();
            }
            writer.compact(writer.revision()).unwrap();
        }
        cache.revision == writer.revision()
    })
    .await
    .unwrap();
    let value = cache.objects.get(&b"/registry/pods/0001"[..]);
    assert_eq!(value.unwrap(), "4999");
}

#[tokio::test]
async fn concurrent_increments_are_all_counted() {
    let store = Memory::new();
    let key = b"/example/counter";
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { optimistic_update::increment(&store, key).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    // One that another writer overtook between its read and its write.
    let kv = store
        .get(key, Default::default())
        .await
        .unwrap()
        .kv
        .unwrap();
    assert_eq!(kv.value, "20");
    let refused = store.optimistic_put(key, "x".into(), 1, PutOptions::default());
    assert!(!refused.await.unwrap().succeeded);
    assert_eq!(optimistic_update::increment(&store, key).await.unwrap(), 21);
}

#[tokio::test]
async fn application_code_is_tested_without_a_server() {
    in_memory_test::test_that_a_silent_worker_disappears()
        .await
        .unwrap();
}
