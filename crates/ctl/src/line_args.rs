//! Splits a line into words the way etcdctl's interactive modes do.
//!
//! Quotes group, a quote inside a word is an ordinary character, and a quote that is never
//! closed is skipped.

use crate::go::quote;

/// A quoted word with an escape that does not exist.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid syntax")]
pub struct BadQuote;

/// The words of a line, as bytes.
///
/// # Errors
/// If a double-quoted word has an escape Go does not know.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, BadQuote> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => match double_quoted_end(rest) {
                Some(end) => {
                    let (quoted, after) = rest.split_at(end);
                    let (word, _) = quote::unquote_prefix(quoted).ok_or(BadQuote)?;
                    (Some(word), after)
                }
                None => (None, &rest[1..]),
            },
            '\'' => match rest[1..].split_once('\'') {
                Some((word, after)) => (Some(word.as_bytes().to_vec()), after),
                None => (None, &rest[1..]),
            },
            c if c.is_ascii_whitespace() => (None, &rest[1..]),
            _ => {
                let end = rest.find(|c: char| c.is_ascii_whitespace());
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                (Some(word.as_bytes().to_vec()), after)
            }
        };
        words.extend(word);
        rest = after;
    }
    Ok(words)
}

/// Where the double-quoted word at the beginning ends, its closing quote included.
fn double_quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = split(line).unwrap();
        words
            .into_iter()
            .map(|word| String::from_utf8(word).unwrap())
            .collect()
    }

    #[test]
    fn quotes_group_words() {
        assert_eq!(words("put a  b"), ["put", "a", "b"]);
        assert_eq!(words(r#"put "a b" 'c "d'"#), ["put", "a b", "c \"d"]);
        assert_eq!(words(r#"put "" ''"#), ["put", "", ""]);
        assert_eq!(words(r#"put "a\tb\"c""#), ["put", "a\tb\"c"]);
    }

    #[test]
    fn quote_inside_a_word_is_an_ordinary_character() {
        assert_eq!(words(r#"a"b" c"#), ["a\"b\"", "c"]);
    }

    #[test]
    fn unclosed_quote_is_skipped() {
        assert_eq!(words(r#"get "a"#), ["get", "a"]);
        assert_eq!(words("get 'a"), ["get", "a"]);
    }

    #[test]
    fn unknown_escape_is_an_error() {
        assert_eq!(split(r#"get "\z""#), Err(BadQuote));
    }
}
