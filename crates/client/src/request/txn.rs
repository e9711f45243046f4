//! Transactions.

use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

use super::{Compare, Delete, Put, Range};

/// An operation of a transaction: a [`Range`], [`Put`], [`Delete`] or nested [`Txn`], or one of
/// their messages.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Op(Request);

/// A transaction; converts into a [`TxnRequest`].
///
/// If all conditions hold, the operations of `then` run, else those of `otherwise`. All conditions,
/// also those of nested transactions, are evaluated before any operation.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Txn(TxnRequest);

impl Txn {
    /// Creates a transaction without conditions, which hold then, and without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    pub fn when(mut self, condition: impl Into<Compare>) -> Self {
        self.0.compare.push(condition.into().into());
        self
    }

    /// Adds conditions.
    pub fn when_all(mut self, conditions: impl IntoIterator<Item = Compare>) -> Self {
        let conditions = conditions.into_iter().map(Into::into);
        self.0.compare.extend(conditions);
        self
    }

    /// Adds an operation that runs if all conditions hold.
    pub fn then(mut self, operation: impl Into<Op>) -> Self {
        self.0.success.push(operation.into().into());
        self
    }

    /// Adds operations that run if all conditions hold.
    pub fn then_all(mut self, operations: impl IntoIterator<Item = Op>) -> Self {
        let operations = operations.into_iter().map(Into::into);
        self.0.success.extend(operations);
        self
    }

    /// Adds an operation that runs if a condition does not hold.
    pub fn otherwise(mut self, operation: impl Into<Op>) -> Self {
        self.0.failure.push(operation.into().into());
        self
    }

    /// Adds operations that run if a condition does not hold.
    pub fn otherwise_all(mut self, operations: impl IntoIterator<Item = Op>) -> Self {
        let operations = operations.into_iter().map(Into::into);
        self.0.failure.extend(operations);
        self
    }
}

impl From<Txn> for TxnRequest {
    fn from(txn: Txn) -> Self {
        txn.0
    }
}

impl From<Op> for RequestOp {
    fn from(operation: Op) -> Self {
        Self {
            request: Some(operation.0),
        }
    }
}

/// Converts a builder or message into an operation.
macro_rules! operation {
    ($variant:ident: $builder:ty, $message:ty) => {
        impl From<$builder> for Op {
            fn from(builder: $builder) -> Self {
                Self(Request::$variant(builder.into()))
            }
        }

        impl From<$message> for Op {
            fn from(message: $message) -> Self {
                Self(Request::$variant(message))
            }
        }
    };
}

operation!(RequestRange: Range, RangeRequest);
operation!(RequestPut: Put, PutRequest);
operation!(RequestDeleteRange: Delete, DeleteRangeRequest);
operation!(RequestTxn: Txn, TxnRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_keep_their_order_and_branch() {
        let nested = Txn::new().then(Put::new("c", "3"));
        let txn = Txn::new()
            .when(Compare::version("a").equals(0))
            .when_all([Compare::exists("b")])
            .then(Put::new("a", "1"))
            .then_all([Delete::key("b").into(), nested.clone().into()])
            .otherwise(Range::key("a"));
        let request = TxnRequest::from(txn);
        assert_eq!(request.compare.len(), 2);
        let success: Vec<_> = request
            .success
            .into_iter()
            .flat_map(|it| it.request.clone())
            .collect();
        assert_eq!(success[0], Request::RequestPut(Put::new("a", "1").into()));
        assert_eq!(
            success[1],
            Request::RequestDeleteRange(Delete::key("b").into())
        );
        assert_eq!(success[2], Request::RequestTxn(nested.into()));
        let failure: Vec<_> = request
            .failure
            .into_iter()
            .flat_map(|it| it.request.clone())
            .collect();
        assert_eq!(failure, [Request::RequestRange(Range::key("a").into())]);
    }
}
