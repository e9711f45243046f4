//! Types for numbers that are easy to mix up: two ids are both integers, and so are a term and a
//! log index.
//!
//! Messages keep plain integers, as etcd defines them. Code that takes a number out of a message
//! or writes one into it names the type there, such as `LeaseId(request.id)`. There are
//! deliberately no conversions and no arithmetic: every change of type is visible.

use std::fmt;

/// A term of raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The index of an entry in the log of raft.
///
/// For signatures that have the index next to another number of the same integer type, such as a
/// term or a request id. Elsewhere an index stays a `u64`, as in messages; a revision of the store
/// stays an `i64`, so the compiler already refuses one in place of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogIndex(pub u64);

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClusterId(pub u64);

/// Hexadecimal digits without leading zeros, as in etcd's headers and log lines.
impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The id of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// The id that means "no lease".
    pub const NONE: LeaseId = LeaseId(0);
}

/// Sixteen hexadecimal digits, as etcd prints lease ids.
impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_displayed_as_etcd_prints_them() {
        assert_eq!(Term(10).to_string(), "10");
        assert_eq!(LogIndex(11).to_string(), "11");
        assert_eq!(
            LeaseId(0x3269_5410_dcc0_ca06).to_string(),
            "32695410dcc0ca06"
        );
        assert_eq!(ClusterId(0x0ab).to_string(), "ab");
        assert_eq!(LeaseId(10).to_string(), "000000000000000a");
        assert_eq!(LeaseId(-1).to_string(), "ffffffffffffffff");
    }
}
