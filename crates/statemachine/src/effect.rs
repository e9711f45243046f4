//! What applying an entry returns.

use std::sync::Arc;

use portunus_mvcc::RevisionEvents;
use portunus_proto::etcdserverpb::{
    AlarmResponse, CompactionResponse, DeleteRangeResponse, LeaseGrantResponse,
    LeaseRevokeResponse, PutResponse, ResponseHeader, TxnResponse,
};
use portunus_proto::raftpb::{ConfChange, ConfState};
use portunus_proto::{EtcdError, Term};

use crate::membership::PlannedChange;
use crate::operation::Operation;

/// The response to an applied request. Headers hold only the revision.
#[derive(Debug)]
pub enum Response {
    /// To a put.
    Put(PutResponse),
    /// To a delete.
    DeleteRange(DeleteRangeResponse),
    /// To a transaction.
    Txn(TxnResponse),
    /// To a compaction, which has begun; see [`Effect::CompactionBegan`].
    Compaction(CompactionResponse),
    /// To a grant of a lease.
    LeaseGrant(LeaseGrantResponse),
    /// To the revocation of a lease.
    LeaseRevoke(LeaseRevokeResponse),
    /// To a query or a change of alarms.
    Alarm(AlarmResponse),
    /// To a change of users and roles.
    AuthChanged(ResponseHeader),
    /// To a login.
    Authenticated {
        /// The header.
        header: ResponseHeader,
        /// The user.
        username: String,
        /// The simple token that every member has assigned.
        token: String,
        /// The revision of users and roles at the login.
        auth_revision: u64,
    },
    /// To a change of membership.
    Members,
    /// To a request whose response has no content.
    Done,
}

/// A response, or the error that every member comes to.
pub type Answer = Result<Response, EtcdError>;

/// The outcome of one entry.
#[derive(Debug)]
pub struct Applied {
    /// The kind of the request; `None` for an entry without one.
    pub operation: Option<Operation>,
    /// The id of the request; 0 if no client waits for it.
    pub request_id: u64,
    /// The answer for the client.
    pub answer: Answer,
    /// The changes of keys, for watchers.
    pub events: Option<Arc<RevisionEvents>>,
    /// What the caller has to do, in this order, before it answers the client.
    pub effects: Vec<Effect>,
}

impl Applied {
    /// The outcome of an entry without a request.
    pub(crate) fn without_request() -> Applied {
        Applied {
            operation: None,
            request_id: 0,
            answer: Ok(Response::Done),
            events: None,
            effects: Vec::new(),
        }
    }
}

/// A consequence of an entry outside of the state machine. A caller has to handle every kind, so
/// the list is exhaustive.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The entry is the first of its term. If this member leads the term, it starts the clocks of
    /// all leases.
    TermBegan {
        /// The term.
        term: Term,
    },
    /// The membership, the cluster version or the params changed: publish
    /// [`StateMachine::membership`](crate::StateMachine::membership), and decide again whether
    /// the cluster version or the params have to change.
    MembershipChanged,
    /// Raft has to apply a configuration change. A change that was refused has node id 0 and
    /// changes nothing.
    ConfigureRaft {
        /// The change.
        change: ConfChange,
        /// The configuration that raft must have afterwards. `None` while entries are repeated
        /// that the store has applied before.
        expected: Option<ConfState>,
    },
    /// Members were added, promoted, updated or removed.
    MemberChanged(PlannedChange),
    /// A member published its attributes, so it was started, perhaps as another program.
    MemberStarted {
        /// The member.
        id: u64,
    },
    /// Other members may have lost this member's proposal: publish it once more.
    RepublishProposal,
    /// The values of cluster features for the entries that follow changed: publish
    /// [`StateMachine::view`](crate::StateMachine::view).
    ParamsDecided,
    /// The alarms changed: publish [`StateMachine::alarms`](crate::StateMachine::alarms).
    AlarmsChanged,
    /// Users or roles changed, or authentication was enabled or disabled: publish
    /// [`StateMachine::auth`](crate::StateMachine::auth). Without authentication no token is
    /// valid.
    AuthChanged,
    /// A user logged in: accept the token.
    TokenAssigned {
        /// The user.
        username: String,
        /// The token.
        token: String,
    },
    /// A user was deleted or has another password: accept none of its tokens any more.
    UserTokensInvalidated {
        /// The user.
        username: String,
    },
    /// The backend exceeds its quota: propose the NOSPACE alarm.
    QuotaExceeded,
    /// A compaction began: call
    /// [`StateMachine::compaction_step`](crate::StateMachine::compaction_step) until it is done.
    CompactionBegan {
        /// The revision to compact to.
        revision: i64,
        /// Whether the client waits until the data is removed.
        is_physical: bool,
    },
}
