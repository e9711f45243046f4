//! Requests by kind and by the release line of the client, counted without a lookup.

use std::sync::OnceLock;

use portunus_gates::Version;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

use super::MetricsError;

/// Release lines of etcd 3 with a label of their own. All other versions share one label, so that
/// clients cannot create any number of series.
const MINORS_MAX: usize = 100;

/// Whether a request is unary or a stream.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// One request message, one response.
    Unary,
    /// Any number of messages, in one direction or both.
    Stream,
}

/// The metric `etcd_server_client_requests_total`.
pub struct ClientRequests {
    family: IntCounterVec,
    /// By kind, then by minor version; the last is "unknown".
    counters: [[OnceLock<IntCounter>; MINORS_MAX + 1]; 2],
}

impl ClientRequests {
    pub(super) fn register(registry: &Registry) -> Result<ClientRequests, MetricsError> {
        let options = Opts::new(
            "etcd_server_client_requests_total",
            "Requests by type and client version.",
        );
        let family = IntCounterVec::new(options, &["type", "client_api_version"])?;
        registry.register(Box::new(family.clone()))?;
        let none = || std::array::from_fn(|_| OnceLock::new());
        Ok(ClientRequests {
            family,
            counters: [none(), none()],
        })
    }

    /// Counts one request of a client with this version, or without one.
    pub fn count(&self, kind: Kind, version: Option<&str>) {
        let line = version.and_then(minor).unwrap_or(MINORS_MAX);
        let (counters, kind) = match kind {
            Kind::Unary => (&self.counters[0], "unary"),
            Kind::Stream => (&self.counters[1], "stream"),
        };
        let counter = counters[line].get_or_init(|| match line {
            MINORS_MAX => self.family.with_label_values(&[kind, "unknown"]),
            minor => {
                let line = format!("3.{minor}");
                self.family.with_label_values(&[kind, line.as_str()])
            }
        });
        counter.inc();
    }
}

/// The minor version of an etcd 3 client.
fn minor(version: &str) -> Option<usize> {
    let line = Version::parse(version).ok()?.major_minor();
    let minor = usize::try_from(line.minor()).ok()?;
    (line.major() == 3 && minor < MINORS_MAX).then_some(minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_versions_are_counted_by_minor_with_a_bounded_number_of_series() {
        let registry = Registry::new();
        let requests = ClientRequests::register(&registry).unwrap();
        for version in ["3.7.1", "3.7.0", "3.101.0", "2.3.4", "no version"] {
            requests.count(Kind::Unary, Some(version));
        }
        requests.count(Kind::Stream, None);
        let count = |kind, line| requests.family.with_label_values(&[kind, line]).get();
        assert_eq!(count("unary", "3.7"), 2);
        assert_eq!(count("unary", "unknown"), 3);
        assert_eq!(count("stream", "unknown"), 1);
    }
}
