//! The state machine's state besides the keys, as a store holds it.

use portunus_auth::AuthState;
use portunus_mvcc::Store;
use portunus_mvcc::lease::{Lessor, RecordError};
use portunus_proto::raftpb::ConfState;
use thiserror::Error;

use crate::alarms::Alarms;
use crate::conf_state::{configuration, stored_conf_state};
use crate::lessor::lessor_of;
use crate::membership::{Membership, MembershipError};

/// Members, alarms, leases, users and raft's configuration of a store.
pub struct State {
    /// Members, cluster version and cluster params.
    pub membership: Membership,
    /// The alarms in force.
    pub alarms: Alarms,
    /// The leases, with their clocks stopped.
    pub lessor: Lessor,
    /// Raft's configuration at the applied index; `None` in a new store.
    pub conf_state: Option<ConfState>,
    /// Users and roles.
    pub auth: AuthState,
}

/// A store that a member cannot serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Damaged records of users or roles.
    #[error(transparent)]
    Auth(#[from] portunus_auth::LoadError),
    /// Damaged records of members, versions or params.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// A damaged alarm.
    #[error("a stored alarm cannot be read: restore this member from a snapshot")]
    Alarm(#[from] prost::DecodeError),
    /// A damaged lease.
    #[error("a stored lease cannot be read")]
    Lease(#[from] RecordError),
}

impl State {
    /// Reads the state from a store.
    ///
    /// # Errors
    /// If a record is damaged.
    pub fn load(store: &Store, lease_ttl_s_min: i64) -> Result<State, LoadError> {
        let membership = Membership::load(store)?;
        let conf_state = configuration(stored_conf_state(store)?, membership.iter());
        Ok(State {
            membership,
            alarms: Alarms::load(store)?,
            lessor: lessor_of(store, lease_ttl_s_min)?,
            conf_state,
            auth: AuthState::load(store)?,
        })
    }
}
