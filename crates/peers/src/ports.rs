//! Ports for programs that must be told theirs.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below those that the system gives to whoever connects: a program that starts later,
/// or is down for a while, must find its ports free.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// Listens at a port of the loopback interface that nobody uses, and that this process was not
/// given before. Whoever drops the listener at once can tell another program the port.
///
/// # Errors
/// If there is none.
pub fn free_listener() -> io::Result<TcpListener> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Programs that run at the same time begin at different ports.
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

/// A port that was free a moment ago; see [`free_listener`].
///
/// # Errors
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(free_listener()?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_never_to_callers() {
        let given: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        let unique: std::collections::BTreeSet<&u16> = given.iter().collect();
        assert_eq!(unique.len(), given.len());
        let range = PORT_FIRST..PORT_FIRST + PORTS;
        assert!(given.iter().all(|port| range.contains(port)), "{given:?}");
    }
}
