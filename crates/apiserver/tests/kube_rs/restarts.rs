//! `watcher` and `reflector` while the program is killed and started again, under writes.
//!
//! ```text
//!  Writer ──create, replace, delete──▶ portunus-apiserver ──▶ portunus
//!     │                                  killed 20 times          │
//!     └── what was written        Observer ◀── watcher ◀──────────┘
//! ```
//!
//! What must hold of the events of the watcher:
//!
//! - versions rise from event to event, within a list and over all lists together, so that no
//!   event comes twice and none goes back;
//! - as long as the watcher does not list again, and without compaction it has no reason to, the
//!   changes of each object are exactly those that the writer made, in their order.
//!
//! At the end the cache of the reflector is a fresh list.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, reflector};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Client, CustomResource, ResourceExt};
use portunus_testkit::certificates::Authority;
use portunus_testkit::process::Process;
use portunus_testkit::random::Random;
use portunus_testkit::standalone::{Server, data_dir};
use portunus_testkit::{ports, wait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt;

const KILLS: usize = 20;
/// How many changes must arrive between two kills.
const CHANGES_PER_KILL: usize = 10;
/// The pause of a client after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// At every step of this multiple the object is deleted; its next step creates it again. No
/// multiple of the number of names, so that every name has its turn.
const STEPS_PER_DELETION: u64 = 9;

/// The part of a ClusterServiceVersion that the test writes.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operators.coreos.com",
    version = "v1alpha1",
    kind = "ClusterServiceVersion",
    namespaced,
    derive = "PartialEq"
)]
pub struct ClusterServiceVersionSpec {
    /// The number of the write, which rises.
    sequence: u64,
}

/// A change of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Applied { sequence: u64, version: u64 },
    Deleted,
}

impl Change {
    fn applied(object: &ClusterServiceVersion) -> Change {
        Change::Applied {
            sequence: object.spec.sequence,
            version: version(object),
        }
    }
}

type Changes = BTreeMap<String, Vec<Change>>;

fn version(object: &ClusterServiceVersion) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

/// The program on a store, at a port that stays the same.
struct ApiServer {
    flags: Vec<String>,
    process: Process,
}

impl ApiServer {
    fn start(flags: Vec<String>) -> ApiServer {
        let process = ApiServer::spawn(&flags);
        ApiServer { flags, process }
    }

    fn spawn(flags: &[String]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portunus-apiserver"));
        Process::spawn(command.args(flags))
    }

    /// Kills it with SIGKILL and starts it again.
    fn restart(&mut self) {
        self.process.kill();
        self.process = ApiServer::spawn(&self.flags);
    }
}

/// Writes the certificates of a server and of an administrator. Returns the flags of the server
/// and a client of it.
async fn connect(directory: &Path, store: &str) -> (Vec<String>, Client) {
    let authority = Authority::new("ca");
    let ca = authority.write_to(directory, "ca.crt");
    let server = authority.server("server").write_to(directory, "server");
    let admin = authority.user("admin", &["system:masters"]);
    let admin = admin.write_to(directory, "admin");
    let port = ports::free_port().unwrap();
    let flags = vec![
        format!("--etcd-servers={store}"),
        "--etcd-compaction-interval=0s".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", server.certificate.display()),
        format!("--tls-private-key-file={}", server.key.display()),
        format!("--client-ca-file={}", ca.display()),
    ];
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": ca,
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate": admin.certificate,
            "client-key": admin.key,
        }}],
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    (flags, Client::try_from(config.await.unwrap()).unwrap())
}

/// Changes objects one after the other, until it is told to stop.
struct Writer {
    api: Api<ClusterServiceVersion>,
    /// The objects as the writer left them.
    current: BTreeMap<&'static str, ClusterServiceVersion>,
    written: Changes,
}

impl Writer {
    async fn run(mut self, is_stopped: Arc<AtomicBool>) -> Changes {
        let mut step = 0_u64;
        while !is_stopped.load(Ordering::Relaxed) {
            for name in NAMES {
                let is_deletion = step % STEPS_PER_DELETION == STEPS_PER_DELETION - 1;
                self.change(name, step, is_deletion).await;
                step += 1;
            }
        }
        self.written
    }

    /// Makes one change, whatever it takes: a write that failed may have been done, so the object
    /// is read before the write is repeated.
    async fn change(&mut self, name: &'static str, sequence: u64, is_deletion: bool) {
        let before = self.current.get(name).cloned();
        let after = match before {
            Some(_) if is_deletion => None,
            _ => Some(sequence),
        };
        loop {
            let outcome = self.attempt(name, before.as_ref(), after).await;
            let Err(error) = outcome else { break };
            let read = self.read(name).await;
            if read.as_ref().map(|it| it.spec.sequence) == after {
                self.note(name, read);
                return;
            }
            assert_eq!(read, before, "after {error}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Reads an object, as soon as the server answers.
    async fn read(&self, name: &str) -> Option<ClusterServiceVersion> {
        let deadline = Instant::now() + wait::WAIT_MAX;
        loop {
            match self.api.get_opt(name).await {
                Ok(read) => return read,
                Err(error) => assert!(Instant::now() < deadline, "no answer: {error}"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn attempt(
        &mut self,
        name: &'static str,
        before: Option<&ClusterServiceVersion>,
        after: Option<u64>,
    ) -> Result<(), kube::Error> {
        let options = PostParams::default();
        let written = match (before, after) {
            (None, Some(sequence)) => {
                let metadata = ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                };
                let spec = ClusterServiceVersionSpec { sequence };
                let object = ClusterServiceVersion { metadata, spec };
                Some(self.api.create(&options, &object).await?)
            }
            (Some(before), Some(sequence)) => {
                let mut object = before.clone();
                object.spec.sequence = sequence;
                Some(self.api.replace(name, &options, &object).await?)
            }
            (Some(before), None) => {
                let preconditions = Preconditions {
                    resource_version: before.resource_version(),
                    uid: before.uid(),
                };
                let options = DeleteParams::default().preconditions(preconditions);
                self.api.delete(name, &options).await?;
                None
            }
            (None, None) => return Ok(()),
        };
        self.note(name, written);
        Ok(())
    }

    fn note(&mut self, name: &'static str, object: Option<ClusterServiceVersion>) {
        let change = object.as_ref().map_or(Change::Deleted, Change::applied);
        self.written
            .entry(name.to_owned())
            .or_default()
            .push(change);
        match object {
            Some(object) => self.current.insert(name, object),
            None => self.current.remove(name),
        };
    }
}

/// What the watcher saw.
#[derive(Debug, Default)]
struct Observer {
    changes: Changes,
    count: usize,
    lists: usize,
    errors: Vec<String>,
    last_version: u64,
}

impl Observer {
    fn observe(&mut self, event: &watcher::Result<Event<ClusterServiceVersion>>) {
        match event {
            Ok(Event::Init) => self.lists += 1,
            Ok(Event::InitDone) => {}
            Ok(Event::Apply(object)) => self.add(object, Change::applied(object)),
            Ok(Event::Delete(object)) => self.add(object, Change::Deleted),
            Ok(Event::InitApply(object)) => panic!("{} was listed", object.name_any()),
            Err(error) => self.errors.push(error.to_string()),
        }
    }

    fn add(&mut self, object: &ClusterServiceVersion, change: Change) {
        let version = version(object);
        let last = std::mem::replace(&mut self.last_version, version);
        assert!(last < version, "version {version} after {last}: {change:?}");
        self.changes
            .entry(object.name_any())
            .or_default()
            .push(change);
        self.count += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reflector_misses_and_repeats_nothing_while_the_server_is_killed() {
    let (_guard, dir) = data_dir();
    let certificates = tempfile::tempdir().unwrap();
    let store = Server::start(&dir, &[]);
    let (flags, client) = connect(certificates.path(), &store.url()).await;
    let api: Api<ClusterServiceVersion> = Api::namespaced(client, "test");
    let mut server = ApiServer::start(flags);

    let (cache, cache_writer) = reflector::store();
    let observer = Arc::new(Mutex::new(Observer::default()));
    let (watched, seen) = (api.clone(), Arc::clone(&observer));
    let watching = tokio::spawn(async move {
        let mut events = pin!(reflector(cache_writer, watcher(watched, Config::default())));
        while let Some(event) = events.next().await {
            seen.lock().unwrap().observe(&event);
            if event.is_err() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    });
    // The list is empty: every change is an event.
    cache.wait_until_ready().await.unwrap();
    let lists_before = observer.lock().unwrap().lists;

    let is_stopped = Arc::new(AtomicBool::new(false));
    let writer = Writer {
        api: api.clone(),
        current: BTreeMap::new(),
        written: Changes::new(),
    };
    let writing = tokio::spawn(writer.run(Arc::clone(&is_stopped)));
    let mut random = Random::seeded("kills");
    for _ in 0..KILLS {
        let known = observer.lock().unwrap().count;
        wait::until("changes", async || {
            assert!(!watching.is_finished() && !writing.is_finished());
            let observer = observer.lock().unwrap();
            match observer.count >= known + CHANGES_PER_KILL {
                true => Ok(()),
                false => Err(format!(
                    "{} changes, {:?}",
                    observer.count,
                    observer.errors.last()
                )),
            }
        })
        .await;
        // At any moment of a request.
        tokio::time::sleep(Duration::from_micros(random.below(50_000))).await;
        server.restart();
    }
    is_stopped.store(true, Ordering::Relaxed);
    let written = writing.await.unwrap();

    let total: usize = written.values().map(Vec::len).sum();
    wait::until("every change", async || {
        assert!(!watching.is_finished());
        let count = observer.lock().unwrap().count;
        match count >= total {
            true => Ok(()),
            false => Err(format!("{count} of {total}")),
        }
    })
    .await;
    let list = api.list(&ListParams::default()).await.unwrap().items;
    let mut cached: Vec<_> = cache.state().iter().map(|it| (**it).clone()).collect();
    cached.sort_by_key(ResourceExt::name_any);
    assert_eq!(cached, list);
    {
        let observer = observer.lock().unwrap();
        assert_eq!(observer.changes, written);
        assert_eq!(observer.lists, lists_before, "{:?}", observer.errors);
    }
    watching.abort();
    let (status, log) = server.process.terminate();
    assert!(status.success(), "{status}: {log}");
    store.stop();
}
