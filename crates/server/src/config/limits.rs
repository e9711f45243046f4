//! Limits of what clients and peers may use, with the meaning of zero: no limit.

use std::time::Duration;

use super::checks::Checks;
use super::{Values, duration, number};

/// The limits of the connections of one kind of listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Open connections.
    pub connections_max: usize,
    /// Open connections from one address.
    pub per_address_max: usize,
}

impl ConnectionLimits {
    pub(super) fn of_peers(values: &Values, checks: &mut Checks) -> Option<ConnectionLimits> {
        let per_address = "max-peer-connections-per-address";
        ConnectionLimits::of(values, checks, "max-peer-connections", per_address)
    }

    pub(super) fn of_metrics(values: &Values, checks: &mut Checks) -> Option<ConnectionLimits> {
        let per_address = "max-metrics-connections-per-address";
        ConnectionLimits::of(values, checks, "max-metrics-connections", per_address)
    }

    fn of(
        values: &Values,
        checks: &mut Checks,
        total: &'static str,
        per_address: &'static str,
    ) -> Option<ConnectionLimits> {
        let mut count = |flag| checks.ok(number(values, flag)).map(or_unlimited);
        let connections_max = count(total);
        let per_address_max = count(per_address);
        Some(ConnectionLimits {
            connections_max: connections_max?,
            per_address_max: per_address_max?,
        })
    }
}

/// The limits of clients. `docs/limits.md` lists them with the other limits of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Open connections.
    pub connections: ConnectionLimits,
    /// Watches on one stream.
    pub watches_per_stream_max: usize,
    /// Watches on all streams of one connection.
    pub watches_per_connection_max: usize,
    /// Snapshots sent at once.
    pub snapshots_max: usize,
    /// Bytes of large range responses that wait to be sent, over all clients.
    pub range_bytes_max: usize,
    /// Bytes of responses that wait to be sent on one connection before its requests are refused.
    pub pending_response_bytes_max: usize,
    /// Bytes of the headers of a request, each with the 32 bytes that HTTP/2 adds.
    pub header_bytes_max: usize,
    /// Requests per second without a valid identity from one address; zero: no limit.
    pub unauthenticated_requests_max: u32,
    /// Failed logins of one user from one address at once; zero: no limit.
    pub failed_logins_max: u32,
    /// A connection that has not begun to speak HTTP after this time is closed; zero: never.
    pub first_byte_timeout: Duration,
    /// A connection without a request for this long is closed; zero: never.
    pub idle_timeout: Duration,
}

impl ClientLimits {
    pub(super) fn of(values: &Values, checks: &mut Checks) -> Option<ClientLimits> {
        let per_address = "max-client-connections-per-address";
        let connections =
            ConnectionLimits::of(values, checks, "max-client-connections", per_address);
        let mut count = |flag| checks.ok(number(values, flag)).map(or_unlimited);
        let watches_per_stream_max = count("max-watches-per-stream");
        let watches_per_connection_max = count("max-watches-per-connection");
        let snapshots_max = count("max-concurrent-snapshots");
        let range_bytes_max = count("max-range-bytes-in-flight");
        let pending_response_bytes_max = count("max-pending-response-bytes");
        let header_bytes_max = count("max-header-bytes");
        let unauthenticated_requests_max =
            checks.ok(number(values, "max-unauthenticated-requests"));
        let failed_logins_max = checks.ok(number(values, "max-failed-logins"));
        let mut time = |flag| checks.ok(duration(values, flag));
        let first_byte_timeout = time("client-first-byte-timeout");
        let idle_timeout = time("client-idle-timeout");
        Some(ClientLimits {
            connections: connections?,
            watches_per_stream_max: watches_per_stream_max?,
            watches_per_connection_max: watches_per_connection_max?,
            snapshots_max: snapshots_max?,
            range_bytes_max: range_bytes_max?,
            pending_response_bytes_max: pending_response_bytes_max?,
            header_bytes_max: header_bytes_max?,
            unauthenticated_requests_max: unauthenticated_requests_max?,
            failed_logins_max: failed_logins_max?,
            first_byte_timeout: first_byte_timeout?,
            idle_timeout: idle_timeout?,
        })
    }
}

fn or_unlimited(count: usize) -> usize {
    match count {
        0 => usize::MAX,
        count => count,
    }
}
