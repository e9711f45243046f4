//! Rule: a shipped file starts with its purpose.
//!
//! The first line is a `//!` comment with text. Test files are exempt.

use crate::finding::Finding;
use crate::workspace::{Area, area};

const RULE: &str = "module-docs";

/// Checks the start of one Rust file.
#[must_use]
pub fn check(path: &str, text: &str, test_only: bool) -> Vec<Finding> {
    if area(path) != Area::Src || test_only || !path.ends_with(".rs") {
        return Vec::new();
    }
    let first = text.lines().find(|line| !line.trim().is_empty());
    let comment = first.and_then(|line| line.strip_prefix("//!"));
    if comment.is_some_and(|comment| !comment.trim().is_empty()) {
        return Vec::new();
    }
    let message =
        "start the file with a `//!` comment: why it exists, who calls it, what it never does";
    vec![Finding::new(path, 1, RULE, message)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_module_comment_is_reported() {
        for text in [
            "",
            "use std::fmt;\n//! Late.",
            "//!\n//! x",
            "// Plain.\n",
            "/// Item.\nfn f() {}",
        ] {
            for path in ["crates/a/src/lib.rs", "crates/a/src/bin/tool.rs"] {
                assert_eq!(check(path, text, false).len(), 1, "{path} {text:?}");
            }
        }
    }

    #[test]
    fn documented_files_and_tests_pass() {
        assert!(check("crates/a/src/lib.rs", "//! Reads files.\n", false).is_empty());
        assert!(check("crates/a/src/b/tests.rs", "use super::*;", true).is_empty());
        assert!(check("crates/a/tests/b.rs", "use a;", false).is_empty());
        assert!(check("crates/a/build.rs", "fn main() {}", false).is_empty());
    }
}
