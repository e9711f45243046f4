//! A controller that lists a collection, watches it from the revision of the list, and lists again
//! when the history it needs was compacted.
//!
//! `cargo run -p portunus-client --example list_and_watch -- 127.0.0.1:2379` follows
//! `/registry/pods/` of a running store.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error as StdError;

use bytes::Bytes;
use portunus_client::kubernetes::{
    Error, Interface, Kubernetes, ListOptions, WatchEvent, WatchOptions,
};
use portunus_client::{Client, Options};

const PREFIX: &[u8] = b"/registry/pods/";
const PAGE_KEYS: i64 = 500;

/// The objects of the collection, as far as the controller knows them.
#[derive(Debug, Default)]
pub struct Cache {
    /// Values by key.
    pub objects: BTreeMap<Bytes, Bytes>,
    /// The revision up to which the objects are complete.
    pub revision: i64,
}

impl Cache {
    /// Replaces the objects by those of the store, page by page at one revision.
    pub async fn list(&mut self, store: &dyn Interface) -> Result<(), Error> {
        let mut options = ListOptions {
            limit: PAGE_KEYS,
            ..ListOptions::default()
        };
        self.objects.clear();
        loop {
            let page = store.list(PREFIX, options.clone()).await?;
            // All pages are read at the revision of the first one.
            if options.revision == 0 {
                options.revision = page.revision;
                self.revision = page.revision;
            }
            let has_more = page.count > i64::try_from(page.kvs.len()).unwrap_or(i64::MAX);
            if let Some(last) = page.kvs.last() {
                options.continue_key = [&last.key[..], b"\0"].concat().into();
            }
            let pairs = page.kvs.into_iter();
            self.objects.extend(pairs.map(|kv| (kv.key, kv.value)));
            if !has_more {
                return Ok(());
            }
        }
    }

    /// Applies an event; returns the error that ended the watch.
    pub fn apply(&mut self, event: WatchEvent) -> Result<(), Error> {
        self.revision = event.revision().unwrap_or(self.revision);
        match event {
            WatchEvent::Added { key, value, .. } | WatchEvent::Modified { key, value, .. } => {
                self.objects.insert(key, value);
            }
            WatchEvent::Deleted { key, .. } => {
                self.objects.remove(&key);
            }
            WatchEvent::Error(error) => return Err(error),
            // A bookmark has a revision only.
            _ => {}
        }
        Ok(())
    }
}

/// Follows the collection until `is_done` says so after a change.
pub async fn follow(
    store: &dyn Interface,
    mut is_done: impl FnMut(&Cache) -> bool,
) -> Result<Cache, Error> {
    let mut cache = Cache::default();
    cache.list(store).await?;
    loop {
        let options = WatchOptions {
            revision: cache.revision,
            prefix: true,
            ..WatchOptions::default()
        };
        let mut events = store.watch(PREFIX, options).await?;
        loop {
            if is_done(&cache) {
                return Ok(cache);
            }
            let Some(event) = events.next().await else {
                break;
            };
            match cache.apply(event) {
                Ok(()) => {}
                Err(Error::Compacted { .. }) => {
                    cache.list(store).await?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn StdError>> {
    let endpoints: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::connect(Options {
        endpoints,
        ..Options::default()
    })?;
    follow(&Kubernetes::new(client), |cache| {
        println!(
            "revision {}: {} objects",
            cache.revision,
            cache.objects.len()
        );
        false
    })
    .await?;
    Ok(())
}
