//! Rule: a note about unfinished work names the issue that tracks it.
//!
//! A marker without an issue is not tracked. Write it with a number in parentheses directly
//! behind the marker, as in `(#12)`, or do the work.

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "markers";

// Concatenated from parts, so that this file does not break its own rule.
const WORDS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

const EXTENSIONS: &[&str] = &["rs", "toml", "md", "sh", "proto", "yml", "yaml"];

/// Returns whether the rule applies to this file.
#[must_use]
pub fn applies_to(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension);
    path.starts_with(".ci/") || extension.is_some_and(|found| EXTENSIONS.contains(&found))
}

/// Checks one text file.
#[must_use]
pub fn check(file: &TextFile) -> Vec<Finding> {
    if !applies_to(&file.path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in WORDS {
            if line
                .match_indices(word)
                .any(|(at, _)| is_bare(line, at, word))
            {
                let message =
                    format!("`{word}` without an issue: write `{word}(#12)`, or do it now");
                findings.push(Finding::new(&file.path, index + 1, RULE, message));
            }
        }
    }
    findings
}

fn is_bare(line: &str, at: usize, word: &str) -> bool {
    let belongs_to_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (before, rest) = line.split_at(at);
    let after = rest.trim_start_matches(word);
    let is_whole_word = rest.len() - after.len() == word.len()
        && !before.ends_with(belongs_to_word)
        && !after.starts_with(belongs_to_word);
    is_whole_word && !has_issue(after)
}

fn has_issue(after: &str) -> bool {
    let inside = after
        .strip_prefix("(#")
        .and_then(|rest| rest.split_once(')'));
    inside.is_some_and(|(number, _)| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = check(&TextFile::new(path, text));
        found.iter().map(|found| found.line).collect()
    }

    #[test]
    fn marker_without_an_issue_is_reported_in_each_kind_of_file() {
        for word in WORDS {
            for path in ["a.rs", "Cargo.toml", "b.md", "c.sh", "d.proto", ".ci/run"] {
                assert_eq!(
                    lines(path, &format!("x\n// {word}: later\n")),
                    [2],
                    "{word} {path}"
                );
            }
        }
    }

    #[test]
    fn marker_with_a_malformed_issue_number_is_reported() {
        let word = WORDS[0];
        assert!(lines("a.rs", &format!("// {word}(#12): later")).is_empty());
        for bad in ["(12)", "(#)", "(#x)", "(me)", " (#12)", "(#12"] {
            assert_eq!(
                lines("a.rs", &format!("// {word}{bad} later")),
                [1],
                "{bad}"
            );
        }
    }

    #[test]
    fn longer_words_and_other_files_pass() {
        let mark = "X".repeat(6);
        assert!(lines("a.sh", &format!("mktemp -d name.{mark}")).is_empty());
        assert!(lines("a.rs", &format!("{}_LIST", WORDS[0])).is_empty());
        assert!(lines("a.rs", "fn f() { todo() }").is_empty());
        assert!(lines("data.bin", WORDS[1]).is_empty());
    }
}
