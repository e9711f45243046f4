//! Rules about bookmarks and progress requests.

use std::time::Duration;

use crate::kubernetes::contract::context::{
    Checked, Context, Violation, added, demand, demand_eq, modified,
};
use crate::kubernetes::{Error, RequestProgressOptions, WatchEvent, WatchOptions};

/// The pause between two progress requests.
const REQUEST_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn of_fresh_watch(context: &Context<'_>) -> Checked {
    let newest = context.create("a", "1").await?;
    let mut from_newest = context.watch(0).await?;
    let (lines, revision) = context.bookmark(&mut from_newest, newest).await?;
    demand!(
        lines.is_empty(),
        "a watch without changes returned {lines:?}"
    );
    let store = context.get("a").await?.revision;
    demand!(
        revision <= store,
        "a bookmark of revision {revision} is newer than the store, {store}"
    );
    // The revision of a bookmark may be that of another key.
    let mut after_newest = context.watch_key("a", newest).await?;
    let other = context.create("b", "1").await?;
    let (lines, _) = context.bookmark(&mut after_newest, other).await?;
    demand!(
        lines.is_empty(),
        "a watch without changes returned {lines:?}"
    );
    Ok(())
}

/// Takes events until a change of `last` or a later revision. Fails if a change comes after a
/// bookmark of its revision. Returns the lines of changes.
async fn changes_until(
    watch: &mut crate::kubernetes::contract::context::Watch,
    last: i64,
) -> Checked<Vec<String>> {
    let mut lines = Vec::new();
    let mut bookmark = 0;
    loop {
        let event = watch.next().await?;
        let line = watch.line(&event)?;
        let revision = event.revision().unwrap_or(0);
        if let WatchEvent::Bookmark { revision } = event {
            demand!(revision > 0, "a bookmark has revision {revision}");
            demand!(
                revision >= bookmark,
                "a bookmark of revision {revision} follows one of {bookmark}"
            );
            bookmark = revision;
            continue;
        }
        demand!(
            revision > bookmark,
            "{line} came after a bookmark of revision {bookmark}"
        );
        lines.push(line);
        if revision >= last {
            return Ok(lines);
        }
    }
}

pub(super) async fn follows_events(context: &Context<'_>) -> Checked {
    let mut watch = context.watch(0).await?;
    let mut last = context.create("a", "0").await?;
    let mut expected = vec![added("a", "0", last)];
    for round in 1..=50 {
        let (value, previous) = (round.to_string(), (round - 1).to_string());
        let update = context.update("a", &value, last);
        let (requested, updated) = tokio::join!(context.request_progress(), update);
        requested?;
        last = updated?;
        expected.push(modified("a", &value, &previous, last));
    }
    let lines = changes_until(&mut watch, last).await?;
    demand_eq!(lines, expected, "the events between bookmarks");
    let (rest, _) = context.bookmark(&mut watch, last).await?;
    demand!(rest.is_empty(), "a watch repeated {rest:?}");
    Ok(())
}

pub(super) async fn does_not_split_transactions(context: &Context<'_>) -> Checked {
    let names = ["a", "b", "c", "d", "e"];
    let mut watch = context.watch(0).await?;
    for round in 0..10 {
        let value = round.to_string();
        let writes = names.map(|name| context.write(name, &value));
        let (requested, written) = tokio::join!(
            context.request_progress(),
            context.control.write(writes.into())
        );
        requested?;
        let revision = written?;
        context.request_progress().await?;
        let mut changes = 0;
        while changes < names.len() {
            let event = watch.next().await?;
            let line = watch.line(&event)?;
            match event {
                WatchEvent::Bookmark { .. } => demand!(
                    changes == 0,
                    "a bookmark came after {changes} of the {} changes of revision {revision}",
                    names.len()
                ),
                _ => {
                    demand_eq!(event.revision(), Some(revision), "the revision of {line}");
                    changes += 1;
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn progress_is_per_stream(context: &Context<'_>) -> Checked {
    let first = context.create("a", "0").await?;
    let newest = context.create("b", "0").await?;
    let mut one = context.watch(first).await?;
    let mut two = context.watch_key("a", first).await?;
    let other = WatchOptions {
        stream_key: format!("{}other", context.stream_key()),
        revision: first,
        prefix: true,
    };
    let mut other = context.watch_with(other).await?;
    let expected = added("b", "0", newest);
    demand_eq!(
        other.next_line().await?,
        expected,
        "the first event of a watch in another stream"
    );
    context.bookmark(&mut one, newest).await?;
    context.bookmark(&mut two, newest).await?;
    let revision = context.update("a", "1", first).await?;
    let event = other.next().await?;
    let line = other.line(&event)?;
    let expected = modified("a", "1", "0", revision);
    demand_eq!(
        line,
        expected,
        "the next event of a watch in another stream"
    );
    Ok(())
}

pub(super) async fn progress_needs_a_watch(context: &Context<'_>) -> Checked {
    let unknown = RequestProgressOptions {
        stream_key: format!("{}unknown", context.stream_key()),
    };
    let requested = context.store.request_progress(unknown).await;
    demand!(
        matches!(requested, Err(Error::UnknownStream { .. })),
        "a progress request for a stream without a watch returned {requested:?}"
    );
    let first = context.create("a", "0").await?;
    let newest = context.create("b", "0").await?;
    let default = WatchOptions {
        revision: first,
        prefix: true,
        ..WatchOptions::default()
    };
    let mut watch = context.watch_with(default).await?;
    let deadline = tokio::time::Instant::now() + context.wait_max;
    loop {
        let default = RequestProgressOptions::default();
        context.store.request_progress(default).await?;
        match tokio::time::timeout(REQUEST_PAUSE, watch.events.next()).await {
            Ok(Some(WatchEvent::Bookmark { revision })) if revision >= newest => return Ok(()),
            Ok(Some(WatchEvent::Bookmark { .. } | WatchEvent::Added { .. })) => {}
            Err(_) if tokio::time::Instant::now() < deadline => {}
            other => {
                let what = format!("a watch of the default stream returned {other:?}, no bookmark");
                return Err(Violation::Broken(what));
            }
        }
    }
}
