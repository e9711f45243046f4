//! The `Warning` headers of one response: without repetitions, and bounded.

use std::collections::BTreeSet;

/// How many characters the warnings of a response have in total before each is cut.
pub const TOTAL_CHARS_MAX: usize = 4 * 1024;
/// How many characters a warning has once the total was exceeded.
pub const CUT_CHARS: usize = 256;

/// Collects the warnings of one response.
///
/// While they fit into [`TOTAL_CHARS_MAX`] they are whole. The first one that does not fit
/// cuts all of them to [`CUT_CHARS`]; once the cut ones reach the total, later ones are
/// dropped.
#[derive(Debug, Clone, Default)]
pub struct WarningHeaders {
    seen: BTreeSet<String>,
    texts: Vec<String>,
    chars: usize,
    is_cutting: bool,
}

impl WarningHeaders {
    /// Adds a warning. An empty text, a repeated one, and one with control characters, which
    /// no header can carry, are ignored.
    pub fn add(&mut self, text: &str) {
        let is_full = self.is_cutting && self.chars >= TOTAL_CHARS_MAX;
        let is_malformed = text.is_empty() || text.contains(|c: char| c.is_control());
        if is_full || is_malformed || !self.seen.insert(text.to_owned()) {
            return;
        }
        if !self.is_cutting && self.chars + text.chars().count() > TOTAL_CHARS_MAX {
            self.is_cutting = true;
            self.texts = self.texts.iter().map(|whole| cut(whole)).collect();
            self.chars = self.texts.iter().map(|text| text.chars().count()).sum();
        }
        let text = if self.is_cutting {
            cut(text)
        } else {
            text.to_owned()
        };
        self.chars += text.chars().count();
        self.texts.push(text);
    }

    /// Returns the texts in the order in which they were added.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Iterates over the values of the headers: `299 - "text"`.
    pub fn values(&self) -> impl Iterator<Item = String> {
        self.texts.iter().map(|text| header_value(text))
    }
}

fn cut(text: &str) -> String {
    text.chars().take(CUT_CHARS).collect()
}

/// Formats a warning as the value of a header, with the text as a quoted string.
pub fn header_value(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("299 - \"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(headers: &WarningHeaders) -> Vec<usize> {
        let texts = headers.texts().iter();
        texts.map(|text| text.chars().count()).collect()
    }

    /// Proves: G117
    #[test]
    fn warnings_are_deduplicated_and_quoted() {
        let mut headers = WarningHeaders::default();
        for text in ["a \"b\" \\c", "d", "a \"b\" \\c", "", "line\nbreak"] {
            headers.add(text);
        }
        let values: Vec<String> = headers.values().collect();
        assert_eq!(values, [r#"299 - "a \"b\" \\c""#, r#"299 - "d""#]);
    }

    /// Proves: G117
    #[test]
    fn warnings_beyond_the_total_are_all_cut_and_then_dropped() {
        let text = |index: usize, chars: usize| format!("{index:04}{}", "ü".repeat(chars - 4));
        let mut headers = WarningHeaders::default();
        headers.add(&text(0, 3000));
        headers.add(&text(1, 1096));
        assert_eq!(lengths(&headers), [3000, 1096], "exactly the total fits");
        headers.add(&text(2, 10));
        assert_eq!(lengths(&headers), [256, 256, 10]);
        for index in 3..100 {
            headers.add(&text(index, 300));
        }
        // 522 and 14 times 256 are 4106: the first sum that reaches the total.
        assert_eq!(lengths(&headers).len(), 17);
        assert_eq!(lengths(&headers).iter().sum::<usize>(), 4106);
    }
}
