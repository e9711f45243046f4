//! Faults that stop the member.

use portunus_mvcc::ApplyError;
use thiserror::Error;

use crate::membership::MembershipError;
use crate::wrap::UnwrapError;

/// An entry that this member cannot apply. Going on would make its state differ from that of the
/// other members, so the member stops.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum EntryError {
    /// The store failed.
    #[error("entry {index} of the log could not be applied")]
    Store { index: u64, source: ApplyError },
    /// Membership records are damaged.
    #[error("entry {index} of the log could not be applied")]
    Membership { index: u64, source: MembershipError },
    /// An entry without a request.
    #[error(
        "entry {index} of the log cannot be decoded: the log is damaged or from a newer version"
    )]
    Decode {
        index: u64,
        source: prost::DecodeError,
    },
    /// A wrapped request that cannot be unwrapped.
    #[error(
        "entry {index} of the log cannot be opened: the log is damaged or from a newer version"
    )]
    Unwrap { index: u64, source: UnwrapError },
    /// A request that this version does not support.
    #[error(
        "entry {index} of the log asks for {what}, which this version does not support: use the version that wrote it"
    )]
    Unsupported { index: u64, what: &'static str },
    /// A cluster version above the version that this member behaves as.
    #[error(
        "the cluster version {cluster} is above the version this member behaves as, {own}: raise --emulated-version or start a newer binary"
    )]
    ClusterVersionTooHigh { cluster: String, own: String },
    /// Members whose versions must not run together.
    #[error("entry {index} of the log brings a member that does not fit")]
    MixedVersions {
        index: u64,
        source: portunus_gates::cluster::MixedVersions,
    },
}
