//! Installing a snapshot of the leader: it replaces the store.

use std::time::Instant;

use portunus_mvcc::{EntryId, Restored, Store};
use portunus_proto::raftpb::SnapshotMetadata;
use portunus_proto::{LogIndex, Term};
use portunus_statemachine::State;

use super::{ApplyThread, ApplyThreadError};
use crate::config::ApplySettings;
use crate::handles::open_store::open_store;

impl ApplyThread {
    /// Replaces the store. The snapshot file is beside the backend, and its record is in the log.
    pub(super) fn install(&mut self, snapshot: &SnapshotMetadata) -> Result<(), ApplyThreadError> {
        let index = snapshot.index;
        let applied = self.machine.applied().map_or(0, |applied| applied.index);
        if applied >= index {
            // A crash came between the installation and its record.
            self.outputs.consensus.applied(applied);
            return Ok(());
        }
        let started = Instant::now();
        self.outputs.process.metrics.snapshots_installing.set(1);
        let (store, restored) = self.open_installed(index)?;
        let lease_ttl_s_min = ApplySettings::of(&self.outputs.process.config).lease_ttl_s_min;
        let mut state = State::load(&store, lease_ttl_s_min)
            .map_err(|source| ApplyThreadError::InstalledState { index, source })?;
        state.conf_state = state.conf_state.or_else(|| snapshot.conf_state.clone());
        let position = store.applied().unwrap_or(EntryId {
            index,
            term: Term(snapshot.term),
        });
        // The receiver refuses a file that is older than its message.
        assert!(
            position.index >= index,
            "the leader's snapshot of index {index} holds the store of index {}",
            position.index
        );

        // Users and roles first: no request must read the new store with old permissions. Then
        // readers: a request that sees the new index must read the new store.
        self.outputs.auth.publish_installed(state.auth.clone());
        self.outputs.store.replace_reader(store.reader());
        let replaced = self.machine.install(store, state, position);
        let alarms = self.machine.alarms().clone();
        self.outputs.cluster.publish_alarms(alarms);
        self.publish_membership();
        self.publish_params();
        self.outputs.watches.lock().restore(restored.revision);
        self.cancel_unpermitted_watches();
        self.outputs.watches.wake();
        drop(replaced);
        self.compactions.restart();
        let outputs = &self.outputs;
        outputs.peers.set_members(self.machine.membership());
        let applied = &outputs.store.applied;
        applied.advance(LogIndex(position.index), position.term);
        outputs.consensus.applied(position.index);
        outputs.process.data_dir.remove_replaced(index);
        outputs.process.metrics.snapshots_installing.set(0);
        tracing::info!(
            index,
            revision = restored.revision,
            took_ms = started.elapsed().as_millis() as u64,
            "the snapshot of the leader is installed"
        );
        Ok(())
    }

    fn open_installed(&self, index: u64) -> Result<(Store, Restored), ApplyThreadError> {
        let process = &self.outputs.process;
        let path = process
            .data_dir
            .install(index)
            .map_err(|source| ApplyThreadError::Install { index, source })?;
        open_store(&path, &process.config, &process.metrics.disk, &process.stop)
            .map_err(|source| ApplyThreadError::InstalledStore { index, source })
    }
}
