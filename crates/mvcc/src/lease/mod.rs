//! Leases: grant, renewal, expiry and checkpoints.
//!
//! Every member's [`Lessor`] holds every lease, because grants, revokes and
//! checkpoints come through the log. Only the leader's lessor is *primary*: it
//! alone has expiry times, renews leases and returns those that are due. The
//! lessor of a new leader is promoted and restarts every lease with at least
//! its remaining time, since renewals are not in the log.
//!
//! ```text
//!   log ──▶ grant / revoke / checkpoint ──▶ ┌────────┐ ──▶ records to persist
//!   clients ──▶ renew, time_to_live ──────▶ │ Lessor │ ──▶ due: ids to revoke
//!   leadership ──▶ promote / demote ──────▶ └────────┘ ──▶ checkpoints to propose
//! ```
//!
//! The server calls the lessor. The lessor never reads a clock (milliseconds of
//! any monotonic clock are an argument), never proposes or revokes anything
//! itself, and does not know which keys are attached to a lease; the store
//! does.

mod checkpoint;
mod lessor;
mod promote;
mod record;

pub use checkpoint::CHECKPOINT_BATCH_MAX;
pub use lessor::{Lessor, LessorConfig, Renewal, TTL_S_MAX, TimeToLive};
pub use record::{RecordError, decode_record, encode_record, record_key};
