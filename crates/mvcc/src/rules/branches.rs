//! Computes values of transaction branches from those of their nested branches, without recursion.

use portunus_proto::etcdserverpb::{RequestOp, TxnRequest, request_op::Request};

/// The values of both branches of one transaction.
pub(super) struct Outcomes<T> {
    pub success: T,
    pub failure: T,
}

/// A branch whose nested transactions are being visited.
struct Level<'a, T> {
    branch: &'a [RequestOp],
    unvisited: std::slice::Iter<'a, RequestOp>,
    /// Values of the visited transactions.
    nested: Vec<Outcomes<T>>,
    /// The transaction being visited, and the value of its success branch.
    current: Option<(&'a TxnRequest, Option<T>)>,
}

impl<'a, T> Level<'a, T> {
    fn of(branch: &'a [RequestOp]) -> Self {
        Self {
            branch,
            unvisited: branch.iter(),
            nested: Vec::new(),
            current: None,
        }
    }

    /// Returns the next nested transaction of the branch.
    fn next_txn(&mut self) -> Option<&'a TxnRequest> {
        self.unvisited.find_map(|op| match &op.request {
            Some(Request::RequestTxn(txn)) => Some(txn),
            _ => None,
        })
    }
}

/// Computes the value of a branch with `value`, which gets the branch and the values of its nested
/// transactions, in order. Stops at the first error.
pub(super) fn fold<'a, T, E>(
    branch: &'a [RequestOp],
    mut value: impl FnMut(&'a [RequestOp], Vec<Outcomes<T>>) -> Result<T, E>,
) -> Result<T, E> {
    let mut level = Level::of(branch);
    let mut outer: Vec<Level<'a, T>> = Vec::new();
    loop {
        if let Some(txn) = level.next_txn() {
            level.current = Some((txn, None));
            outer.push(std::mem::replace(&mut level, Level::of(&txn.success)));
            continue;
        }
        let found = value(level.branch, level.nested)?;
        let Some(mut around) = outer.pop() else {
            return Ok(found);
        };
        level = match around.current.take() {
            Some((txn, None)) => {
                around.current = Some((txn, Some(found)));
                outer.push(around);
                Level::of(&txn.failure)
            }
            Some((_, Some(success))) => {
                around.nested.push(Outcomes {
                    success,
                    failure: found,
                });
                around
            }
            None => around,
        };
    }
}
