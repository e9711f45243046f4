//! The requests and answers of the model.
//!
//! Put, get and delete are transactions of one operation without a condition, so there is
//! one type of answer to compare. Every write returns the previous entries.

use std::fmt;
use std::sync::Arc;

/// A key.
pub type Key = Arc<str>;
/// A value.
pub type Value = Arc<str>;

/// A request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// A transaction of reads and writes.
    Txn(Txn),
    /// Grants a lease with this id.
    Grant(i64),
    /// Revokes a lease and deletes its keys.
    Revoke(i64),
}

/// A transaction: executes `then` if all conditions hold, else `otherwise`.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Txn {
    /// The conditions.
    pub when: Vec<(Key, Condition)>,
    /// The operations if all conditions hold.
    pub then: Vec<Op>,
    /// The operations if a condition does not hold.
    pub otherwise: Vec<Op>,
}

/// A condition on a key: one of its fields equals a number. An absent key has zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The revision of the last change.
    ModRevision(i64),
    /// The revision of the creation.
    CreateRevision(i64),
    /// The number of writes since the creation.
    Version(i64),
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Writes a value, with a lease or 0.
    Put(Key, Value, i64),
    /// Reads at the newest revision.
    Get(Keys),
    /// Deletes keys.
    Delete(Keys),
}

/// A set of keys.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Keys {
    /// One key.
    One(Key),
    /// All keys.
    All,
}

/// The entry of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The revision of the creation.
    pub create_revision: i64,
    /// The revision of the last change.
    pub mod_revision: i64,
    /// The number of writes since the creation.
    pub version: i64,
    /// The lease, or 0.
    pub lease: i64,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The answer to a transaction.
    Txn {
        /// The revision in the header.
        revision: i64,
        /// Whether the conditions held.
        succeeded: bool,
        /// The answer to each operation.
        answers: Vec<OpAnswer>,
    },
    /// The answer to a grant or a revocation.
    Lease {
        /// The revision in the header.
        revision: i64,
    },
    /// The request was refused and changed nothing.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No lease has this id.
    LeaseNotFound,
    /// A lease with this id exists already.
    LeaseExists,
}

/// The answer to one operation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum OpAnswer {
    /// The previous entry.
    Put(Option<Entry>),
    /// The entries read.
    Get(Vec<(Key, Entry)>),
    /// The deleted entries.
    Delete(Vec<(Key, Entry)>),
}

impl Request {
    /// A transaction of one operation.
    #[must_use]
    pub fn op(op: Op) -> Request {
        Request::Txn(Txn {
            then: vec![op],
            ..Txn::default()
        })
    }

    /// A put of a key.
    #[must_use]
    pub fn put(key: &str, value: &str) -> Request {
        Request::op(Op::Put(key.into(), value.into(), 0))
    }

    /// A read of a key.
    #[must_use]
    pub fn get(key: &str) -> Request {
        Request::op(Op::Get(Keys::One(key.into())))
    }

    /// A read of all keys.
    #[must_use]
    pub fn get_all() -> Request {
        Request::op(Op::Get(Keys::All))
    }

    /// A deletion of a key.
    #[must_use]
    pub fn delete(key: &str) -> Request {
        Request::op(Op::Delete(Keys::One(key.into())))
    }

    /// Returns the operations of both branches.
    pub(super) fn ops(&self) -> impl Iterator<Item = &Op> {
        let (then, otherwise) = match self {
            Request::Txn(txn) => (&txn.then[..], &txn.otherwise[..]),
            Request::Grant(_) | Request::Revoke(_) => (&[][..], &[][..]),
        };
        then.iter().chain(otherwise)
    }
}

impl Answer {
    /// Returns the revision in the header; a refusal has none.
    #[must_use]
    pub fn revision(&self) -> Option<i64> {
        match self {
            Answer::Txn { revision, .. } | Answer::Lease { revision } => Some(*revision),
            Answer::Refused(_) => None,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Txn(txn) => txn.fmt(f),
            Request::Grant(lease) => write!(f, "grant lease {lease}"),
            Request::Revoke(lease) => write!(f, "revoke lease {lease}"),
        }
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.when[..], &self.then[..]) {
            ([], [op]) => op.fmt(f),
            _ => write!(
                f,
                "if {:?} then {:?} else {:?}",
                self.when, self.then, self.otherwise
            ),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Put(key, value, 0) => write!(f, "put {key}={value}"),
            Op::Put(key, value, lease) => write!(f, "put {key}={value} lease {lease}"),
            Op::Get(keys) => write!(f, "get {keys:?}"),
            Op::Delete(keys) => write!(f, "delete {keys:?}"),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keys::One(key) => write!(f, "{key}"),
            Keys::All => write!(f, "everything"),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry {
            value,
            create_revision,
            mod_revision,
            version,
            lease,
        } = self;
        write!(
            f,
            "{value}@{mod_revision} (created {create_revision}, version {version}"
        )?;
        match lease {
            0 => write!(f, ")"),
            _ => write!(f, ", lease {lease})"),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Txn {
                revision,
                succeeded,
                answers,
            } => {
                let branch = if *succeeded { "" } else { "otherwise " };
                write!(f, "revision {revision}, {branch}{answers:?}")
            }
            Answer::Lease { revision } => write!(f, "revision {revision}"),
            Answer::Refused(refusal) => write!(f, "refused: {refusal:?}"),
        }
    }
}

impl fmt::Debug for OpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpAnswer::Put(None) => write!(f, "was absent"),
            OpAnswer::Put(Some(entry)) => write!(f, "was {entry:?}"),
            OpAnswer::Get(found) => write!(f, "found {found:?}"),
            OpAnswer::Delete(found) => write!(f, "deleted {found:?}"),
        }
    }
}
