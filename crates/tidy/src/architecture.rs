//! Rule: every test that an invariant names as its guard exists.
//!
//! `ARCHITECTURE.md` names the tests of an invariant in backticks directly after "guarded
//! by". Renaming such a test requires a change of the document.

use std::collections::BTreeSet;

use crate::finding::{Finding, line_at};
use crate::workspace::TextFile;

const RULE: &str = "architecture";

/// The document with the invariants.
pub const PATH: &str = "ARCHITECTURE.md";

/// Checks every guard that the document names against the names of all tests.
#[must_use]
pub fn check(file: &TextFile, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (guard, line) in guards(&file.text) {
        let name = guard.rsplit("::").next().unwrap_or(&guard);
        if !tests.contains(name) {
            let message = format!(
                "no test is named `{name}`: correct the name, or write the test that guards this"
            );
            findings.push(Finding::new(&file.path, line, RULE, message));
        }
    }
    findings
}

/// Returns every name in backticks directly after "guarded by", with its line.
fn guards(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    for (at, phrase) in lower.match_indices("guarded") {
        let Some(mut rest) = text
            .get(at + phrase.len()..)
            .and_then(|rest| skip_word(rest, "by"))
        else {
            continue;
        };
        loop {
            rest = rest.trim_start_matches(|letter: char| letter.is_whitespace() || letter == ',');
            rest = skip_word(rest, "and").unwrap_or(rest).trim_start();
            let Some((name, after)) = rest.strip_prefix('`').and_then(|rest| rest.split_once('`'))
            else {
                break;
            };
            found.push((name.to_owned(), line_at(text, text.len() - rest.len())));
            rest = after;
        }
    }
    found
}

fn skip_word<'text>(text: &'text str, word: &str) -> Option<&'text str> {
    let rest = text.trim_start().strip_prefix(word)?;
    rest.starts_with(|letter: char| letter.is_whitespace() || letter == '`')
        .then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let tests = ["alpha", "beta"].map(str::to_owned).into();
        let found = check(&TextFile::new(PATH, text), &tests);
        found.iter().map(|found| found.line).collect()
    }

    #[test]
    fn guards_that_exist_pass() {
        assert!(lines("Guarded by `alpha`.").is_empty());
        assert!(lines("guarded by `gates::decide::tests::alpha`, `beta`").is_empty());
        assert!(lines("guarded\nby `alpha` and\n`beta`. See `gamma`.").is_empty());
        assert!(lines("guarded by care, and `gamma` is a type").is_empty());
    }

    #[test]
    fn guards_that_do_not_exist_are_reported_at_their_line() {
        assert_eq!(lines("one\nguarded by `gamma`"), [2]);
        assert_eq!(lines("guarded by `alpha`,\n`gamma`, and `delta`"), [2, 2]);
        assert_eq!(lines("guarded by `alpha` and\n  `gates::gamma`"), [2]);
        assert_eq!(lines("guarded by `alpha`; guarded\nby `gamma`"), [2]);
    }
}
