//! Every limit of the product: what it bounds, its flag or its constant, what happens at it, and
//! the metric that shows it. `docs/limits.md` is generated from this table.
//!
//! A value is the one that is enforced: a flag's default comes from the table of flags, a
//! constant from the code that uses it.

use std::time::Duration;

use portunus_mvcc::lease::TTL_S_MAX;
use portunus_mvcc::rules::validate::TXN_DEPTH_MAX;
use portunus_mvcc::watch::Limits as WatchLimits;
use portunus_proto::wire;

use crate::handles::admission::{FILES_PER_PEER_CONNECTION, RESERVED_FILES};
use crate::handles::hashing::HASHES_MAX;
use crate::handles::passwords;
use crate::handles::range_budget::LARGE_BYTES;
use crate::proposals::APPLY_BACKLOG_MAX;
use crate::{grpc, http, listen, log_throttle, peers, serve};

/// The value of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// The flag with this name.
    Flag(&'static str),
    /// A value that is not configurable.
    Fixed(String),
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub name: &'static str,
    /// Its value.
    pub setting: Setting,
    /// What happens at the limit.
    pub effect: String,
    /// The metric that shows it; empty if none does.
    pub metric: &'static str,
}

/// The limits of one concern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The concern.
    pub title: &'static str,
    /// Its limits.
    pub limits: Vec<Limit>,
}

fn flag(
    name: &'static str,
    flag: &'static str,
    effect: impl Into<String>,
    metric: &'static str,
) -> Limit {
    Limit {
        name,
        setting: Setting::Flag(flag),
        effect: effect.into(),
        metric,
    }
}

fn fixed(
    name: &'static str,
    value: impl Into<String>,
    effect: impl Into<String>,
    metric: &'static str,
) -> Limit {
    Limit {
        name,
        setting: Setting::Fixed(value.into()),
        effect: effect.into(),
        metric,
    }
}

const CONNECTIONS_REFUSED: &str = "portunus_client_connections_refused_total";
const PEERS_REFUSED: &str = "portunus_peer_connections_refused_total";
const SCRAPERS_REFUSED: &str = "portunus_metrics_connections_refused_total";
const CONNECTIONS_CLOSED: &str = "portunus_client_connections_closed_total";
const REQUESTS_REFUSED: &str = "portunus_client_requests_refused_total";
const TLS_REJECTED: &str = "portunus_tls_rejected_connections_total";
const WATCHES_REFUSED: &str = "portunus_watches_refused_total";
const HANDLED: &str = "grpc_server_handled_total";
const EXHAUSTED: &str = "`RESOURCE_EXHAUSTED`";

/// Returns every limit.
#[must_use]
pub fn groups() -> Vec<Group> {
    vec![
        Group {
            title: "Connections of clients",
            limits: connections(),
        },
        Group {
            title: "Connections of peers and for metrics",
            limits: other_connections(),
        },
        Group {
            title: "Requests",
            limits: requests(),
        },
        Group {
            title: "Users",
            limits: users(),
        },
        Group {
            title: "Reads",
            limits: reads(),
        },
        Group {
            title: "Watches",
            limits: watches(),
        },
        Group {
            title: "Storage and leases",
            limits: storage(),
        },
        Group {
            title: "Members",
            limits: members(),
        },
    ]
}

fn connections() -> Vec<Limit> {
    let files = RESERVED_FILES;
    let interval = seconds(log_throttle::INTERVAL);
    vec![
        flag(
            "open connections",
            "max-client-connections",
            format!(
                "a further one is closed, with at most one log line in {interval}; never more than the file descriptors of the process less {files} and less the connections that peers and scrapers may have"
            ),
            CONNECTIONS_REFUSED,
        ),
        flag(
            "open connections from one IPv4 address or one 64-bit prefix of IPv6 addresses",
            "max-client-connections-per-address",
            format!("a further one is closed, with at most one log line in {interval}"),
            CONNECTIONS_REFUSED,
        ),
        fixed(
            "time of a TLS handshake",
            seconds(listen::HANDSHAKE_TIMEOUT),
            "the connection is closed",
            TLS_REJECTED,
        ),
        fixed(
            "accepted connections that wait for a serving thread",
            serve::CONNECTIONS_QUEUED_MAX.to_string(),
            "no further one is accepted until one is served",
            "",
        ),
        flag(
            "open streams of a connection",
            "max-concurrent-streams",
            "clients wait; a stream of a client that does not is reset with `REFUSED_STREAM`",
            "portunus_client_streams_exhausted_total",
        ),
        flag(
            "time until a new connection has sent the preface of HTTP/2 or the head of a request",
            "client-first-byte-timeout",
            "the connection is closed",
            CONNECTIONS_CLOSED,
        ),
        flag(
            "time without an open request or stream",
            "client-idle-timeout",
            "the connection is closed with `GOAWAY`, at most a quarter of the time late; clients connect again",
            CONNECTIONS_CLOSED,
        ),
        flag(
            "time without any sign of a client, before it is pinged",
            "grpc-keepalive-interval",
            "a ping is sent",
            "",
        ),
        flag(
            "time for the answer to a ping",
            "grpc-keepalive-timeout",
            "the connection is closed",
            "",
        ),
        flag(
            "bytes of the headers of a request, and 32 for each",
            "max-header-bytes",
            format!(
                "{EXHAUSTED}, or status 429 without gRPC; above twice the limit the HTTP library refuses with status 431"
            ),
            REQUESTS_REFUSED,
        ),
        flag(
            "bytes of responses that the client of a connection has not read",
            "max-pending-response-bytes",
            format!("{EXHAUSTED} for further requests of the connection"),
            REQUESTS_REFUSED,
        ),
    ]
}

fn other_connections() -> Vec<Limit> {
    let interval = seconds(log_throttle::INTERVAL);
    let closed = format!("a further one is closed, with at most one log line in {interval}");
    let within_share = format!(
        "{closed}; never more than 1/{} of the file descriptors of the process",
        FILES_PER_PEER_CONNECTION
    );
    vec![
        flag(
            "open connections of peers",
            "max-peer-connections",
            within_share.clone(),
            PEERS_REFUSED,
        ),
        flag(
            "open connections of peers from one IPv4 address or one 64-bit prefix of IPv6 addresses",
            "max-peer-connections-per-address",
            closed.clone(),
            PEERS_REFUSED,
        ),
        flag(
            "open connections at `--listen-metrics-urls`",
            "max-metrics-connections",
            within_share,
            SCRAPERS_REFUSED,
        ),
        flag(
            "open connections at `--listen-metrics-urls` from one IPv4 address or one 64-bit prefix of IPv6 addresses",
            "max-metrics-connections-per-address",
            closed,
            SCRAPERS_REFUSED,
        ),
        fixed(
            "time for the head of a request at `--listen-metrics-urls`",
            seconds(serve::METRICS_HEADER_WAIT_MAX),
            "the connection is closed",
            "",
        ),
    ]
}

fn users() -> Vec<Limit> {
    let (running, waiting) = ("half of the cores", passwords::WAITING_MAX);
    vec![
        flag(
            "requests per second without a valid user from one address, while authentication is enabled",
            "max-unauthenticated-requests",
            format!("{EXHAUSTED} `etcdserver: too many requests`"),
            REQUESTS_REFUSED,
        ),
        flag(
            "failed logins of one user from one address at once; then one per second",
            "max-failed-logins",
            format!(
                "{EXHAUSTED} `etcdserver: too many requests`, before the password is compared; other addresses can log in"
            ),
            REQUESTS_REFUSED,
        ),
        fixed(
            "passwords that are hashed or compared at once",
            format!("{running}, and {waiting} wait"),
            format!("{EXHAUSTED} `etcdserver: too many requests`"),
            HANDLED,
        ),
        fixed(
            "bytes of a signed token",
            bytes(portunus_auth::jwt::TOKEN_BYTES_MAX),
            "`UNAUTHENTICATED` `etcdserver: invalid auth token`",
            HANDLED,
        ),
    ]
}

fn requests() -> Vec<Limit> {
    let added = wire::grpc_receive_bytes_max(0);
    vec![
        flag(
            "bytes of a request in the log",
            "max-request-bytes",
            "`INVALID_ARGUMENT` `etcdserver: request is too large`",
            HANDLED,
        ),
        fixed(
            "bytes of a message from a client",
            format!("`--max-request-bytes` and {}", bytes(added)),
            format!("{EXHAUSTED} before the message is read"),
            HANDLED,
        ),
        fixed(
            "time of a request",
            "`grpc-timeout` of the request",
            "`DEADLINE_EXCEEDED`, at most 250 ms late; what was not proposed yet is not proposed",
            HANDLED,
        ),
        fixed(
            "time until a request is applied or a read has its index",
            "5 s and two `--election-timeout`",
            "`UNAVAILABLE` `etcdserver: request timed out`",
            "etcd_server_proposals_failed_total",
        ),
        flag(
            "operations of a transaction, at each level",
            "max-txn-ops",
            "`INVALID_ARGUMENT` `etcdserver: too many operations in txn request`",
            HANDLED,
        ),
        fixed(
            "levels of nested transactions",
            TXN_DEPTH_MAX.to_string(),
            "the request is refused",
            HANDLED,
        ),
        fixed(
            "committed entries that are not applied yet",
            APPLY_BACKLOG_MAX.to_string(),
            "`UNKNOWN` `etcdserver: too many requests`, as in etcd",
            "etcd_server_proposals_pending",
        ),
    ]
}

fn reads() -> Vec<Limit> {
    vec![
        flag(
            "bytes of large range responses that wait for their clients, over all clients",
            "max-range-bytes-in-flight",
            format!(
                "{EXHAUSTED} `etcdserver: too many requests` for a response of {} or more, unless it is the only one; an open range stream counts as `--max-request-bytes`",
                bytes(LARGE_BYTES)
            ),
            REQUESTS_REFUSED,
        ),
        fixed(
            "bytes of a response",
            bytes(wire::RESPONSE_BYTES_MAX),
            EXHAUSTED,
            HANDLED,
        ),
        flag(
            "snapshots sent at once",
            "max-concurrent-snapshots",
            EXHAUSTED,
            "portunus_snapshots_refused_total",
        ),
        fixed(
            "time in which the client of a snapshot takes nothing",
            seconds(grpc::SNAPSHOT_STALL_MAX),
            "`UNAVAILABLE` instead of the rest",
            HANDLED,
        ),
        fixed(
            "hashes computed at once, for clients and again for peers",
            HASHES_MAX.to_string(),
            EXHAUSTED,
            "portunus_hashes_refused_total",
        ),
    ]
}

fn watches() -> Vec<Limit> {
    let limits = WatchLimits::default();
    vec![
        flag(
            "watches on a stream",
            "max-watches-per-stream",
            "the watch is cancelled with `etcdserver: too many requests`",
            WATCHES_REFUSED,
        ),
        flag(
            "watches on all streams of a connection",
            "max-watches-per-connection",
            "the watch is cancelled with `etcdserver: too many requests`",
            WATCHES_REFUSED,
        ),
        fixed(
            "responses of a stream that wait for its client",
            limits.responses_max.to_string(),
            "the watches lag and read history once the client reads; no event is lost",
            "etcd_debugging_mvcc_slow_watcher_total",
        ),
        fixed(
            "bytes of events of a stream that wait for its client",
            bytes(limits.bytes_max),
            "the watches lag and read history once the client reads; no event is lost",
            "etcd_debugging_mvcc_slow_watcher_total",
        ),
        fixed(
            "unread answers to requests on a stream",
            limits.answers_max.to_string(),
            "no further request of the stream is read until the client reads",
            "",
        ),
    ]
}

fn storage() -> Vec<Limit> {
    vec![
        flag(
            "bytes of the backend (0: 2 GiB)",
            "quota-backend-bytes",
            "alarm `NOSPACE`; writes are refused with `RESOURCE_EXHAUSTED` `etcdserver: mvcc: database space exceeded`",
            "etcd_server_quota_backend_bytes",
        ),
        flag(
            "bytes of values in memory",
            "resident-value-bytes",
            "values are read from the backend",
            "",
        ),
        fixed(
            "seconds of a lease",
            TTL_S_MAX.to_string(),
            "`OUT_OF_RANGE` `etcdserver: too large lease TTL`",
            HANDLED,
        ),
    ]
}

fn members() -> Vec<Limit> {
    vec![
        flag(
            "learners of a cluster",
            "max-learners",
            "`FAILED_PRECONDITION` `etcdserver: too many learner members in cluster`",
            HANDLED,
        ),
        fixed(
            "time for the head of a request of a peer",
            seconds(peers::HEADER_WAIT_MAX),
            "the connection is closed",
            "",
        ),
        fixed(
            "bytes of a request of a peer, other than messages of raft",
            bytes(http::peers::BODY_BYTES_MAX),
            "status 413",
            "",
        ),
        fixed(
            "bytes of an answer of a peer",
            bytes(peers::ask::ANSWER_BYTES_MAX),
            "the answer is not read further",
            "",
        ),
        flag(
            "silence of a peer's stream",
            "raft-read-timeout",
            "the connection is closed and opened again",
            "",
        ),
        flag(
            "time in which a peer takes nothing",
            "raft-write-timeout",
            "the connection is closed and opened again",
            "",
        ),
    ]
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn bytes(count: usize) -> String {
    match count {
        _ if count.is_multiple_of(1 << 20) => format!("{} MiB", count >> 20),
        _ if count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        _ => format!("{count} bytes"),
    }
}
