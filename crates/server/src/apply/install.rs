//! The leader's snapshot becomes the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use portunus_mvcc::backend::{Lmdb, LmdbConfig};
use portunus_mvcc::{EntryId, Store};
use portunus_proto::raftpb::SnapshotMetadata;

use super::alarms::Alarms;
use super::{Applier, ApplyFaultError};
use crate::auth;
use crate::member::configuration::configuration;
use crate::member::membership::{Membership, conf_state};
use crate::member::{lessor, store_config, store_hooks};

impl Applier {
    /// Replaces everything: the snapshot is ready beside the backend, and in the log.
    pub(super) fn install(&mut self, snapshot: &SnapshotMetadata) -> Result<(), ApplyFaultError> {
        let index = snapshot.index;
        let applied = self.store.applied().map_or(0, |applied| applied.index);
        if applied >= index {
            // A crash came between installing it and saying so.
            self.member.consensus.applied(applied);
            return Ok(());
        }
        let started = Instant::now();
        self.member.metrics.snapshots_installing.set(1);
        let member = Arc::clone(&self.member);
        let path = member
            .data_dir
            .install(index)
            .map_err(|source| ApplyFaultError::Install { index, source })?;
        let backend = Lmdb::open(&path, LmdbConfig::default())
            .map_err(|source| ApplyFaultError::InstalledBackend { index, source })?;
        let backend = member.metrics.disk.measure_backend(backend);
        let opened = Store::open(
            backend,
            store_config(&member.config),
            store_hooks(&member.stop),
        );
        let (store, restored) =
            opened.map_err(|source| ApplyFaultError::InstalledStore { index, source })?;
        if auth::is_enabled(&store) {
            return Err(ApplyFaultError::InstalledAuth { index });
        }
        let fault = |source| ApplyFaultError::Membership { index, source };
        let lessor = lessor(&member.config, &store)
            .map_err(|source| ApplyFaultError::InstalledLease { index, source })?;
        self.membership = Membership::load(&store).map_err(fault)?;
        let stored = conf_state(&store).map_err(fault)?;
        self.conf_state = configuration(stored, self.membership.iter())
            .or_else(|| snapshot.conf_state.clone())
            .unwrap_or_default();
        self.alarms =
            Alarms::load(&store).map_err(|source| ApplyFaultError::Decode { index, source })?;
        let position = store.applied().unwrap_or(EntryId {
            index,
            term: snapshot.term,
        });

        // Readers first: whoever is told of the new index must find it.
        member.replace_reader(store.reader());
        *member.leases.lock() = lessor;
        member.alarms.store(Arc::new(self.alarms.clone()));
        let auth_revision = auth::revision(&store);
        member.auth_revision.store(auth_revision, Ordering::Relaxed);
        self.show_membership();
        self.take_view();
        member.watches.lock().restore(restored.revision);
        member.watches.ring();
        drop(std::mem::replace(&mut self.store, store));
        self.snapshot_index = position.index;
        self.is_compacting = true;
        // The store that worked on them is gone; those who wait ask again.
        self.compactions.clear();
        member.peers.set_members(&self.membership);
        member.applied.advance(position.index, position.term);
        member.consensus.applied(position.index);
        member.data_dir.remove_replaced(index);
        member.metrics.snapshots_installing.set(0);
        tracing::info!(
            index,
            revision = restored.revision,
            took_ms = started.elapsed().as_millis() as u64,
            "the snapshot of the leader is installed"
        );
        Ok(())
    }
}
