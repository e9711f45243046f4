//! Decodes with the levels on the heap.

use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

use super::tree::{Op, TXN_TAG, Txn};

const LAST_TAG: u32 = TXN_TAG;

/// A message whose fields are being read.
enum Level<T: Txn> {
    Txn {
        unread: Bytes,
        txn: T,
    },
    Op {
        unread: Bytes,
        op: T::Op,
        /// Branch of the enclosing transaction, which is below it on the stack.
        branch_tag: u32,
    },
}

/// Merges one field of an operation.
pub(super) fn merge_field<O: Op>(
    op: &mut O,
    tag: u32,
    wire_type: WireType,
    buf: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    match tag {
        TXN_TAG => {
            let unread = delimited(wire_type, buf)?;
            let txn = op.take_txn().unwrap_or_default();
            op.set_txn(merge_txn(txn, unread)?);
            Ok(())
        }
        1..LAST_TAG => O::merge_kind(op.kind_mut(), tag, wire_type, buf, context),
        _ => skip_field(wire_type, tag, buf, context),
    }
}

/// Merges an encoded transaction.
fn merge_txn<T: Txn>(txn: T, unread: Bytes) -> Result<T, DecodeError> {
    let mut current = Level::Txn { unread, txn };
    let mut outer: Vec<Level<T>> = Vec::new();
    loop {
        match &mut current {
            Level::Txn { unread, txn } if unread.has_remaining() => {
                let (tag, wire_type) = decode_key(unread)?;
                if T::BRANCH_TAGS.contains(&tag) {
                    let inner = Level::Op {
                        unread: delimited(wire_type, unread)?,
                        op: T::Op::default(),
                        branch_tag: tag,
                    };
                    outer.push(std::mem::replace(&mut current, inner));
                } else {
                    txn.merge_field(tag, wire_type, unread, DecodeContext::default())?;
                }
            }
            Level::Op { unread, op, .. } if unread.has_remaining() => {
                let (tag, wire_type) = decode_key(unread)?;
                if tag == TXN_TAG {
                    let inner = Level::Txn {
                        unread: delimited(wire_type, unread)?,
                        txn: op.take_txn().unwrap_or_default(),
                    };
                    outer.push(std::mem::replace(&mut current, inner));
                } else {
                    merge_field(op, tag, wire_type, unread, DecodeContext::default())?;
                }
            }
            _ => match (current, outer.pop()) {
                (Level::Txn { txn, .. }, None) => return Ok(txn),
                (Level::Txn { txn, .. }, Some(mut around)) => {
                    if let Level::Op { op, .. } = &mut around {
                        op.set_txn(txn);
                    }
                    current = around;
                }
                (Level::Op { op, branch_tag, .. }, Some(mut around)) => {
                    if let Level::Txn { txn, .. } = &mut around {
                        txn.branch_mut(branch_tag).push(op);
                    }
                    current = around;
                }
                // An operation always has its transaction below it.
                (Level::Op { .. }, None) => unreachable!("an operation outside of a transaction"),
            },
        }
    }
}

/// Reads the bytes of a nested message.
fn delimited(wire_type: WireType, buf: &mut impl Buf) -> Result<Bytes, DecodeError> {
    let mut bytes = Bytes::new();
    prost::encoding::bytes::merge(wire_type, &mut bytes, buf, DecodeContext::default())?;
    Ok(bytes)
}
