//! What can go wrong between asking and being answered.

use std::error::Error;

use portunus_proto::EtcdError;
use tonic::{Code, Status};

use crate::endpoint::EndpointError;

/// Why no client was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No endpoint was given.
    #[error("etcdclient: no available endpoints")]
    NoEndpoints,
    /// An endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The name of the program cannot be sent.
    #[error("{user_agent:?} cannot be the user agent: use visible ASCII characters")]
    UserAgent {
        /// As given.
        user_agent: String,
    },
}

/// Why a feature cannot be required.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequireError {
    /// Nothing but visible ASCII characters can be sent, and a name is not empty.
    #[error("{name:?} cannot be the name of a feature: use visible ASCII characters")]
    Name {
        /// As given.
        name: String,
    },
}

/// Why a call failed. The texts are those of etcd's Go client, because people and scripts
/// compare them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An error of etcd's table.
    #[error("{0}")]
    Etcd(EtcdError),
    /// The command's time was up.
    #[error("context deadline exceeded")]
    DeadlineExceeded {
        /// What the last attempt before that died of.
        last_attempt: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Something the server, a proxy or the transport said that is not in etcd's table.
    #[error("rpc error: code = {} desc = {message}", go_code_name(*code))]
    Rpc {
        /// gRPC code.
        code: Code,
        /// Text that came with it.
        message: String,
    },
    /// The server ended a watch and said why, in words of its own.
    #[error("{reason}")]
    Canceled {
        /// Those words.
        reason: String,
    },
    /// The server ended a stream that should have gone on.
    #[error("the server closed the stream before the answer was complete; try again")]
    StreamEnded,
}

impl ClientError {
    /// The error of etcd's table, if it is one.
    #[must_use]
    pub fn etcd(&self) -> Option<EtcdError> {
        match self {
            Self::Etcd(error) => Some(*error),
            _ => None,
        }
    }

    /// The gRPC code a caller should act on.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Etcd(error) => error.code(),
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Self::Rpc { code, .. } => *code,
            Self::Canceled { .. } => Code::FailedPrecondition,
            Self::StreamEnded => Code::Unavailable,
        }
    }

    /// Whether another member, or this one in a moment, may answer.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.code() == Code::Unavailable
    }

    /// Whether the server does not know the call: it is older than the call, or another program.
    #[must_use]
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Code::Unimplemented
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        match EtcdError::from_status(&status) {
            Some(error) => Self::Etcd(error),
            None => Self::Rpc {
                code: code_of(&status),
                message: described(&status),
            },
        }
    }
}

/// A status with a cause was made on this side: the connection broke, whatever code that was
/// given. A server's status has none.
fn code_of(status: &Status) -> Code {
    match status.source() {
        Some(_) => Code::Unavailable,
        None => status.code(),
    }
}

/// A status made by the transport says little; its causes say what happened.
fn described(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&text);
        }
        cause = error.source();
    }
    message
}

/// The name Go's gRPC prints for a code.
fn go_code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_etcds_table_shows_its_text_alone() {
        let status = Status::new(Code::OutOfRange, EtcdError::Compacted.text());
        let error = ClientError::from(status);
        assert_eq!(error.etcd(), Some(EtcdError::Compacted));
        assert_eq!(
            error.to_string(),
            "etcdserver: mvcc: required revision has been compacted"
        );
    }

    #[test]
    fn a_broken_connection_is_unavailable_and_says_what_broke() {
        let broken = std::io::Error::other("connection reset");
        let error = ClientError::from(Status::from_error(Box::new(broken)));
        assert!(error.is_unavailable());
        assert!(error.to_string().contains("connection reset"), "{error}");
    }

    #[test]
    fn any_other_status_is_shown_as_go_shows_it() {
        let error = ClientError::from(Status::new(Code::Cancelled, "proxy says no"));
        assert_eq!(
            error.to_string(),
            "rpc error: code = Canceled desc = proxy says no"
        );
        assert_eq!(error.etcd(), None);
    }
}
