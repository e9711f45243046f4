//! Failures of commands: etcdctl's exit codes and its one line on standard error.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

use portunus_client::{ClientError, ConnectError, RequireError};
use portunus_proto::EtcdError;

/// Exit codes, with etcdctl's meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitWith {
    /// The server refused, or something failed that has no code of its own.
    Error,
    /// No usable connection. etcdctl also uses it for some lease errors.
    BadConnection,
    /// Text read from standard input cannot be parsed.
    InvalidInput,
    /// A known flag with a value that is not supported.
    BadFeature,
    /// The server ended something that should have gone on.
    Interrupted,
    /// The change that `gate plan` planned is blocked. Not of etcdctl, which uses no number
    /// between 6 and 128.
    Blocked,
    /// Wrong number or kind of arguments.
    BadArgs,
    /// The exit code of the command that `lock` has run.
    CodeOfCommand(u8),
}

impl ExitWith {
    /// Returns the number.
    pub fn code(self) -> u8 {
        match self {
            Self::Error => 1,
            Self::BadConnection => 2,
            Self::InvalidInput => 3,
            Self::BadFeature => 4,
            Self::Interrupted => 5,
            Self::Blocked => 7,
            Self::BadArgs => 128,
            Self::CodeOfCommand(code) => code,
        }
    }
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: ExitWith,
    /// The text after `Error: `; `None` if the failure has been reported already.
    pub message: Option<String>,
    /// Additional information beyond etcdctl's line.
    pub note: Option<String>,
    /// Whether the command timed out, so that the state of the cluster is reported, too.
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

    /// Returns the failure with another exit code.
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
        Self::new(exit, with_causes(&error))
    }
}

impl From<RequireError> for Failure {
    fn from(error: RequireError) -> Self {
        Self::new(ExitWith::BadArgs, error)
    }
}

/// Standard output could not be written. A closed pipe is not reported.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::reported(ExitWith::Error);
        }
        Self::new(ExitWith::Error, error)
    }
}

/// Writes to standard output and flushes it.
pub fn write_out(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(())
}

/// Writes to standard error; a closed pipe is ignored.
pub fn write_err(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}

/// An error and its causes, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message += &format!(": {cause}");
        source = cause.source();
    }
    message
}
