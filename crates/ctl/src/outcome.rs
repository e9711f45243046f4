//! How a command ends when it does not end well: etcdctl's exit codes and its one line on
//! standard error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

use portunus_client::{ClientError, ConnectError, RequireError};
use portunus_proto::EtcdError;

/// Exit codes, with etcdctl's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitWith {
    /// The server refused, or something failed that has no code of its own.
    Error = 1,
    /// No usable connection. etcdctl also uses it for some lease errors.
    BadConnection = 2,
    /// Text read from standard input makes no sense.
    InvalidInput = 3,
    /// A known flag with a value that is not supported.
    BadFeature = 4,
    /// The server ended something that should have gone on.
    Interrupted = 5,
    /// Something stands in the way of what `gate plan` was asked about. Ours: etcdctl uses no
    /// number between 6 and 128.
    Blocked = 7,
    /// Wrong number or kind of arguments.
    BadArgs = 128,
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: ExitWith,
    /// Shown after `Error: `; `None` if everything was said already.
    pub message: Option<String>,
    /// What a person needs to know beyond etcdctl's line.
    pub note: Option<String>,
    /// No answer came in time, so the state of the cluster is worth a look.
    pub timed_out: bool,
}

impl Failure {
    /// A failure with a message.
    pub fn new(exit: ExitWith, message: impl Display) -> Self {
        Self {
            exit,
            message: Some(message.to_string()),
            note: None,
            timed_out: false,
        }
    }

    /// A failure that has been reported already.
    pub fn reported(exit: ExitWith) -> Self {
        Self {
            exit,
            message: None,
            note: None,
            timed_out: false,
        }
    }

    /// The same with another exit code.
    pub fn exiting_with(mut self, exit: ExitWith) -> Self {
        self.exit = exit;
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let mut failure = Self::new(ExitWith::Error, &error);
        failure.timed_out = matches!(
            error,
            ClientError::DeadlineExceeded { .. } | ClientError::Etcd(EtcdError::Timeout)
        );
        if let ClientError::DeadlineExceeded {
            last_attempt: Some(cause),
        } = error
        {
            failure.note = Some(cause.to_string());
        }
        failure
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let exit = match error {
            ConnectError::NoEndpoints => ExitWith::BadConnection,
            _ => ExitWith::BadArgs,
        };
        Self::new(exit, error)
    }
}

impl From<RequireError> for Failure {
    fn from(error: RequireError) -> Self {
        Self::new(ExitWith::BadArgs, error)
    }
}

/// Standard output could not be written; nobody is left to be told.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::reported(ExitWith::Error);
        }
        Self::new(ExitWith::Error, error)
    }
}

/// Writes to standard output at once, so that a pipe sees it now.
pub fn write_out(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(())
}

/// Writes to standard error; a reader that went away is no reason to stop.
pub fn write_err(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}

/// An error and everything it came from, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message += &format!(": {cause}");
        source = cause.source();
    }
    message
}
