//! The structure shared by requests and responses: a transaction has branches of operations, and an
//! operation may be a transaction.

use bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};
use prost::{DecodeError, Message};

/// The field of an operation that holds a transaction.
pub(super) const TXN_TAG: u32 = 4;

/// A message that may hold a transaction.
pub(super) trait Op: Default {
    type Txn: Txn<Op = Self>;
    type Kind;

    fn kind(&self) -> &Option<Self::Kind>;
    fn kind_mut(&mut self) -> &mut Option<Self::Kind>;
    fn txn(&self) -> Option<&Self::Txn>;
    fn take_txn(&mut self) -> Option<Self::Txn>;
    fn set_txn(&mut self, txn: Self::Txn);

    /// Merges a field other than a transaction.
    fn merge_kind(
        kind: &mut Option<Self::Kind>,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError>;

    /// Encodes an operation other than a transaction.
    fn encode_kind(kind: &Self::Kind, buf: &mut impl BufMut);

    /// Encoded length of an operation other than a transaction.
    fn kind_len(kind: &Self::Kind) -> usize;
}

/// A message that holds operations; its other fields precede them in the encoding.
pub(super) trait Txn: Message + Default {
    type Op: Op<Txn = Self>;

    /// Fields that hold operations.
    const BRANCH_TAGS: &'static [u32];

    fn branch(&self, tag: u32) -> &[Self::Op];
    fn branch_mut(&mut self, tag: u32) -> &mut Vec<Self::Op>;

    /// Encoded length of the other fields.
    fn plain_len(&self) -> usize;

    /// Encodes the other fields.
    fn encode_plain(&self, buf: &mut impl BufMut);

    /// All operations with the field they are in.
    fn ops(&self) -> Ops<'_, Self> {
        Ops {
            txn: self,
            tags: Self::BRANCH_TAGS,
            next: 0,
        }
    }
}

/// Iterates over the operations of one transaction.
pub(super) struct Ops<'a, T> {
    txn: &'a T,
    tags: &'static [u32],
    next: usize,
}

impl<'a, T: Txn> Iterator for Ops<'a, T> {
    type Item = (u32, &'a T::Op);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&tag, later_tags) = self.tags.split_first()?;
            if let Some(op) = self.txn.branch(tag).get(self.next) {
                self.next += 1;
                return Some((tag, op));
            }
            self.tags = later_tags;
            self.next = 0;
        }
    }
}

/// Drops a transaction without recursion.
pub(super) fn drop_iteratively<T: Txn>(txn: T) {
    let mut pending = vec![txn];
    while let Some(mut txn) = pending.pop() {
        for &tag in T::BRANCH_TAGS {
            let branch = txn.branch_mut(tag);
            pending.extend(branch.iter_mut().filter_map(Op::take_txn));
        }
    }
}
