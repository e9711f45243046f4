//! Rules about arguments.

use bytes::Bytes;

use crate::kubernetes::contract::context::{Checked, Context, demand};
use crate::kubernetes::{DeleteOptions, Error, GetOptions, ListOptions, PutOptions, WatchOptions};

pub(super) async fn are_checked(context: &Context<'_>) -> Checked {
    let store = context.store;
    let empty = store.get(b"", GetOptions::default()).await;
    demand!(
        matches!(empty, Err(Error::EmptyKey)),
        "a get of the empty key returned {empty:?}"
    );
    let empty = store.list(b"", ListOptions::default()).await;
    demand!(
        matches!(empty, Err(Error::EmptyPrefix)),
        "a list of the empty prefix returned {empty:?}"
    );
    let outside = ListOptions {
        continue_key: Bytes::from_static(b"/"),
        ..ListOptions::default()
    };
    let outside = context.store.list(&context.prefix, outside).await;
    demand!(
        matches!(outside, Err(Error::ContinueOutsidePrefix { .. })),
        "a list with a continue key outside of its prefix returned {outside:?}"
    );
    negative_numbers(context).await
}

async fn negative_numbers(context: &Context<'_>) -> Checked {
    let (store, key) = (context.store, context.key("a"));
    let get = store.get(&key, GetOptions { revision: -1 }).await;
    let put = store.optimistic_put(&key, Bytes::new(), -1, PutOptions::default());
    let put = put.await;
    let delete = store.optimistic_delete(&key, -1, DeleteOptions::default());
    let delete = delete.await;
    let list = ListOptions {
        limit: -1,
        ..ListOptions::default()
    };
    let list = store.list(&key, list).await;
    let watch = WatchOptions {
        revision: -1,
        ..context.watch_options()
    };
    let watch = store.watch(&key, watch).await;
    for (name, refused) in [
        ("get", get.map(drop)),
        ("put", put.map(drop)),
        ("delete", delete.map(drop)),
        ("list", list.map(drop)),
        ("watch", watch.map(drop)),
    ] {
        demand!(
            matches!(refused, Err(Error::Negative { .. })),
            "a {name} with a negative number returned {refused:?}"
        );
    }
    Ok(())
}
