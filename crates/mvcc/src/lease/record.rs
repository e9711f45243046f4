//! Records of the lease bucket, byte for byte as etcd stores them.

use portunus_proto::{LeaseId, leasepb};
use prost::Message;
use thiserror::Error;

/// An error of decoding a stored lease.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The value is not a lease message.
    #[error("the lease record is damaged; restore this member from a healthy one")]
    Damaged(#[from] prost::DecodeError),
}

/// The key of a lease in its bucket: the id, big-endian.
#[must_use]
pub fn record_key(id: LeaseId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// The value of a lease in its bucket.
#[must_use]
pub fn encode_record(record: &leasepb::Lease) -> Vec<u8> {
    record.encode_to_vec()
}

/// Decodes a value of the lease bucket.
///
/// # Errors
/// [`RecordError`] if it is not a lease message.
pub fn decode_record(value: &[u8]) -> Result<leasepb::Lease, RecordError> {
    Ok(leasepb::Lease::decode(value)?)
}
