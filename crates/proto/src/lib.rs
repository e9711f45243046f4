//! The wire and storage formats that clients, peers and disk tools share with etcd.
//!
//! The crate holds five parts that change together and that every other crate
//! needs: the messages and services (from `proto/`, compiled at build time),
//! their encoding on the wire ([`codec`]), the table of error texts and codes
//! ([`EtcdError`]), the constants of the wire ([`wire`]), and types for ids and
//! terms ([`ClusterId`], [`LeaseId`], [`Term`]). It depends on no other crate of
//! the workspace.
//!
//! It contains no logic: no validation, no defaults, and only one dependency on
//! the version: the code that a version sends for an error text.
//!
//! Generated messages follow protobuf's canonical form: fields ascending, zeros
//! omitted. `bytes` fields are [`bytes::Bytes`], so decoding from a `Bytes`
//! shares the buffer instead of copying keys and values.

pub mod codec;
mod error;
mod ids;
pub mod lenient;
mod nested;
pub mod wire;

pub use error::EtcdError;
pub use ids::{ClusterId, LeaseId, LogIndex, Term};

/// Encoded `FileDescriptorSet` of all files under `proto/`, with etcd's field
/// names. The JSON gateway derives its mapping from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Generated code does not follow this workspace's lints.
macro_rules! generated {
    ($(#[$doc:meta])* $package:ident) => {
        $(#[$doc])*
        #[allow(missing_docs, clippy::all, clippy::pedantic)]
        pub mod $package {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($package), ".rs"));
        }
    };
}

generated! {
    /// Stored users, roles and permissions.
    authpb
}
generated! {
    /// The client-facing services, and the requests in the raft log.
    etcdserverpb
}
generated! {
    /// Stored leases, and lease queries between members.
    leasepb
}
generated! {
    /// Members, their attributes, cluster version and cluster parameters.
    membershippb
}
generated! {
    /// Key-value records and events.
    mvccpb
}
generated! {
    /// This project's own service.
    portunuspb
}
generated! {
    /// Raft messages, entries and states with the numbers Go members use.
    raftpb
}
generated! {
    /// Content of `.snap` files.
    snappb
}
generated! {
    /// The election service.
    v3electionpb
}
generated! {
    /// The lock service.
    v3lockpb
}
generated! {
    /// Records of the write-ahead log.
    walpb
}
