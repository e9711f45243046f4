//! The state of an in-memory store: what every operation does to it.
//!
//! ```text
//!  put, delete, write ──▶ history ──▶ log ◀── position ── watchers ──▶ events
//!  revoke, expire ──▶ leases ──▶ ▲
//! ```
//!
//! No operation waits: [`Memory`](super::Memory) locks the state and wakes consumers of watches.

mod history;
mod leases;
mod watchers;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use portunus_proto::EtcdError;

pub(super) use self::history::KeyRange;
use self::history::{History, etcd_error};
use self::leases::Leases;
pub(super) use self::watchers::Polled;
use self::watchers::Watchers;
use super::Write;
use crate::kubernetes::{Error, GetResponse, KeyValue, ListOptions, ListResponse};

/// The largest key and value of a write, as etcd's default for a request.
const REQUEST_BYTES_MAX: usize = 1536 * 1024;
/// The largest number of writes in a transaction, as etcd's default.
const WRITES_PER_TRANSACTION_MAX: usize = 128;

/// The outcome of an optimistic write.
#[derive(Debug)]
pub(super) struct Written {
    /// Whether the key had the expected revision.
    pub(super) succeeded: bool,
    /// The pair of the key on a mismatch.
    pub(super) kv: Option<KeyValue>,
    /// The revision of the store.
    pub(super) revision: i64,
}

/// Keys, leases, watches and the clock.
#[derive(Debug)]
pub(super) struct State {
    history: History,
    leases: Leases,
    watchers: Watchers,
    /// The time since the store was created.
    now: Duration,
}

impl State {
    pub(super) fn new(quota_bytes: usize) -> Self {
        Self {
            history: History::new(quota_bytes),
            leases: Leases::default(),
            watchers: Watchers::default(),
            now: Duration::ZERO,
        }
    }

    pub(super) fn revision(&self) -> i64 {
        self.history.revision()
    }

    pub(super) fn compact_revision(&self) -> i64 {
        self.history.compact_revision()
    }

    pub(super) fn get(&self, key: &[u8], revision: i64) -> Result<GetResponse, Error> {
        let at = self.history.readable(revision)?;
        Ok(GetResponse {
            kv: self.history.at(key, at).cloned(),
            revision: self.history.revision(),
        })
    }

    pub(super) fn list(&self, prefix: &[u8], options: &ListOptions) -> Result<ListResponse, Error> {
        let at = self.history.readable(options.revision)?;
        let start = match options.continue_key.is_empty() {
            true => prefix,
            false => &options.continue_key,
        };
        let limit = match usize::try_from(options.limit) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        let mut response = ListResponse {
            revision: self.history.revision(),
            ..ListResponse::default()
        };
        for kv in self.history.range(start, prefix, at) {
            response.count += 1;
            if response.kvs.len() < limit {
                response.kvs.push(kv.clone());
            }
        }
        Ok(response)
    }

    pub(super) fn count(&self, prefix: &[u8]) -> i64 {
        let newest = self.history.revision();
        let count = self.history.range(prefix, prefix, newest).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Runs a write if the key has the expected revision.
    pub(super) fn write_if(
        &mut self,
        expected_revision: i64,
        write: Write,
    ) -> Result<Written, Error> {
        check_size(&write)?;
        let kv = self.history.newest(write.key()).cloned();
        let succeeded = kv.as_ref().map_or(0, |kv| kv.mod_revision) == expected_revision;
        if succeeded {
            self.check_lease_and_space(&write)?;
            self.commit(vec![write]);
        }
        Ok(Written {
            succeeded,
            kv: kv.filter(|_| !succeeded),
            revision: self.history.revision(),
        })
    }

    /// Runs writes in one transaction and returns the revision of the store.
    pub(super) fn write(&mut self, writes: Vec<Write>) -> Result<i64, Error> {
        if writes.len() > WRITES_PER_TRANSACTION_MAX {
            return Err(etcd_error(EtcdError::TooManyOps));
        }
        let mut keys = BTreeSet::new();
        for write in &writes {
            if write.key().is_empty() {
                return Err(Error::EmptyKey);
            }
            if !keys.insert(write.key().clone()) {
                return Err(etcd_error(EtcdError::DuplicateKey));
            }
            check_size(write)?;
            self.check_lease_and_space(write)?;
        }
        self.commit(writes);
        Ok(self.history.revision())
    }

    fn check_lease_and_space(&self, write: &Write) -> Result<(), Error> {
        let Write::Put { key, value, lease } = write else {
            return Ok(());
        };
        if *lease != 0 && !self.leases.exists(*lease) {
            return Err(Error::LeaseNotFound);
        }
        self.history.check_space(key, value)
    }

    fn commit(&mut self, writes: Vec<Write>) {
        let writes = writes.into_iter().map(|write| match write {
            Write::Put { key, value, lease } => (key, Some((value, lease))),
            Write::Delete { key } => (key, None),
        });
        for change in self.history.commit(writes.collect()) {
            let lease = |kv: Option<&KeyValue>| kv.map_or(0, |kv| kv.lease);
            let from = lease(change.previous.as_ref());
            let to = lease(change.current.as_ref());
            self.leases.move_key(&change.key, from, to);
        }
    }

    pub(super) fn compact(&mut self, revision: i64) -> Result<(), Error> {
        self.history.check_compaction(revision)?;
        self.watchers.prepare_compaction(revision, &self.history);
        self.history.compact(revision);
        Ok(())
    }

    pub(super) fn grant_lease(&mut self, ttl: Duration) -> i64 {
        self.leases.grant(ttl, self.now)
    }

    pub(super) fn renew_lease(&mut self, id: i64) -> Result<(), Error> {
        match self.leases.renew(id, self.now) {
            true => Ok(()),
            false => Err(Error::LeaseNotFound),
        }
    }

    pub(super) fn lease_keys(&self, id: i64) -> Result<Vec<Bytes>, Error> {
        self.leases.keys(id).ok_or(Error::LeaseNotFound)
    }

    /// Removes a lease and deletes its keys in one revision.
    pub(super) fn revoke_lease(&mut self, id: i64) -> Result<(), Error> {
        let keys = self.leases.remove(id).ok_or(Error::LeaseNotFound)?;
        self.commit(keys.into_iter().map(|key| Write::Delete { key }).collect());
        Ok(())
    }

    /// Advances the clock and revokes the leases that expire.
    pub(super) fn advance(&mut self, time: Duration) {
        self.now = self.now.saturating_add(time);
        for id in self.leases.expired(self.now) {
            // Cannot fail: nothing removed the lease since it was listed.
            let _ = self.revoke_lease(id);
        }
    }

    pub(super) fn create_watch(
        &mut self,
        range: KeyRange,
        stream_key: String,
        revision: i64,
    ) -> u64 {
        self.watchers
            .create(range, stream_key, revision, &self.history)
    }

    pub(super) fn remove_watch(&mut self, id: u64) {
        self.watchers.remove(id);
    }

    pub(super) fn poll_watch(&mut self, id: u64) -> Polled {
        self.watchers.poll(id, &self.history)
    }

    pub(super) fn request_progress(&mut self, stream_key: &str) -> Result<(), Error> {
        match self.watchers.bookmark_stream(stream_key, &self.history) {
            true => Ok(()),
            false => Err(Error::UnknownStream {
                stream_key: stream_key.to_owned(),
            }),
        }
    }

    pub(super) fn notify_progress(&mut self) {
        self.watchers.bookmark_all(&self.history);
    }

    pub(super) fn cancel_watches(&mut self, stream_key: &str, reason: &str) {
        self.watchers
            .cancel_stream(stream_key, reason, &self.history);
    }
}

fn check_size(write: &Write) -> Result<(), Error> {
    let bytes = match write {
        Write::Put { key, value, .. } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
    };
    if bytes > REQUEST_BYTES_MAX {
        return Err(etcd_error(EtcdError::RequestTooLarge));
    }
    Ok(())
}
