//! The open connections of clients: how many there may be, and what each of them uses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portunus_mvcc::watch::ConnectionId;
use prometheus::IntGauge;

use super::address_block::AddressBlock;
use super::range_budget::RangeBytes;

/// The open connections. Touched only when one is accepted or closed.
#[derive(Debug)]
pub struct Connections {
    connections_max: usize,
    per_address_max: usize,
    open: Mutex<Open>,
    gauge: IntGauge,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    /// Connections so far.
    admitted: u64,
    /// Without addresses that have no connection.
    by_address: HashMap<AddressBlock, usize>,
}

/// A connection that is refused because of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMany {
    /// There are too many connections.
    Connections {
        /// The limit.
        max: usize,
    },
    /// There are too many from one address.
    FromAddress {
        /// The limit.
        max: usize,
    },
}

impl Connections {
    /// Creates the limits; open connections are reported to `gauge`.
    pub fn new(connections_max: usize, per_address_max: usize, gauge: IntGauge) -> Connections {
        Connections {
            connections_max,
            per_address_max,
            open: Mutex::default(),
            gauge,
        }
    }

    /// Counts a new connection until its slot is dropped.
    ///
    /// # Errors
    /// At a limit.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionSlot, TooMany> {
        let block = AddressBlock::from(address);
        let mut open = self.lock();
        if open.connections >= self.connections_max {
            let max = self.connections_max;
            return Err(TooMany::Connections { max });
        }
        let from_address = open.by_address.get(&block).copied().unwrap_or(0);
        if from_address >= self.per_address_max {
            let max = self.per_address_max;
            return Err(TooMany::FromAddress { max });
        }
        open.connections += 1;
        open.admitted += 1;
        open.by_address.insert(block, from_address + 1);
        self.gauge.inc();
        Ok(ConnectionSlot {
            connections: Arc::clone(self),
            block,
            id: ConnectionId(open.admitted),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one open connection.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    block: AddressBlock,
    /// The id of the connection.
    pub id: ConnectionId,
}

impl ConnectionSlot {
    /// The address of the client.
    pub fn address(&self) -> AddressBlock {
        self.block
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.connections -= 1;
        if let Some(count) = open.by_address.get_mut(&self.block) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.block);
            }
        }
        self.connections.gauge.dec();
    }
}

/// What one connection uses. Only the thread that serves the connection changes it, so a change
/// is a load and a store and not an atomic addition.
#[derive(Debug)]
pub struct Connection {
    /// The id of the connection.
    pub id: ConnectionId,
    received_bytes: AtomicUsize,
    requests_started: AtomicUsize,
    requests_ended: AtomicUsize,
    pending_response_bytes: AtomicUsize,
}

fn add(number: &AtomicUsize, count: usize) {
    let sum = number.load(Ordering::Relaxed).wrapping_add(count);
    number.store(sum, Ordering::Relaxed);
}

impl Connection {
    /// Creates a connection that has used nothing yet.
    pub fn new(id: ConnectionId) -> Connection {
        Connection {
            id,
            received_bytes: AtomicUsize::new(0),
            requests_started: AtomicUsize::new(0),
            requests_ended: AtomicUsize::new(0),
            pending_response_bytes: AtomicUsize::new(0),
        }
    }

    /// Counts bytes from the client.
    pub fn received(&self, bytes: usize) {
        add(&self.received_bytes, bytes);
    }

    /// Returns the bytes received so far.
    pub fn received_bytes(&self) -> usize {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Counts a request until the returned value is dropped.
    pub fn start_request(self: &Arc<Self>) -> OpenRequest {
        add(&self.requests_started, 1);
        OpenRequest(Arc::clone(self))
    }

    /// Returns the number of requests so far.
    pub fn requests_started(&self) -> usize {
        self.requests_started.load(Ordering::Relaxed)
    }

    /// Returns the bytes of responses that wait to be sent.
    pub fn pending_response_bytes(&self) -> usize {
        self.pending_response_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of open requests and streams.
    pub fn open_requests(&self) -> usize {
        let ended = self.requests_ended.load(Ordering::Relaxed);
        self.requests_started().wrapping_sub(ended)
    }

    /// Returns whether a request or a stream is open.
    pub fn has_open_requests(&self) -> bool {
        self.open_requests() != 0
    }
}

/// Bytes of a response that wait to be sent.
#[derive(Debug)]
pub struct PendingBytes {
    connection: Arc<Connection>,
    bytes: usize,
    /// The response that they are part of, if it is large.
    _range: Option<Arc<RangeBytes>>,
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        let pending = &self.connection.pending_response_bytes;
        add(pending, self.bytes.wrapping_neg());
    }
}

/// A request under way.
#[derive(Debug)]
pub struct OpenRequest(Arc<Connection>);

impl OpenRequest {
    /// Counts bytes of its response until the returned value is dropped.
    pub fn pending(&self, bytes: usize, range: Option<Arc<RangeBytes>>) -> PendingBytes {
        add(&self.0.pending_response_bytes, bytes);
        PendingBytes {
            connection: Arc::clone(&self.0),
            bytes,
            _range: range,
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        add(&self.0.requests_ended, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_in_total_and_by_address() {
        let gauge = IntGauge::new("open", "open").unwrap();
        let connections = Arc::new(Connections::new(3, 2, gauge.clone()));
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let first = connections.admit(address(1)).unwrap();
        let second = connections.admit(address(1)).unwrap();
        let refused = connections.admit(address(1)).unwrap_err();
        assert_eq!(refused, TooMany::FromAddress { max: 2 });
        let third = connections.admit(address(2)).unwrap();
        let refused = connections.admit(address(3)).unwrap_err();
        assert_eq!(refused, TooMany::Connections { max: 3 });
        assert_eq!(gauge.get(), 3);
        drop(first);
        drop(connections.admit(address(1)).unwrap());
        drop((second, third));
        assert_eq!(gauge.get(), 0);
        assert!(connections.lock().by_address.is_empty());
    }

    #[test]
    fn connection_knows_whether_a_request_is_open() {
        let connection = Arc::new(Connection::new(ConnectionId(1)));
        assert!(!connection.has_open_requests());
        let requests = [connection.start_request(), connection.start_request()];
        assert_eq!(connection.open_requests(), 2);
        let pending = [requests[0].pending(3, None), requests[1].pending(4, None)];
        drop(requests);
        assert_eq!(connection.pending_response_bytes(), 7);
        drop(pending);
        assert_eq!(connection.pending_response_bytes(), 0);
        assert!(!connection.has_open_requests());
        assert_eq!(connection.requests_started(), 2);
    }
}
