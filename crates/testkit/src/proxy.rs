//! The network between members, with links that can fail.
//!
//! ```text
//!  member A ──▶ gate of B ──▶ member B      one gate for each member, at the peer URL
//!           ◀──           ◀──               that all others know
//! ```
//! A member has one peer URL for all others, so a gate has to identify the caller. A raft
//! request has the sender's peer URLs in its header; for other connections, the system knows
//! which process holds the other end. Each direction of a connection obeys the [`Link`] of its
//! own direction, regardless of which side dialled. Data on a cut link is not lost: it waits,
//! as behind an unplugged cable, and arrives late.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::random::Random;

/// A lost packet is sent again after this long.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// How often the caller is looked up. A process that has just started may not be known yet.
const ASK_CALLER_MAX: usize = 40;
const ASK_CALLER_PAUSE: Duration = Duration::from_millis(25);
const PIECES_WAITING_MAX: usize = 1024;
/// The header with the sender's peer URLs.
const PEER_URLS: &str = "x-peerurls: http://";
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// One direction between two members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether nothing gets through.
    pub is_cut: bool,
    /// The additional delay.
    pub delay: Duration,
    /// The percentage of pieces that are lost and sent again later; of those, one in ten breaks
    /// its connection, as do as many new connections.
    pub loss_percent: u64,
}

/// A link that lets nothing through.
pub const CUT: Link = Link {
    is_cut: true,
    delay: Duration::ZERO,
    loss_percent: 0,
};

#[derive(Default)]
struct State {
    links: HashMap<(usize, usize), Link>,
    processes: HashMap<usize, u32>,
    gates: HashMap<String, usize>,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    random: Mutex<Random>,
}

/// The gates of all members. Dropping the value closes them.
pub struct Network {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Network {
    /// Creates a network without members; `random` chooses what is lost.
    ///
    /// # Panics
    /// If the system has no threads left.
    #[must_use]
    pub fn new(random: Random) -> Network {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("network")
            .enable_all()
            .build()
            .unwrap();
        Network {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: watch::Sender::new(()),
                random: Mutex::new(random),
            }),
            runtime: Some(runtime),
        }
    }

    /// Opens the gate of a member that listens at `target`.
    pub fn open_gate(&self, to: usize, listener: StdListener, target: SocketAddr) {
        let gate = listener.local_addr().unwrap();
        let mut state = self.shared.state.lock().unwrap();
        state.gates.insert(gate.to_string(), to);
        drop(state);
        let shared = Arc::clone(&self.shared);
        let runtime = self.runtime.as_ref().unwrap();
        runtime.spawn(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let Ok((connection, caller)) = listener.accept().await else {
                    continue;
                };
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // However it ends, both sides are closed.
                    let _ = shared.call(connection, (caller, gate), to, target).await;
                });
            }
        });
    }

    /// Sets the process id of a member.
    pub fn set_process(&self, member: usize, pid: u32) {
        let mut state = self.shared.state.lock().unwrap();
        state.processes.insert(member, pid);
    }

    /// Changes one direction.
    pub fn set(&self, from: usize, to: usize, link: Link) {
        let mut state = self.shared.state.lock().unwrap();
        state.links.insert((from, to), link);
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// Changes all directions among these members.
    pub fn set_all(&self, members: &[usize], link: Link) {
        for from in members {
            for to in members.iter().filter(|to| *to != from) {
                self.set(*from, *to, link);
            }
        }
    }

    /// Cuts all links between two groups, both ways.
    pub fn part(&self, some: &[usize], others: &[usize]) {
        for one in some {
            for other in others {
                self.set(*one, *other, CUT);
                self.set(*other, *one, CUT);
            }
        }
    }

    /// Restores all links.
    pub fn heal(&self) {
        self.shared.state.lock().unwrap().links.clear();
        self.shared.changed.send_replace(());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn link(&self, pair: (usize, usize)) -> Link {
        let state = self.state.lock().unwrap();
        state.links.get(&pair).copied().unwrap_or_default()
    }

    fn hits(&self, percent: u64) -> bool {
        percent > 0 && self.random.lock().unwrap().below(100) < percent
    }

    async fn until_open(&self, pair: (usize, usize)) {
        let mut changed = self.changed.subscribe();
        while self.link(pair).is_cut {
            // The sender lives as long as this does.
            let _ = changed.changed().await;
        }
    }

    async fn call(
        &self,
        mut near: TcpStream,
        (caller, gate): (SocketAddr, SocketAddr),
        to: usize,
        target: SocketAddr,
    ) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            if near.read_buf(&mut head).await? == 0 || head.len() > HEAD_BYTES_MAX {
                return Ok(());
            }
        }
        let from = match self.sender_in(&head) {
            Some(from) => Some(from),
            None => self.who_calls(caller, gate).await,
        };
        match from {
            Some(from) => self.connect((from, to), head, near, target).await,
            None => Ok(()),
        }
    }

    fn sender_in(&self, head: &[u8]) -> Option<usize> {
        let head = String::from_utf8_lossy(head).to_lowercase();
        let (_, after) = head.split_once(PEER_URLS)?;
        let gate = after.split(['\r', ',']).next()?;
        self.state.lock().unwrap().gates.get(gate).copied()
    }

    /// Returns the member at the other end of a connection; `None` if it was closed meanwhile.
    async fn who_calls(&self, caller: SocketAddr, gate: SocketAddr) -> Option<usize> {
        for _ in 0..ASK_CALLER_MAX {
            let processes = self.state.lock().unwrap().processes.clone();
            let looked_up = tokio::task::spawn_blocking(move || {
                let socket = socket_name(caller, gate)?;
                let found = processes.iter().find(|(_, pid)| has_open(**pid, &socket));
                Some(found.map(|(member, _)| *member))
            });
            // Cancelled if the network is dropped meanwhile.
            if let Some(member) = looked_up.await.ok()?? {
                return Some(member);
            }
            tokio::time::sleep(ASK_CALLER_PAUSE).await;
        }
        None
    }

    async fn connect(
        &self,
        (from, to): (usize, usize),
        head: Vec<u8>,
        near: TcpStream,
        target: SocketAddr,
    ) -> std::io::Result<()> {
        self.until_open((from, to)).await;
        self.until_open((to, from)).await;
        if self.hits(self.link((from, to)).loss_percent / 10) {
            return Ok(());
        }
        let mut far = TcpStream::connect(target).await?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        tokio::time::sleep(self.link((from, to)).delay).await;
        far.write_all(&head).await?;
        let (near_in, near_out) = near.into_split();
        let (far_in, far_out) = far.into_split();
        tokio::select! {
            ended = self.pass_on((from, to), near_in, far_out) => ended,
            ended = self.pass_on((to, from), far_in, near_out) => ended,
        }
    }

    async fn pass_on(
        &self,
        pair: (usize, usize),
        mut from: impl AsyncReadExt + Unpin,
        mut to: impl AsyncWriteExt + Unpin,
    ) -> std::io::Result<()> {
        let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_WAITING_MAX);
        let read = async move {
            let mut due = Instant::now();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = from.read(&mut buffer).await.unwrap_or(0);
                if count == 0 {
                    return;
                }
                let link = self.link(pair);
                let mut delay = link.delay;
                if self.hits(link.loss_percent) {
                    if self.hits(10) {
                        return;
                    }
                    delay += RETRANSMISSION;
                }
                due = due.max(Instant::now() + delay);
                if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let write = async move {
            while let Some((due, piece)) = receiver.recv().await {
                tokio::time::sleep_until(due).await;
                self.until_open(pair).await;
                to.write_all(&piece).await?;
            }
            // The end of a connection does not get through either.
            self.until_open(pair).await;
            Ok(())
        };
        let ((), written) = tokio::join!(read, write);
        written
    }
}

/// Returns the system's name of the caller's end of a connection.
fn socket_name(caller: SocketAddr, gate: SocketAddr) -> Option<String> {
    let SocketAddr::V4(v4) = caller else {
        return None;
    };
    let hex = |address: SocketAddr| {
        let ip = u32::from_ne_bytes(v4.ip().octets());
        format!("{ip:08X}:{:04X}", address.port())
    };
    let (local, remote) = (hex(caller), hex(gate));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.len() > 9 && fields[1] == local && fields[2] == remote;
        is_it.then(|| format!("socket:[{}]", fields[9]))
    })
}

fn has_open(pid: u32, socket: &str) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files.flatten().any(|file| {
        let target = std::fs::read_link(file.path());
        target.is_ok_and(|target| target.as_os_str() == socket)
    })
}
