//! Rules about lists and counts.

use bytes::{BufMut, Bytes, BytesMut};

use crate::kubernetes::contract::context::{Checked, Context, Violation, demand, demand_eq};
use crate::kubernetes::{CountOptions, Error, KeyValue, ListOptions, ListResponse};

/// The largest page that kube-apiserver requests.
pub(super) const PAGE_MAX: i64 = 10_000;

/// Creates keys with these names.
async fn create_all(context: &Context<'_>, names: &[&str]) -> Checked {
    for name in names {
        context.create(name, name).await?;
    }
    Ok(())
}

/// Returns the names of the keys of a list.
fn names(context: &Context<'_>, kvs: &[KeyValue]) -> Vec<String> {
    let name = |kv: &KeyValue| {
        let name = kv.key.strip_prefix(&context.prefix[..]);
        String::from_utf8_lossy(name.unwrap_or(&kv.key)).into_owned()
    };
    kvs.iter().map(name).collect()
}

fn after(key: &Bytes) -> Bytes {
    let mut next = BytesMut::from(&key[..]);
    next.put_u8(0);
    next.freeze()
}

pub(super) async fn is_ordered_and_bounded(context: &Context<'_>) -> Checked {
    // The next key after those with the prefix "n/" would be "n0".
    create_all(
        context,
        &["n/b", "n0", "n/a", "n", "n/a/c", "m/z", "n/\u{ff}"],
    )
    .await?;
    let prefix = context.key("n/");
    let list = context.store.list(&prefix, ListOptions::default()).await?;
    let expected = ["n/a", "n/a/c", "n/b", "n/\u{ff}"];
    demand_eq!(
        names(context, &list.kvs),
        expected,
        "the keys with a prefix"
    );
    let values: Vec<_> = list.kvs.iter().map(|kv| &kv.value[..]).collect();
    let written: Vec<_> = expected.iter().map(|name| name.as_bytes()).collect();
    demand!(
        values == written,
        "the values of a list are not those of its keys"
    );
    let probe = context.get("never-written").await?.revision;
    demand!(
        list.revision > 0 && list.revision <= probe,
        "a list has revision {} before one of {probe}",
        list.revision
    );
    Ok(())
}

pub(super) async fn counts_past_its_limit(context: &Context<'_>) -> Checked {
    create_all(context, &["a", "b", "c", "d", "e"]).await?;
    for (limit, continue_name, expected, count) in [
        (0, "", &["a", "b", "c", "d", "e"][..], 5),
        (2, "", &["a", "b"], 5),
        (5, "", &["a", "b", "c", "d", "e"], 5),
        (9, "", &["a", "b", "c", "d", "e"], 5),
        (2, "c", &["c", "d"], 3),
        (2, "e", &["e"], 1),
        (2, "f", &[], 0),
    ] {
        let options = ListOptions {
            limit,
            continue_key: match continue_name.is_empty() {
                true => Bytes::new(),
                false => context.key(continue_name),
            },
            ..ListOptions::default()
        };
        let list = context.list(options).await?;
        let from = format!("with limit {limit} from {continue_name:?}");
        demand_eq!(
            names(context, &list.kvs),
            expected,
            "the keys of a list {from}"
        );
        demand_eq!(list.count, count, "the count of a list {from}");
    }
    Ok(())
}

pub(super) async fn continues_at_key(context: &Context<'_>) -> Checked {
    create_all(context, &["a", "a\0", "b"]).await?;
    for (continue_key, expected) in [
        (context.key("a"), &["a", "a\0", "b"][..]),
        (after(&context.key("a")), &["a\0", "b"]),
        (after(&context.key("a\0")), &["b"]),
        (after(&context.key("b")), &[]),
    ] {
        let options = ListOptions {
            continue_key: continue_key.clone(),
            ..ListOptions::default()
        };
        let list = context.list(options).await?;
        demand_eq!(
            names(context, &list.kvs),
            expected,
            "the keys of a list from {continue_key:?}"
        );
    }
    Ok(())
}

/// Returns the page after another one, at its revision.
fn next_page(page: &ListResponse, revision: i64, limit: i64) -> Checked<ListOptions> {
    let Some(last) = page.kvs.last() else {
        return Err(Violation::Broken(format!(
            "a page has no keys and a count of {}",
            page.count
        )));
    };
    Ok(ListOptions {
        revision,
        limit,
        continue_key: after(&last.key),
    })
}

/// Reads all pages at the revision of the first one.
pub(super) async fn pages(
    context: &Context<'_>,
    mut limits: impl Iterator<Item = i64>,
) -> Checked<(Vec<KeyValue>, i64)> {
    let mut options = ListOptions {
        limit: limits.next().unwrap_or(1),
        ..ListOptions::default()
    };
    let mut all = Vec::new();
    let mut pinned = 0;
    loop {
        let limit = options.limit;
        let page = context.list(options).await?;
        let returned = i64::try_from(page.kvs.len()).unwrap_or(i64::MAX);
        demand!(
            returned <= limit,
            "a page has {returned} pairs with limit {limit}"
        );
        if pinned == 0 {
            pinned = page.revision;
        }
        all.extend_from_slice(&page.kvs);
        if returned >= page.count {
            return Ok((all, pinned));
        }
        options = next_page(&page, pinned, limits.next().unwrap_or(limit))?;
    }
}

pub(super) async fn pages_are_one_snapshot(context: &Context<'_>) -> Checked {
    for name in ["a", "b", "c", "d", "e", "f"] {
        context.create(name, "old").await?;
    }
    let first = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let mut page = context.list(first).await?;
    let revision = page.revision;
    let mut all = page.kvs.clone();
    let mut round = 0;
    while i64::try_from(page.kvs.len()).unwrap_or(i64::MAX) < page.count {
        // Before, in and after the rest of the list.
        let changed = context.existing("e").await?;
        context.update("e", "new", changed.mod_revision).await?;
        for name in ["a", "c", "g"] {
            context.create(&format!("{name}{round}"), "new").await?;
        }
        if round == 0 {
            let gone = context.existing("d").await?;
            context.delete("d", gone.mod_revision).await?;
        }
        round += 1;
        page = context.list(next_page(&page, revision, 2)?).await?;
        all.extend_from_slice(&page.kvs);
    }
    let expected = ["a", "b", "c", "d", "e", "f"];
    demand_eq!(
        names(context, &all),
        expected,
        "the keys of pages at one revision"
    );
    let is_old = all.iter().all(|kv| kv.value == "old");
    demand!(is_old, "pages at one revision contain later values");
    Ok(())
}

pub(super) async fn pages_may_grow(context: &Context<'_>) -> Checked {
    let mut written = Vec::new();
    for index in 0..40 {
        let name = format!("{index:03}");
        context.create(&name, &name).await?;
        written.push(name);
    }
    let doubling = std::iter::successors(Some(1), |limit| Some((limit * 2).min(PAGE_MAX)));
    for (kind, limits) in [
        (
            "doubling",
            Box::new(doubling) as Box<dyn Iterator<Item = i64> + Send>,
        ),
        ("one", Box::new(std::iter::repeat(1))),
        ("all", Box::new(std::iter::repeat(PAGE_MAX))),
    ] {
        let (all, _) = pages(context, limits).await?;
        demand_eq!(
            names(context, &all),
            written,
            "the keys of pages with {kind} keys"
        );
    }
    Ok(())
}

pub(super) async fn fails_after_compaction(context: &Context<'_>) -> Checked {
    create_all(context, &["a", "b", "c"]).await?;
    let first = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    let page = context.list(first).await?;
    let next = next_page(&page, page.revision, 1)?;
    context.create("d", "d").await?;
    let newest = context.create("e", "e").await?;
    context.control.compact(newest).await?;
    let page = context.store.list(&context.prefix, next).await;
    demand!(
        matches!(page, Err(Error::Compacted { .. })),
        "a page at a compacted revision returned {page:?}"
    );
    Ok(())
}

pub(super) async fn count_equals_list(context: &Context<'_>) -> Checked {
    let count = async || {
        context
            .store
            .count(&context.prefix, CountOptions::default())
            .await
    };
    demand_eq!(count().await?, 0, "the count before the first key");
    create_all(context, &["a", "b", "b/c"]).await?;
    demand_eq!(count().await?, 3, "the count after three creates");
    let last = context.existing("b").await?;
    context.delete("b", last.mod_revision).await?;
    let list = context.list(ListOptions::default()).await?;
    demand_eq!(
        (count().await?, list.count),
        (2, 2),
        "the counts after a delete"
    );
    let all = context.store.count(b"", CountOptions::default()).await?;
    demand!(all >= 2, "the count of all keys is {all}");
    Ok(())
}

pub(super) async fn stream_equals_list(context: &Context<'_>) -> Checked {
    for index in 0..50 {
        context
            .create(&format!("{index:03}"), &"x".repeat(index))
            .await?;
    }
    let (paged, revision) = pages(context, std::iter::repeat(7)).await?;
    context.create("later", "").await?;
    let streamed = context.control.stream(&context.prefix, revision).await?;
    demand!(
        streamed == paged,
        "a stream returned {} pairs, which are not the {} of pages at the same revision",
        streamed.len(),
        paged.len()
    );
    Ok(())
}

pub(super) async fn without_values(context: &Context<'_>) -> Checked {
    create_all(context, &["a", "b", "c"]).await?;
    let keys = context.control.list_keys(&context.prefix).await?;
    demand_eq!(
        names(context, &keys),
        ["a", "b", "c"],
        "the keys of a list without values"
    );
    let has_values = keys.iter().any(|kv| !kv.value.is_empty());
    demand!(!has_values, "a list without values has values");
    Ok(())
}
