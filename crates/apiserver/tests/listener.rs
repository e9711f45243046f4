//! Connections over real sockets: limits, slow clients, long headers, and the end of a server.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use portunus_apiserver::{
    Body, Connection, Drain, Handler, Listener, ListenerOptions, Metrics, full_body,
};
use portunus_testkit::random::Random;
use portunus_testkit::wait::{self, WAIT_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Answers with the path, after [`Notify`] for `/wait`.
#[derive(Clone, Default)]
struct Echo {
    release: Arc<Notify>,
    begun: Arc<AtomicUsize>,
}

impl Handler for Echo {
    async fn handle(&self, request: Request<Incoming>, _: &Connection) -> Response<Body> {
        let path = request.uri().path().to_owned();
        self.begun.fetch_add(1, Ordering::Relaxed);
        if path == "/wait" {
            self.release.notified().await;
        }
        Response::new(full_body(path))
    }
}

struct Server {
    address: SocketAddr,
    drain: Drain,
    metrics: Metrics,
    handler: Echo,
    served: JoinHandle<()>,
}

impl Server {
    async fn has_begun(&self, requests: usize) {
        wait::eventually("requests", async || {
            (self.handler.begun.load(Ordering::Relaxed) >= requests).then_some(())
        })
        .await;
    }
}

async fn start(options: ListenerOptions) -> Server {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (drain, metrics) = (Drain::new(), Metrics::new());
    let listener = Listener::new(socket, None, options, metrics.clone());
    let address = listener.address().unwrap();
    let handler = Echo::default();
    let served = tokio::spawn(listener.serve(handler.clone(), drain.clone()));
    Server {
        address,
        drain,
        metrics,
        handler,
        served,
    }
}

fn quick() -> ListenerOptions {
    ListenerOptions {
        header_timeout: Duration::from_millis(300),
        drain_timeout: Duration::from_secs(5),
        ..ListenerOptions::default()
    }
}

/// Sends bytes and returns everything that the server sends until it closes the connection.
async fn exchange(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(sent).await;
    read_all(&mut stream).await
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    let reading = stream.read_to_end(&mut received);
    let _ = timeout(WAIT_MAX, reading)
        .await
        .expect("the server never closed");
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn requests_are_answered() {
    let server = start(ListenerOptions::default()).await;
    let request = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = exchange(server.address, request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("/a"), "{answer}");
}

#[tokio::test]
async fn silent_and_slow_clients_lose_their_connection() {
    let server = start(quick()).await;
    for sent in [
        &b""[..],
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nslow",
    ] {
        let started = Instant::now();
        let answer = exchange(server.address, sent).await;
        assert!(!answer.contains("200"), "{answer}");
        assert!(started.elapsed() < WAIT_MAX / 2, "{sent:?}");
    }
    // A second request of a connection has the same time.
    let first = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTT";
    let answer = exchange(server.address, first).await;
    assert!(answer.contains("/a") && !answer.contains("/b"), "{answer}");
    wait::eventually("connection closed", async || {
        (server.metrics.connections.get() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn long_and_many_headers_are_refused() {
    let server = start(quick()).await;
    let long = format!(
        "GET / HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n",
        "x".repeat(200_000)
    );
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000));
    let path = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(200_000));
    for sent in [long, many, path] {
        let answer = exchange(server.address, sent.as_bytes()).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    let alive = exchange(
        server.address,
        b"GET /alive HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    assert!(alive.await.ends_with("/alive"));
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_at_once() {
    let options = ListenerOptions {
        connections_max: 2,
        ..ListenerOptions::default()
    };
    let server = start(options).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let _second = TcpStream::connect(server.address).await.unwrap();
    wait::eventually("two connections", async || {
        (server.metrics.connections.get() == 2).then_some(())
    })
    .await;
    assert_eq!(
        exchange(server.address, b"GET / HTTP/1.1\r\n\r\n").await,
        ""
    );
    assert_eq!(server.metrics.connections_refused.get(), 1);
    drop(first);
    let request = b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = wait::eventually("free slot", async || {
        let answer = exchange(server.address, request).await;
        (!answer.is_empty()).then_some(answer)
    });
    assert!(answer.await.ends_with("/a"));
}

#[tokio::test]
async fn requests_in_flight_finish_while_the_server_ends() {
    let server = start(quick()).await;
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n";
    busy.write_all(request).await.unwrap();
    wait::eventually("two connections", async || {
        (server.metrics.connections.get() == 2).then_some(())
    })
    .await;
    server.has_begun(1).await;
    server.drain.begin(Duration::ZERO).await;
    assert_eq!(read_all(&mut idle).await, "");
    wait::eventually("closed socket", async || {
        TcpStream::connect(server.address).await.err()
    })
    .await;
    assert!(!server.served.is_finished());
    server.handler.release.notify_one();
    assert!(read_all(&mut busy).await.ends_with("/wait"));
    timeout(WAIT_MAX, server.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn end_of_the_server_does_not_wait_for_ever() {
    let options = ListenerOptions {
        drain_timeout: Duration::from_millis(200),
        ..quick()
    };
    let server = start(options).await;
    let mut stuck = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n";
    stuck.write_all(request).await.unwrap();
    server.has_begun(1).await;
    server.drain.begin(Duration::ZERO).await;
    timeout(WAIT_MAX, server.served).await.unwrap().unwrap();
    assert_eq!(read_all(&mut stuck).await, "");
}

type Http2 = hyper::client::conn::http2::SendRequest<String>;

async fn http2(address: SocketAddr) -> Http2 {
    let stream = TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let connected = hyper::client::conn::http2::handshake(executor, io);
    let (sender, connection) = connected.await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends a request with a header; returns the status.
async fn ask(mut sender: Http2, header: String) -> Result<u16, hyper::Error> {
    sender.ready().await?;
    let request = Request::get("http://localhost/a").header("long", header);
    let request = request.body(String::new()).unwrap();
    let response = sender.send_request(request).await?;
    Ok(response.status().as_u16())
}

#[tokio::test]
async fn long_headers_of_http2_are_refused() {
    let server = start(ListenerOptions::default()).await;
    let sender = http2(server.address).await;
    assert_eq!(ask(sender.clone(), "x".to_owned()).await.unwrap(), 200);
    let long = ask(sender, "x".repeat(200_000)).await;
    assert!(!matches!(long, Ok(200)), "{long:?}");
    // Many requests on one connection, more than may be open at a time.
    let sender = http2(server.address).await;
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..1_000 {
        asked.spawn(ask(sender.clone(), number.to_string()));
    }
    for answer in asked.join_all().await {
        assert_eq!(answer.unwrap(), 200);
    }
    let begun = server.handler.begun.load(Ordering::Relaxed);
    assert_eq!(begun, 1 + 1_000, "the long request reached the handler");
}

#[tokio::test]
async fn listener_survives_random_bytes() {
    let server = start(quick()).await;
    let mut random = Random::seeded("listener_survives_random_bytes");
    let prefaces: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ];
    for round in 0..200 {
        let preface = prefaces[round % prefaces.len()];
        let length = random.below(2_000) as usize;
        let noise = (0..length).map(|_| random.below(256) as u8);
        let sent: Vec<u8> = preface.iter().copied().chain(noise).collect();
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(&sent).await;
        let _ = stream.shutdown().await;
        read_all(&mut stream).await;
    }
    let request = b"GET /alive HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = exchange(server.address, request).await;
    assert!(answer.ends_with("/alive"), "{answer}");
}
