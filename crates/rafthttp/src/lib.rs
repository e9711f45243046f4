//! The transport between members: etcd's peer protocol over HTTP/1.1.
//!
//! It is wire compatible with the transport of Go etcd. The server passes messages to
//! [`Transport::send`], mounts [`Transport::router`] on its peer addresses and implements
//! [`Raft`]; there is no other interface between the two.
//!
//! ```text
//!             send                                             router
//!   MsgApp ────────▶ msgapp queue ──▶ body of an accepted GET ──▶ the peer's reader
//!   others ────────▶ message queue ─▶ body of an accepted GET ──▶ the peer's reader
//!   no stream ─────▶ pipeline ──────▶ POST /raft ───────────────▶ the peer's router
//!   MsgSnap ───────▶ snapshots ─────▶ POST /raft/snapshot ──────▶ the peer's router
//!
//!   two readers per peer dial GET /raft/stream/… and call Raft::step
//! ```
//!
//! The member that dials a stream reads it; the member that accepts it writes it. Messages
//! may be lost, duplicated or reordered, as raft allows; sending never waits.
//!
//! Not in this crate: the meaning of messages, membership, and accepting connections, with TLS or
//! without.

pub mod codec;

mod body;
mod client;
mod config;
mod connector;
mod headers;
mod metrics;
mod peer;
mod pipeline;
mod post;
mod probing;
mod raft;
mod refusals;
mod reports;
mod routes;
mod shared;
mod snapshot;
mod status;
mod stream_reader;
mod stream_writer;
mod sync;
mod transport;
mod urls;

pub use client::{PeerClient, RequestError};
pub use config::{Config, LocalMember};
pub use raft::{OutgoingSnapshot, Raft, SnapshotRefused, StepRefused};
pub use transport::Transport;

pub use futures_core::future::BoxFuture;
pub use futures_core::stream::BoxStream;
