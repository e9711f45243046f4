//! RPCs by method and outcome, under the names of Go's gRPC library; slow ones are logged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use tonic::Code;

use super::MetricsError;
use super::slow_requests::SlowRequests;

const UNARY: &str = "unary";
const SERVER_STREAM: &str = "server_stream";
const BIDI_STREAM: &str = "bidi_stream";

/// Every method that has series: service, method, kind.
const METHODS: &[(&str, &str, &str)] = &[
    ("etcdserverpb.KV", "Range", UNARY),
    ("etcdserverpb.KV", "RangeStream", SERVER_STREAM),
    ("etcdserverpb.KV", "Put", UNARY),
    ("etcdserverpb.KV", "DeleteRange", UNARY),
    ("etcdserverpb.KV", "Txn", UNARY),
    ("etcdserverpb.KV", "Compact", UNARY),
    ("etcdserverpb.Watch", "Watch", BIDI_STREAM),
    ("etcdserverpb.Lease", "LeaseGrant", UNARY),
    ("etcdserverpb.Lease", "LeaseRevoke", UNARY),
    ("etcdserverpb.Lease", "LeaseKeepAlive", BIDI_STREAM),
    ("etcdserverpb.Lease", "LeaseTimeToLive", UNARY),
    ("etcdserverpb.Lease", "LeaseLeases", UNARY),
    ("etcdserverpb.Cluster", "MemberAdd", UNARY),
    ("etcdserverpb.Cluster", "MemberRemove", UNARY),
    ("etcdserverpb.Cluster", "MemberUpdate", UNARY),
    ("etcdserverpb.Cluster", "MemberList", UNARY),
    ("etcdserverpb.Cluster", "MemberPromote", UNARY),
    ("etcdserverpb.Maintenance", "Alarm", UNARY),
    ("etcdserverpb.Maintenance", "Status", UNARY),
    ("etcdserverpb.Maintenance", "Defragment", UNARY),
    ("etcdserverpb.Maintenance", "Hash", UNARY),
    ("etcdserverpb.Maintenance", "HashKV", UNARY),
    ("etcdserverpb.Maintenance", "Snapshot", SERVER_STREAM),
    ("etcdserverpb.Maintenance", "MoveLeader", UNARY),
    ("etcdserverpb.Maintenance", "Downgrade", UNARY),
    ("etcdserverpb.Maintenance", "FeatureGateStatus", UNARY),
    ("grpc.health.v1.Health", "Check", UNARY),
    ("grpc.health.v1.Health", "Watch", SERVER_STREAM),
];

/// Codes and their names in Go's library.
const CODES: [(Code, &str); 17] = [
    (Code::Ok, "OK"),
    (Code::Cancelled, "Canceled"),
    (Code::Unknown, "Unknown"),
    (Code::InvalidArgument, "InvalidArgument"),
    (Code::DeadlineExceeded, "DeadlineExceeded"),
    (Code::NotFound, "NotFound"),
    (Code::AlreadyExists, "AlreadyExists"),
    (Code::PermissionDenied, "PermissionDenied"),
    (Code::ResourceExhausted, "ResourceExhausted"),
    (Code::FailedPrecondition, "FailedPrecondition"),
    (Code::Aborted, "Aborted"),
    (Code::OutOfRange, "OutOfRange"),
    (Code::Unimplemented, "Unimplemented"),
    (Code::Internal, "Internal"),
    (Code::Unavailable, "Unavailable"),
    (Code::DataLoss, "DataLoss"),
    (Code::Unauthenticated, "Unauthenticated"),
];

/// The name of a code in Go's library.
pub(super) fn code_name(code: Code) -> &'static str {
    let found = CODES.iter().find(|(known, _)| *known == code);
    found.map_or("Unknown", |(_, name)| name)
}

struct Method {
    /// Service and method, as in a request's path.
    path: String,
    /// Logs slow requests; only of unary methods, because streams may last.
    slow: Option<Arc<SlowRequests>>,
    started: IntCounter,
    handled: [IntCounter; CODES.len()],
    /// Only with `--metrics=extensive`: it has many series.
    handling_seconds: Option<Histogram>,
}

/// The metrics `grpc_server_*`: every series exists from the start, so counting is one addition.
pub struct RpcMetrics {
    by_path: HashMap<String, Arc<Method>>,
    /// Bytes from clients.
    pub received_bytes: IntCounter,
    /// Bytes to clients.
    pub sent_bytes: IntCounter,
}

impl RpcMetrics {
    pub(super) fn register(
        registry: &Registry,
        extensive: bool,
        slow_after: Duration,
    ) -> Result<RpcMetrics, MetricsError> {
        let slow = Arc::new(SlowRequests::new(slow_after));
        const LABELS: [&str; 3] = ["grpc_type", "grpc_service", "grpc_method"];
        let started = IntCounterVec::new(
            Opts::new("grpc_server_started_total", "RPCs started."),
            &LABELS,
        )?;
        let handled = IntCounterVec::new(
            Opts::new("grpc_server_handled_total", "RPCs completed, by code."),
            &["grpc_code", "grpc_type", "grpc_service", "grpc_method"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new("grpc_server_handling_seconds", "Time until RPCs completed."),
            &LABELS,
        )?;
        registry.register(Box::new(started.clone()))?;
        registry.register(Box::new(handled.clone()))?;
        if extensive {
            registry.register(Box::new(seconds.clone()))?;
        }
        let methods = METHODS.iter().map(|(service, method, kind)| {
            let labels = [*kind, *service, *method];
            let path = format!("/{service}/{method}");
            let counters = Method {
                path: path.clone(),
                slow: (*kind == UNARY).then(|| Arc::clone(&slow)),
                started: started.with_label_values(&labels),
                handled: CODES
                    .map(|(_, code)| handled.with_label_values(&[code, kind, service, method])),
                handling_seconds: extensive.then(|| seconds.with_label_values(&labels)),
            };
            (path, Arc::new(counters))
        });
        Ok(RpcMetrics {
            by_path: methods.collect(),
            received_bytes: super::counter(
                registry,
                "etcd_network_client_grpc_received_bytes_total",
                "Bytes received from clients.",
            )?,
            sent_bytes: super::counter(
                registry,
                "etcd_network_client_grpc_sent_bytes_total",
                "Bytes sent to clients.",
            )?,
        })
    }

    /// Counts the start of a request; `None` if its path is not a known method.
    pub fn start(&self, path: &str) -> Option<Running> {
        let method = self.by_path.get(path)?;
        method.started.inc();
        Some(Running {
            started: Instant::now(),
            method: Arc::clone(method),
            is_over: false,
        })
    }
}

/// A request under way. Dropped before its end, it counts as cancelled by the client.
pub struct Running {
    method: Arc<Method>,
    started: Instant,
    is_over: bool,
}

impl Running {
    /// Returns when the request started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Records that the request ended with this code.
    pub fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if let Some(counter) = self.method.handled.get(code as usize) {
            counter.inc();
        }
        let took = self.started.elapsed();
        if let Some(histogram) = &self.method.handling_seconds {
            histogram.observe(took.as_secs_f64());
        }
        if let Some(slow) = &self.method.slow {
            slow.ended(&self.method.path, code, took);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_the_order_of_their_numbers() {
        for (number, (code, _)) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, number);
        }
    }

    #[test]
    fn request_is_counted_once_with_every_outcome() {
        let registry = Registry::new();
        let metrics = RpcMetrics::register(&registry, true, Duration::ZERO).unwrap();
        let method = &metrics.by_path["/etcdserverpb.KV/Put"];
        let mut running = metrics.start("/etcdserverpb.KV/Put").unwrap();
        running.end(Code::Ok);
        running.end(Code::Internal);
        drop(running);
        drop(metrics.start("/etcdserverpb.KV/Put"));
        let count = |code: Code| method.handled[code as usize].get();
        assert_eq!(method.started.get(), 2);
        assert_eq!((count(Code::Ok), count(Code::Cancelled)), (1, 1));
        assert_eq!(count(Code::Internal), 0);
        assert!(metrics.start("/health").is_none());
    }
}
