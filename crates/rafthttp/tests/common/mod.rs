//! A member that records the calls of its transport, and serves on a port.

#![allow(dead_code)] // every test file uses only some items

pub mod log;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use portunus_proto::raftpb::{Entry, Message, MessageType, Snapshot, SnapshotMetadata};
use portunus_rafthttp::{
    BoxFuture, BoxStream, Config, LocalMember, OutgoingSnapshot, Raft, SnapshotRefused,
    StepRefused, Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::StreamExt;

pub const CLUSTER: u64 = 0xc1;
/// Limit of every wait; only a failing test reaches it.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A call of the transport to the member.
#[derive(Debug)]
pub enum Call {
    Step(Box<Message>),
    Unreachable(u64),
    Snapshot { peer: u64, delivered: bool },
    Received { index: u64, bytes: u64, whole: bool },
    Removed { by: u64 },
}

type SnapshotBody = BoxStream<'static, io::Result<Bytes>>;
type Opener = Box<dyn Fn() -> io::Result<SnapshotBody> + Send>;

pub struct Recorder {
    calls: UnboundedSender<Call>,
    pub removed: Mutex<HashSet<u64>>,
    pub refuse_steps: Mutex<bool>,
    pub opener: Mutex<Option<Opener>>,
    pub refuse_snapshot: Mutex<Option<SnapshotRefused>>,
}

impl Recorder {
    fn record(&self, call: Call) {
        // The receiver is dropped when a test ends.
        let _ = self.calls.send(call);
    }
}

impl Raft for Recorder {
    fn step(&self, message: Message) -> Result<(), StepRefused> {
        if *self.refuse_steps.lock().unwrap() {
            return Err(StepRefused::new("not now"));
        }
        self.record(Call::Step(Box::new(message)));
        Ok(())
    }

    fn name_of(&self, _id: u64) -> Option<String> {
        None
    }

    fn is_removed(&self, id: u64) -> bool {
        self.removed.lock().unwrap().contains(&id)
    }

    fn report_unreachable(&self, id: u64) {
        self.record(Call::Unreachable(id));
    }

    fn report_snapshot(&self, peer: u64, delivered: bool) {
        self.record(Call::Snapshot { peer, delivered });
    }

    fn open_snapshot(&self, message: Message) -> BoxFuture<'static, io::Result<OutgoingSnapshot>> {
        let opener = self.opener.lock().unwrap();
        let body = opener.as_ref().map_or_else(
            || Err(io::Error::other("nothing to open")),
            |opener| opener(),
        );
        Box::pin(async move { body.map(|body| OutgoingSnapshot { message, body }) })
    }

    fn receive_snapshot(
        &self,
        message: Message,
        mut body: SnapshotBody,
    ) -> BoxFuture<'static, Result<(), SnapshotRefused>> {
        let calls = self.calls.clone();
        let refusal = self.refuse_snapshot.lock().unwrap().take();
        Box::pin(async move {
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
            let index = message.snapshot.unwrap().metadata.unwrap().index;
            let (mut bytes, mut whole) = (0, true);
            while let Some(piece) = body.next().await {
                match piece {
                    Ok(piece) => bytes += piece.len() as u64,
                    Err(_) => whole = false,
                }
            }
            let _ = calls.send(Call::Received {
                index,
                bytes,
                whole,
            });
            if whole {
                Ok(())
            } else {
                let reason = "cut off".into();
                Err(SnapshotRefused::Failed { reason })
            }
        })
    }

    fn report_removal(&self, by: u64) {
        self.record(Call::Removed { by });
    }
}

pub struct Member {
    pub id: u64,
    pub transport: Arc<Transport>,
    pub recorder: Arc<Recorder>,
    pub metrics: prometheus::Registry,
    pub calls: UnboundedReceiver<Call>,
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

/// Pauses short enough for tests.
pub fn quick() -> Config {
    Config {
        reconnect_pause: Duration::from_millis(10),
        heartbeat: Duration::from_millis(100),
        probe_interval: Duration::from_millis(50),
        ..Config::default()
    }
}

pub fn local(id: u64) -> LocalMember {
    LocalMember {
        member_id: id,
        cluster_id: CLUSTER,
        version: "3.8.0".into(),
        min_cluster_version: "3.0.0".into(),
        peer_urls: Vec::new(),
    }
}

impl Member {
    pub async fn start(id: u64) -> Member {
        Member::start_with(id, quick(), |router| router).await
    }

    pub async fn start_with(
        id: u64,
        config: Config,
        wrap: impl FnOnce(Router) -> Router,
    ) -> Member {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Member::start_at(id, config, listener, wrap)
    }

    pub fn start_at(
        id: u64,
        config: Config,
        listener: TcpListener,
        wrap: impl FnOnce(Router) -> Router,
    ) -> Member {
        let address = listener.local_addr().unwrap();
        let metrics = prometheus::Registry::new();
        let local = LocalMember {
            peer_urls: vec![url(address)],
            ..local(id)
        };
        let runtime = tokio::runtime::Handle::current();
        let transport = Transport::new(local, config, &metrics, runtime).unwrap();
        let (sender, calls) = unbounded_channel();
        let recorder = Arc::new(Recorder {
            calls: sender,
            removed: Mutex::default(),
            refuse_steps: Mutex::default(),
            opener: Mutex::default(),
            refuse_snapshot: Mutex::default(),
        });
        transport.attach(recorder.clone());
        let server = serve(listener, wrap(transport.router()));
        Member {
            id,
            transport,
            recorder,
            metrics,
            calls,
            address,
            server,
        }
    }

    pub fn add_peer(&self, peer: &Member) {
        self.transport.add_peer(peer.id, &[url(peer.address)]);
    }

    /// Returns the next call that `pick` selects.
    pub async fn next<T>(&mut self, pick: impl Fn(&Call) -> Option<T>) -> T {
        let search = async {
            loop {
                let call = self
                    .calls
                    .recv()
                    .await
                    .expect("the recorder holds the sender");
                if let Some(found) = pick(&call) {
                    return found;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, search)
            .await
            .expect("the transport did not make the call")
    }

    pub async fn next_step(&mut self) -> Message {
        self.next(|call| match call {
            Call::Step(message) => Some((**message).clone()),
            _ => None,
        })
        .await
    }

    pub async fn next_snapshot_report(&mut self) -> bool {
        self.next(|call| match call {
            Call::Snapshot { delivered, .. } => Some(*delivered),
            _ => None,
        })
        .await
    }

    /// Waits until both members have received bytes from each other.
    pub async fn connected(&self, peer: &Member) {
        until(|| streams_read(self, peer.id) >= 1.0 && streams_read(peer, self.id) >= 1.0).await;
    }

    /// Returns the value of a metric with this label value.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        for family in self.metrics.gather() {
            if family.name() != name {
                continue;
            }
            for metric in family.get_metric() {
                if metric.get_label().iter().any(|pair| pair.value() == label) {
                    return metric.get_counter().get_value()
                        + metric.get_gauge().get_value()
                        + metric.get_histogram().get_sample_count() as f64;
                }
            }
        }
        0.0
    }

    /// Ends the member as if its process was killed.
    pub async fn crash(self) -> SocketAddr {
        self.transport.stop().await;
        self.server.abort();
        let _ = self.server.await;
        self.address
    }
}

fn streams_read(member: &Member, from: u64) -> f64 {
    member.metric(
        "etcd_network_peer_received_bytes_total",
        &format!("{from:x}"),
    )
}

pub fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Serves until the task is aborted; then every connection is closed.
pub fn serve(listener: TcpListener, router: Router) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = TowerToHyperService::new(router.clone());
            connections.spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .http1_only()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

/// Polls a condition until it holds.
pub async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .expect("the condition did not become true");
}

pub fn message(kind: MessageType, from: u64, to: u64, index: u64) -> Message {
    Message {
        r#type: kind as i32,
        from,
        to,
        term: 3,
        index,
        ..Message::default()
    }
}

/// An append with one entry after `index`.
pub fn append(from: u64, to: u64, index: u64, data: Bytes) -> Message {
    let entry = Entry {
        term: 3,
        index: index + 1,
        data,
        ..Entry::default()
    };
    Message {
        log_term: 3,
        commit: index,
        entries: vec![entry],
        ..message(MessageType::MsgApp, from, to, index)
    }
}

pub fn snapshot(from: u64, to: u64, index: u64) -> Message {
    Message {
        snapshot: Some(Snapshot {
            data: Bytes::new(),
            metadata: Some(SnapshotMetadata {
                index,
                term: 3,
                conf_state: None,
            }),
        }),
        ..message(MessageType::MsgSnap, from, to, 0)
    }
}

/// The headers of a well-behaved member, as lines of a request.
pub fn good_headers(from: u64) -> Vec<(String, String)> {
    [
        ("Host", "peer".to_owned()),
        ("X-Server-From", format!("{from:x}")),
        ("X-Server-Version", "3.7.1".to_owned()),
        ("X-Min-Cluster-Version", "3.0.0".to_owned()),
        ("X-Etcd-Cluster-ID", format!("{CLUSTER:x}")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Writes a request byte for byte.
pub async fn raw_request(
    address: SocketAddr,
    method_and_path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut head = format!("{method_and_path} HTTP/1.1\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The peer may have refused the request and closed the connection.
    let _ = stream.write_all(body).await;
    stream
}

/// Reads an answer: its status, and head and body as text.
pub async fn raw_answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let mut lengths = head
                    .lines()
                    .filter_map(|line| line.strip_prefix("content-length: "));
                let length = lengths.next().map_or(0, |text| text.parse().unwrap());
                if body.len() >= length {
                    return;
                }
            }
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read)
        .await
        .expect("no answer");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.unwrap_or(0), text)
}

/// Sends one request and reads the answer.
pub async fn ask(
    address: SocketAddr,
    method_and_path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> (u16, String) {
    let mut headers = headers.to_vec();
    if !headers.iter().any(|(name, _)| name == "Content-Length") {
        headers.push(("Content-Length".into(), body.len().to_string()));
    }
    let mut stream = raw_request(address, method_and_path, &headers, body).await;
    raw_answer(&mut stream).await
}
