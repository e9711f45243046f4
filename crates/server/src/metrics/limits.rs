//! Refusals because of a limit, by limit. Every series exists from the start.

use prometheus::{IntCounter, IntGauge, Registry};

use super::{MetricsError, counter, counters, gauge};

/// The metrics of the connections of one kind of listener.
#[derive(Debug, Clone)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: IntGauge,
    /// Connections refused because there were too many.
    pub refused_total: IntCounter,
    /// Connections refused because there were too many from one address.
    pub refused_per_address: IntCounter,
}

impl ConnectionMetrics {
    /// Registers the metrics of a kind, with the word for it in names of metrics and flags.
    fn register(r: &Registry, kind: &str, of: &str) -> Result<ConnectionMetrics, MetricsError> {
        let refused = counters(
            r,
            &format!("portunus_{kind}_connections_refused_total"),
            &format!("Connections {of} that were refused, by the flag of the limit."),
            &["limit"],
        )?;
        let total = format!("max-{kind}-connections");
        let per_address = format!("max-{kind}-connections-per-address");
        Ok(ConnectionMetrics {
            open: gauge(
                r,
                &format!("portunus_{kind}_connections"),
                &format!("Open connections {of}."),
            )?,
            refused_total: refused.with_label_values(&[total.as_str()]),
            refused_per_address: refused.with_label_values(&[per_address.as_str()]),
        })
    }
}

/// The metrics of the limits of clients, and of the connections of peers and scrapers.
pub struct LimitMetrics {
    /// Connections of clients.
    pub client_connections: ConnectionMetrics,
    /// Connections of peers.
    pub peer_connections: ConnectionMetrics,
    /// Connections at the addresses for metrics.
    pub metrics_connections: ConnectionMetrics,
    /// Connections closed because the client sent nothing that could become a request.
    pub closed_before_first_byte: IntCounter,
    /// Requests that took the last stream of their connection.
    pub streams_exhausted: IntCounter,
    /// Connections closed because they were idle.
    pub closed_idle: IntCounter,
    /// Bytes of large range responses that wait to be sent.
    pub range_bytes_in_flight: IntGauge,
    /// Ranges refused because too many large responses wait.
    pub refused_range_bytes: IntCounter,
    /// Requests refused because their client does not read responses.
    pub refused_pending_response_bytes: IntCounter,
    /// Requests refused because of long headers.
    pub refused_header_bytes: IntCounter,
    /// Requests refused because too many from their address have no valid identity.
    pub refused_unauthenticated: IntCounter,
    /// Logins refused because too many of the user from the address have failed.
    pub refused_failed_logins: IntCounter,
    /// Logins with a wrong password or user.
    pub failed_logins: IntCounter,
}

impl LimitMetrics {
    pub(super) fn register(r: &Registry) -> Result<LimitMetrics, MetricsError> {
        let connections_closed = counters(
            r,
            "portunus_client_connections_closed_total",
            "Connections of clients that the server closed, by the flag of the limit.",
            &["limit"],
        )?;
        let requests_refused = counters(
            r,
            "portunus_client_requests_refused_total",
            "Requests of clients that were refused, by the flag of the limit.",
            &["limit"],
        )?;
        Ok(LimitMetrics {
            streams_exhausted: counter(
                r,
                "portunus_client_streams_exhausted_total",
                "Requests that took the last stream that their connection may have.",
            )?,
            range_bytes_in_flight: gauge(
                r,
                "portunus_range_bytes_in_flight",
                "Bytes of large range responses that wait to be sent.",
            )?,
            refused_range_bytes: requests_refused.with_label_values(&["max-range-bytes-in-flight"]),
            refused_pending_response_bytes: requests_refused
                .with_label_values(&["max-pending-response-bytes"]),
            refused_header_bytes: requests_refused.with_label_values(&["max-header-bytes"]),
            refused_unauthenticated: requests_refused
                .with_label_values(&["max-unauthenticated-requests"]),
            refused_failed_logins: requests_refused.with_label_values(&["max-failed-logins"]),
            failed_logins: counter(
                r,
                "portunus_failed_logins_total",
                "Logins with a wrong password or user.",
            )?,
            client_connections: ConnectionMetrics::register(r, "client", "of clients")?,
            peer_connections: ConnectionMetrics::register(r, "peer", "of peers")?,
            metrics_connections: ConnectionMetrics::register(
                r,
                "metrics",
                "at the addresses for metrics",
            )?,
            closed_before_first_byte: connections_closed
                .with_label_values(&["client-first-byte-timeout"]),
            closed_idle: connections_closed.with_label_values(&["client-idle-timeout"]),
        })
    }
}
