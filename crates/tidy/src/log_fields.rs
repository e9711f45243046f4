//! Rule: fields of log lines hold values, not Rust's debug text.
//!
//! Operators and their tools parse the lines, and `Some("a")`, `["a", "b"]` and type names
//! are not values. Write the field with `%`, or as a plain value.

use crate::finding::Finding;
use crate::workspace::TextFile;

const RULE: &str = "log-fields";

const MACROS: &[&str] = &["error!(", "warn!(", "info!(", "debug!(", "trace!("];

/// Checks one shipped source file.
#[must_use]
pub fn check(file: &TextFile) -> Vec<Finding> {
    let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
    if !is_source || !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, _) in file.text.match_indices("tracing::") {
        let call = &file.text[at + "tracing::".len()..];
        let Some(name) = MACROS.iter().find(|name| call.starts_with(**name)) else {
            continue;
        };
        if has_debug_field(&call[name.len()..]) {
            let line = 1 + file.text[..at].matches('\n').count();
            let message = "a field in debug form (`?`): write its value with `%` or as it is";
            findings.push(Finding::new(&file.path, line, RULE, message));
        }
    }
    findings
}

/// Returns whether a `?` begins a field in the arguments up to the closing parenthesis.
fn has_debug_field(arguments: &str) -> bool {
    let mut depth = 1_u32;
    let mut is_text = false;
    // The arguments begin where a field may begin.
    let mut before = '(';
    let mut letters = arguments.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if is_text => {
                letters.next();
            }
            '"' => is_text = !is_text,
            _ if is_text => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            '?' if matches!(before, '(' | ',' | '=') => return true,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
        if !letter.is_whitespace() {
            before = letter;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        let file = TextFile {
            path: "crates/server/src/a.rs".to_owned(),
            text: text.to_owned(),
        };
        check(&file).len()
    }

    #[test]
    fn only_fields_in_debug_form_are_reported() {
        for bad in [
            concat!("tracing", "::info!(?change, \"text\");"),
            concat!("tracing", "::warn!(%error, ?change, \"text\");"),
            concat!(
                "tracing",
                "::info!(\n    a = 1,\n    urls = ?urls,\n    \"text\"\n);"
            ),
        ] {
            assert_eq!(findings(bad), 1, "{bad}");
        }
        for good in [
            concat!("tracing", "::info!(a = value()?, \"text\");"),
            concat!("tracing", "::info!(%error, \"is it, ?so\");"),
            concat!("tracing", "::info!(a = 1, \"(\"); call(x, ?y)"),
            "let a = read()?;",
        ] {
            assert_eq!(findings(good), 0, "{good}");
        }
    }
}
