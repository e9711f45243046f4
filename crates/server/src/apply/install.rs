//! Installing a snapshot of the leader: it replaces the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use portunus_mvcc::backend::{Lmdb, LmdbConfig};
use portunus_mvcc::{EntryId, Restored, Store};
use portunus_proto::raftpb::SnapshotMetadata;
use portunus_statemachine::State;

use super::{ApplyThread, ApplyThreadError};
use crate::member::settings::ApplySettings;
use crate::member::{store_config, store_hooks};

impl ApplyThread {
    /// Replaces the store. The snapshot file is beside the backend, and its record is in the log.
    pub(super) fn install(&mut self, snapshot: &SnapshotMetadata) -> Result<(), ApplyThreadError> {
        let index = snapshot.index;
        let applied = self.machine.applied().map_or(0, |applied| applied.index);
        if applied >= index {
            // A crash came between the installation and its record.
            self.member.consensus.applied(applied);
            return Ok(());
        }
        let started = Instant::now();
        let member = Arc::clone(&self.member);
        member.metrics.snapshots_installing.set(1);
        let (store, restored) = self.open_installed(index)?;
        let lease_ttl_s_min = ApplySettings::of(&member.config).lease_ttl_s_min;
        let mut state = State::load(&store, lease_ttl_s_min)
            .map_err(|source| ApplyThreadError::InstalledState { index, source })?;
        state.conf_state = state.conf_state.or_else(|| snapshot.conf_state.clone());
        let position = store.applied().unwrap_or(EntryId {
            index,
            term: snapshot.term,
        });
        let auth_revision = state.auth_revision;

        // Readers first: a request that sees the new index must read the new store.
        member.replace_reader(store.reader());
        let replaced = self.machine.install(store, state, position);
        member.alarms.store(Arc::new(self.machine.alarms().clone()));
        member.auth_revision.store(auth_revision, Ordering::Relaxed);
        self.publish_membership();
        self.publish_params();
        member.watches.lock().restore(restored.revision);
        member.watches.wake();
        drop(replaced);
        self.compactions.restart();
        member.peers.set_members(self.machine.membership());
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

    fn open_installed(&self, index: u64) -> Result<(Store, Restored), ApplyThreadError> {
        let member = &self.member;
        let path = member
            .data_dir
            .install(index)
            .map_err(|source| ApplyThreadError::Install { index, source })?;
        let backend = Lmdb::open(&path, LmdbConfig::default())
            .map_err(|source| ApplyThreadError::InstalledBackend { index, source })?;
        let backend = member.metrics.disk.measure_backend(backend);
        let config = store_config(&member.config);
        Store::open(backend, config, store_hooks(&member.stop))
            .map_err(|source| ApplyThreadError::InstalledStore { index, source })
    }
}
