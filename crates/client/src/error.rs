//! The errors of the client.

use std::error::Error;

use portunus_proto::EtcdError;
use tonic::{Code, Status};

use crate::arguments::ArgumentError;
use crate::calls::Call;
use crate::endpoint::EndpointError;
use crate::tls::LoadError;

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No endpoint was given.
    #[error("etcdclient: no available endpoints")]
    NoEndpoints,
    /// An endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The trusted CAs of the system cannot be loaded, and an endpoint needs them.
    #[error("the trusted CAs of this system cannot be loaded")]
    Tls(#[from] LoadError),
    /// The token cannot be sent.
    #[error("the token cannot be sent: use visible ASCII characters")]
    Token,
    /// The name of the program cannot be sent.
    #[error("{user_agent:?} cannot be the user agent: use visible ASCII characters")]
    UserAgent {
        /// The user agent as given.
        user_agent: String,
    },
}

/// Why a feature cannot be required.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequireError {
    /// The name is empty or contains characters other than visible ASCII.
    #[error("{name:?} cannot be the name of a feature: use visible ASCII characters")]
    Name {
        /// The name as given.
        name: String,
    },
}

/// Why a call failed. The texts are those of etcd's Go client, because scripts compare them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An error of etcd's table.
    #[error("{}", go_text(*.0))]
    Etcd(EtcdError),
    /// The command timeout expired.
    #[error("context deadline exceeded")]
    DeadlineExceeded {
        /// The error of the last attempt before.
        last_attempt: Option<Box<dyn Error + Send + Sync>>,
    },
    /// A status of the server, a proxy or the transport that is not in etcd's table.
    #[error("rpc error: code = {} desc = {message}", go_code_name(*code))]
    Rpc {
        /// The gRPC code.
        code: Code,
        /// The message of the status.
        message: String,
    },
    /// The server cancelled a watch with a reason that is not in etcd's table.
    #[error("{reason}")]
    Canceled {
        /// The cancel reason.
        reason: String,
    },
    /// The server does not implement a call: it is too old, or it is not Portunus.
    #[error("the server does not support {call}: {}", unimplemented_text(message))]
    Unsupported {
        /// The service and the method, such as `KV/RangeStream`.
        call: &'static str,
        /// The message of the server.
        message: String,
    },
    /// The request was not sent, because an argument is wrong.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The server ended a stream early.
    #[error("the server closed the stream before the answer was complete; try again")]
    StreamEnded,
}

impl ClientError {
    /// Returns the error of etcd's table, if it is one.
    #[must_use]
    pub fn etcd(&self) -> Option<EtcdError> {
        match self {
            Self::Etcd(error) => Some(*error),
            Self::Argument(ArgumentError::EmptyKey) => Some(EtcdError::EmptyKey),
            _ => None,
        }
    }

    /// Returns the gRPC code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Etcd(error) => error.code(),
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Self::Rpc { code, .. } => *code,
            Self::Canceled { .. } => Code::FailedPrecondition,
            Self::Unsupported { .. } => Code::Unimplemented,
            Self::Argument(ArgumentError::TooLarge { .. }) => Code::ResourceExhausted,
            Self::Argument(_) => Code::InvalidArgument,
            Self::StreamEnded => Code::Unavailable,
        }
    }

    /// Converts the status of a call.
    pub(crate) fn of_call(call: Call, status: Status) -> Self {
        match Self::from(status) {
            Self::Rpc {
                code: Code::Unimplemented,
                message,
            } => Self::Unsupported {
                call: call.name,
                message,
            },
            error => error,
        }
    }

    /// Returns whether a retry, on this or another member, may succeed.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.code() == Code::Unavailable
    }

    /// Returns whether the server does not implement the call.
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

/// Returns `Unavailable` for a status with a source, which this client creates when a connection
/// breaks; a status of a server has none.
fn code_of(status: &Status) -> Code {
    match status.source() {
        Some(_) => Code::Unavailable,
        None => status.code(),
    }
}

/// Returns the message of a status with its sources, which describe a transport error.
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

/// Returns the text that Go's client prints: it does not recognise errors without a code.
fn go_text(error: EtcdError) -> String {
    match error.code() {
        Code::Unknown => format!("rpc error: code = Unknown desc = {error}"),
        _ => error.to_string(),
    }
}

fn unimplemented_text(message: &str) -> String {
    let code = go_code_name(Code::Unimplemented);
    format!("rpc error: code = {code} desc = {message}")
}

/// Returns the name of a code as Go's gRPC prints it.
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
    fn error_of_etcds_table_is_displayed_as_its_text() {
        let status = Status::new(Code::OutOfRange, EtcdError::Compacted.text());
        let error = ClientError::from(status);
        assert_eq!(error.etcd(), Some(EtcdError::Compacted));
        assert_eq!(
            error.to_string(),
            "etcdserver: mvcc: required revision has been compacted"
        );
    }

    #[test]
    fn broken_connection_is_unavailable_with_its_cause() {
        let broken = std::io::Error::other("connection reset");
        let error = ClientError::from(Status::from_error(Box::new(broken)));
        assert!(error.is_unavailable());
        assert!(error.to_string().contains("connection reset"), "{error}");
    }

    #[test]
    fn error_without_a_code_is_displayed_as_in_go() {
        let text = EtcdError::PasswordForNoPasswordUser.text();
        let error = ClientError::from(Status::new(Code::Unknown, text));
        assert_eq!(error.etcd(), Some(EtcdError::PasswordForNoPasswordUser));
        assert_eq!(
            error.to_string(),
            format!("rpc error: code = Unknown desc = {text}")
        );
    }

    #[test]
    fn other_status_is_displayed_as_in_go() {
        let error = ClientError::from(Status::new(Code::Cancelled, "proxy says no"));
        assert_eq!(
            error.to_string(),
            "rpc error: code = Canceled desc = proxy says no"
        );
        assert_eq!(error.etcd(), None);
    }
}
