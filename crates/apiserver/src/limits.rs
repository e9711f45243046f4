//! How many requests are served at a time, how long one may take, and how large its body may be.
//!
//! As in kube-apiserver, reads and writes have limits of their own, so that neither starves the
//! other. Requests that last as long as the client wants, such as watches, do not count among
//! the reads; they have a third limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use prometheus::IntGauge;

use crate::body::{Body, full_body};
use crate::metrics::Metrics;
use crate::request::RequestInfo;

/// The largest body of a request. A larger one is answered with 413.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The default of `--max-requests-inflight`.
pub const READS_MAX: usize = 400;
/// The default of `--max-mutating-requests-inflight`.
pub const WRITES_MAX: usize = 200;
/// The default of `--max-longrunning-requests`.
pub const LONG_RUNNING_MAX: usize = 10_000;
/// The default of `--request-timeout`.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// What a client is told to wait before it tries again.
const RETRY_AFTER_S: &str = "1";
const TOO_MANY_TEXT: &str = "Too many requests, please try again later.\n";

/// The values of the flags. A limit of 0 is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitOptions {
    /// `--max-requests-inflight`
    pub reads_max: usize,
    /// `--max-mutating-requests-inflight`
    pub writes_max: usize,
    /// `--max-longrunning-requests`
    pub long_running_max: usize,
    /// `--request-timeout`; requests that last as long as the client wants have none.
    pub request_timeout: Duration,
}

impl Default for LimitOptions {
    fn default() -> LimitOptions {
        LimitOptions {
            reads_max: READS_MAX,
            writes_max: WRITES_MAX,
            long_running_max: LONG_RUNNING_MAX,
            request_timeout: REQUEST_TIMEOUT,
        }
    }
}

/// The requests in flight. Clones share the counts.
#[derive(Debug, Clone)]
pub struct Limits {
    reads: Arc<Class>,
    writes: Arc<Class>,
    long_running: Arc<Class>,
    request_timeout: Duration,
}

/// The requests of one kind.
#[derive(Debug)]
struct Class {
    max: usize,
    count: AtomicUsize,
    /// Shows the count; the long-running requests have a metric of their own.
    gauge: Option<IntGauge>,
}

/// A request in flight. Dropping it makes room for another; the body of a watch holds it.
#[derive(Debug)]
pub struct Permit {
    class: Arc<Class>,
}

/// There are as many requests of a kind in flight as allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRequests;

impl Limits {
    /// Creates the limits. The metrics show the requests in flight.
    #[must_use]
    pub fn new(options: &LimitOptions, metrics: &Metrics) -> Limits {
        let class = |max: usize, gauge: Option<IntGauge>| {
            Arc::new(Class {
                max: match max {
                    0 => usize::MAX,
                    max => max,
                },
                count: AtomicUsize::new(0),
                gauge,
            })
        };
        Limits {
            reads: class(options.reads_max, Some(metrics.in_flight_reads())),
            writes: class(options.writes_max, Some(metrics.in_flight_writes())),
            long_running: class(options.long_running_max, None),
            request_timeout: options.request_timeout,
        }
    }

    /// Admits a request.
    ///
    /// # Errors
    /// If too many of its kind are in flight.
    pub fn admit(&self, request: &RequestInfo) -> Result<Permit, TooManyRequests> {
        let class = match (request.is_long_running(), request.is_read_only()) {
            (true, _) => &self.long_running,
            (false, true) => &self.reads,
            (false, false) => &self.writes,
        };
        let another = |count: usize| (count < class.max).then_some(count + 1);
        let admitted = class
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, another);
        if admitted.is_err() {
            return Err(TooManyRequests);
        }
        if let Some(gauge) = &class.gauge {
            gauge.inc();
        }
        Ok(Permit {
            class: Arc::clone(class),
        })
    }

    /// Returns how long a request may take that is not long-running.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.class.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(gauge) = &self.class.gauge {
            gauge.dec();
        }
    }
}

impl TooManyRequests {
    /// Returns the answer, which is plain text as in kube-apiserver.
    #[must_use]
    pub fn response(self) -> Response<Body> {
        let mut response = Response::new(full_body(TOO_MANY_TEXT));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let headers = response.headers_mut();
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, plain);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        response
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    fn request(method: &Method, query: &str) -> RequestInfo {
        RequestInfo::parse(method, "/apis/g/v1/things", &Query::parse(query)).unwrap()
    }

    fn limits(max: [usize; 3]) -> Limits {
        let options = LimitOptions {
            reads_max: max[0],
            writes_max: max[1],
            long_running_max: max[2],
            ..LimitOptions::default()
        };
        Limits::new(&options, &Metrics::new())
    }

    #[test]
    fn each_kind_of_request_has_its_own_limit() {
        let limits = limits([2, 1, 1]);
        let (list, create) = (request(&Method::GET, ""), request(&Method::POST, ""));
        let watch = request(&Method::GET, "watch=true");
        let first = limits.admit(&list).unwrap();
        let _second = limits.admit(&list).unwrap();
        assert_eq!(limits.admit(&list).unwrap_err(), TooManyRequests);
        let _write = limits.admit(&create).unwrap();
        assert!(limits.admit(&create).is_err());
        let _watch = limits.admit(&watch).unwrap();
        assert!(limits.admit(&watch).is_err());
        drop(first);
        let _third = limits.admit(&list).unwrap();
        assert!(limits.admit(&list).is_err());
    }

    #[test]
    fn zero_is_no_limit_and_the_gauge_shows_the_requests() {
        let metrics = Metrics::new();
        let options = LimitOptions {
            reads_max: 0,
            ..LimitOptions::default()
        };
        let limits = Limits::new(&options, &metrics);
        let list = request(&Method::GET, "");
        let permits: Vec<Permit> = (0..1000).map(|_| limits.admit(&list).unwrap()).collect();
        assert_eq!(metrics.in_flight_reads().get(), 1000);
        drop(permits);
        assert_eq!(metrics.in_flight_reads().get(), 0);
    }

    #[test]
    fn refusal_tells_when_to_try_again() {
        let response = TooManyRequests.response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }
}
