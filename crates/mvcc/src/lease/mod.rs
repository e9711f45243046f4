//! How long leases live.
//!
//! Every member's [`Lessor`] knows every lease, because grants, revokes and
//! checkpoints come through the log. Only the leader's one is *primary*: it
//! alone has expiry times, renews leases and says which are due. A new leader
//! is promoted and starts all clocks again, generously, since it cannot know
//! what its predecessor renewed.
//!
//! ```text
//!   log ──▶ grant / revoke / checkpoint ──▶ ┌────────┐ ──▶ records to persist
//!   clients ──▶ renew, time_to_live ──────▶ │ Lessor │ ──▶ due: ids to revoke
//!   leadership ──▶ promote / demote ──────▶ └────────┘ ──▶ checkpoints to propose
//! ```
//!
//! The server calls it. It never reads a clock (milliseconds of any monotonic
//! clock are an argument), never proposes or revokes anything itself, and does
//! not know which keys are attached to a lease; the store does.

mod checkpoint;
mod lessor;
mod promote;
mod record;

pub use checkpoint::CHECKPOINT_BATCH_MAX;
pub use lessor::{Lessor, LessorConfig, Renewal, TTL_S_MAX, TimeToLive};
pub use record::{RecordError, decode_record, encode_record, record_key};
