//! Conditions of transactions.

use bytes::Bytes;
use portunus_proto::etcdserverpb::Compare as CompareRequest;
use portunus_proto::etcdserverpb::compare::{CompareResult, CompareTarget as Target, TargetUnion};

use crate::key_range::prefix_range;

/// A condition of a transaction; converts into a
/// [`Compare`](portunus_proto::etcdserverpb::Compare) message.
///
/// A key that does not exist has the create revision, mod revision, version and lease 0; no
/// comparison of its value holds.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Compare(CompareRequest);

/// A field of a key, to be compared; see [`Compare`].
#[derive(Debug, Clone)]
#[must_use]
pub struct CompareTarget<T> {
    key: Bytes,
    range_end: Bytes,
    target: Target,
    operand: fn(T) -> TargetUnion,
}

impl Compare {
    /// The revision at which the key was created; 0 if it does not exist.
    pub fn create_revision(key: impl AsRef<[u8]>) -> CompareTarget<i64> {
        CompareTarget::of(key.as_ref(), Target::Create, TargetUnion::CreateRevision)
    }

    /// The revision at which the key was last changed; 0 if it does not exist.
    pub fn mod_revision(key: impl AsRef<[u8]>) -> CompareTarget<i64> {
        CompareTarget::of(key.as_ref(), Target::Mod, TargetUnion::ModRevision)
    }

    /// The number of writes since the key was created; 0 if it does not exist.
    pub fn version(key: impl AsRef<[u8]>) -> CompareTarget<i64> {
        CompareTarget::of(key.as_ref(), Target::Version, TargetUnion::Version)
    }

    /// The lease of the key; 0 for none.
    pub fn lease(key: impl AsRef<[u8]>) -> CompareTarget<i64> {
        CompareTarget::of(key.as_ref(), Target::Lease, TargetUnion::Lease)
    }

    /// The value of the key.
    pub fn value(key: impl AsRef<[u8]>) -> CompareTarget<Bytes> {
        CompareTarget::of(key.as_ref(), Target::Value, TargetUnion::Value)
    }

    /// Holds if the key exists.
    pub fn exists(key: impl AsRef<[u8]>) -> Self {
        Self::create_revision(key).greater_than(0)
    }

    /// Holds if the key does not exist.
    pub fn is_missing(key: impl AsRef<[u8]>) -> Self {
        Self::create_revision(key).equals(0)
    }
}

impl<T> CompareTarget<T> {
    fn of(key: &[u8], target: Target, operand: fn(T) -> TargetUnion) -> Self {
        Self {
            key: Bytes::copy_from_slice(key),
            range_end: Bytes::new(),
            target,
            operand,
        }
    }

    /// Compares every key that has the key as its prefix: the condition holds if it does for each.
    pub fn of_prefix(mut self) -> Self {
        (self.key, self.range_end) = prefix_range(&self.key);
        self
    }

    /// Compares every key from the key to the last one before `end`.
    pub fn up_to(mut self, end: impl AsRef<[u8]>) -> Self {
        self.range_end = Bytes::copy_from_slice(end.as_ref());
        self
    }

    /// Holds if the field has this value.
    pub fn equals(self, operand: impl Into<T>) -> Compare {
        self.finish(CompareResult::Equal, operand.into())
    }

    /// Holds if the field has another value.
    pub fn differs_from(self, operand: impl Into<T>) -> Compare {
        self.finish(CompareResult::NotEqual, operand.into())
    }

    /// Holds if the field is greater than this value.
    pub fn greater_than(self, operand: impl Into<T>) -> Compare {
        self.finish(CompareResult::Greater, operand.into())
    }

    /// Holds if the field is less than this value.
    pub fn less_than(self, operand: impl Into<T>) -> Compare {
        self.finish(CompareResult::Less, operand.into())
    }

    fn finish(self, result: CompareResult, operand: T) -> Compare {
        Compare(CompareRequest {
            result: result.into(),
            target: self.target.into(),
            key: self.key,
            range_end: self.range_end,
            target_union: Some((self.operand)(operand)),
        })
    }
}

impl From<Compare> for CompareRequest {
    fn from(compare: Compare) -> Self {
        compare.0
    }
}

impl From<CompareRequest> for Compare {
    fn from(compare: CompareRequest) -> Self {
        Self(compare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_set_target_result_and_operand() {
        for (compare, target, result, operand) in [
            (
                Compare::create_revision("k").equals(3),
                Target::Create,
                CompareResult::Equal,
                TargetUnion::CreateRevision(3),
            ),
            (
                Compare::mod_revision("k").less_than(4),
                Target::Mod,
                CompareResult::Less,
                TargetUnion::ModRevision(4),
            ),
            (
                Compare::version("k").greater_than(5),
                Target::Version,
                CompareResult::Greater,
                TargetUnion::Version(5),
            ),
            (
                Compare::lease("k").differs_from(6),
                Target::Lease,
                CompareResult::NotEqual,
                TargetUnion::Lease(6),
            ),
            (
                Compare::value("k").equals("v"),
                Target::Value,
                CompareResult::Equal,
                TargetUnion::Value(Bytes::from_static(b"v")),
            ),
            (
                Compare::is_missing("k"),
                Target::Create,
                CompareResult::Equal,
                TargetUnion::CreateRevision(0),
            ),
        ] {
            let message = CompareRequest::from(compare);
            assert_eq!(message.key, &b"k"[..]);
            assert_eq!((message.target(), message.result()), (target, result));
            assert_eq!(message.target_union, Some(operand));
        }
        let message = CompareRequest::from(Compare::version("k/").of_prefix().equals(1));
        assert_eq!(message.range_end, &b"k0"[..]);
    }
}
