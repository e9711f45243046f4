//! The transport of one member: its peers, and the way in for messages to them.
//!
//! `send` is called while the member's own lock is held. It takes no lock that anybody
//! holds for longer than a few instructions, and never calls back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use axum::Router;
use portunus_proto::raftpb::{Message, MessageType};
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;

use crate::client::PeerClient;
use crate::config::{Config, Local};
use crate::headers::{Identity, hex};
use crate::metrics::Metrics;
use crate::peer::{Peer, Role};
use crate::raft::Raft;
use crate::refusals::RefusalLog;
use crate::reports::Reports;
use crate::routes;
use crate::shared::Shared;
use crate::sync::{lock, read, write};
use crate::urls::{BaseUrl, parse_all};

/// Sends and receives messages for one member.
pub struct Transport {
    shared: Arc<Shared>,
    directory: RwLock<Directory>,
    reporter: Mutex<Option<JoinHandle<()>>>,
}

/// Everybody this member talks to.
#[derive(Default)]
struct Directory {
    peers: HashMap<u64, Arc<Peer>>,
    remotes: HashMap<u64, Arc<Peer>>,
    stopped: bool,
}

impl Directory {
    fn known(&self, id: u64) -> Option<&Arc<Peer>> {
        self.peers.get(&id).or_else(|| self.remotes.get(&id))
    }
}

impl Transport {
    /// A transport without peers. Its tasks run on `runtime`; its metrics are added to the
    /// registry, which fails if they are there already.
    pub fn new(
        local: Local,
        config: Config,
        metrics: &Registry,
        runtime: Handle,
    ) -> Result<Arc<Transport>, prometheus::Error> {
        let shared = Arc::new(Shared {
            identity: Identity::new(&local),
            metrics: Metrics::register(metrics)?,
            stream_client: PeerClient::for_streams(&config),
            post_client: PeerClient::new(&config),
            reports: Reports::default(),
            refusals: RefusalLog::default(),
            raft: SetOnce::new(),
            config,
            runtime,
        });
        Ok(Arc::new(Transport {
            shared,
            directory: RwLock::default(),
            reporter: Mutex::default(),
        }))
    }

    /// Gives the transport its member; later calls change nothing. Until then requests are
    /// answered 503 and messages are lost.
    pub fn attach(&self, raft: Arc<dyn Raft>) {
        if self.shared.raft.set(raft.clone()).is_err() {
            return;
        }
        let shared = self.shared.clone();
        let deliver = async move { shared.reports.deliver(raft).await };
        *lock(&self.reporter) = Some(self.shared.runtime.spawn(deliver));
    }

    /// Sends messages to their `to`. Never blocks and never calls the member: what cannot
    /// be queued is lost, and a task reports it.
    pub fn send(&self, messages: Vec<Message>) {
        if self.shared.raft.get().is_none() {
            return;
        }
        let directory = read(&self.directory);
        for message in messages {
            let to = message.to;
            if to == 0 {
                continue;
            }
            if let Some(peer) = directory.known(to) {
                peer.send(message);
            } else {
                tracing::debug!(to = hex(to), "no such peer: a message was lost");
                if message.r#type == MessageType::MsgSnap as i32 {
                    self.shared.reports.snapshot_failed(to);
                }
            }
        }
    }

    /// Adds a peer and starts talking to it. Nothing happens if it is one already.
    pub fn add_peer(&self, id: u64, urls: &[String]) {
        let urls = self.usable(id, urls);
        let mut directory = write(&self.directory);
        let known = directory.peers.contains_key(&id) || id == self.shared.identity.member_id;
        if directory.stopped || known {
            return;
        }
        if let Some(remote) = directory.remotes.remove(&id) {
            remote.stop();
        }
        let peer = Peer::start(&self.shared, id, urls, Role::Member);
        directory.peers.insert(id, peer);
    }

    /// Gives a peer other addresses. Streams that are open stay open.
    pub fn update_peer(&self, id: u64, urls: &[String]) {
        let urls = self.usable(id, urls);
        if let Some(peer) = read(&self.directory).peers.get(&id) {
            peer.urls.replace(urls);
        }
    }

    /// Stops talking to a peer.
    pub fn remove_peer(&self, id: u64) {
        let peer = write(&self.directory).peers.remove(&id);
        if let Some(peer) = peer {
            peer.stop();
        }
    }

    /// Stops talking to every peer.
    pub fn remove_all_peers(&self) {
        let peers = std::mem::take(&mut write(&self.directory).peers);
        for peer in peers.values() {
            peer.stop();
        }
    }

    /// Adds somebody who gets messages by single requests only, until they become a peer.
    pub fn add_remote(&self, id: u64, urls: &[String]) {
        let urls = self.usable(id, urls);
        self.insert_remote(id, urls);
    }

    fn insert_remote(&self, id: u64, urls: Vec<BaseUrl>) {
        let mut directory = write(&self.directory);
        let known = directory.known(id).is_some() || id == self.shared.identity.member_id;
        let full = directory.remotes.len() >= self.shared.config.remotes_max;
        if directory.stopped || known || full || urls.is_empty() || id == 0 {
            return;
        }
        tracing::info!(peer = hex(id), "a member that is not known yet wrote first");
        let remote = Peer::start(&self.shared, id, urls, Role::Remote);
        directory.remotes.insert(id, remote);
    }

    /// Remembers a sender by what its request says.
    pub(crate) fn note_remote(&self, raft: &dyn Raft, id: u64, urls: &str) {
        if self.known(id).is_none() && !raft.is_removed(id) {
            let (urls, _) = parse_all(urls.split(','));
            self.insert_remote(id, urls);
        }
    }

    /// Since when a peer is active; none if it is not, or is no peer.
    pub fn active_since(&self, id: u64) -> Option<Instant> {
        read(&self.directory).peers.get(&id)?.status.active_since()
    }

    /// Whether a peer is active.
    pub fn is_active(&self, id: u64) -> bool {
        self.active_since(id).is_some()
    }

    /// What peers ask of this member, to be mounted on its peer addresses.
    pub fn router(self: &Arc<Self>) -> Router {
        routes::router(self.clone())
    }

    /// Loses everything to and from a peer, for tests.
    pub fn cut(&self, id: u64) {
        self.set_cut(id, true);
    }

    /// Undoes [`cut`](Transport::cut).
    pub fn mend(&self, id: u64) {
        self.set_cut(id, false);
    }

    fn set_cut(&self, id: u64, cut: bool) {
        if let Some(peer) = read(&self.directory).known(id) {
            peer.set_cut(cut);
        }
    }

    /// Ends every stream and task, and waits until none runs any more. Peers that are added
    /// later are ignored.
    pub async fn stop(&self) {
        for task in self.end() {
            // The only failure is that it was cancelled, which is what was wanted.
            let _ = task.await;
        }
    }

    fn end(&self) -> Vec<JoinHandle<()>> {
        let (peers, remotes) = {
            let mut directory = write(&self.directory);
            directory.stopped = true;
            (
                std::mem::take(&mut directory.peers),
                std::mem::take(&mut directory.remotes),
            )
        };
        let mut tasks: Vec<_> = peers
            .values()
            .chain(remotes.values())
            .flat_map(|peer| peer.stop())
            .collect();
        if let Some(reporter) = lock(&self.reporter).take() {
            reporter.abort();
            tasks.push(reporter);
        }
        tasks
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A peer that the member added.
    pub(crate) fn peer(&self, id: u64) -> Option<Arc<Peer>> {
        read(&self.directory).peers.get(&id).cloned()
    }

    /// A peer or a remote.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Peer>> {
        read(&self.directory).known(id).cloned()
    }

    fn usable(&self, id: u64, urls: &[String]) -> Vec<BaseUrl> {
        let (urls, bad) = parse_all(urls.iter().map(String::as_str));
        for error in bad {
            tracing::error!(peer = hex(id), %error, "an address of a peer is ignored");
        }
        urls
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.end();
    }
}
