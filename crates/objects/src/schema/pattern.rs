//! Regular expressions of schemas, with the meaning that Go gives them.

use regex::{Regex, RegexBuilder};
use thiserror::Error;

/// The most bytes that a compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// A pattern that does not compile.
#[derive(Debug, Error)]
#[error("pattern {pattern:?} is not a regular expression")]
pub struct PatternError {
    pattern: String,
    #[source]
    source: Box<regex::Error>,
}

/// A compiled pattern with its text.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    text: String,
    regex: Regex,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Pattern, PatternError> {
        let compiled = RegexBuilder::new(&translate(text))
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        match compiled {
            Ok(regex) => Ok(Pattern {
                text: text.to_owned(),
                regex,
            }),
            Err(source) => Err(PatternError {
                pattern: text.to_owned(),
                source: Box::new(source),
            }),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_match(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }
}

/// Rewrites what means something else in Go: `\d`, `\w`, `\s` and `\b` are ASCII there, and a
/// bracket, `&&`, `--` or `~~` inside of a class has no special meaning.
fn translate(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_class = false;
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        rest = after;
        match letter {
            '\\' => {
                let escaped = after.chars().next();
                translated.push_str(&translate_escape(escaped));
                rest = &after[escaped.map_or(0, char::len_utf8)..];
            }
            '[' if in_class => {
                let length = named_class_length(after);
                translated.push_str(if length == 0 { "\\[" } else { "[" });
                translated.push_str(&after[..length]);
                rest = &after[length..];
            }
            '[' => {
                in_class = true;
                translated.push('[');
                if let Some(after) = rest.strip_prefix('^') {
                    translated.push('^');
                    rest = after;
                }
                // A bracket that comes first is a letter of the class.
                if let Some(after) = rest.strip_prefix(']') {
                    translated.push_str("\\]");
                    rest = after;
                }
            }
            ']' => {
                in_class = false;
                translated.push(']');
            }
            '&' | '~' if in_class => {
                translated.push('\\');
                translated.push(letter);
            }
            letter => translated.push(letter),
        }
    }
    translated
}

/// Returns the length of `:alpha:]` at the start of a text, or 0.
fn named_class_length(text: &str) -> usize {
    let name = text
        .strip_prefix(':')
        .and_then(|rest| rest.split_once(":]"));
    match name {
        Some((name, _))
            if name
                .chars()
                .all(|letter| letter.is_ascii_alphabetic() || letter == '^') =>
        {
            name.len() + ":".len() + ":]".len()
        }
        _ => 0,
    }
}

fn translate_escape(escaped: Option<char>) -> String {
    match escaped {
        Some('d') => "[0-9]".to_owned(),
        Some('D') => "[^0-9]".to_owned(),
        Some('w') => "[0-9A-Za-z_]".to_owned(),
        Some('W') => "[^0-9A-Za-z_]".to_owned(),
        Some('s') => "[\\t\\n\\f\\r ]".to_owned(),
        Some('S') => "[^\\t\\n\\f\\r ]".to_owned(),
        Some('b') => "(?-u:\\b)".to_owned(),
        Some(other) => format!("\\{other}"),
        None => "\\".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_meaning_of_go() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w$", "é", false),
            (r"^[\d_]+$", "1_", true),
            (r"^[[a]+$", "[a", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]]$", "a", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"^[[:alpha:]_]+$", "ab1", false),
            (r"^[:]$", ":", true),
            (r"^[a:]$", ":", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$", "1h30m", true),
        ];
        for (pattern, text, matches) in cases {
            assert_eq!(
                Pattern::new(pattern).unwrap().is_match(text),
                matches,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn large_expressions_are_refused() {
        assert!(Pattern::new("((a{1000}){1000}){1000}").is_err());
        assert!(Pattern::new("\\").is_err());
    }
}
