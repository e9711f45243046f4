//! Values as Go's `fmt`, `strconv` and `encoding/json` print them.
//!
//! Error texts of Kubernetes contain values in these forms, and clients compare the texts.

use std::fmt::Write;

use serde_json::Value;

/// Returns a text in double quotes, as `%q` prints it.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        push_quoted(&mut quoted, letter);
    }
    quoted.push('"');
    quoted
}

fn push_quoted(quoted: &mut String, letter: char) {
    // Writing to a String cannot fail.
    let _ = match letter {
        '"' => quoted.write_str("\\\""),
        '\\' => quoted.write_str("\\\\"),
        '\u{7}' => quoted.write_str("\\a"),
        '\u{8}' => quoted.write_str("\\b"),
        '\u{c}' => quoted.write_str("\\f"),
        '\n' => quoted.write_str("\\n"),
        '\r' => quoted.write_str("\\r"),
        '\t' => quoted.write_str("\\t"),
        '\u{b}' => quoted.write_str("\\v"),
        ' '..='~' => quoted.write_char(letter),
        '\0'..='\u{7f}' => write!(quoted, "\\x{:02x}", letter as u32),
        _ if is_printable(letter) => quoted.write_char(letter),
        '\u{80}'..='\u{ffff}' => write!(quoted, "\\u{:04x}", letter as u32),
        _ => write!(quoted, "\\U{:08x}", letter as u32),
    };
}

fn is_printable(letter: char) -> bool {
    // Combining marks are printable in Go; Rust escapes them only at the start of a text.
    letter.escape_debug().len() == 1 || ('\u{300}'..='\u{36f}').contains(&letter)
}

/// Returns a value as `%v` prints it inside a field error.
#[must_use]
pub fn bad_value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => format_float(float),
            _ => number.to_string(),
        },
        _ => json(value),
    }
}

/// Returns a float as `%v` prints it: with an exponent from 1e+06 on and below 1e-4.
#[must_use]
pub fn format_float(value: f64) -> String {
    const EXPONENT_MAX: i32 = 6;
    const EXPONENT_MIN: i32 = -4;
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (EXPONENT_MIN..EXPONENT_MAX).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Returns the JSON text of a value with `<`, `>` and `&` escaped, as `json.Marshal` writes it.
#[must_use]
pub fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    // Outside of strings none of these letters occurs in JSON.
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_in_go() {
        let cases = [
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (123_456.5, "123456.5"),
            (1e21, "1e+21"),
            (1.5, "1.5"),
            (-2.0, "-2"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ];
        for (value, text) in cases {
            assert_eq!(format_float(value), text);
        }
    }

    #[test]
    fn texts_are_quoted_as_in_go() {
        let cases = [
            ("é😀", "\"é😀\""),
            ("\u{a0}", "\"\\u00a0\""),
            ("\u{200b}", "\"\\u200b\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{7f}\u{1}\n", "\"\\x7f\\x01\\n\""),
            ("\u{ad}\u{e000}\u{feff}", "\"\\u00ad\\ue000\\ufeff\""),
            ("a\"b\\", "\"a\\\"b\\\\\""),
        ];
        for (text, quoted) in cases {
            assert_eq!(quote(text), quoted);
        }
    }
}
