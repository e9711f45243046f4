//! Durations in Go's syntax: `1s`, `500ms`, `1m30s`.

use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// No number, or nothing at all.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit Go does not know.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
    /// A negative duration, which Go would accept.
    #[error("duration {0:?} is negative; give a positive one")]
    Negative(String),
}

/// Reads a duration.
///
/// # Errors
/// With Go's texts.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let (unsigned, negative) = match unsigned.strip_prefix('-') {
        Some(rest) if rest.len() + 1 == text.len() => (rest, true),
        Some(_) => return Err(invalid()),
        None => (unsigned, false),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let mut nanos = 0_u128;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (number, after_number) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after_unit) = split_while(after_number, |c| !c.is_ascii_digit() && c != '.');
        nanos += part_nanos(text, number, unit)?;
        rest = after_unit;
    }
    let nanos = u64::try_from(nanos).map_err(|_| invalid())?;
    // Go's durations are signed.
    if nanos > i64::MAX.unsigned_abs() {
        return Err(invalid());
    }
    if negative && nanos > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    Ok(Duration::from_nanos(nanos))
}

fn part_nanos(text: &str, number: &str, unit: &str) -> Result<u128, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(invalid());
    }
    let unit_nanos: u128 = match unit {
        "" => return Err(DurationError::MissingUnit(text.to_owned())),
        "ns" => 1,
        // Both spellings of "micro" that Unicode has.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3600 * NANOS_PER_SECOND,
        _ => {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        }
    };
    let whole: u64 = match whole {
        "" => 0,
        digits => digits.parse().map_err(|_| invalid())?,
    };
    // Digits beyond the nanosecond of an hour change nothing.
    let fraction: String = fraction.chars().take(15).collect();
    let mut nanos = u128::from(whole) * unit_nanos;
    if !fraction.is_empty() {
        let scale = 10_u128.pow(fraction.len() as u32);
        let digits: u128 = fraction.parse().map_err(|_| invalid())?;
        nanos += digits * unit_nanos / scale;
    }
    Ok(nanos)
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !keep(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// Writes a duration as Go does: `4.349603ms`, `1m30.5s`, `0s`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, unit_nanos, digits) in [("ns", 1, 0), ("\u{b5}s", 1_000, 3), ("ms", 1_000_000, 6)] {
        if nanos < unit_nanos * 1000 {
            return format!("{}{unit}", decimal(nanos, unit_nanos, digits));
        }
    }
    let (hours, rest) = (
        nanos / (3600 * NANOS_PER_SECOND),
        nanos % (3600 * NANOS_PER_SECOND),
    );
    let (minutes, rest) = (
        rest / (60 * NANOS_PER_SECOND),
        rest % (60 * NANOS_PER_SECOND),
    );
    let seconds = decimal(rest, NANOS_PER_SECOND, 9);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `nanos / unit` without trailing zeros; `digits` is how many the unit has.
fn decimal(nanos: u128, unit: u128, digits: usize) -> String {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        for (text, nanos) in [
            ("0", 0),
            ("1s", 1_000_000_000),
            ("+5s", 5_000_000_000),
            ("500ms", 500_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("2h3m4s5ms6us7ns", 7_384_005_006_007),
            ("1\u{b5}s", 1_000),
            ("-0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn invalid_duration_is_refused_with_go_text() {
        for (text, message) in [
            ("", "time: invalid duration \"\""),
            ("s", "time: invalid duration \"s\""),
            (".s", "time: invalid duration \".s\""),
            ("1.2.3s", "time: invalid duration \"1.2.3s\""),
            ("3", "time: missing unit in duration \"3\""),
            ("1x", "time: unknown unit \"x\" in duration \"1x\""),
            ("9999999999h", "time: invalid duration \"9999999999h\""),
            ("+-1s", "time: invalid duration \"+-1s\""),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
        assert!(matches!(parse("-1s"), Err(DurationError::Negative(_))));
    }

    #[test]
    fn durations_format_as_in_go() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (4_349_603, "4.349603ms"),
            (1_000_835_062, "1.000835062s"),
            (90_500_000_000, "1m30.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
        }
    }
}
