//! One other member: the channel for each message to it, and its tasks.
//!
//! ```text
//!   MsgSnap ─────────────────────────▶ snapshot queue
//!   MsgApp ──▶ msgapp stream ──┐ if down
//!   others ──▶ message stream ◀┘
//!                    └── if down ────▶ pipeline queue
//! ```
//!
//! A remote is a peer without streams: a member that sent a request before this member
//! applied its addition from the log, and that must get responses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use portunus_proto::raftpb::{Message, MessageType};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::headers::hex;
use crate::metrics::PeerMetrics;
use crate::raft::Raft;
use crate::shared::Shared;
use crate::status::{Failure, Status};
use crate::stream_writer::{PushResult, StreamObserver, StreamWriter, WriterBody};
use crate::sync::lock;
use crate::urls::{BaseUrl, Urls};
use crate::{pipeline, probing, snapshot, stream_reader};

/// The two kinds of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Appends, in the msgappv2 encoding.
    MsgApp,
    /// All messages.
    Message,
}

impl StreamKind {
    /// Returns the path at which member `reader` opens a stream of this kind.
    pub fn path(self, reader: u64) -> String {
        match self {
            StreamKind::MsgApp => format!("/raft/stream/msgapp/{reader:x}"),
            StreamKind::Message => format!("/raft/stream/message/{reader:x}"),
        }
    }

    /// Returns the kind with this name in a path.
    pub fn named(name: &str) -> Option<StreamKind> {
        match name {
            "msgapp" => Some(StreamKind::MsgApp),
            "message" => Some(StreamKind::Message),
            _ => None,
        }
    }

    pub fn opening(self) -> &'static str {
        match self {
            StreamKind::MsgApp => "opening the msgapp stream",
            StreamKind::Message => "opening the message stream",
        }
    }

    pub fn reading(self) -> &'static str {
        match self {
            StreamKind::MsgApp => "reading the msgapp stream",
            StreamKind::Message => "reading the message stream",
        }
    }

    fn writing(self) -> &'static str {
        match self {
            StreamKind::MsgApp => "writing the msgapp stream",
            StreamKind::Message => "writing the message stream",
        }
    }
}

/// How a peer was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// By the member: [`Transport::add_peer`](crate::Transport::add_peer).
    Member,
    /// By [`Transport::add_remote`](crate::Transport::add_remote) or its own request.
    Remote,
}

pub(crate) struct Peer {
    pub id: u64,
    pub shared: Arc<Shared>,
    pub urls: Urls,
    pub status: Status,
    pub metrics: Arc<PeerMetrics>,
    msgapp: Arc<StreamWriter>,
    message: Arc<StreamWriter>,
    pipeline: mpsc::Sender<Message>,
    snapshots: mpsc::Sender<Message>,
    cut: AtomicBool,
    removal_reported: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Peer {
    /// Creates a peer and starts its tasks; they wait until a member is attached.
    pub fn start(shared: &Arc<Shared>, id: u64, urls: Vec<BaseUrl>, role: Role) -> Arc<Peer> {
        let config = &shared.config;
        let local = shared.identity.member_id;
        let metrics = Arc::new(shared.metrics.peer(&hex(local), &hex(id)));
        let (pipeline, pipeline_queue) = mpsc::channel(config.pipeline_queue_max.max(1));
        let (snapshots, snapshot_queue) = mpsc::channel(config.snapshot_queue_max.max(1));
        let peer = Arc::new(Peer {
            id,
            shared: shared.clone(),
            urls: Urls::new(urls),
            status: Status::of_peer(shared, id, metrics.clone()),
            metrics,
            msgapp: Arc::new(StreamWriter::new(StreamKind::MsgApp, config)),
            message: Arc::new(StreamWriter::new(StreamKind::Message, config)),
            pipeline,
            snapshots,
            cut: AtomicBool::new(false),
            removal_reported: AtomicBool::new(false),
            tasks: Mutex::default(),
        });
        let runtime = &shared.runtime;
        let queue = Arc::new(tokio::sync::Mutex::new(pipeline_queue));
        let mut tasks = Vec::new();
        for _ in 0..config.pipeline_connections.max(1) {
            tasks.push(runtime.spawn(pipeline::work(peer.clone(), queue.clone())));
        }
        if role == Role::Member {
            for kind in [StreamKind::MsgApp, StreamKind::Message] {
                tasks.push(runtime.spawn(stream_reader::run(peer.clone(), kind)));
            }
            tasks.push(runtime.spawn(snapshot::send_all(peer.clone(), snapshot_queue)));
            tasks.push(runtime.spawn(probing::run(peer.clone())));
        }
        *lock(&peer.tasks) = tasks;
        peer
    }

    /// Queues a message, or drops and reports it. Never waits, never calls the member.
    pub fn send(&self, message: Message) {
        let is_snapshot = message.r#type == MessageType::MsgSnap as i32;
        let sent = if self.is_cut() {
            Err(())
        } else if is_snapshot {
            self.snapshots.try_send(message).map_err(|_| ())
        } else {
            self.stream_or_post(message)
        };
        if sent.is_err() {
            self.metrics.sent_failures.inc();
            if is_snapshot {
                self.shared.reports.snapshot_failed(self.id);
            }
            self.shared.reports.unreachable(self.id);
        }
    }

    fn stream_or_post(&self, mut message: Message) -> Result<(), ()> {
        let mut writers = [Some(&self.msgapp), Some(&self.message)];
        if message.r#type != MessageType::MsgApp as i32 {
            writers[0] = None;
        }
        for writer in writers.into_iter().flatten() {
            message = match writer.push(message) {
                PushResult::Queued => return Ok(()),
                PushResult::Full => return Err(()),
                PushResult::Detached(message) => message,
                PushResult::Stalled(message) => {
                    let failure =
                        Failure::Broken("the peer took no data within the write timeout".into());
                    self.status.deactivate("writing a stream", &failure);
                    self.shared.reports.unreachable(self.id);
                    message
                }
            };
        }
        self.pipeline.try_send(message).map_err(|_| ())
    }

    /// Passes a received message to the member.
    pub fn receive(&self, message: Message, raft: &dyn Raft) {
        if self.is_cut() {
            self.metrics.received_failures.inc();
            return;
        }
        let (from, kind) = (message.from, message.r#type);
        let checked = crate::routes::check_message(&self.shared, raft, &message);
        let taken = match checked {
            Ok(()) => raft.step(message).map_err(|refused| refused.reason),
            Err((_, reason)) => Err(reason.into()),
        };
        if let Err(reason) = taken {
            self.metrics.received_failures.inc();
            tracing::debug!(from = hex(from), kind, %reason, "failed to process Raft message");
        }
    }

    /// Returns the body of a stream that this peer opened.
    pub fn attach(self: &Arc<Self>, kind: StreamKind) -> WriterBody {
        let body = match kind {
            StreamKind::MsgApp => self.msgapp.attach(self.clone()),
            StreamKind::Message => self.message.attach(self.clone()),
        };
        self.activate();
        body
    }

    /// Marks the peer active after a successful request in either direction.
    pub fn activate(&self) {
        self.removal_reported.store(false, Ordering::Relaxed);
        self.status.activate();
    }

    /// Reports to the member, once, that this peer answered with its removal.
    pub fn report_removed(&self, raft: &dyn Raft) {
        if !self.removal_reported.swap(true, Ordering::Relaxed) {
            raft.report_removal(self.id);
        }
    }

    /// Starts or stops dropping every message from and to this peer.
    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Ends the peer and aborts its tasks; returns them so that the caller can wait.
    pub fn stop(&self) -> Vec<JoinHandle<()>> {
        self.status.mark_removed();
        self.msgapp.stop();
        self.message.stop();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in &tasks {
            task.abort();
        }
        tasks
    }
}

impl StreamObserver for Peer {
    fn stream_lost(&self, kind: StreamKind) {
        let failure = Failure::Disconnected("the peer closed the connection".into());
        self.status.deactivate(kind.writing(), &failure);
        self.shared.reports.unreachable(self.id);
    }

    fn bytes_sent(&self, bytes: usize) {
        self.metrics.sent_bytes.inc_by(bytes as u64);
    }
}
