//! Rule: every row of the threat model names tests that prove it.
//!
//! The last column of each table in `SECURITY.md` lists test names in backticks. A row without
//! a test, and a name that no test has, are findings.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "threats";

/// The document with the threat model.
pub const PATH: &str = "SECURITY.md";

/// Checks the last column of every table row against the names of all tests.
#[must_use]
pub fn check(file: &TextFile, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_body = false;
    let mut rows = 0;
    for (line, text) in (1..).zip(file.text.lines()) {
        let Some(row) = text.trim().strip_prefix('|') else {
            is_body = false;
            continue;
        };
        if row.trim_start().starts_with("---") {
            is_body = true;
            continue;
        }
        if !is_body {
            continue;
        }
        rows += 1;
        let column = row.trim_end_matches('|').rsplit('|').next();
        let names: Vec<&str> = column.unwrap_or("").split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            let message = "the row names no test: write the test that proves it".to_owned();
            findings.push(Finding::new(&file.path, line, RULE, message));
        }
        for name in names.into_iter().filter(|name| !tests.contains(*name)) {
            let message = format!("no test is named `{name}`: correct the name of the test");
            findings.push(Finding::new(&file.path, line, RULE, message));
        }
    }
    if rows == 0 {
        let message = "the threat model has no rows".to_owned();
        findings.push(Finding::new(&file.path, 1, RULE, message));
    }
    findings
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
    fn rows_with_tests_that_exist_pass() {
        let table = "| who | proved by |\n| --- | --- |\n| `x` | `alpha`, `beta` |\n";
        assert!(lines(table).is_empty());
        assert!(lines(&format!("Text with `gamma`.\n\n{table}")).is_empty());
    }

    #[test]
    fn row_without_a_test_or_with_an_unknown_one_is_reported() {
        let table = "| a | b |\n| --- | --- |\n| `alpha` | none |\n| x | `alpha`, `gamma` |\n";
        assert_eq!(lines(table), [3, 4]);
        assert_eq!(lines("no table"), [1]);
    }
}
