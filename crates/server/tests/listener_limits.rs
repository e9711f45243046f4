//! The listeners for peers and for metrics close connections above their limits, count them, and
//! serve everybody else. The limits of clients are in `limits.rs`.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::net::{Ipv4Addr, SocketAddr};

use common::requests::put;
use common::{Clients, Server, data_dir, eventually, free_address, http_at, soon};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

const LIMIT: usize = 4;
const REFUSED: usize = 20;
const OWN: Ipv4Addr = Ipv4Addr::LOCALHOST;
const FOREIGN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A member, with the address of the listener under test.
struct Subject {
    server: Server,
    clients: Clients,
    address: SocketAddr,
    kind: &'static str,
    _guard: tempfile::TempDir,
}

impl Subject {
    async fn start(kind: &'static str, flag: &str) -> Subject {
        let (guard, dir) = data_dir();
        let metrics = free_address();
        let urls = format!("--listen-metrics-urls=http://{metrics}");
        let server = Server::start(&dir, &[&urls, flag]);
        let address = match kind {
            "peer" => peer_address(&server.process.log()),
            _ => metrics,
        };
        Subject {
            clients: server.connect().await,
            server,
            address,
            kind,
            _guard: guard,
        }
    }

    /// Returns the value of a series, read at the client port.
    fn metric(&self, series: &str) -> usize {
        let text = self.server.get("/metrics").body;
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        let value = value.unwrap_or_else(|| panic!("no {series} in {text}"));
        value.trim().parse().unwrap()
    }

    async fn open_connections_become(&self, expected: usize) {
        let series = format!("portunus_{}_connections ", self.kind);
        eventually("the number of open connections", async || {
            (self.metric(&series) == expected).then_some(())
        })
        .await;
    }

    fn refused(&self, limit: &str) -> usize {
        let kind = self.kind;
        let series = format!(r#"portunus_{kind}_connections_refused_total{{limit="{limit}"}} "#);
        self.metric(&series)
    }

    /// Opens connections that send nothing, up to the limit.
    async fn fill(&self, from: Ipv4Addr) -> Vec<TcpStream> {
        let mut held = Vec::new();
        for _ in 0..LIMIT {
            held.push(connect(from, self.address).await);
        }
        self.open_connections_become(LIMIT).await;
        held
    }

    /// Checks that further connections are closed without an answer.
    async fn is_full(&self, from: Ipv4Addr) {
        for _ in 0..REFUSED {
            let mut stream = connect(from, self.address).await;
            let mut byte = [0];
            let read = soon("the end of the connection", stream.read(&mut byte)).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        }
    }

    fn serves_requests(&self) {
        let path = match self.kind {
            "peer" => "/version",
            _ => "/health",
        };
        let response = http_at(self.address, "GET", path, &[], &[]);
        assert_eq!(response.status, 200, "{}", response.body);
    }

    async fn serves_clients(&mut self) {
        let put = self.clients.kv.put(put("good", "1"));
        soon("a put", put).await.unwrap();
    }

    fn logged_refusals(&self) -> usize {
        let text = format!("rejected connection on {} endpoint", self.kind);
        let log = self.server.process.log();
        log.lines().filter(|line| line.contains(&text)).count()
    }
}

/// Returns the address at which a member listens for peers.
fn peer_address(log: &str) -> SocketAddr {
    let line = log
        .lines()
        .find(|line| line.contains("listening for peers"));
    let line = line.unwrap_or_else(|| panic!("no address of peers in {log}"));
    let address = &line[line.find("127.0.0.1:").unwrap()..];
    let is_part = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == ':';
    let end = address.find(|letter| !is_part(letter));
    address[..end.unwrap_or(address.len())].parse().unwrap()
}

async fn connect(from: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    soon("a connection", socket.connect(address)).await.unwrap()
}

async fn closes_connections_above_the_total(kind: &'static str) {
    let limit = format!("max-{kind}-connections");
    let mut subject = Subject::start(kind, &format!("--{limit}={LIMIT}")).await;
    subject.serves_requests();
    let held = subject.fill(FOREIGN).await;
    subject.is_full(OWN).await;
    assert_eq!(subject.refused(&limit), REFUSED);
    // One line in ten seconds, however many are refused.
    assert!((1..=3).contains(&subject.logged_refusals()));
    subject.serves_clients().await;
    drop(held);
    subject.open_connections_become(0).await;
    subject.serves_requests();
}

async fn serves_others_while_one_address_is_at_its_limit(kind: &'static str) {
    let limit = format!("max-{kind}-connections-per-address");
    let mut subject = Subject::start(kind, &format!("--{limit}={LIMIT}")).await;
    let _held = subject.fill(FOREIGN).await;
    subject.is_full(FOREIGN).await;
    assert_eq!(subject.refused(&limit), REFUSED);
    subject.serves_requests();
    subject.serves_clients().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_peers_above_the_limit_are_closed_and_counted() {
    closes_connections_above_the_total("peer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_for_metrics_above_the_limit_are_closed_and_counted() {
    closes_connections_above_the_total("metrics").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_the_connections_of_other_peers() {
    serves_others_while_one_address_is_at_its_limit("peer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_the_connections_of_other_scrapers() {
    serves_others_while_one_address_is_at_its_limit("metrics").await;
}
