//! Rules about optimistic writes.

use bytes::Bytes;

use crate::kubernetes::contract::context::{Checked, Context, demand, demand_eq};
use crate::kubernetes::{DeleteOptions, DeleteResponse, PutOptions, PutResponse};

const GET_ON_FAILURE: PutOptions = PutOptions {
    get_on_failure: true,
    lease_id: 0,
};

async fn put(
    context: &Context<'_>,
    name: &str,
    expected: i64,
    options: PutOptions,
) -> Checked<PutResponse> {
    let value = Bytes::from_static(b"other");
    let key = context.key(name);
    Ok(context
        .store
        .optimistic_put(&key, value, expected, options)
        .await?)
}

async fn delete(context: &Context<'_>, name: &str, expected: i64) -> Checked<DeleteResponse> {
    let options = DeleteOptions {
        get_on_failure: true,
    };
    let key = context.key(name);
    Ok(context
        .store
        .optimistic_delete(&key, expected, options)
        .await?)
}

/// Checks that a key has a value and a revision.
async fn unchanged(context: &Context<'_>, name: &str, value: &str, revision: i64) -> Checked {
    let kv = context.existing(name).await?;
    demand!(
        kv.value == value && kv.mod_revision == revision,
        "a refused write changed the key: {kv:?} instead of {value:?} at revision {revision}"
    );
    Ok(())
}

pub(super) async fn create_succeeds_once(context: &Context<'_>) -> Checked {
    let revision = context.create("a", "1").await?;
    demand_eq!(
        context.existing("a").await?.mod_revision,
        revision,
        "the mod revision of a created key"
    );
    let again = put(context, "a", 0, PutOptions::default()).await?;
    demand!(!again.succeeded, "a key was created twice");
    unchanged(context, "a", "1", revision).await
}

pub(super) async fn update_compares_revision(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    for expected in [0, first, second + 1, second + 1000] {
        let refused = put(context, "a", expected, PutOptions::default()).await?;
        demand!(
            !refused.succeeded,
            "a put that expects revision {expected} changed a key of revision {second}"
        );
        unchanged(context, "a", "2", second).await?;
    }
    let absent = put(context, "b", second, PutOptions::default()).await?;
    demand!(
        !absent.succeeded,
        "a put that expects revision {second} created a key"
    );
    let kv = context.existing("a").await?;
    demand_eq!(
        (kv.create_revision, kv.version),
        (first, 2),
        "create revision and version after an update"
    );
    Ok(())
}

pub(super) async fn mismatch_returns_current_pair(context: &Context<'_>) -> Checked {
    let revision = context.create("a", "1").await?;
    let current = Some(context.existing("a").await?);
    let refused = put(context, "a", revision + 1, GET_ON_FAILURE).await?;
    demand_eq!(
        refused.kv,
        current,
        "the pair of a refused put that requested it"
    );
    demand!(
        refused.revision >= revision,
        "a refused put has revision {}",
        refused.revision
    );
    let refused = put(context, "a", revision + 1, PutOptions::default()).await?;
    demand_eq!(
        refused.kv,
        None,
        "the pair of a refused put that did not request it"
    );
    let refused = delete(context, "a", revision + 1).await?;
    demand_eq!(
        refused.kv,
        current,
        "the pair of a refused delete that requested it"
    );
    let refused = put(context, "b", revision, GET_ON_FAILURE).await?;
    demand!(!refused.succeeded, "a put with a revision created a key");
    demand_eq!(refused.kv, None, "the pair of a key that does not exist");
    Ok(())
}

pub(super) async fn success_returns_no_pair(context: &Context<'_>) -> Checked {
    let before = context.get("a").await?.revision;
    let created = put(context, "a", 0, GET_ON_FAILURE).await?;
    demand_eq!(
        (created.succeeded, created.kv),
        (true, None),
        "a put that succeeds"
    );
    demand!(
        created.revision > before,
        "a put after revision {before} has revision {}",
        created.revision
    );
    let deleted = delete(context, "a", created.revision).await?;
    demand_eq!(
        (deleted.succeeded, deleted.kv),
        (true, None),
        "a delete that succeeds"
    );
    Ok(())
}

pub(super) async fn delete_compares_revision(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    for expected in [0, first, second + 1] {
        let refused = delete(context, "a", expected).await?;
        demand!(
            !refused.succeeded,
            "a delete that expects revision {expected} deleted a key of revision {second}"
        );
        unchanged(context, "a", "2", second).await?;
    }
    let gone = context.delete("a", second).await?;
    demand!(
        gone > second,
        "a deletion after revision {second} has revision {gone}"
    );
    let left = context.get("a").await?.kv;
    demand!(left.is_none(), "a deleted key exists: {left:?}");
    let before = context.get_at("a", gone - 1).await?.kv;
    demand!(
        before.is_some(),
        "the revision of a deletion, {gone}, is not that of the deletion"
    );
    Ok(())
}

pub(super) async fn delete_of_absent_key(context: &Context<'_>) -> Checked {
    // A watch sees any revision that the deletion would create.
    let mut watch = context.watch(0).await?;
    let nothing = delete(context, "a", 0).await?;
    demand!(
        nothing.succeeded,
        "a delete with 0 of a key that does not exist did not succeed"
    );
    demand_eq!(nothing.kv, None, "the pair of a key that does not exist");
    let refused = delete(context, "a", nothing.revision).await?;
    demand!(
        !refused.succeeded,
        "a delete with a revision of a key that does not exist succeeded"
    );
    demand_eq!(refused.kv, None, "the pair of a key that does not exist");
    let created = context.create("b", "1").await?;
    let first = watch.next_line().await?;
    demand!(
        first.starts_with("ADDED b"),
        "a delete of a key that does not exist changed something: {first} before revision {created}"
    );
    Ok(())
}

pub(super) async fn revision_counts_transactions(context: &Context<'_>) -> Checked {
    let mut watch = context.watch(0).await?;
    let mut expected = Vec::new();
    for round in 0..10 {
        let name = format!("{round}");
        expected.push(context.create(&name, "1").await?);
        let refused = put(context, &name, 0, GET_ON_FAILURE).await?;
        demand!(!refused.succeeded, "a key was created twice");
        context.get(&name).await?;
    }
    let is_rising = expected.windows(2).all(|pair| pair[0] < pair[1]);
    demand!(
        is_rising,
        "the revisions of writes in order are {expected:?}"
    );
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let event = watch.next().await?;
        // Fails if the watch ended.
        watch.line(&event)?;
        if !matches!(event, crate::kubernetes::WatchEvent::Bookmark { .. }) {
            seen.extend(event.revision());
        }
    }
    demand_eq!(seen, expected, "the revisions of changes in a watch");
    Ok(())
}

pub(super) async fn recreated_key_is_new(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    context.delete("a", second).await?;
    let stale = put(context, "a", second, PutOptions::default()).await?;
    demand!(
        !stale.succeeded,
        "a put with the revision of a deleted key succeeded"
    );
    let again = context.create("a", "3").await?;
    let kv = context.existing("a").await?;
    demand_eq!(
        (kv.create_revision, kv.mod_revision, kv.version),
        (again, again, 1),
        "create revision, mod revision and version of a key that was created again"
    );
    Ok(())
}
