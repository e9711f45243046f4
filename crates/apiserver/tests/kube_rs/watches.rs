//! `watcher`, `reflector` and `Controller` while the store changes and is compacted.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, Store, reflector};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Client, ResourceExt};
use portunus_client::kubernetes::{Memory, Write};
use portunus_testkit::wait;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use crate::gadget::{Gadget, client, gadget, start, start_on};

/// The pause after an error, before the watcher is polled again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A reflector in a task, and the events of its watcher as text.
struct Follower {
    cache: Store<Gadget>,
    events: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn start(gadgets: Api<Gadget>, config: Config) -> Follower {
        let (cache, writer) = reflector::store();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        let task = tokio::spawn(async move {
            let mut stream = pin!(reflector(writer, watcher(gadgets, config)));
            while let Some(event) = stream.next().await {
                let is_error = event.is_err();
                seen.lock().unwrap().push(text(&event));
                if is_error {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        });
        Follower {
            cache,
            events,
            task,
        }
    }

    fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|it| *it == event).count()
    }

    async fn wait_for(&self, event: &str, count: usize) {
        wait::until(event, async || match self.count(event) >= count {
            true => Ok(()),
            false => Err(self.events()),
        })
        .await;
    }

    /// Waits until the cache has the objects of a list.
    async fn wait_for_state(&self, gadgets: &Api<Gadget>) {
        let list = gadgets.list(&ListParams::default()).await.unwrap().items;
        wait::until("the listed state", async || {
            let mut cached: Vec<Gadget> = self
                .cache
                .state()
                .iter()
                .map(|it| Gadget::clone(it))
                .collect();
            cached.sort_by_key(ResourceExt::name_any);
            match cached == list {
                true => Ok(()),
                false => Err(self.events()),
            }
        })
        .await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn text(event: &watcher::Result<Event<Gadget>>) -> String {
    match event {
        Ok(event) => event.to_string(),
        Err(watcher::Error::WatchError(status)) => format!("error {}", status.code),
        Err(error) => format!("error {error}"),
    }
}

fn strategies() -> [Config; 2] {
    [Config::default(), Config::default().streaming_lists()]
}

/// Advances the revision of the store by a change that no gadget has.
fn write_elsewhere(store: &Memory) {
    let write = Write::Put {
        key: Bytes::from_static(b"/registry/elsewhere"),
        value: Bytes::from_static(b"{}"),
        lease: 0,
    };
    store.write(vec![write]).unwrap();
}

/// Returns how many watches clients have started.
async fn started_watches(client: &Client) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let counts = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("verb=\"WATCH\"")
    });
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

#[tokio::test]
async fn reflector_follows_changes_after_lists_and_streaming_lists() {
    for config in strategies() {
        let (_server, gadgets) = start().await;
        let options = PostParams::default();
        for name in ["a", "b"] {
            gadgets.create(&options, &gadget(name, 1)).await.unwrap();
        }
        // Two pages, if the list has pages.
        let follower = Follower::start(gadgets.clone(), config.page_size(1));
        follower.wait_for("InitDone", 1).await;
        gadgets.create(&options, &gadget("c", 1)).await.unwrap();
        let grown = Patch::Merge(json!({"spec": {"size": 2}}));
        let patching = PatchParams::default();
        gadgets.patch("a", &patching, &grown).await.unwrap();
        gadgets.delete("b", &DeleteParams::default()).await.unwrap();
        follower.wait_for_state(&gadgets).await;
        assert_eq!(
            follower.events(),
            [
                "Init",
                "InitApply(a)",
                "InitApply(b)",
                "InitDone",
                "Apply(c)",
                "Apply(a)",
                "Delete(b)",
            ]
        );
    }
}

/// The version of a bookmark is newer than that of every object: without it the watcher would
/// come back with a compacted version.
#[tokio::test]
async fn watcher_goes_on_after_compaction_at_the_version_of_a_bookmark() {
    for config in strategies() {
        let store = Memory::new();
        let (server, gadgets) = start_on(&store).await;
        let client = client(&server);
        let options = PostParams::default();
        gadgets.create(&options, &gadget("a", 1)).await.unwrap();
        let follower = Follower::start(gadgets.clone(), config.timeout(1));
        follower.wait_for("InitDone", 1).await;
        write_elsewhere(&store);
        write_elsewhere(&store);
        let bookmarked = store.revision();
        // When the second starts, the first has lasted its whole time and had a bookmark.
        let known = started_watches(&client).await;
        wait::until("two watches with bookmarks", async || {
            store.notify_progress();
            match started_watches(&client).await {
                started if started >= known + 2 => Ok(()),
                started => Err(started),
            }
        })
        .await;
        store.compact(bookmarked).unwrap();
        let known = started_watches(&client).await;
        wait::until(
            "two watches after the compaction",
            async || match started_watches(&client).await {
                started if started >= known + 2 => Ok(()),
                started => Err(started),
            },
        )
        .await;
        gadgets.create(&options, &gadget("b", 1)).await.unwrap();
        follower.wait_for_state(&gadgets).await;
        assert_eq!(
            follower.events(),
            ["Init", "InitApply(a)", "InitDone", "Apply(b)"]
        );
    }
}

#[tokio::test]
async fn watcher_lists_again_when_its_version_is_compacted() {
    for config in strategies() {
        let store = Memory::new();
        let (_server, gadgets) = start_on(&store).await;
        let options = PostParams::default();
        gadgets.create(&options, &gadget("a", 1)).await.unwrap();
        let follower = Follower::start(gadgets.clone(), config.timeout(1));
        follower.wait_for("InitDone", 1).await;
        // The bookmark at the end of a watch has the version of the list: the store reports no
        // progress.
        write_elsewhere(&store);
        write_elsewhere(&store);
        store.compact(store.revision()).unwrap();
        follower.wait_for("InitDone", 2).await;
        gadgets.create(&options, &gadget("b", 1)).await.unwrap();
        follower.wait_for_state(&gadgets).await;
        assert_eq!(
            follower.events(),
            [
                "Init",
                "InitApply(a)",
                "InitDone",
                "error 410",
                "Init",
                "InitApply(a)",
                "InitDone",
                "Apply(b)",
            ]
        );
    }
}

/// Writes the phase of a gadget that has none, or one of another size.
async fn reconcile(object: Arc<Gadget>, gadgets: Arc<Api<Gadget>>) -> Result<Action, kube::Error> {
    let phase = format!("size {}", object.spec.size);
    if object.status.as_ref().is_none_or(|it| it.phase != phase) {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        let (name, options) = (object.name_any(), PatchParams::default());
        gadgets.patch_status(&name, &options, &patch).await?;
    }
    Ok(Action::await_change())
}

#[tokio::test]
async fn controller_writes_the_status_of_every_object() {
    let (_server, gadgets) = start().await;
    let retry = |_: Arc<Gadget>, _: &kube::Error, _: Arc<Api<Gadget>>| Action::requeue(RETRY_PAUSE);
    let controller = Controller::new(gadgets.clone(), Config::default());
    let controller = controller.run(reconcile, retry, Arc::new(gadgets.clone()));
    let running = tokio::spawn(async move {
        let mut controller = pin!(controller);
        while controller.next().await.is_some() {}
    });
    for number in 0..5 {
        let object = gadget(&format!("g{number}"), number);
        let options = PostParams::default();
        gadgets.create(&options, &object).await.unwrap();
    }
    let grown = Patch::Merge(json!({"spec": {"size": 7}}));
    let options = PatchParams::default();
    gadgets.patch("g0", &options, &grown).await.unwrap();
    wait::until("every status", async || {
        let list = gadgets.list(&ListParams::default()).await.unwrap();
        let is_done = list.iter().all(|it| {
            let phase = it.status.as_ref().map(|status| status.phase.as_str());
            phase == Some(&*format!("size {}", it.spec.size))
        });
        match is_done {
            true => Ok(()),
            false => Err(list.items),
        }
    })
    .await;
    running.abort();
}
