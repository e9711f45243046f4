//! What clients ask and are told, in the model's own words.
//!
//! Put, get and delete are transactions of one operation without a condition, so there is
//! one kind of answer to compare. Every write answers with what was there before.

use std::fmt;
use std::sync::Arc;

/// A key.
pub type Key = Arc<str>;
/// A value.
pub type Value = Arc<str>;

/// A request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// Reads and writes.
    Txn(Txn),
    /// A new lease with this id.
    Grant(i64),
    /// The end of a lease and of its keys.
    Revoke(i64),
}

/// If all conditions hold, these operations, otherwise those.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Txn {
    /// All must hold.
    pub when: Vec<(Key, Condition)>,
    /// If they do.
    pub then: Vec<Op>,
    /// If not.
    pub otherwise: Vec<Op>,
}

/// What a key must be. A key that is not there has zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Its newest change.
    ModRevision(i64),
    /// Where it was created.
    CreateRevision(i64),
    /// How often it was written since.
    Version(i64),
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A value, with a lease or 0.
    Put(Key, Value, i64),
    /// A read of the newest revision.
    Get(Keys),
    /// The end of a key.
    Delete(Keys),
}

/// Which keys.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Keys {
    /// One.
    One(Key),
    /// All there are.
    All,
}

/// What is stored at a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Where it was created.
    pub create_revision: i64,
    /// Its newest change.
    pub mod_revision: i64,
    /// How often it was written since it was created.
    pub version: i64,
    /// Its lease, or 0.
    pub lease: i64,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To a transaction.
    Txn {
        /// Of the answer's header.
        revision: i64,
        /// Whether the conditions held.
        succeeded: bool,
        /// One for each operation.
        answers: Vec<OpAnswer>,
    },
    /// To a grant or a revocation.
    Lease {
        /// Of the answer's header.
        revision: i64,
    },
    /// Nothing was done.
    Refused(Refusal),
}

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No lease has this id.
    LeaseNotFound,
    /// One has it already.
    LeaseExists,
}

/// The answer to one operation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum OpAnswer {
    /// What was there before.
    Put(Option<Entry>),
    /// What is there.
    Get(Vec<(Key, Entry)>),
    /// What was there before.
    Delete(Vec<(Key, Entry)>),
}

impl Request {
    /// A single operation.
    #[must_use]
    pub fn op(op: Op) -> Request {
        Request::Txn(Txn {
            then: vec![op],
            ..Txn::default()
        })
    }

    /// Writes a key.
    #[must_use]
    pub fn put(key: &str, value: &str) -> Request {
        Request::op(Op::Put(key.into(), value.into(), 0))
    }

    /// Reads a key.
    #[must_use]
    pub fn get(key: &str) -> Request {
        Request::op(Op::Get(Keys::One(key.into())))
    }

    /// Reads everything.
    #[must_use]
    pub fn get_all() -> Request {
        Request::op(Op::Get(Keys::All))
    }

    /// Deletes a key.
    #[must_use]
    pub fn delete(key: &str) -> Request {
        Request::op(Op::Delete(Keys::One(key.into())))
    }

    /// All operations, of both branches.
    pub(super) fn ops(&self) -> impl Iterator<Item = &Op> {
        let (then, otherwise) = match self {
            Request::Txn(txn) => (&txn.then[..], &txn.otherwise[..]),
            Request::Grant(_) | Request::Revoke(_) => (&[][..], &[][..]),
        };
        then.iter().chain(otherwise)
    }
}

impl Answer {
    /// Of the header; a refusal has none.
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
