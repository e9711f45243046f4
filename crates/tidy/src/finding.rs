//! The finding that a rule reports: place, rule and remedy.
//!
//! Every rule returns findings; `tests/tidy.rs` turns them into test failures.

use std::fmt;

/// One place in the repository that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository, with forward slashes.
    pub path: String,
    /// The line, counted from 1. Line 1 also stands for the file as a whole.
    pub line: usize,
    /// The short name of the rule.
    pub rule: &'static str,
    /// The problem and the remedy.
    pub message: String,
}

impl Finding {
    /// Creates a finding: `path` breaks `rule` at `line`.
    #[must_use]
    pub fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            message,
        } = self;
        write!(out, "{path}:{line}: [{rule}] {message}")
    }
}

/// Returns the line, counted from 1, of the byte at `offset`.
#[must_use]
pub fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_prints_as_path_line_rule_and_message() {
        let finding = Finding::new("crates/wal/src/lib.rs", 7, "panics", "handle the error");
        assert_eq!(
            finding.to_string(),
            "crates/wal/src/lib.rs:7: [panics] handle the error"
        );
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(line_at("a\nb\nc", 0), 1);
        assert_eq!(line_at("a\nb\nc", 2), 2);
        assert_eq!(line_at("a\nb\nc", 99), 3);
    }
}
