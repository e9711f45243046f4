//! The addresses that count as one client where clients are told apart by address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 address, or the 64-bit prefix of an IPv6 address: a host has a whole prefix of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressBlock(IpAddr);

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<IpAddr> for AddressBlock {
    fn from(address: IpAddr) -> AddressBlock {
        AddressBlock(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let prefix = address.to_bits() >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from_bits(prefix))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_block() {
        let block = |text: &str| AddressBlock::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(block("10.0.0.1"), block("::ffff:10.0.0.1"));
        assert_ne!(block("10.0.0.1"), block("10.0.0.2"));
        assert_eq!(block("2001:db8::1"), block("2001:db8::ffff:1:2:3"));
        assert_ne!(block("2001:db8::1"), block("2001:db8:0:1::1"));
    }
}
