//! Rules about filling a cache of all objects and comparing it with the store later.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::lists::{PAGE_MAX, pages};
use crate::kubernetes::contract::ControlError;
use crate::kubernetes::contract::context::{Checked, Context, Violation, Watch, demand};
use crate::kubernetes::{KeyValue, ListOptions, WatchEvent, Write};

/// One page of the largest size and a rest.
const KEYS: usize = 10_001;
/// Below the limit of etcd for the operations of a transaction, which is 128.
const WRITES_MAX: usize = 100;

/// Runs writes in transactions of the size that every store allows.
async fn write_all(context: &Context<'_>, writes: Vec<Write>) -> Checked {
    for batch in writes.chunks(WRITES_MAX) {
        context.control.write(batch.to_vec()).await?;
    }
    Ok(())
}

pub(super) async fn largest_page_is_filled(context: &Context<'_>) -> Checked {
    let name = |index| format!("{index:05}");
    let writes = (0..KEYS).map(|index| context.write(&name(index), &name(index)));
    write_all(context, writes.collect()).await?;
    let first = ListOptions {
        limit: PAGE_MAX,
        ..ListOptions::default()
    };
    let first = context.list(first).await?;
    demand!(
        first.kvs.len() + 1 == KEYS && first.count == PAGE_MAX + 1,
        "a page of at most {PAGE_MAX} of {KEYS} keys has {} pairs and a count of {}",
        first.kvs.len(),
        first.count
    );
    let (paged, revision) = pages(context, std::iter::repeat(PAGE_MAX)).await?;
    let keys: Vec<Bytes> = (0..KEYS).map(|index| context.key(&name(index))).collect();
    let is_complete = paged.iter().map(|kv| &kv.key).eq(&keys);
    demand!(
        is_complete,
        "pages of {PAGE_MAX} keys have {} pairs, which are not the {KEYS} of the prefix",
        paged.len()
    );
    match context.control.stream(&context.prefix, revision).await {
        Ok(streamed) => demand!(
            streamed == paged,
            "a stream of {KEYS} keys has {} pairs, which are not those of the pages",
            streamed.len()
        ),
        // Stores without streams are filled by pages alone.
        Err(ControlError::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let deletes = keys.into_iter().map(|key| Write::Delete { key });
    write_all(context, deletes.collect()).await
}

/// The value and the revision of every object.
type Cache = BTreeMap<Bytes, (Bytes, i64)>;

fn cache_of(kvs: Vec<KeyValue>) -> Cache {
    let entry = |kv: KeyValue| (kv.key, (kv.value, kv.mod_revision));
    kvs.into_iter().map(entry).collect()
}

/// Applies the next change of a watch.
async fn apply_next(cache: &mut Cache, watch: &mut Watch) -> Checked {
    loop {
        match watch.next().await? {
            WatchEvent::Added {
                key,
                value,
                revision,
            }
            | WatchEvent::Modified {
                key,
                value,
                revision,
                ..
            } => {
                cache.insert(key, (value, revision));
            }
            WatchEvent::Deleted { key, .. } => {
                cache.remove(&key);
            }
            WatchEvent::Bookmark { .. } => continue,
            WatchEvent::Error(error) => {
                return Err(Violation::Broken(format!("a watch ended: {error}")));
            }
        }
        return Ok(());
    }
}

pub(super) async fn cache_equals_list(context: &Context<'_>) -> Checked {
    const OBJECTS: usize = 20;
    const ROUNDS: usize = 5;
    for index in 0..OBJECTS {
        context.create(&format!("{index:02}"), "0").await?;
    }
    let filled = context.list(ListOptions::default()).await?;
    let mut cache = cache_of(filled.kvs);
    let mut watch = context.watch(filled.revision).await?;
    for round in 1..=ROUNDS {
        let names = [
            format!("{round:02}"),
            format!("{:02}", round + ROUNDS),
            format!("new-{round}"),
        ];
        let changed = context.existing(&names[0]).await?;
        context
            .update(&names[0], &round.to_string(), changed.mod_revision)
            .await?;
        let removed = context.existing(&names[1]).await?;
        context.delete(&names[1], removed.mod_revision).await?;
        let revision = context.create(&names[2], "0").await?;
        for _ in &names {
            apply_next(&mut cache, &mut watch).await?;
        }
        // What is written after the compared revision is not part of the list.
        context.create(&format!("later-{round}"), "0").await?;
        let exact = ListOptions {
            revision,
            limit: PAGE_MAX,
            ..ListOptions::default()
        };
        let listed = cache_of(context.list(exact).await?.kvs);
        demand!(
            listed == cache,
            "a list at revision {revision} is not the cache of a watch up to it: {listed:?} instead of {cache:?}"
        );
        apply_next(&mut cache, &mut watch).await?;
    }
    Ok(())
}
