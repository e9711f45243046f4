//! The other members: the transport to them, and the requests from them.
//!
//! ```text
//!  consensus ──messages──▶ Peers ──▶ transport ──▶ other members
//!  consensus ◀── PeerRaft ◀───────── transport ◀── other members
//!  services, upkeep ──▶ ask ──▶ other members' routes (`http/peers.rs`)
//! ```
//! Everything here runs on a separate runtime, so that heartbeats never wait behind clients.

pub mod ask;
mod heartbeats;
mod incoming;
pub mod join;
mod listener;
mod raft;
pub mod replication_hold;
mod snapshot;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use portunus_consensus::PeerSink;
use portunus_consensus::bootstrap::Identity;
use portunus_proto::raftpb::{Message, MessageType};
use portunus_rafthttp::{LocalMember, PeerClient, Transport};
use portunus_tls::ClientTls;
use thiserror::Error;
use tokio::runtime::Runtime;

pub use heartbeats::Heartbeats;
pub(crate) use listener::HEADER_WAIT_MAX;
pub use raft::PeerRaft;
use replication_hold::ReplicationHold;

use crate::config::Config;
use crate::handles::admission::Admission;
use crate::listen::{Reserved, TlsEndpoint};
use portunus_features::version::version_text;
use portunus_statemachine::membership::{MemberRecord, Membership, PlannedChange};

/// The oldest cluster version that a peer may support; the same in every version of etcd.
pub const MIN_CLUSTER_VERSION: &str = "3.0.0";

/// The transport to all peers.
pub struct Peers {
    transport: Arc<Transport>,
    client: PeerClient,
    runtime: Runtime,
    own_id: u64,
    known: Mutex<BTreeSet<u64>>,
    replication_hold: Arc<ReplicationHold>,
}

/// Setting up the transport to the peers failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeersError {
    /// The runtime could not be started.
    #[error("no thread for the peers could be started")]
    Runtime(#[source] io::Error),
    /// Two metrics have the same name.
    #[error("the metrics of this program clash")]
    Metrics(#[from] prometheus::Error),
    /// The peer port is bound, but listening failed.
    #[error("the peer port cannot be served")]
    Listen(#[source] io::Error),
}

/// Returns a client for requests to peers before there is a transport.
pub fn early_client(tls: Option<ClientTls>) -> PeerClient {
    PeerClient::new(&portunus_rafthttp::Config {
        tls,
        ..portunus_rafthttp::Config::default()
    })
}

/// Creates the runtime for everything that concerns peers.
pub fn runtime() -> Result<Runtime, PeersError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("peers")
        .enable_all()
        .build()
        .map_err(PeersError::Runtime)
}

impl Peers {
    /// Sets up the transport; `tls` dials `https` addresses. Nothing is sent or served before
    /// [`Peers::attach`].
    pub fn new(
        config: &Config,
        identity: Identity,
        metrics: &prometheus::Registry,
        runtime: Runtime,
        tls: Option<ClientTls>,
    ) -> Result<Peers, PeersError> {
        let local = LocalMember {
            member_id: identity.member_id.0,
            cluster_id: identity.cluster_id.0,
            version: version_text(&config.version),
            min_cluster_version: MIN_CLUSTER_VERSION.to_owned(),
            peer_urls: config.cluster.advertise_peer_urls.clone(),
        };
        let transport_config = portunus_rafthttp::Config {
            tls,
            dial_timeout: Duration::from_secs(1) + config.election_timeout,
            stream_read_timeout: config.cluster.raft_read_timeout,
            stream_write_timeout: config.cluster.raft_write_timeout,
            heartbeat: config.cluster.raft_read_timeout / 3,
            ..portunus_rafthttp::Config::default()
        };
        let client = PeerClient::new(&transport_config);
        let transport = Transport::new(local, transport_config, metrics, runtime.handle().clone())?;
        Ok(Peers {
            transport,
            client,
            runtime,
            own_id: identity.member_id.0,
            known: Mutex::default(),
            replication_hold: Arc::default(),
        })
    }

    /// Returns the sink for the messages of consensus.
    pub fn sink(&self, heartbeats: Heartbeats) -> Box<dyn PeerSink> {
        struct Sink {
            transport: Arc<Transport>,
            replication_hold: Arc<ReplicationHold>,
            heartbeats: Heartbeats,
        }
        impl PeerSink for Sink {
            fn send(&self, mut messages: Vec<Message>) {
                self.heartbeats.sending(&messages, Instant::now());
                // Held snapshots fail when they are opened, which is reported to raft.
                messages.retain(|message| {
                    message.r#type() == MessageType::MsgSnap
                        || !self.replication_hold.holds_back(message)
                });
                self.transport.send(messages);
            }
        }
        Box::new(Sink {
            transport: Arc::clone(&self.transport),
            replication_hold: Arc::clone(&self.replication_hold),
            heartbeats,
        })
    }

    /// Returns the peers that must not receive log entries yet.
    pub fn replication_hold(&self) -> &Arc<ReplicationHold> {
        &self.replication_hold
    }

    /// Starts to exchange messages with peers and to serve their requests: messages of raft, and
    /// `routes`. `tls` accepts the connections at `https` addresses; `admission` limits all.
    pub fn attach(
        &self,
        raft: PeerRaft,
        reserved: Vec<Reserved>,
        routes: &Router,
        tls: Option<&Arc<TlsEndpoint>>,
        admission: &Arc<Admission>,
    ) -> Result<Vec<SocketAddr>, PeersError> {
        let stop = raft.stop();
        {
            // The apply thread may follow changes already. It publishes a membership before it
            // follows the change, so the one that is loaded under this lock is not older than
            // what was followed.
            let mut known = self.known();
            self.replace_members(&mut known, &raft.membership());
        }
        self.transport.attach(Arc::new(raft));
        let mut addresses = Vec::new();
        let _context = self.runtime.enter();
        for reserved in reserved {
            let tls = tls.filter(|_| reserved.is_tls()).cloned();
            let listener = reserved.listen().map_err(PeersError::Listen)?;
            addresses.push(listener.local_addr().map_err(PeersError::Listen)?);
            let router = self.transport.router().merge(routes.clone());
            let (stop, admission) = (Arc::clone(&stop), Arc::clone(admission));
            let served = listener::serve(stop, listener, router, tls, admission);
            self.runtime.spawn(served);
        }
        Ok(addresses)
    }

    /// Replaces the peers by these members. Connections to peers that stay are kept.
    pub fn set_members(&self, membership: &Membership) {
        self.replace_members(&mut self.known(), membership);
    }

    fn replace_members(&self, known: &mut BTreeSet<u64>, membership: &Membership) {
        known.retain(|id| {
            let stays = membership.get(*id).is_some();
            if !stays {
                self.transport.remove_peer(*id);
            }
            stays
        });
        for member in membership.iter().filter(|member| member.id != self.own_id) {
            if known.insert(member.id) {
                self.transport.add_peer(member.id, urls(member));
            } else {
                self.transport.update_peer(member.id, urls(member));
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the members of a cluster that this member joins: it may have to respond to them
    /// before they are in its log.
    pub fn add_remotes(&self, members: &[MemberRecord]) {
        for member in members.iter().filter(|member| member.id != self.own_id) {
            self.transport.add_remote(member.id, urls(member));
        }
    }

    /// Applies a membership change to the transport.
    pub fn follow(&self, change: &PlannedChange) {
        match change {
            PlannedChange::Add(record) if record.id != self.own_id => {
                self.known().insert(record.id);
                self.transport.add_peer(record.id, urls(record));
            }
            PlannedChange::Update(record) if record.id != self.own_id => {
                self.transport.update_peer(record.id, urls(record));
            }
            PlannedChange::Remove(id) if *id == self.own_id => self.transport.remove_all_peers(),
            PlannedChange::Remove(id) => {
                self.known().remove(id);
                self.transport.remove_peer(*id);
            }
            PlannedChange::Add(_) | PlannedChange::Update(_) | PlannedChange::Promote(_) => {}
        }
    }

    /// Returns the time since which a member is connected.
    pub fn active_since(&self, id: u64) -> Option<Instant> {
        self.transport.active_since(id)
    }

    /// Returns how many of these members are connected for at least `time`, this one included.
    pub fn active_for(&self, ids: impl IntoIterator<Item = u64>, time: Duration) -> usize {
        let is_active = |id: &u64| {
            *id == self.own_id
                || self
                    .active_since(*id)
                    .is_some_and(|since| since.elapsed() >= time)
        };
        ids.into_iter().filter(is_active).count()
    }

    /// Returns the client for requests to other members.
    pub fn client(&self) -> &PeerClient {
        &self.client
    }

    /// Returns the runtime for work that concerns peers.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Closes all connections.
    pub fn stop(&self) {
        self.runtime.block_on(self.transport.stop());
    }
}

fn urls(member: &MemberRecord) -> &[String] {
    member.peer_urls.as_deref().unwrap_or_default()
}
