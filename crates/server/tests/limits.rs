//! Each limit of clients refuses what exceeds it, counts the refusal, and leaves other clients
//! alone. `docs/limits.md` lists the limits.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[allow(dead_code, unused_imports)] // shared with `bad_input.rs`
mod raw;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::held_thread::HeldThread;
use common::requests::{everything, get, put};
use common::watching::{WatchStream, watch};
use common::{
    Clients, Process, Server, WAIT_MAX, data_dir, eventually, free_address, http_at, soon,
};
use nix::sys::resource::{Resource, getrlimit};
use portunus_proto::etcdserverpb::SnapshotRequest;
use prost::Message;
use raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, call_headers, frame, greeting, header,
    message_of_length, say,
};
use tonic::Code;

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

/// A request with a deadline; `Request::set_timeout` would let the client end it.
fn with_timeout<T>(message: T, timeout: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let timeout = timeout.parse().unwrap();
    request.metadata_mut().insert("grpc-timeout", timeout);
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ends_at_the_deadline_of_its_client() {
    let mut subject = Subject::start(&[]).await;
    let exceeded = |method: &str| {
        format!(
            r#"grpc_server_handled_total{{grpc_code="DeadlineExceeded",grpc_method="{method}",{}}}"#,
            match method {
                "Watch" => r#"grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream""#,
                _ => r#"grpc_service="etcdserverpb.KV",grpc_type="unary""#,
            }
        )
    };
    let passed = |status: &tonic::Status| {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert_eq!(status.message(), "context deadline exceeded");
    };
    // Streams end at their deadline.
    let started = Instant::now();
    let (_requests, receiver) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let watch = subject
        .good
        .watch
        .watch(with_timeout(requests, "500m"))
        .await;
    let ended = soon(
        "the end of the stream",
        watch.unwrap().into_inner().message(),
    )
    .await;
    passed(&ended.unwrap_err());
    assert!(started.elapsed() >= Duration::from_millis(500));
    assert_eq!(subject.metric(&exceeded("Watch")), 1.0);

    // So do requests that wait: here for an apply thread that does not run.
    let apply = match HeldThread::hold(subject.server.process.id(), "apply") {
        Ok(apply) => apply,
        Err(error) => {
            eprintln!(
                "NOTE: waiting requests are not tested, since threads cannot be held: {error}"
            );
            return;
        }
    };
    let request = put("late", "1").encode_to_vec();
    // Not with the client library, which ends the request itself.
    let mut headers = call_headers("/etcdserverpb.KV/Put");
    headers.extend(header("grpc-timeout", "600000u"));
    let message = message_of_length(u32::try_from(request.len()).unwrap(), &request);
    let waiting = [
        greeting(),
        frame(HEADERS, END_HEADERS, 1, &headers),
        frame(DATA, END_STREAM, 1, &message),
    ];
    let waiting = say(subject.server.address, &waiting.concat());
    subject.metric_becomes(&exceeded("Put"), 1.0).await;
    drop(apply);
    subject.still_serves().await;
    // With time left, the request is served.
    let get = subject.good.kv.range(with_timeout(get("good"), "1H"));
    assert_eq!(soon("a get", get).await.unwrap().into_inner().count, 1);
    drop(waiting);
    let malformed = subject
        .good
        .kv
        .range(with_timeout(common::requests::get("good"), "soon"));
    let (code, text) = common::refusal(soon("a refusal", malformed).await);
    assert_eq!(code, Code::Internal);
    assert!(text.starts_with("malformed grpc-timeout"), "{text}");
}

fn refused_requests(limit: &str) -> String {
    format!(r#"portunus_client_requests_refused_total{{limit="{limit}"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_long_headers_is_refused() {
    let mut subject = Subject::start(&["--max-header-bytes=2000"]).await;
    let mut request = tonic::Request::new(get("good"));
    let long = "x".repeat(3000);
    request.metadata_mut().insert("long", long.parse().unwrap());
    let refused = soon("a refusal", subject.good.kv.range(request)).await;
    let (code, text) = common::refusal(refused);
    assert_eq!(code, Code::ResourceExhausted, "{text}");
    assert!(text.contains("at most 2000 are allowed"), "{text}");
    let headers = [("Long".to_owned(), long)];
    let refused = http_at(subject.server.address, "GET", "/health", &headers, &[]);
    assert_eq!(refused.status, 429, "{}", refused.head);
    assert_eq!(subject.metric(&refused_requests("max-header-bytes")), 2.0);
    // Far above the limit the HTTP library refuses.
    let headers = [("Long".to_owned(), "x".repeat(1 << 20))];
    let address = subject.server.address;
    let head = format!(
        "GET /health HTTP/1.1\r\nHost: a\r\nLong: {}\r\n\r\n",
        headers[0].1
    );
    assert!(is_closed_within(
        &mut say(address, head.as_bytes()),
        WAIT_MAX
    ));
    subject.still_serves().await;
}

/// Returns the frames of a call with an encoded request.
fn call_frames(path: &str, stream: u32, request: &impl Message) -> Vec<u8> {
    let request = request.encode_to_vec();
    let message = message_of_length(u32::try_from(request.len()).unwrap(), &request);
    [
        frame(HEADERS, END_HEADERS, stream, &call_headers(path)),
        frame(DATA, END_STREAM, stream, &message),
    ]
    .concat()
}

const RANGE: &str = "/etcdserverpb.KV/Range";

#[tokio::test(flavor = "multi_thread")]
async fn connection_that_reads_no_responses_gets_no_more_of_them() {
    let mut subject = Subject::start(&["--max-pending-response-bytes=100000"]).await;
    let value = "v".repeat(60_000);
    subject.good.kv.put(put("large", &value)).await.unwrap();
    let mut stream = say(subject.server.address, &greeting());
    let refused = refused_requests("max-pending-response-bytes");
    for number in 0..20 {
        let call = call_frames(RANGE, 2 * number + 1, &get("large"));
        stream.write_all(&call).unwrap();
    }
    eventually("a refusal", async || {
        (subject.metric(&refused) >= 1.0).then_some(())
    })
    .await;
    // One fits into the window of the connection, and some wait.
    assert!(subject.metric(&refused) <= 18.0);
    subject.still_serves().await;
    let large = soon("a range", subject.good.kv.range(get("large"))).await;
    assert_eq!(large.unwrap().into_inner().kvs[0].value.len(), 60_000);
}

/// Proves: C20
#[tokio::test(flavor = "multi_thread")]
async fn large_ranges_that_nobody_reads_leave_room_for_small_ones() {
    let mut subject = Subject::start(&["--max-range-bytes-in-flight=1000000"]).await;
    let value = "v".repeat(400_000);
    for key in ["a", "b", "c"] {
        subject.good.kv.put(put(key, &value)).await.unwrap();
    }
    let never_read = [greeting(), call_frames(RANGE, 1, &everything())].concat();
    let never_read = say(subject.server.address, &never_read);
    // A single response may exceed the limit.
    let in_flight = "portunus_range_bytes_in_flight";
    eventually("a large response", async || {
        (subject.metric(in_flight) > 1_200_000.0).then_some(())
    })
    .await;
    for _ in 0..3 {
        let large = soon("a refusal", subject.good.kv.range(everything())).await;
        let (code, text) = common::refusal(large);
        assert_eq!(code, Code::ResourceExhausted);
        assert_eq!(text, "etcdserver: too many requests");
    }
    let stream = soon("a refusal", subject.good.kv.range_stream(everything())).await;
    assert_eq!(common::refusal(stream.map(drop)).0, Code::ResourceExhausted);
    let refused = refused_requests("max-range-bytes-in-flight");
    assert_eq!(subject.metric(&refused), 4.0);
    subject.still_serves().await;
    drop(never_read);
    subject.metric_becomes(in_flight, 0.0).await;
    let large = soon("a range", subject.good.kv.range(everything())).await;
    assert_eq!(large.unwrap().into_inner().kvs.len(), 4);
    let stream = soon("a stream", subject.good.kv.range_stream(everything())).await;
    let mut stream = stream.unwrap().into_inner();
    let mut keys = 0;
    while let Some(piece) = soon("a piece", stream.message()).await.unwrap() {
        keys += piece.range_response.unwrap().kvs.len();
    }
    assert_eq!(keys, 4);
    subject.metric_becomes(in_flight, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_above_the_limit_are_refused() {
    let mut subject = Subject::start(&["--max-concurrent-snapshots=1"]).await;
    let value = "v".repeat(1 << 20);
    for number in 0..8 {
        let large = put(&format!("large/{number}"), &value);
        subject.good.kv.put(large).await.unwrap();
    }
    let mut others = subject.server.connect().await;
    let held = others
        .maintenance
        .snapshot(SnapshotRequest {})
        .await
        .unwrap();
    let refused = subject.good.maintenance.snapshot(SnapshotRequest {}).await;
    let (code, text) = common::refusal(refused.map(drop));
    assert_eq!(code, Code::ResourceExhausted, "{text}");
    assert!(text.contains("at most 1 at once"), "{text}");
    assert_eq!(subject.metric("portunus_snapshots_refused_total"), 1.0);
    subject.still_serves().await;
    drop((held, others));
    eventually("room for a snapshot", async || {
        let snapshot = subject.good.maintenance.snapshot(SnapshotRequest {}).await;
        snapshot.ok().map(drop)
    })
    .await;
}

/// Reads frames until one is a reset; returns its stream and code.
fn next_reset(stream: &mut TcpStream) -> (u32, u32) {
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).unwrap();
        if head[3] == RST_STREAM {
            let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
            return (number(&head[5..]), number(&payload));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_above_the_limit_of_a_connection_are_refused() {
    const REFUSED_STREAM: u32 = 7;
    let mut subject = Subject::start(&["--max-concurrent-streams=4"]).await;
    let headers = call_headers("/etcdserverpb.Watch/Watch");
    let mut calls = greeting();
    for number in 0..5 {
        calls.extend(frame(HEADERS, END_HEADERS, 2 * number + 1, &headers));
    }
    let mut stream = say(subject.server.address, &calls);
    assert_eq!(next_reset(&mut stream), (9, REFUSED_STREAM));
    assert_eq!(
        subject.metric("portunus_client_streams_exhausted_total"),
        1.0
    );
    subject
        .metric_becomes("etcd_debugging_mvcc_watch_stream_total", 4.0)
        .await;
    subject.still_serves().await;
}

/// Connections are limited by file descriptors as well, so the member takes all it may have.
#[tokio::test(flavor = "multi_thread")]
async fn low_limit_of_open_files_is_raised() {
    let (_guard, dir) = data_dir();
    let server = common::portunus();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", r#"ulimit -S -n 200 && exec "$0" "$@""#])
        .arg(server.get_program())
        .args(common::member_flags(&dir));
    let server = Process::spawn(&mut command).ready();
    let metrics = server.get("/metrics").body;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let files = metrics
        .lines()
        .find_map(|line| line.strip_prefix("process_max_fds "))
        .and_then(|files| files.parse::<f64>().ok());
    assert_eq!(files, Some(hard as f64));
}
