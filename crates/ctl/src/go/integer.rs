//! Integers as Go's `strconv.ParseInt` reads them, with its error texts.

use std::num::IntErrorKind;

/// Reads a signed 64-bit integer in base 10 or 16.
///
/// # Errors
/// With Go's text.
pub fn parse_i64(text: &str, radix: u32) -> Result<i64, String> {
    i64::from_str_radix(text, radix).map_err(|error| {
        let problem = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let quoted = super::quote::quote(text.as_bytes());
        format!("strconv.ParseInt: parsing {quoted}: {problem}")
    })
}

#[cfg(test)]
mod tests {
    use super::parse_i64;

    #[test]
    fn errors_are_worded_as_in_go() {
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
}
