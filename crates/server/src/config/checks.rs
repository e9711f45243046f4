//! Collects every setting that cannot be used before anything else happens, so that an operator
//! sees all errors at once.

use std::error::Error;
use std::fmt;

use super::{ConfigError, Values};

/// Errors found so far.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub errors: Vec<ConfigError>,
}

impl Checks {
    /// Starts with the errors of collecting `values`.
    pub fn of(values: &Values) -> Checks {
        let errors = values.errors.iter().cloned().map(ConfigError::from);
        Checks {
            errors: errors.collect(),
        }
    }

    /// Returns the value, or records the error.
    pub fn ok<T>(&mut self, checked: Result<T, impl Into<ConfigError>>) -> Option<T> {
        checked.map_err(|error| self.errors.push(error.into())).ok()
    }
}

/// Why a configuration cannot be used: one reason or several, one per line.
#[derive(Debug)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
            let mut source = error.source();
            while let Some(cause) = source {
                write!(f, ": {cause}")?;
                source = cause.source();
            }
        }
        Ok(())
    }
}

impl Error for ConfigErrors {}
