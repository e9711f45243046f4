//! Integers as Go's `strconv` reads them, with its error texts.

use std::num::IntErrorKind;

/// Reads a signed 64-bit integer in base 10 or 16.
///
/// # Errors
/// With Go's text.
pub fn parse_i64(text: &str, radix: u32) -> Result<i64, String> {
    i64::from_str_radix(text, radix).map_err(|error| described("ParseInt", text, error.kind()))
}

/// Reads an unsigned 64-bit integer in base 10 or 16. Unlike Rust, Go takes no sign.
///
/// # Errors
/// With Go's text.
pub fn parse_u64(text: &str, radix: u32) -> Result<u64, String> {
    if text.starts_with('+') {
        return Err(described("ParseUint", text, &IntErrorKind::InvalidDigit));
    }
    u64::from_str_radix(text, radix).map_err(|error| described("ParseUint", text, error.kind()))
}

fn described(function: &str, text: &str, kind: &IntErrorKind) -> String {
    let problem = match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    let quoted = super::quote::quote(text.as_bytes());
    format!("strconv.{function}: parsing {quoted}: {problem}")
}

#[cfg(test)]
mod tests {
    use super::{parse_i64, parse_u64};

    #[test]
    fn integer_errors_have_go_texts() {
        assert_eq!(parse_i64("7f", 16), Ok(127));
        assert_eq!(parse_i64("-5", 10), Ok(-5));
        for (text, problem) in [
            ("xyz", "invalid syntax"),
            ("", "invalid syntax"),
            ("9223372036854775808", "value out of range"),
        ] {
            assert_eq!(
                parse_i64(text, 10),
                Err(format!("strconv.ParseInt: parsing \"{text}\": {problem}"))
            );
        }
    }

    #[test]
    fn unsigned_integer_with_a_sign_is_refused() {
        assert_eq!(parse_u64("ffffffffffffffff", 16), Ok(u64::MAX));
        for (text, problem) in [
            ("+1", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("0x1", "invalid syntax"),
            ("10000000000000000", "value out of range"),
        ] {
            assert_eq!(
                parse_u64(text, 16),
                Err(format!("strconv.ParseUint: parsing \"{text}\": {problem}"))
            );
        }
    }
}
