//! Why an operation of the interface failed.

use portunus_proto::EtcdError;
use thiserror::Error;

use crate::ClientError;

/// An error of the [interface](super::Interface). The messages of errors that a store sends are
/// etcd's.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty.
    #[error("the key is empty: give the key of an object")]
    EmptyKey,
    /// The prefix of a list is empty.
    #[error("the prefix is empty: give the prefix of a collection, such as /registry/pods/")]
    EmptyPrefix,
    /// The continue key does not begin with the prefix.
    #[error("the continue key {continue_key:?} does not begin with the prefix {prefix:?}")]
    ContinueOutsidePrefix {
        /// The continue key, lossily as text.
        continue_key: String,
        /// The prefix, lossily as text.
        prefix: String,
    },
    /// A revision, a limit or an expected revision is negative.
    #[error("{name} is {value}: it must be 0 or larger")]
    Negative {
        /// The option.
        name: &'static str,
        /// Its value.
        value: i64,
    },
    /// The revision has been compacted.
    #[error("{}", EtcdError::Compacted.text())]
    Compacted {
        /// The oldest revision that can be watched, where the store tells it.
        compact_revision: Option<i64>,
    },
    /// The revision does not exist yet.
    #[error("{}", EtcdError::FutureRevision.text())]
    FutureRevision,
    /// The lease does not exist.
    #[error("{}", EtcdError::LeaseNotFound.text())]
    LeaseNotFound,
    /// The store behind the interface grants no leases.
    #[error("the store grants no leases: objects that expire need one that does")]
    NoLeases,
    /// The member that was asked has no leader.
    #[error("{}", EtcdError::NoLeader.text())]
    NoLeader,
    /// The store has no space left and refuses writes.
    #[error("{}", EtcdError::NoSpace.text())]
    NoSpace,
    /// No watch uses the stream.
    #[error("no watch uses the stream {stream_key:?}: create the watch first")]
    UnknownStream {
        /// The stream key.
        stream_key: String,
    },
    /// The store canceled a watch.
    #[error("the store canceled the watch: {reason}")]
    Canceled {
        /// The reason as the store gave it.
        reason: String,
    },
    /// The store broke a rule of the contract.
    #[error("the store broke the contract: {what}")]
    Contract {
        /// The rule and how it was broken.
        what: String,
    },
    /// The recording that answers has no answer to a call.
    #[error("the recording has no answer to the call {call}")]
    Replay {
        /// The call as JSON.
        call: String,
    },
    /// Another error of the connection or the server.
    #[error(transparent)]
    Client(ClientError),
}

impl Error {
    /// Returns whether a write that failed with this error may have been applied. Then the caller
    /// reads the key before it tries again.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::Client(error) => {
                error.is_unavailable() || matches!(error, ClientError::DeadlineExceeded { .. })
            }
            // A write that exceeds the quota only when it is applied is applied, as in etcd.
            Self::NoSpace => true,
            _ => false,
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        match error.etcd() {
            Some(EtcdError::Compacted) => Self::Compacted {
                compact_revision: None,
            },
            Some(EtcdError::FutureRevision) => Self::FutureRevision,
            Some(EtcdError::LeaseNotFound) => Self::LeaseNotFound,
            Some(EtcdError::NoLeader) => Self::NoLeader,
            Some(EtcdError::NoSpace) => Self::NoSpace,
            _ => Self::Client(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_open_only_where_the_write_may_have_been_applied() {
        assert!(Error::NoSpace.outcome_is_unknown());
        assert!(!Error::LeaseNotFound.outcome_is_unknown());
        let deadline = ClientError::DeadlineExceeded { last_attempt: None };
        assert!(Error::Client(deadline).outcome_is_unknown());
    }
}
