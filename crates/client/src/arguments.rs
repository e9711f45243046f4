//! Checks of arguments before a request is sent.
//!
//! Only what no server accepts, or what every server silently reads as something else, is refused
//! here. A wrong endpoint, certificate or token is refused when the client is created.

use portunus_proto::EtcdError;
use portunus_proto::etcdserverpb::request_op::Request;
use portunus_proto::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};
use prost::Message;

/// Why a request was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A key is empty.
    #[error("{}", EtcdError::EmptyKey.text())]
    EmptyKey,
    /// A revision is negative, which servers read as if it was not given.
    #[error("{name} is {value}: it must be 0 or larger")]
    Negative {
        /// The field of the request.
        name: &'static str,
        /// Its value.
        value: i64,
    },
    /// The request is larger than the options of the client allow. The text is Go's.
    #[error(
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({bytes} vs. {bytes_max})"
    )]
    TooLarge {
        /// The size of the request.
        bytes: usize,
        /// [`Options::request_bytes_max`](crate::Options::request_bytes_max).
        bytes_max: usize,
    },
}

/// A request that can be checked.
pub(crate) trait Checked: Message {
    /// Checks everything but the size.
    ///
    /// # Errors
    /// The first wrong argument.
    fn check_fields(&self) -> Result<(), ArgumentError>;

    /// Checks everything.
    ///
    /// # Errors
    /// The first wrong argument.
    fn check(&self, bytes_max: usize) -> Result<(), ArgumentError> {
        self.check_fields()?;
        match self.encoded_len() {
            bytes if bytes > bytes_max => Err(ArgumentError::TooLarge { bytes, bytes_max }),
            _ => Ok(()),
        }
    }
}

impl Checked for RangeRequest {
    fn check_fields(&self) -> Result<(), ArgumentError> {
        check_key(&self.key)?;
        check_not_negative("revision", self.revision)?;
        check_not_negative("min_mod_revision", self.min_mod_revision)?;
        check_not_negative("max_mod_revision", self.max_mod_revision)?;
        check_not_negative("min_create_revision", self.min_create_revision)?;
        check_not_negative("max_create_revision", self.max_create_revision)
    }
}

impl Checked for PutRequest {
    fn check_fields(&self) -> Result<(), ArgumentError> {
        check_key(&self.key)
    }
}

impl Checked for DeleteRangeRequest {
    fn check_fields(&self) -> Result<(), ArgumentError> {
        check_key(&self.key)
    }
}

impl Checked for TxnRequest {
    fn check_fields(&self) -> Result<(), ArgumentError> {
        for compare in &self.compare {
            check_key(&compare.key)?;
        }
        let mut operations = self.success.iter().chain(&self.failure);
        operations.try_for_each(check_operation)
    }
}

impl Checked for WatchCreateRequest {
    fn check_fields(&self) -> Result<(), ArgumentError> {
        check_not_negative("start_revision", self.start_revision)
    }
}

fn check_operation(operation: &RequestOp) -> Result<(), ArgumentError> {
    match &operation.request {
        Some(Request::RequestRange(range)) => range.check_fields(),
        Some(Request::RequestPut(put)) => put.check_fields(),
        Some(Request::RequestDeleteRange(delete)) => delete.check_fields(),
        Some(Request::RequestTxn(txn)) => txn.check_fields(),
        // The server has an error for it.
        None => Ok(()),
    }
}

fn check_key(key: &[u8]) -> Result<(), ArgumentError> {
    match key.is_empty() {
        true => Err(ArgumentError::EmptyKey),
        false => Ok(()),
    }
}

fn check_not_negative(name: &'static str, value: i64) -> Result<(), ArgumentError> {
    match value < 0 {
        true => Err(ArgumentError::Negative { name, value }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Compare, Delete, Put, Range, Txn, Watch};

    const BYTES_MAX: usize = 100;

    fn refused<R: Checked>(request: impl Into<R>) -> Option<ArgumentError> {
        request.into().check(BYTES_MAX).err()
    }

    #[test]
    fn empty_keys_are_refused_everywhere_also_in_nested_transactions() {
        let nested = |txn: Txn| Txn::new().then(Txn::new().otherwise(txn));
        for txn in [
            Txn::new().when(Compare::exists("")),
            Txn::new().then(Range::key("")),
            Txn::new().then(Put::new("", "v")),
            Txn::new().otherwise(Delete::key("")),
        ] {
            for txn in [txn.clone(), nested(txn)] {
                let error = refused::<TxnRequest>(txn.clone());
                assert_eq!(error, Some(ArgumentError::EmptyKey), "{txn:?}");
            }
        }
        assert_eq!(refused::<RangeRequest>(Range::all()), None);
        let error = refused::<DeleteRangeRequest>(Delete::key(""));
        assert_eq!(error, Some(ArgumentError::EmptyKey));
    }

    #[test]
    fn negative_numbers_are_refused_by_name() {
        let range = Range::key("k");
        for (request, name) in [
            (range.clone().at_revision(-1), "revision"),
            (range.clone().mod_revisions(-1, 0), "min_mod_revision"),
            (range.clone().mod_revisions(0, -1), "max_mod_revision"),
            (range.clone().create_revisions(-1, 0), "min_create_revision"),
            (range.create_revisions(0, -1), "max_create_revision"),
        ] {
            let error = refused::<RangeRequest>(request);
            assert_eq!(error, Some(ArgumentError::Negative { name, value: -1 }));
        }
        let error = refused::<WatchCreateRequest>(Watch::key("k").from_revision(-1));
        let name = "start_revision";
        assert_eq!(error, Some(ArgumentError::Negative { name, value: -1 }));
    }

    #[test]
    fn request_that_is_larger_than_allowed_is_refused_with_both_sizes() {
        let put = |value_bytes| Put::new("k", vec![b'x'; value_bytes]);
        // Two bytes of tag and length, one of the key, and two of tag and length.
        let bytes = |value_bytes| 3 + 2 + value_bytes;
        assert_eq!(refused::<PutRequest>(put(BYTES_MAX - 5)), None);
        let error = refused::<PutRequest>(put(BYTES_MAX - 4));
        let expected = ArgumentError::TooLarge {
            bytes: bytes(BYTES_MAX - 4),
            bytes_max: BYTES_MAX,
        };
        assert_eq!(error, Some(expected));
    }
}
