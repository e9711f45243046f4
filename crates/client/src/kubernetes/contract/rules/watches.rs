//! Rules about the events of watches.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::kubernetes::contract::context::{
    Checked, Context, Violation, added, deleted, demand, demand_eq, modified,
};
use crate::kubernetes::{DeleteOptions, Error, GetOptions, PutOptions, WatchEvent, WatchOptions};

/// The key with which kube-apiservers agree on compactions.
const COMPACT_KEY: &[u8] = b"compact_rev_key";
/// The pause before a watch is created again at a member that was late.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn returns_changes(context: &Context<'_>) -> Checked {
    let mut watch = context.watch(0).await?;
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    let gone = context.delete("a", second).await?;
    let expected = [
        added("a", "1", first),
        modified("a", "2", "1", second),
        deleted("a", "2", gone),
    ];
    demand_eq!(watch.lines(3).await?, expected, "the events of a watch");
    Ok(())
}

pub(super) async fn begins_after_revision(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    let third = context.update("a", "3", second).await?;
    let changes = [
        added("a", "1", first),
        modified("a", "2", "1", second),
        modified("a", "3", "2", third),
    ];
    for (revision, expected) in [
        (first - 1, &changes[..]),
        (first, &changes[1..]),
        (second, &changes[2..]),
    ] {
        let mut watch = context.watch(revision).await?;
        let lines = watch.lines(expected.len()).await?;
        demand_eq!(
            lines,
            expected,
            "the events of a watch after revision {revision}"
        );
    }
    let mut from_newest = context.watch(0).await?;
    let mut from_third = context.watch(third).await?;
    let fourth = context.update("a", "4", third).await?;
    let expected = modified("a", "4", "3", fourth);
    demand_eq!(
        from_newest.next_line().await?,
        expected,
        "the first event of a watch after revision 0"
    );
    demand_eq!(
        from_third.next_line().await?,
        expected,
        "the first event of a watch after the newest revision"
    );
    Ok(())
}

pub(super) async fn is_bounded(context: &Context<'_>) -> Checked {
    let begin = context.create("begin", "").await?;
    let mut one = context.watch_key("n", begin).await?;
    let prefix = context.key("n/");
    let options = WatchOptions {
        revision: begin,
        prefix: true,
        ..context.watch_options()
    };
    let mut below = context.store.watch(&prefix, options).await?;
    for name in ["n0", "n/a", "m/z", "n/", "n"] {
        context.create(name, "1").await?;
    }
    let kv = context.existing("n").await?;
    context.delete("n", kv.mod_revision).await?;
    let last = context.create("n/z", "1").await?;

    let lines = one.lines(2).await?;
    let is_own = lines
        .iter()
        .all(|line| line.contains(" n=") || line.contains(" n "));
    demand!(is_own, "a watch of one key returned {lines:?}");
    let mut keys = Vec::new();
    while keys.len() < 3 {
        let event = tokio::time::timeout(context.wait_max, below.next()).await;
        match event {
            Ok(Some(WatchEvent::Added { key, revision, .. })) if revision <= last => keys.push(key),
            Ok(Some(WatchEvent::Bookmark { .. })) => {}
            other => {
                return Err(Violation::Broken(format!(
                    "a watch of a prefix returned {other:?}"
                )));
            }
        }
    }
    let expected = ["n/a", "n/", "n/z"].map(|name| context.key(name));
    demand_eq!(keys, expected, "the keys of a watch of a prefix");
    Ok(())
}

pub(super) async fn of_recreated_key(context: &Context<'_>) -> Checked {
    let mut watch = context.watch_key("a", 0).await?;
    let first = context.create("a", "1").await?;
    let gone = context.delete("a", first).await?;
    let again = context.create("a", "2").await?;
    let second = context.update("a", "3", again).await?;
    let expected = [
        added("a", "1", first),
        deleted("a", "1", gone),
        added("a", "2", again),
        modified("a", "3", "2", second),
    ];
    demand_eq!(
        watch.lines(4).await?,
        expected,
        "the events of a key that was created again"
    );
    // From history, too: a store may read it in another way.
    let mut replay = context.watch_key("a", first - 1).await?;
    demand_eq!(
        replay.lines(4).await?,
        expected,
        "the same events from history"
    );
    Ok(())
}

pub(super) async fn waits_for_future_revision(context: &Context<'_>) -> Checked {
    let newest = context.create("a", "0").await?;
    let mut watch = context.watch(newest + 2).await?;
    let mut revision = newest;
    let mut expected = None;
    while expected.is_none() {
        let (before, value) = (revision, format!("{}", revision + 1));
        let previous = context.existing("a").await?.value;
        revision = context.update("a", &value, before).await?;
        if revision > newest + 2 {
            let previous = String::from_utf8_lossy(&previous).into_owned();
            expected = Some(modified("a", &value, &previous, revision));
        }
    }
    let first = watch.next_line().await?;
    demand_eq!(
        Some(first),
        expected,
        "the first event after a future revision"
    );
    Ok(())
}

pub(super) async fn fails_after_compaction(context: &Context<'_>) -> Checked {
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    let third = context.update("a", "3", second).await?;
    context.control.compact(third).await?;
    // A member that has not applied the compaction yet returns the events.
    let deadline = Instant::now() + context.wait_max;
    let error = loop {
        let mut watch = context.watch(first).await?;
        match watch.next().await? {
            WatchEvent::Error(error) => break error,
            event if Instant::now() > deadline => {
                let line = watch.line(&event)?;
                let what = format!("a watch from a compacted revision returned {line}");
                return Err(Violation::Broken(what));
            }
            _ => sleep(RETRY_PAUSE).await,
        }
    };
    let is_it = matches!(&error, Error::Compacted { compact_revision: Some(it) } if *it >= third);
    demand!(
        is_it,
        "a watch from a compacted revision ended with {error:?}, not with the compact revision {third}"
    );
    Ok(())
}

pub(super) async fn keeps_previous_values(context: &Context<'_>) -> Checked {
    let mut live = context.watch(0).await?;
    let first = context.create("a", "1").await?;
    let second = context.update("a", "2", first).await?;
    let other = context.create("b", "1").await?;
    // A watch that has not caught up yet may end with a compaction.
    live.lines(3).await?;
    context.control.compact(other).await?;
    let mut after = context.watch(other).await?;
    let third = context.update("a", "3", second).await?;
    let gone = context.delete("b", other).await?;
    let later = [modified("a", "3", "2", third), deleted("b", "1", gone)];
    demand_eq!(
        after.lines(2).await?,
        later,
        "the events of a watch from the compact revision"
    );
    demand_eq!(
        live.lines(2).await?,
        later,
        "the events of a watch from before the compaction"
    );
    Ok(())
}

pub(super) async fn groups_transactions(context: &Context<'_>) -> Checked {
    let names = ["a", "b", "c", "d"];
    let mut watch = context.watch(0).await?;
    let before = context.create("z", "0").await?;
    let first = context
        .control
        .write(names.map(|name| context.write(name, "1")).into());
    let first = first.await?;
    let second = context
        .control
        .write(names.map(|name| context.write(name, "2")).into());
    let second = second.await?;
    demand!(
        before < first && first < second,
        "three transactions have the revisions {before}, {first} and {second}"
    );
    let mut expected = vec![added("z", "0", before)];
    expected.extend(names.map(|name| added(name, "1", first)));
    expected.extend(names.map(|name| modified(name, "2", "1", second)));
    demand_eq!(
        watch.lines(expected.len()).await?,
        expected,
        "the events of transactions"
    );
    let mut replay = context.watch(before).await?;
    demand_eq!(
        replay.lines(8).await?,
        expected[1..],
        "the same events from history"
    );
    Ok(())
}

pub(super) async fn is_ordered_and_complete(context: &Context<'_>) -> Checked {
    let begin = context.create("begin", "").await?;
    let mut live = context.watch(begin).await?;
    let mut expected = Vec::new();
    for round in 0..60 {
        let name = format!("{}", round % 7);
        let previous = context.get(&name).await?.kv;
        let value = round.to_string();
        expected.push(match previous {
            None => added(&name, &value, context.create(&name, &value).await?),
            Some(kv) if round % 5 == 0 => {
                let was = String::from_utf8_lossy(&kv.value).into_owned();
                deleted(&name, &was, context.delete(&name, kv.mod_revision).await?)
            }
            Some(kv) => {
                let was = String::from_utf8_lossy(&kv.value).into_owned();
                let revision = context.update(&name, &value, kv.mod_revision).await?;
                modified(&name, &value, &was, revision)
            }
        });
    }
    demand_eq!(
        live.lines(expected.len()).await?,
        expected,
        "the events of a watch"
    );
    let mut replay = context.watch(begin).await?;
    demand_eq!(
        replay.lines(expected.len()).await?,
        expected,
        "the same events from history"
    );
    Ok(())
}

pub(super) async fn compact_key_is_watchable(context: &Context<'_>) -> Checked {
    let store = context.store;
    if store
        .get(COMPACT_KEY, GetOptions::default())
        .await?
        .kv
        .is_some()
    {
        let reason = "compact_rev_key exists: a kube-apiserver uses the store";
        return Err(Violation::Skipped(reason.to_owned()));
    }
    let mut watch = store.watch(COMPACT_KEY, context.watch_options()).await?;
    let put = store.optimistic_put(
        COMPACT_KEY,
        Bytes::from_static(b"0"),
        0,
        PutOptions::default(),
    );
    let put = put.await?;
    demand!(put.succeeded, "compact_rev_key cannot be created");
    let event = tokio::time::timeout(context.wait_max, watch.next()).await;
    let read = store.get(COMPACT_KEY, GetOptions::default()).await?.kv;
    let delete = store.optimistic_delete(COMPACT_KEY, put.revision, DeleteOptions::default());
    demand!(delete.await?.succeeded, "compact_rev_key cannot be deleted");
    demand!(
        read.is_some_and(|kv| kv.value == "0" && kv.version == 1),
        "compact_rev_key is not stored like other keys"
    );
    demand!(
        matches!(&event, Ok(Some(WatchEvent::Added { revision, .. })) if *revision == put.revision),
        "a watch of compact_rev_key returned {event:?} instead of its creation"
    );
    Ok(())
}
