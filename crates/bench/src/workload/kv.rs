//! Puts, gets and ranges, each in a closed loop.

use portunus_proto::etcdserverpb::RangeRequest;
use prost::Message;

use super::{Load, LoadOutcome, WorkloadError};
use crate::answer::{Fields, field};
use crate::client::{self, RandomNumbers, VALUE_BYTES, key, put_of};
use crate::closed_loop::{Completion, Requester, closed_loop};
use crate::wire::Method;

/// Keys in one answer of the range load.
pub(super) const RANGE_KEYS: usize = 500;

/// Bytes of a value in the long list.
const LIST_VALUE_BYTES: usize = 1024;

/// The requests of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvKind {
    /// Puts of keys of the hot set.
    Put,
    /// Linearizable reads of one key.
    Get,
    /// Serializable reads of one key.
    GetSerializable,
    /// Linearizable reads of 500 keys.
    Range,
    /// Linearizable reads of all keys, with values of 1 KiB.
    List,
}

pub(super) async fn run(kind: KvKind, load: &Load<'_>) -> Result<LoadOutcome, WorkloadError> {
    let (keys, value_bytes) = match kind {
        KvKind::List => (load.scale.list_keys, LIST_VALUE_BYTES),
        _ => (load.scale.hot_keys, VALUE_BYTES),
    };
    client::fill(&load.endpoint, keys, value_bytes).await?;
    let clients = (0..load.clients).map(|number| KvRequester {
        kind,
        numbers: RandomNumbers::of_client(number),
        keys,
    });
    let connections = load.connect().await?;
    let clients = clients.collect();
    Ok(closed_loop(
        connections,
        clients,
        load.scale.durations,
        &load.process_ids,
    )
    .await?)
}

struct KvRequester {
    kind: KvKind,
    numbers: RandomNumbers,
    keys: usize,
}

impl Requester for KvRequester {
    fn next(&mut self, message: &mut Vec<u8>) -> Method {
        match self.kind {
            KvKind::Put => put_any(&mut self.numbers, self.keys, message),
            KvKind::Get => get_any(&mut self.numbers, self.keys, false, message),
            KvKind::GetSerializable => get_any(&mut self.numbers, self.keys, true, message),
            KvKind::Range => range_any(&mut self.numbers, self.keys, message),
            KvKind::List => write(&range(0, self.keys), message),
        }
        match self.kind {
            KvKind::Put => Method::Put,
            _ => Method::Range,
        }
    }

    fn answered(&mut self, answer: &[u8]) -> Result<Completion, String> {
        match self.kind {
            KvKind::Put => {}
            KvKind::Get | KvKind::GetSerializable => expect_keys(answer, 1)?,
            KvKind::Range => expect_keys(answer, RANGE_KEYS)?,
            KvKind::List => expect_keys(answer, self.keys)?,
        }
        Ok(Completion::Done)
    }
}

pub(super) fn put_any(numbers: &mut RandomNumbers, keys: usize, message: &mut Vec<u8>) {
    write(&put_of(numbers.below(keys)), message);
}

pub(super) fn get_any(
    numbers: &mut RandomNumbers,
    keys: usize,
    serializable: bool,
    message: &mut Vec<u8>,
) {
    let read = RangeRequest {
        key: key(numbers.below(keys)),
        serializable,
        ..RangeRequest::default()
    };
    write(&read, message);
}

pub(super) fn range_any(numbers: &mut RandomNumbers, keys: usize, message: &mut Vec<u8>) {
    let from = numbers.below(keys.saturating_sub(RANGE_KEYS));
    write(&range(from, from + RANGE_KEYS), message);
}

fn range(from: usize, to: usize) -> RangeRequest {
    RangeRequest {
        key: key(from),
        range_end: key(to),
        ..RangeRequest::default()
    }
}

/// Encodes into a growing buffer, which cannot run out of space.
pub(super) fn write(request: &impl Message, message: &mut Vec<u8>) {
    message.reserve(request.encoded_len());
    request.encode_raw(message);
}

pub(super) fn expect_keys(answer: &[u8], expected: usize) -> Result<(), String> {
    let found = Fields::of(answer).all(field::RANGE_KVS).count();
    if found == expected {
        return Ok(());
    }
    Err(format!("{found} keys instead of {expected}"))
}
