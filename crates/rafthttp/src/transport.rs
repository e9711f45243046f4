//! The transport of one member: its peers, and sending messages to them.
//!
//! `send` is called while the member's lock is held. It takes only locks that are held for a
//! few instructions, and never calls the member.

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
use crate::config::{Config, LocalMember};
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

/// The peers and remotes of this member.
#[derive(Default)]
struct Directory {
    peers: HashMap<u64, Arc<Peer>>,
    remotes: HashMap<u64, Arc<Peer>>,
    stopped: bool,
}

impl Directory {
    fn peer_or_remote(&self, id: u64) -> Option<&Arc<Peer>> {
        self.peers.get(&id).or_else(|| self.remotes.get(&id))
    }
}

impl Transport {
    /// A transport without peers. Its tasks run on `runtime`. Fails if the registry already
    /// contains the transport's metrics.
    pub fn new(
        local: LocalMember,
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

    /// Attaches the member; later calls have no effect. Before that, requests are answered
    /// 503 and messages are dropped.
    pub fn attach(&self, raft: Arc<dyn Raft>) {
        if self.shared.raft.set(raft.clone()).is_err() {
            return;
        }
        let shared = self.shared.clone();
        let deliver = async move { shared.reports.deliver(raft).await };
        *lock(&self.reporter) = Some(self.shared.runtime.spawn(deliver));
    }

    /// Sends messages to their `to`. Never blocks and never calls the member: a message that
    /// cannot be queued is dropped, and a task reports it.
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
            if let Some(peer) = directory.peer_or_remote(to) {
                peer.send(message);
            } else {
                tracing::debug!(
                    to = hex(to),
                    "ignored message send request; unknown remote peer target"
                );
                if message.r#type == MessageType::MsgSnap as i32 {
                    self.shared.reports.snapshot_failed(to);
                }
            }
        }
    }

    /// Adds a peer and starts its tasks. Has no effect if it is a peer already.
    pub fn add_peer(&self, id: u64, urls: &[String]) {
        let urls = self.valid_urls(id, urls);
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

    /// Replaces the addresses of a peer. Open streams stay open.
    pub fn update_peer(&self, id: u64, urls: &[String]) {
        let urls = self.valid_urls(id, urls);
        if let Some(peer) = read(&self.directory).peers.get(&id) {
            peer.urls.replace(urls);
        }
    }

    /// Removes a peer: ends its streams and tasks.
    pub fn remove_peer(&self, id: u64) {
        let peer = write(&self.directory).peers.remove(&id);
        if let Some(peer) = peer {
            peer.stop();
        }
    }

    /// Removes every peer.
    pub fn remove_all_peers(&self) {
        let peers = std::mem::take(&mut write(&self.directory).peers);
        for peer in peers.values() {
            peer.stop();
        }
    }

    /// Adds a remote: it gets messages by POST only, until it is added as a peer.
    pub fn add_remote(&self, id: u64, urls: &[String]) {
        let urls = self.valid_urls(id, urls);
        self.insert_remote(id, urls);
    }

    fn insert_remote(&self, id: u64, urls: Vec<BaseUrl>) {
        let mut directory = write(&self.directory);
        let known = directory.peer_or_remote(id).is_some() || id == self.shared.identity.member_id;
        let full = directory.remotes.len() >= self.shared.config.remotes_max;
        if directory.stopped || known || full || urls.is_empty() || id == 0 {
            return;
        }
        tracing::info!(peer = hex(id), "added new remote peer");
        let remote = Peer::start(&self.shared, id, urls, Role::Remote);
        directory.remotes.insert(id, remote);
    }

    /// Adds the sender of a request as a remote, unless it is known or was removed.
    pub(crate) fn add_unknown_remote(&self, raft: &dyn Raft, id: u64, urls: &str) {
        if self.peer_or_remote(id).is_none() && !raft.is_removed(id) {
            let (urls, _) = parse_all(urls.split(','));
            self.insert_remote(id, urls);
        }
    }

    /// Returns since when a peer is active; `None` if it is inactive or not a peer.
    pub fn active_since(&self, id: u64) -> Option<Instant> {
        read(&self.directory).peers.get(&id)?.status.active_since()
    }

    /// Returns whether a peer is active.
    pub fn is_active(&self, id: u64) -> bool {
        self.active_since(id).is_some()
    }

    /// Returns the routes for peers, to mount on the member's peer addresses.
    pub fn router(self: &Arc<Self>) -> Router {
        routes::router(self.clone())
    }

    /// Drops every message to and from a peer, for tests.
    pub fn cut(&self, id: u64) {
        self.set_cut(id, true);
    }

    /// Undoes [`cut`](Transport::cut).
    pub fn mend(&self, id: u64) {
        self.set_cut(id, false);
    }

    fn set_cut(&self, id: u64, cut: bool) {
        if let Some(peer) = read(&self.directory).peer_or_remote(id) {
            peer.set_cut(cut);
        }
    }

    /// Ends every stream and task and waits for the tasks. Peers added later are ignored.
    pub async fn stop(&self) {
        for task in self.end() {
            // A task that was aborted returns an error, as intended.
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

    /// Returns a peer.
    pub(crate) fn peer(&self, id: u64) -> Option<Arc<Peer>> {
        read(&self.directory).peers.get(&id).cloned()
    }

    /// Returns a peer or a remote.
    pub(crate) fn peer_or_remote(&self, id: u64) -> Option<Arc<Peer>> {
        read(&self.directory).peer_or_remote(id).cloned()
    }

    fn valid_urls(&self, id: u64, urls: &[String]) -> Vec<BaseUrl> {
        let (urls, bad) = parse_all(urls.iter().map(String::as_str));
        for error in bad {
            tracing::error!(peer = hex(id), %error, "ignored invalid peer address");
        }
        urls
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.end();
    }
}
