//! Free ports for programs that take a port as a flag.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ephemeral ports of outgoing connections, so that the ports of a program that
/// starts later or restarts stay free.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Listens on a free loopback port that this process did not use before. A caller that needs
/// only the port for another program drops the listener.
///
/// # Errors
/// If no port is free.
pub fn free_listener() -> io::Result<TcpListener> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent processes start at different ports.
    let start = (std::process::id() % u32::from(PORTS)) as u16;
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..PORTS {
        let offset = start
            .wrapping_mul(7)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORT_FIRST + offset % PORTS;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Returns a loopback address that was just free; see [`free_listener`].
///
/// # Errors
/// If no port is free.
pub fn free_address() -> io::Result<SocketAddr> {
    free_listener()?.local_addr()
}

/// Returns a port that was just free; see [`free_listener`].
///
/// # Errors
/// If no port is free.
pub fn free_port() -> io::Result<u16> {
    Ok(free_address()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_unique_and_below_ephemeral_ports() {
        let given: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let unique: std::collections::BTreeSet<&u16> = given.iter().collect();
        assert_eq!(unique.len(), given.len());
        let range = PORT_FIRST..PORT_FIRST + PORTS;
        assert!(given.iter().all(|port| range.contains(port)), "{given:?}");
    }
}
