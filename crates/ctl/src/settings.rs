//! Values of settings: from a flag, or else from an environment variable.

use std::time::Duration;

use crate::go::{boolean, duration};
use crate::outcome::{ExitWith, Failure};

/// Prefixes of environment variables, strongest first.
pub const ENV_PREFIXES: [&str; 2] = ["PORTCTL_", "ETCDCTL_"];

/// A value and the flag or variable that set it.
pub struct Setting {
    /// The value as text.
    pub text: String,
    /// The name of the flag or variable.
    pub source: String,
}

/// The environment variables.
pub struct Environment<'e> {
    /// Looks up a variable.
    pub lookup: &'e dyn Fn(&str) -> Option<String>,
}

impl Environment<'_> {
    /// Returns the setting from the flag, or else from the environment.
    pub fn setting(&self, flag: Option<&str>, name: &str) -> Option<Setting> {
        if let Some(text) = flag {
            return Some(Setting {
                text: text.to_owned(),
                source: format!("--{name}"),
            });
        }
        let variable = name.to_uppercase().replace('-', "_");
        ENV_PREFIXES.iter().find_map(|prefix| {
            let source = format!("{prefix}{variable}");
            let text = (self.lookup)(&source).filter(|text| !text.is_empty())?;
            Some(Setting { text, source })
        })
    }

    /// Reads a duration.
    pub fn duration(&self, flag: Option<&str>, name: &str) -> Result<Option<Duration>, Failure> {
        self.parsed(flag, name, |text| {
            duration::parse(text).map_err(|error| error.to_string())
        })
    }

    /// Reads a number of bytes; zero stands for the default.
    pub fn bytes(&self, flag: Option<&str>, name: &str) -> Result<Option<usize>, Failure> {
        let bytes = self.parsed(flag, name, |text| {
            text.parse::<usize>().map_err(|error| error.to_string())
        })?;
        Ok(bytes.filter(|bytes| *bytes > 0))
    }

    /// Reads a boolean from the environment.
    pub fn boolean(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.parsed(None, name, boolean::parse)?.unwrap_or(false))
    }

    /// Parses a setting; an error names its flag or variable.
    pub fn parsed<T>(
        &self,
        flag: Option<&str>,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        let Some(setting) = self.setting(flag, name) else {
            return Ok(None);
        };
        parse(&setting.text).map(Some).map_err(|problem| {
            let Setting { text, source } = &setting;
            Failure::new(
                ExitWith::Error,
                format!("invalid argument {text:?} for {source:?}: {problem}"),
            )
        })
    }
}
