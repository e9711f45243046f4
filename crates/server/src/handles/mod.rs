//! What the threads and services of a member share, by concern.
//!
//! ```text
//!  Process       configuration, server gates, metrics, health, data directory, stop
//!  StoreAccess   the reader of the store, the applied position, the read barrier, limits of reads
//!  ClusterState  ids, members, versions, alarms, cluster gates, leadership, as applied
//!  Leases        the lessor and its clock
//!  Connections   the open connections of clients, and what each of them uses
//!  Watches       the watch hub and the wake-up of its catch-up thread
//! ```
//! The apply thread publishes to these handles; services and background tasks read them. Everything
//! here is immutable, swapped atomically or locked briefly. This module uses no other module of
//! the crate than `config`, `metrics` and helpers: what proposes, connects or serves is above it.

pub mod address_block;
pub mod admission;
pub mod applied;
pub mod auth;
pub mod caller_limits;
pub mod cluster;
pub mod cluster_gates;
pub mod compactions;
pub mod connections;
pub mod founding;
pub mod hashing;
pub mod leadership;
pub mod leases;
pub mod open_store;
pub mod passwords;
pub mod process;
pub mod range_budget;
pub mod rate_limit;
pub mod snapshot_slots;
pub mod stop;
pub mod store;
pub mod watches;

pub use auth::Auth;
pub use cluster::ClusterState;
pub use leases::Leases;
pub use process::Process;
pub use store::StoreAccess;
pub use watches::Watches;
