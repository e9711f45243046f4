//! Quoted strings as Go writes (`%q`) and reads them.
//!
//! Keys and values are bytes, so both directions work on bytes.

use std::fmt::Write;

/// A double-quoted Go string.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk
            .valid()
            .chars()
            .for_each(|c| push_char(&mut quoted, c));
        for byte in chunk.invalid() {
            push_hex(&mut quoted, *byte);
        }
    }
    quoted.push('"');
    quoted
}

fn push_char(quoted: &mut String, c: char) {
    let escape = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\x0c' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\x0b' => "\\v",
        _ if is_printable(c) => return quoted.push(c),
        '\0'..='\x1f' | '\x7f' => return push_hex(quoted, c as u8),
        _ => {
            let code = u32::from(c);
            // Writing to a String cannot fail.
            let _ = if code > 0xffff {
                write!(quoted, "\\U{code:08x}")
            } else {
                write!(quoted, "\\u{code:04x}")
            };
            return;
        }
    };
    quoted.push_str(escape);
}

fn push_hex(quoted: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(quoted, "\\x{byte:02x}");
}

/// Whether Go prints a character unescaped. Rust agrees, but shows it only through its own
/// escapes; these treat the first character of a text specially, so `c` is the second.
fn is_printable(c: char) -> bool {
    if c == '\'' {
        return true;
    }
    let text: String = ['a', c].iter().collect();
    text.escape_debug().eq(text.chars())
}

/// Reads one quoted string at the beginning of `text`, `"…"` or `` `…` ``, and gives its bytes
/// and what follows; `None` if there is none.
#[must_use]
pub fn unquote_prefix(text: &str) -> Option<(Vec<u8>, &str)> {
    let mut chars = text.chars();
    match chars.next()? {
        '`' => {
            let (raw, rest) = chars.as_str().split_once('`')?;
            Some((raw.as_bytes().to_vec(), rest))
        }
        '"' => {
            let mut bytes = Vec::new();
            loop {
                match chars.next()? {
                    '"' => return Some((bytes, chars.as_str())),
                    '\n' => return None,
                    '\\' => {
                        chars = unescape(chars.as_str(), &mut bytes)?.chars();
                    }
                    c => push_utf8(&mut bytes, c),
                }
            }
        }
        _ => None,
    }
}

/// Reads what follows a backslash and gives what follows that.
fn unescape<'t>(text: &'t str, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let mut chars = text.chars();
    let simple = match chars.next()? {
        'a' => b'\x07',
        'b' => b'\x08',
        'f' => b'\x0c',
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => b'\x0b',
        '\\' => b'\\',
        '"' => b'"',
        'x' => {
            let (code, rest) = digits(chars.as_str(), 2, 16)?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(rest);
        }
        '0'..='7' => {
            let (code, rest) = digits(text, 3, 8)?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(rest);
        }
        kind @ ('u' | 'U') => {
            let count = if kind == 'u' { 4 } else { 8 };
            let (code, rest) = digits(chars.as_str(), count, 16)?;
            push_utf8(bytes, char::from_u32(code)?);
            return Some(rest);
        }
        _ => return None,
    };
    bytes.push(simple);
    Some(chars.as_str())
}

fn digits(text: &str, count: usize, radix: u32) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(count)?;
    if !number.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some((u32::from_str_radix(number, radix).ok()?, rest))
}

fn push_utf8(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quoted_as_in_go() {
        for (bytes, quoted) in [
            (&b"plain 'text'"[..], r#""plain 'text'""#),
            (b"q\"q\\", r#""q\"q\\""#),
            (b"\x00\x07\x1f\x7f\n", r#""\x00\a\x1f\x7f\n""#),
            (b"\xff\xc3", r#""\xff\xc3""#),
            ("ä€😀".as_bytes(), "\"ä€😀\""),
            ("\u{301}".as_bytes(), "\"\u{301}\""),
            ("\u{200b}\u{a0}".as_bytes(), r#""\u200b\u00a0""#),
            ("\u{e0001}".as_bytes(), r#""\U000e0001""#),
        ] {
            assert_eq!(quote(bytes), quoted);
        }
    }

    #[test]
    fn quoted_bytes_round_trip() {
        for bytes in [
            &b"a\"b"[..],
            b"\x00\xff",
            "ä\u{200b}\u{e0001}".as_bytes(),
            b"",
        ] {
            let quoted = quote(bytes);
            let followed = format!("{quoted} rest");
            assert_eq!(unquote_prefix(&followed), Some((bytes.to_vec(), " rest")));
        }
    }

    #[test]
    fn other_go_literals_are_unquoted_and_invalid_ones_refused() {
        assert_eq!(unquote_prefix(r"`a\n`x"), Some((br"a\n".to_vec(), "x")));
        assert_eq!(
            unquote_prefix(r#""\101\u00e4""#),
            Some(("Aä".as_bytes().to_vec(), ""))
        );
        for nonsense in [
            "",
            "a",
            "\"",
            "\"a",
            r#""\z""#,
            r#""\x4""#,
            r#""\400""#,
            "`a",
            r#""\ud800""#,
        ] {
            assert_eq!(unquote_prefix(nonsense), None, "{nonsense}");
        }
    }
}
