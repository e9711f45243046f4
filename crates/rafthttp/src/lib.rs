//! How members talk to each other: etcd's peer protocol over HTTP/1.1.
//!
//! A member of a Go etcd cluster cannot tell this transport from its own. The server hands
//! messages to [`Transport::send`], mounts [`Transport::router`] on its peer addresses and
//! implements [`Raft`]; nothing else passes between them.
//!
//! ```text
//!             send                                             router
//!   MsgApp ────────▶ msgapp queue ──▶ body of an accepted GET ──▶ the peer's reader
//!   others ────────▶ message queue ─▶ body of an accepted GET ──▶ the peer's reader
//!   no stream ─────▶ pipeline ──────▶ POST /raft ───────────────▶ the peer's router
//!   MsgSnap ───────▶ snapshots ─────▶ POST /raft/snapshot ──────▶ the peer's router
//!
//!   two readers per peer dial out, GET /raft/stream/…, and call Raft::step
//! ```
//!
//! Who dials a stream reads it; who accepts one writes it. Messages may be lost, doubled
//! or overtaken, as raft allows; none is ever waited for.
//!
//! Never here: what a message means, who is a member, TLS (an `https` address is refused).

pub mod codec;

mod body;
mod client;
mod config;
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
pub use config::{Config, Local};
pub use raft::{OutgoingSnapshot, Raft, SnapshotRefused, StepRefused};
pub use transport::Transport;

pub use futures_core::future::BoxFuture;
pub use futures_core::stream::BoxStream;
