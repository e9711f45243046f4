//! Each limit of clients refuses what exceeds it, counts the refusal, and leaves other clients
//! alone. `docs/limits.md` lists the limits.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[allow(dead_code, unused_imports)] // shared with `bad_input.rs`
mod raw;

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::requests::{get, put};
use common::watching::{WatchStream, watch};
use common::{Clients, Server, WAIT_MAX, data_dir, eventually, free_address, http_at, soon};
use raw::{greeting, say};

/// A member with a separate address for metrics, and a client that must not be affected.
struct Subject {
    server: Server,
    metrics: SocketAddr,
    good: Clients,
    _guard: tempfile::TempDir,
}

impl Subject {
    async fn start(flags: &[&str]) -> Subject {
        let (guard, dir) = data_dir();
        let metrics = free_address();
        let metrics_flag = format!("--listen-metrics-urls=http://{metrics}");
        let server = Server::start(&dir, &[flags, &[&metrics_flag]].concat());
        let good = server.connect().await;
        let mut subject = Subject {
            server,
            metrics,
            good,
            _guard: guard,
        };
        subject.still_serves().await;
        subject
    }

    /// Checks that a put and a get of the good client work.
    async fn still_serves(&mut self) {
        let put = self.good.kv.put(put("good", "1"));
        soon("a put", put).await.unwrap();
        let get = self.good.kv.range(get("good"));
        let response = soon("a get", get).await.unwrap().into_inner();
        assert_eq!(response.kvs.len(), 1);
    }

    /// Returns the value of a series.
    fn metric(&self, series: &str) -> f64 {
        let text = http_at(self.metrics, "GET", "/metrics", &[], &[]).body;
        let values = text.lines().filter_map(|line| line.strip_prefix(series));
        let values: Vec<f64> = values
            .filter_map(|rest| rest.strip_prefix(' ')?.parse().ok())
            .collect();
        assert_eq!(values.len(), 1, "{series} in {text}");
        values[0]
    }

    /// Waits until a series has this value.
    async fn metric_becomes(&self, series: &str, expected: f64) {
        let at_last = eventually("the metric", async || {
            (self.metric(series) == expected).then_some(())
        });
        at_last.await;
    }
}

/// Returns whether the server closes the connection within the time.
fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

const REFUSED_IN_TOTAL: &str =
    r#"portunus_client_connections_refused_total{limit="max-client-connections"}"#;
const REFUSED_BY_ADDRESS: &str =
    r#"portunus_client_connections_refused_total{limit="max-client-connections-per-address"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn connections_above_the_limit_are_closed_and_others_are_served() {
    for (flag, refused) in [
        ("--max-client-connections=4", REFUSED_IN_TOTAL),
        ("--max-client-connections-per-address=4", REFUSED_BY_ADDRESS),
    ] {
        let mut subject = Subject::start(&[flag]).await;
        let address = subject.server.address;
        // With the connection of the good client that is the limit.
        let held: Vec<TcpStream> = (0..3).map(|_| say(address, &greeting())).collect();
        subject
            .metric_becomes("portunus_client_connections", 4.0)
            .await;
        for _ in 0..20 {
            let mut refused = say(address, &greeting());
            assert!(is_closed_within(&mut refused, WAIT_MAX), "{flag}");
        }
        assert_eq!(subject.metric(refused), 20.0);
        subject.still_serves().await;
        // One line in ten seconds, however many are refused.
        let log = subject.server.process.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("rejected connection on client endpoint"))
            .collect();
        assert!((1..=3).contains(&lines.len()), "{lines:?}");
        assert!(lines[0].contains("127.0.0.1:"), "{lines:?}");

        drop(held);
        subject
            .metric_becomes("portunus_client_connections", 1.0)
            .await;
        let mut clients = subject.server.connect().await;
        soon("a put", clients.kv.put(put("again", "1")))
            .await
            .unwrap();
    }
}

const CLOSED_BEFORE_FIRST_BYTE: &str =
    r#"portunus_client_connections_closed_total{limit="client-first-byte-timeout"}"#;
const CLOSED_IDLE: &str =
    r#"portunus_client_connections_closed_total{limit="client-idle-timeout"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_does_not_begin_is_closed() {
    let mut subject = Subject::start(&["--client-first-byte-timeout=500ms"]).await;
    let address = subject.server.address;
    let started = Instant::now();
    let halves: [&[u8]; 3] = [b"", b"PRI * HT", b"GET /health HTTP/1.1\r\nHost: a"];
    let mut silent: Vec<TcpStream> = halves.iter().map(|half| say(address, half)).collect();
    let mut begun = say(address, &greeting());
    for stream in &mut silent {
        assert!(is_closed_within(stream, WAIT_MAX));
    }
    assert!(started.elapsed() >= Duration::from_millis(500));
    subject.metric_becomes(CLOSED_BEFORE_FIRST_BYTE, 3.0).await;
    assert!(!is_closed_within(&mut begun, Duration::from_millis(800)));
    subject.still_serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_is_closed_and_one_with_a_watch_stays() {
    let mut subject = Subject::start(&["--client-idle-timeout=1s"]).await;
    let clients = subject.server.connect().await;
    let mut stream = WatchStream::open(&clients).await;
    stream.create(watch("good")).await;
    let mut idle = say(subject.server.address, &greeting());
    let started = Instant::now();
    assert!(is_closed_within(&mut idle, WAIT_MAX));
    assert!(started.elapsed() >= Duration::from_secs(1));
    // The good client was idle as well; it connects again without an error.
    eventually("two closed connections", async || {
        (subject.metric(CLOSED_IDLE) >= 2.0).then_some(())
    })
    .await;
    subject.still_serves().await;
    assert_eq!(stream.events(1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_above_the_limit_are_refused_and_others_go_on() {
    let flags = [
        "--max-watches-per-stream=3",
        "--max-watches-per-connection=5",
    ];
    let mut subject = Subject::start(&flags).await;
    let clients = subject.server.connect().await;
    let mut first = WatchStream::open(&clients).await;
    let mut second = WatchStream::open(&clients).await;
    for _ in 0..3 {
        assert!(!first.create(watch("good")).await.canceled);
    }
    let refused = first.create(watch("good")).await;
    assert!(refused.canceled, "{refused:?}");
    assert_eq!(refused.cancel_reason, "etcdserver: too many requests");
    for _ in 0..2 {
        assert!(!second.create(watch("good")).await.canceled);
    }
    let refused = second.create(watch("good")).await;
    assert!(refused.canceled, "{refused:?}");
    for limit in ["max-watches-per-stream", "max-watches-per-connection"] {
        let series = format!(r#"portunus_watches_refused_total{{limit="{limit}"}}"#);
        assert_eq!(subject.metric(&series), 1.0);
    }
    // Other connections have their own limit, and the streams of this one go on.
    let mut other = WatchStream::open(&subject.good).await;
    assert!(!other.create(watch("good")).await.canceled);
    subject.still_serves().await;
    for stream in [&mut first, &mut second, &mut other] {
        assert!(!stream.next().await.events.is_empty());
    }
    // What ends makes room for others of the connection.
    drop(first);
    let mut third = WatchStream::open(&clients).await;
    eventually("room for a watch", async || {
        (!third.create(watch("other")).await.canceled).then_some(())
    })
    .await;
}
