//! Failed requests.

use std::fmt;

use portunus_objects::status::Status;

/// The result of a step of a request.
pub type Outcome<T> = Result<T, Failure>;

/// The answer to a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<Status>);

impl Failure {
    /// Returns the `Status` object of the answer.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.0
    }

    /// Returns the `Status` object for changes.
    pub fn status_mut(&mut self) -> &mut Status {
        &mut self.0
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure(Box::new(status))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}
