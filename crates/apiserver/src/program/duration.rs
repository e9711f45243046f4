//! Durations of flags, as Go writes them.

use std::time::Duration;

/// Parses a duration such as `1m30s`, for clap.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    portunus_server::config::parse_duration(text)
        .ok_or_else(|| "write a duration such as 30s, 1m30s or 500ms".to_owned())
}

/// Parses a duration above zero, for clap.
pub fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be above 0: nothing could be served in no time".to_owned()),
        duration => Ok(duration),
    }
}
