//! The end of connections whose client does nothing.
//!
//! One timer per connection fires a few times an hour; requests touch no timer.

use std::time::Duration;

use tokio::time::sleep;

use crate::config::ClientLimits;
use crate::handles::connections::Connection;

/// The length of the preface of HTTP/2. A connection that has sent less has not begun.
const PREFACE_BYTES: usize = 24;

/// Looks at a connection per idle timeout. A connection is closed at most one look late.
const LOOKS: u32 = 4;

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// The client has not begun to speak HTTP.
    BeforeFirstByte,
    /// There was no request for the idle timeout.
    Idle,
}

/// Waits until the connection has to be closed.
pub(super) async fn expired(limits: &ClientLimits, connection: &Connection) -> Expired {
    tokio::select! {
        () = does_not_begin(limits.first_byte_timeout, connection) => Expired::BeforeFirstByte,
        () = is_idle(limits.idle_timeout, connection) => Expired::Idle,
    }
}

/// Returns at the timeout if the client has not begun by then, else never.
async fn does_not_begin(timeout: Duration, connection: &Connection) {
    if !timeout.is_zero() {
        sleep(timeout).await;
        if connection.received_bytes() < PREFACE_BYTES && connection.requests_started() == 0 {
            return;
        }
    }
    std::future::pending().await
}

/// Returns once there was no request for the timeout.
async fn is_idle(timeout: Duration, connection: &Connection) {
    if timeout.is_zero() {
        return std::future::pending().await;
    }
    let interval = (timeout / LOOKS).max(Duration::from_millis(1));
    let mut requests = connection.requests_started();
    let mut quiet_looks = 0;
    while quiet_looks < LOOKS {
        sleep(interval).await;
        let started = connection.requests_started();
        if connection.has_open_requests() || started != requests {
            quiet_looks = 0;
        } else {
            quiet_looks += 1;
        }
        requests = started;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::config::ConnectionLimits;
    use portunus_mvcc::watch::ConnectionId;
    use tokio::time::Instant;

    use super::*;

    const FIRST_BYTE: Duration = Duration::from_secs(60);
    const IDLE: Duration = Duration::from_secs(3600);

    fn limits() -> ClientLimits {
        ClientLimits {
            unauthenticated_requests_max: 0,
            failed_logins_max: 0,
            connections: ConnectionLimits {
                connections_max: 1,
                per_address_max: 1,
            },
            watches_per_stream_max: 1,
            watches_per_connection_max: 1,
            snapshots_max: 1,
            range_bytes_max: 1,
            pending_response_bytes_max: 1,
            header_bytes_max: 1,
            first_byte_timeout: FIRST_BYTE,
            idle_timeout: IDLE,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_a_preface_is_closed_at_the_first_byte_timeout() {
        let started = Instant::now();
        let connection = Connection::new(ConnectionId(1));
        connection.received(PREFACE_BYTES - 1);
        assert_eq!(
            expired(&limits(), &connection).await,
            Expired::BeforeFirstByte
        );
        assert_eq!(started.elapsed().as_secs(), FIRST_BYTE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_closed_and_one_with_a_stream_stays() {
        let started = Instant::now();
        let connection = Arc::new(Connection::new(ConnectionId(1)));
        connection.received(PREFACE_BYTES);
        assert_eq!(expired(&limits(), &connection).await, Expired::Idle);
        let idle = started.elapsed();
        assert!(idle >= IDLE && idle <= IDLE + IDLE / 2, "{idle:?}");

        let stream = connection.start_request();
        let limits = limits();
        let mut waiting = Box::pin(expired(&limits, &connection));
        let day = tokio::time::timeout(24 * IDLE, &mut waiting);
        assert!(day.await.is_err(), "closed with an open stream");
        drop(stream);
        assert_eq!(waiting.await, Expired::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn zero_timeouts_never_expire() {
        let connection = Connection::new(ConnectionId(1));
        let limits = ClientLimits {
            first_byte_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            ..limits()
        };
        let year = tokio::time::timeout(24 * 365 * IDLE, expired(&limits, &connection));
        assert!(year.await.is_err());
    }
}
