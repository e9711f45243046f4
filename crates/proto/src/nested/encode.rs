//! Encodes with the levels on the heap. Lengths precede contents, so the lengths of all
//! transactions are computed once, in advance.

use bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::tree::{Op, Ops, TXN_TAG, Txn};

/// Encoded length of an operation.
pub(super) fn encoded_len<O: Op>(op: &O) -> usize {
    match op.txn() {
        Some(txn) => delimited_len(TXN_TAG, txn_lens(txn)[0]),
        None => op.kind().as_ref().map_or(0, O::kind_len),
    }
}

/// Encodes an operation.
pub(super) fn encode<O: Op>(op: &O, buf: &mut impl BufMut) {
    match op.txn() {
        Some(txn) => encode_txn(txn, buf),
        None => {
            if let Some(kind) = op.kind() {
                O::encode_kind(kind, buf);
            }
        }
    }
}

fn encode_txn<T: Txn>(txn: &T, buf: &mut impl BufMut) {
    let lens = txn_lens(txn);
    let mut lens = lens.into_iter();
    // One length for each transaction, in the order of this loop.
    let mut next_len = || lens.next().unwrap_or_default();
    encode_start(txn, next_len(), buf);
    let mut levels = vec![txn.ops()];
    while let Some(ops) = levels.last_mut() {
        let Some((tag, op)) = ops.next() else {
            levels.pop();
            continue;
        };
        encode_key(tag, WireType::LengthDelimited, buf);
        match op.txn() {
            Some(inner) => {
                let len = next_len();
                encode_varint(delimited_len(TXN_TAG, len) as u64, buf);
                encode_start(inner, len, buf);
                levels.push(inner.ops());
            }
            None => {
                let len = op.kind().as_ref().map_or(0, T::Op::kind_len);
                encode_varint(len as u64, buf);
                if let Some(kind) = op.kind() {
                    T::Op::encode_kind(kind, buf);
                }
            }
        }
    }
}

/// Encodes a transaction as the field of its operation, up to its own operations.
fn encode_start<T: Txn>(txn: &T, len: usize, buf: &mut impl BufMut) {
    encode_key(TXN_TAG, WireType::LengthDelimited, buf);
    encode_varint(len as u64, buf);
    txn.encode_plain(buf);
}

/// A transaction whose length is being computed.
struct Measured<'a, T> {
    ops: Ops<'a, T>,
    /// Index in the result.
    place: usize,
    len: usize,
    /// Branch that holds the transaction.
    tag: u32,
}

/// Encoded lengths of a transaction and of all nested ones, outer before inner, earlier before
/// later.
fn txn_lens<T: Txn>(txn: &T) -> Vec<usize> {
    let mut lens = vec![0];
    let mut levels = vec![Measured {
        ops: txn.ops(),
        place: 0,
        len: txn.plain_len(),
        tag: 0,
    }];
    while let Some(level) = levels.last_mut() {
        match level.ops.next() {
            Some((tag, op)) => match op.txn() {
                Some(inner) => {
                    let place = lens.len();
                    lens.push(0);
                    levels.push(Measured {
                        ops: inner.ops(),
                        place,
                        len: inner.plain_len(),
                        tag,
                    });
                }
                None => {
                    let len = op.kind().as_ref().map_or(0, T::Op::kind_len);
                    level.len += delimited_len(tag, len);
                }
            },
            None => {
                let (place, len, tag) = (level.place, level.len, level.tag);
                lens[place] = len;
                levels.pop();
                if let Some(around) = levels.last_mut() {
                    around.len += delimited_len(tag, delimited_len(TXN_TAG, len));
                }
            }
        }
    }
    lens
}

/// Length of a field whose content has this length.
fn delimited_len(tag: u32, len: usize) -> usize {
    key_len(tag) + encoded_len_varint(len as u64) + len
}
