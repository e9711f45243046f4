//! The state machine: one entry of the log at a time.

mod auth;
mod cluster;
mod conf_change;
mod data;
mod leases;
#[cfg(feature = "test-features")]
pub(crate) mod tag;
mod wrapped;

use std::sync::Arc;

use bytes::Bytes;
use portunus_auth::{AuthState, Caller};
use portunus_features::{ClusterFeatures, OwnFeatures};
use portunus_gates::cluster::ClusterSpecs;
use portunus_gates::{Features, MajorMinor};
use portunus_mvcc::{ApplyError, CompactionStep, EntryId, Reader, Store, StoreFault};
use portunus_proto::Term;
use portunus_proto::etcdserverpb::{InternalRaftRequest, ResponseHeader};
use portunus_proto::raftpb::{ConfState, Entry, EntryType};

use crate::alarms::Alarms;
use crate::command::Command;
use crate::effect::{Applied, Effect};
use crate::entry_error::EntryError;
use crate::gated::GatedEntries;
use crate::lessor::SharedLessor;
use crate::membership::Membership;
use crate::operation::Operation;
use crate::params::View;
use crate::state::State;
use crate::v2_request;

pub use leases::LEASE_COST_BYTES;

/// The settings of a member that applying depends on. Except for the first two and the last,
/// members with different values could come to different states, as in etcd; members compare
/// `max_learners` and the minimum TTL when they start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This member.
    pub member_id: u64,
    /// The version that this member behaves as. A higher cluster version stops the member.
    pub version: MajorMinor,
    /// The largest number of learners.
    pub max_learners: usize,
    /// The minimum TTL of a lease.
    pub lease_ttl_s_min: i64,
    /// The quota of the backend. It decides only whether a write that was made is answered with
    /// an error, and whether this member raises an alarm.
    pub quota_bytes: Option<u64>,
    /// How many entries are applied between two snapshots of the log.
    pub snapshot_count: u64,
}

/// The state of this process that applying an entry may use. It never changes what is stored.
pub struct Local<'a> {
    /// The time on the lessor's clock. It decides when leases expire here.
    pub now_ms: u64,
    /// Whether a client of this member waits for a request. It decides whether the ranges of a
    /// transaction are read.
    pub is_waiting: &'a dyn Fn(u64) -> bool,
}

/// A request to shorten the log once the backend has everything up to an index.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotRequest {
    /// The index.
    pub index: u64,
    /// Raft's configuration there.
    pub conf_state: ConfState,
    /// No entry up to the index may be sent to a member any more.
    pub keeps_no_entries: bool,
}

/// Where the request of an entry comes from, by its header.
struct Origin {
    /// The id for which the proposing member waits.
    request_id: u64,
    /// The user, as the proposing member identified it.
    caller: Caller,
}

impl Origin {
    fn of(request: &InternalRaftRequest) -> Origin {
        match &request.header {
            None => Origin {
                request_id: request.id,
                caller: Caller::default(),
            },
            Some(header) => Origin {
                request_id: header.id,
                caller: match header.username.is_empty() && header.auth_revision == 0 {
                    true => Caller::default(),
                    false => Caller::new(header.username.as_str(), header.auth_revision),
                },
            },
        }
    }
}

/// The replicated state of one member, and the rules that change it.
pub struct StateMachine {
    settings: Settings,
    specs: ClusterSpecs,
    features: Features<ClusterFeatures>,
    store: Store,
    lessor: SharedLessor,
    membership: Membership,
    alarms: Alarms,
    auth: AuthState,
    conf_state: ConfState,
    /// The cluster features for the entry being applied: what entries before it decided.
    view: Arc<View>,
    /// Whether a cluster feature is on.
    has_feature: bool,
    gated: GatedEntries,
    /// Where the last snapshot of the log was requested.
    snapshot_index: u64,
}

impl StateMachine {
    /// Takes over a store and the state that was loaded from it. `last_wrapped` is the index of
    /// the last wrapped entry in the log; 0 if there is none.
    pub fn new(
        settings: Settings,
        own: &OwnFeatures,
        store: Store,
        state: State,
        last_wrapped: u64,
    ) -> StateMachine {
        let features = own.cluster.clone();
        let membership = state.membership;
        StateMachine {
            settings,
            specs: own.cluster_specs(),
            view: Arc::new(features.view(membership.params.as_ref())),
            features,
            lessor: SharedLessor::new(state.lessor),
            alarms: state.alarms,
            auth: state.auth,
            conf_state: state.conf_state.unwrap_or_default(),
            has_feature: membership.has_feature(),
            gated: GatedEntries::of_log(&membership, last_wrapped),
            membership,
            snapshot_index: store.applied().map_or(0, |applied| applied.index),
            store,
        }
    }

    /// Applies the next entry of the log.
    ///
    /// # Errors
    /// If this member cannot apply it; the member has to stop.
    pub fn apply(&mut self, entry: Entry, local: &Local<'_>) -> Result<Applied, EntryError> {
        let index = entry.index;
        let position = self.store.applied();
        if position.is_some_and(|applied| index <= applied.index) {
            // Raft does not store its configuration, so it needs the changes again after a
            // restart. Nothing else is repeated.
            return self.repeat_conf_change(&entry);
        }
        let store_fault = |source| EntryError::Store { index, source };
        let id = EntryId {
            index,
            term: Term(entry.term),
        };
        self.store.begin(id).map_err(store_fault)?;
        let applied = match entry.r#type() {
            EntryType::EntryNormal if entry.data.is_empty() => {
                // Raft also commits an empty entry in place of a change of membership that it
                // refuses. Only the first entry of a term begins it.
                let term = Term(entry.term);
                let begins_term = position.is_none_or(|applied| applied.term < term);
                Applied {
                    effects: Vec::from_iter(begins_term.then_some(Effect::TermBegan { term })),
                    ..Applied::without_request()
                }
            }
            EntryType::EntryNormal => self.apply_normal(index, entry.data, local)?,
            EntryType::EntryConfChange => self.apply_conf_change(index, entry.data)?,
            EntryType::EntryConfChangeV2 => {
                return Err(EntryError::Unsupported {
                    index,
                    what: "joint membership changes",
                });
            }
        };
        self.store.end().map_err(store_fault)?;
        Ok(applied)
    }

    fn apply_normal(
        &mut self,
        index: u64,
        data: Bytes,
        local: &Local<'_>,
    ) -> Result<Applied, EntryError> {
        let request = v2_request::read(index, data)?;
        let origin = Origin::of(&request);
        match &request.wrapped {
            None => self.apply_request(index, &origin, request, local),
            Some(wrapped) => self.apply_wrapped(index, &origin, wrapped, local),
        }
    }

    fn apply_request(
        &mut self,
        index: u64,
        origin: &Origin,
        request: InternalRaftRequest,
        local: &Local<'_>,
    ) -> Result<Applied, EntryError> {
        let operation = Some(Operation::of(&request));
        let Some(command) = Command::of(request) else {
            return Err(EntryError::Unsupported {
                index,
                what: "something newer",
            });
        };
        let applied = match command {
            Command::Cluster(command) => self.apply_cluster(index, command)?,
            Command::Data(command) => {
                self.note_gated(index);
                self.apply_data(index, origin, command, local)?
            }
            Command::Auth(command) => self.apply_auth(index, &origin.caller, &command)?,
        };
        Ok(Applied {
            operation,
            request_id: origin.request_id,
            ..applied
        })
    }

    /// Ends a batch of entries, of which `index` is the last. Returns a request to shorten the
    /// log, if one is due. `knows_features` returns whether a member without a proposal is known
    /// to obey cluster params.
    pub fn end_batch(
        &mut self,
        index: u64,
        knows_features: &dyn Fn(u64) -> bool,
    ) -> Option<SnapshotRequest> {
        self.forget_gated_if_unreadable(knows_features);
        let keeps_no_entries = self.gated.take_forget_request();
        let is_due = index.saturating_sub(self.snapshot_index) > self.settings.snapshot_count;
        if !is_due && !keeps_no_entries {
            return None;
        }
        self.snapshot_index = index;
        Some(SnapshotRequest {
            index,
            conf_state: self.conf_state.clone(),
            keeps_no_entries,
        })
    }

    /// Replaces everything by a snapshot of the leader: a store, the state that was loaded from
    /// it, and its position in the log. Returns the store that was replaced.
    pub fn install(&mut self, store: Store, state: State, position: EntryId) -> Store {
        self.membership = state.membership;
        self.alarms = state.alarms;
        self.auth = state.auth;
        self.conf_state = state.conf_state.unwrap_or_default();
        *self.lessor.lock() = state.lessor;
        self.review_gated();
        self.take_view();
        self.snapshot_index = position.index;
        std::mem::replace(&mut self.store, store)
    }

    /// Does one slice of compaction work.
    ///
    /// # Errors
    /// If the store fails; the member has to stop.
    pub fn compaction_step(&mut self) -> Result<CompactionStep, ApplyError> {
        self.store.compaction_step()
    }

    /// Returns how many records compactions have removed since the last call.
    pub fn take_compacted_records(&mut self) -> u64 {
        self.store.take_compacted_records()
    }

    /// Waits until the backend has everything, and closes the store.
    ///
    /// # Errors
    /// If the backend failed.
    pub fn close(self) -> Result<(), StoreFault> {
        self.store.close()
    }

    /// The position of the last applied entry.
    pub fn applied(&self) -> Option<EntryId> {
        self.store.applied()
    }

    /// The store, to read it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Raft's configuration after the last applied entry.
    pub fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    /// A reader of the store.
    pub fn reader(&self) -> Reader {
        self.store.reader()
    }

    /// The lessor.
    pub fn lessor(&self) -> &SharedLessor {
        &self.lessor
    }

    /// Members, cluster version and cluster params.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The alarms in force.
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// Users and roles.
    pub fn auth(&self) -> &AuthState {
        &self.auth
    }

    /// The values of cluster features for the next entry.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    fn take_view(&mut self) {
        self.view = Arc::new(self.features.view(self.membership.params.as_ref()));
    }

    fn revision_header(&self) -> ResponseHeader {
        ResponseHeader {
            revision: self.store.revision(),
            ..ResponseHeader::default()
        }
    }
}
