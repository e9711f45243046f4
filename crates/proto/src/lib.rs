//! Everything that has to look to a client, a peer or a disk tool exactly like etcd.
//!
//! Four things live here because they change together and every other crate
//! needs them: the messages and services (from `proto/`, compiled at build
//! time), how they are put on the wire ([`codec`]), the table of error texts and
//! codes ([`EtcdError`]), and the constants of the wire ([`wire`]). Every crate
//! above calls it; it calls nobody.
//!
//! It never decides anything: no validation, no defaults, no behaviour by
//! version beyond "which code did that version send for this text".
//!
//! Generated messages follow protobuf's canonical form: fields ascending, zeros
//! left out. `bytes` fields are [`bytes::Bytes`], so decoding from a `Bytes`
//! shares the buffer instead of copying keys and values.

pub mod codec;
mod error;
pub mod lenient;
mod nested;
pub mod wire;

pub use error::EtcdError;

/// Encoded `FileDescriptorSet` of all files under `proto/`, with etcd's field
/// names. The JSON gateway derives its mapping from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Generated code follows the generator's taste, not this workspace's lints.
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
    /// Users, roles and permissions as stored.
    authpb
}
generated! {
    /// The client-facing services, and what the raft log carries.
    etcdserverpb
}
generated! {
    /// Leases as stored, and lease queries between members.
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
