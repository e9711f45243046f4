//! A client for etcd's API, with the guarantees of etcd's Go client (clientv3).
//!
//! It works with Portunus and with etcd 3.5 to 3.7. It connects to all endpoints, sends calls to those
//! that are ready in turn, repeats a call elsewhere where that is safe, puts a deadline on calls, and
//! converts the server's statuses to typed errors. It starts no runtime and no thread: everything runs on
//! the tokio runtime of the caller.
//!
//! # Ten minutes
//!
//! Connect, write, read, watch:
//!
//! ```no_run
//! use portunus_client::{Client, Options, Put, Range, Watch};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(Options {
//!     endpoints: vec!["10.0.0.1:2379".into(), "10.0.0.2:2379".into()],
//!     ..Options::default()
//! })?;
//! let put = client.put(Put::new("/jobs/1", "print")).await?;
//! let read = client.range(Range::prefix("/jobs/")).await?;
//! println!("{} jobs", read.count);
//!
//! let after = put.header.map_or(0, |header| header.revision) + 1;
//! let mut watcher = client.watch(Watch::prefix("/jobs/").from_revision(after));
//! while let Some(response) = watcher.next().await? {
//!     for event in response.events {
//!         println!("{event:?}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Requests are built with [`Range`], [`Put`], [`Delete`], [`Txn`], [`Compare`] and [`Watch`], or written
//! as the generated messages in [`proto`]. Responses are always the messages.
//!
//! **Write only if nothing changed**, in one transaction:
//!
//! ```no_run
//! # use portunus_client::{Client, ClientError, Compare, Put, Range, Txn};
//! # async fn run(client: Client, expected: i64) -> Result<(), ClientError> {
//! let txn = Txn::new()
//!     .when(Compare::mod_revision("/jobs/1").equals(expected))
//!     .then(Put::new("/jobs/1", "done"))
//!     .otherwise(Range::key("/jobs/1"));
//! if !client.txn(txn).await?.succeeded {
//!     println!("somebody else was faster; the response has the current value");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **List many keys at one revision**, and watch from there; this is what an informer does:
//!
//! ```no_run
//! # use portunus_client::{Client, ClientError, Range, Watch};
//! # async fn run(client: Client) -> Result<(), ClientError> {
//! let mut list = client.list(Range::prefix("/jobs/"));
//! while let Some(kv) = list.next().await? {
//!     println!("{:?}", kv.key);
//! }
//! let after = list.revision().unwrap_or(0) + 1;
//! let watcher = client.watch(Watch::prefix("/jobs/").from_revision(after));
//! # drop(watcher);
//! # Ok(())
//! # }
//! ```
//!
//! **Keys that disappear with their owner** have a lease:
//!
//! ```no_run
//! # use portunus_client::{Client, Put};
//! # async fn work() {}
//! # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut lease = client.lease(10).await?;
//! client.put(Put::new("/workers/a", "").lease(lease.id())).await?;
//! // Renews the lease while the work is done; an error if the lease is lost.
//! lease.while_held(work()).await?;
//! lease.revoke().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **One process at a time**, with a fencing revision:
//!
//! ```no_run
//! # use portunus_client::{Client, Put, Txn};
//! use portunus_client::concurrency::{Mutex, Session, SessionOptions};
//!
//! # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::start(&client, SessionOptions::default()).await?;
//! let lock = Mutex::new(&session, "/locks/report").lock().await?;
//! let write = Txn::new().when(lock.is_held()).then(Put::new("/report", "..."));
//! client.txn(write).await?;
//! lock.unlock().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! | for | see |
//! | --- | --- |
//! | endpoints, TLS, users, timeouts | [`Options`], [`TlsOptions`], [`Credentials`] |
//! | keys and transactions | [`Client::range`], [`Client::put`], [`Client::delete_range`], [`Client::txn`], [`Client::list`] |
//! | watches | [`Client::watch`], and [`Client::watch_streams`] for many that share streams |
//! | leases | [`Client::lease`], [`Client::keep_alive`] |
//! | sessions, locks, elections, optimistic transactions | [`concurrency`] |
//! | objects of Kubernetes | [`kubernetes`]: a trait with implementations over a client, in memory, and recording |
//! | a part of the keys; answers in order | [`Client::namespace`], [`Client::ordered`] |
//! | feature gates | [`Client::feature_gate_status`], [`Client::gate_watch`], [`Client::requiring`] |
//! | members, maintenance, users and roles | [`Client::member_list`], [`Client::status`], [`Client::snapshot_stream`], [`Client::user_add`] and their neighbours |
//!
//! The calls of clientv3 one by one are in `docs/client.md`. Programs to start from are in `examples`:
//! `leader_election`, `feature_aware`, `list_and_watch`, `optimistic_update`, `in_memory_test`.
//!
//! # What happens when something fails
//!
//! ```text
//!  method ──▶ arguments ──▶ deadline ──▶ token ──▶ balancer: next ready endpoint ──▶ Status ──▶ ClientError
//!                                         ▲ ▲                                          │
//!                                         │ └─ reads, and writes not sent: Unavailable ┤
//!                                         └─── any call: the server refuses its token ─┘
//! ```
//!
//! - **A read** is repeated at the next endpoint while members are unavailable, until its deadline.
//! - **A write** that may have reached a server is never repeated: after
//!   [`Unavailable`](ClientError::is_unavailable) or a deadline it may have been applied. Read, or use a
//!   transaction whose condition makes the second attempt harmless.
//! - **A watch** goes on after its last event on another connection, and loses and repeats none. If the
//!   history it needs was compacted, its last response has `canceled` and the compact revision: list
//!   again.
//! - **A lease** is reported as [lost](LeaseLost) before a server could have expired it.
//! - **An old server** answers a call it does not know with [`ClientError::Unsupported`], which names it.
//!   [`Client::list`] does without streams by itself.
//! - **Wrong arguments** are [`ClientError::Argument`]; nothing was sent.
//!
//! A future that is dropped, such as by `tokio::time::timeout`, cancels its call. Futures of streams can
//! be dropped without losing anything.

mod arguments;
mod auth;
mod balancer;
mod calls;
mod cluster;
pub mod concurrency;
mod connection;
mod endpoint;
mod error;
mod feature_gates;
mod keep_alive;
mod key_range;
pub mod kubernetes;
mod kv;
mod lease;
mod lease_guard;
mod list;
mod maintenance;
mod namespace;
mod options;
mod ordering;
mod preface;
mod request;
mod snapshot;
mod tls;
mod token;
mod watch;
mod watch_streams;

pub use arguments::ArgumentError;
pub use connection::Client;
pub use endpoint::{EndpointError, EndpointParts, Scheme, parse_endpoint};
pub use error::{ClientError, ConnectError, RequireError};
pub use feature_gates::GateWatcher;
pub use keep_alive::KeepAlive;
pub use key_range::prefix_end;
pub use lease_guard::{LeaseGuard, LeaseLost};
pub use list::List;
pub use namespace::{Namespace, NamespaceList, NamespaceWatcher};
pub use options::Options;
pub use ordering::{Ordered, OrderingError};
/// The messages of etcd's API, and its errors.
pub use portunus_proto as proto;
pub use request::{Compare, CompareTarget, Delete, Op, Put, Range, Txn, Watch};
pub use snapshot::{Snapshot, SnapshotError};
pub use tls::{KeyPairFiles, LoadError, Tls, TlsOptions};
pub use token::Credentials;
pub use watch::{ProgressRequester, Watcher};
pub use watch_streams::{StreamWatch, UnknownStream, WatchEnd, WatchStreams};
