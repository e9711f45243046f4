//! Formats an error and its causes in one line, for logs and answers.

use std::error::Error;

/// Formats the error, then each cause after a colon.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
