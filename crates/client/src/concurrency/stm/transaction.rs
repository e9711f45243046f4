//! One attempt of a transaction: reads, buffered writes, commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::{ResponseHeader, TxnResponse, response_op};

use super::Isolation;
use super::sets::{Prefetched, Read, ReadSet, Write, WriteSet};
use crate::connection::Client;
use crate::error::ClientError;
use crate::request::{Compare, Op, Range, Txn};

/// The keys of a transaction; see [`stm`](super::stm). Clones are the same transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    isolation: Isolation,
    /// Held while keys are read, so that the first read fixes the revision of all others.
    reading: tokio::sync::Mutex<()>,
    /// Never locked while a request is sent.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reads: ReadSet,
    writes: WriteSet,
    prefetched: Prefetched,
    /// The revision of all reads, once it is fixed.
    base_revision: Option<i64>,
    /// The error of the last read that failed.
    failure: Option<EtcdError>,
}

/// The outcome of a commit.
pub(super) enum Commit {
    /// Everything was written.
    Done(ResponseHeader),
    /// Another client was faster. Contains the newest values of the keys that were read.
    Conflict(Prefetched),
}

impl Isolation {
    fn reads_one_revision(self) -> bool {
        matches!(self, Self::SerializableSnapshot | Self::Serializable)
    }
}

impl Transaction {
    pub(super) fn new(client: &Client, isolation: Isolation, prefetched: Prefetched) -> Self {
        Self {
            shared: Arc::new(Shared {
                client: client.clone(),
                isolation,
                reading: tokio::sync::Mutex::default(),
                state: Mutex::new(State {
                    prefetched,
                    ..State::default()
                }),
            }),
        }
    }

    /// Returns the value of a key as the transaction sees it; `None` if the key does not exist.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, ClientError> {
        let key = Bytes::copy_from_slice(key.as_ref());
        let written = self.state().writes.value(&key);
        if let Some(written) = written {
            return Ok(written);
        }
        let read = self.read(&key).await?;
        Ok(read.kv.map(|kv| kv.value))
    }

    /// Returns the value of the first of these keys that exists. All are read together.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn get_first<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Option<Bytes>, ClientError> {
        let keys = keys.into_iter();
        let keys: Vec<Bytes> = keys
            .map(|key| Bytes::copy_from_slice(key.as_ref()))
            .collect();
        self.fetch(&keys).await?;
        for key in &keys {
            if let Some(value) = self.get(key).await? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the mod revision of a key at its read; 0 if it does not exist. Own writes do not count.
    ///
    /// # Errors
    /// The server's error, or a timeout.
    pub async fn revision(&self, key: impl AsRef<[u8]>) -> Result<i64, ClientError> {
        let key = Bytes::copy_from_slice(key.as_ref());
        Ok(self.read(&key).await?.mod_revision())
    }

    /// Writes a key when the transaction commits.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        self.put_with_lease(key, value, 0);
    }

    /// Writes a key with a lease when the transaction commits.
    pub fn put_with_lease(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>, lease: i64) {
        let key = Bytes::copy_from_slice(key.as_ref());
        let value = value.into();
        let write = Write::Put { value, lease };
        self.state().writes.0.insert(key, write);
    }

    /// Deletes a key when the transaction commits.
    pub fn delete(&self, key: impl AsRef<[u8]>) {
        let key = Bytes::copy_from_slice(key.as_ref());
        self.state().writes.0.insert(key, Write::Delete);
    }

    async fn read(&self, key: &Bytes) -> Result<Read, ClientError> {
        self.fetch(std::slice::from_ref(key)).await?;
        let read = self.state().reads.0.get(key).cloned();
        // Absent only if the server left out an answer.
        read.ok_or(ClientError::StreamEnded)
    }

    /// Reads keys before the first attempt.
    pub(super) async fn prefetch(&self, keys: &[Bytes]) -> Result<Prefetched, ClientError> {
        self.fetch(keys).await?;
        Ok(std::mem::take(&mut self.state().reads).0)
    }

    /// Reads the keys that were not read yet, together.
    async fn fetch(&self, keys: &[Bytes]) -> Result<(), ClientError> {
        let _reading = self.shared.reading.lock().await;
        let (missing, base_revision) = self.state().missing(keys);
        if missing.is_empty() {
            return Ok(());
        }
        let isolation = self.shared.isolation;
        let ranges = missing
            .iter()
            .map(|key| range(key, isolation, base_revision).into());
        let ranges: Vec<Op> = ranges.collect();
        let answer = self.shared.client.txn(Txn::new().then_all(ranges)).await;
        let answer = answer.inspect_err(|error| self.state().failure = error.etcd())?;
        let newest = revision_of(&answer);
        let reads = reads_of(&answer, base_revision.unwrap_or(newest));
        let mut state = self.state();
        state.base_revision.get_or_insert(newest);
        state.reads.0.extend(missing.into_iter().zip(reads));
        Ok(())
    }

    pub(super) async fn commit(&self) -> Result<Commit, ClientError> {
        let isolation = self.shared.isolation;
        let (txn, keys) = self.state().commit(isolation);
        let answer = self.shared.client.txn(txn).await?;
        if answer.succeeded {
            return Ok(Commit::Done(answer.header.unwrap_or_default()));
        }
        let reads = reads_of(&answer, revision_of(&answer));
        Ok(Commit::Conflict(keys.into_iter().zip(reads).collect()))
    }

    pub(super) fn failure(&self) -> Option<EtcdError> {
        self.state().failure
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = &self.shared.state;
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the keys that must be read, after using what was prefetched, and the revision to read
    /// them at, if it is fixed.
    fn missing(&mut self, keys: &[Bytes]) -> (Vec<Bytes>, Option<i64>) {
        for key in keys {
            if let Some(read) = self.prefetched.remove(key) {
                self.base_revision.get_or_insert(read.revision);
                self.reads.0.insert(key.clone(), read);
            }
        }
        let missing = keys.iter().filter(|key| !self.reads.0.contains_key(*key));
        (missing.cloned().collect(), self.base_revision)
    }

    /// Returns the request that commits, and the keys that it reads if there is a conflict: the next
    /// attempt probably needs them.
    fn commit(&self, isolation: Isolation) -> (Txn, Vec<Bytes>) {
        let mut txn = Txn::new()
            .when_all(self.conditions(isolation))
            .then_all(self.writes.operations());
        let mut keys = Vec::new();
        if isolation.reads_one_revision() {
            keys.extend(self.reads.0.keys().cloned());
            txn = txn.otherwise_all(keys.iter().map(|key| Range::key(key).into()));
        }
        (txn, keys)
    }

    fn conditions(&self, isolation: Isolation) -> Vec<Compare> {
        match isolation {
            Isolation::SerializableSnapshot => {
                // Without a read there is no snapshot that a write could conflict with.
                let since = self.reads.first_revision().unwrap_or(i64::MAX - 1);
                let writes = self.writes.unchanged_since(since);
                self.reads.unchanged().chain(writes).collect()
            }
            Isolation::Serializable | Isolation::RepeatableReads => {
                self.reads.unchanged().collect()
            }
            Isolation::ReadCommitted => Vec::new(),
        }
    }
}

fn range(key: &Bytes, isolation: Isolation, base_revision: Option<i64>) -> Range {
    let range = Range::key(key);
    match isolation.reads_one_revision() {
        true => range.at_revision(base_revision.unwrap_or(0)),
        false => range.serializable(),
    }
}

fn revision_of(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

/// Returns the reads in an answer, made at a revision.
fn reads_of(answer: &TxnResponse, revision: i64) -> impl Iterator<Item = Read> {
    let responses = answer.responses.iter();
    responses.filter_map(move |response| match &response.response {
        Some(response_op::Response::ResponseRange(range)) => Some(Read {
            kv: range.kvs.first().cloned(),
            revision,
        }),
        _ => None,
    })
}
