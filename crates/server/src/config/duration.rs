//! Durations as Go writes them: `1h30m`, `500ms`, `1.5s`, `0`.

use std::time::Duration;

/// Parses a Go duration. Negative durations are refused.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .filter(|&at| at > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let unit_nanos = match &rest[..unit_end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        rest = &rest[unit_end..];
        nanos += number * unit_nanos;
    }
    // Go's durations end at i64::MAX nanoseconds as well.
    (nanos <= i64::MAX as f64).then(|| Duration::from_nanos(nanos.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("100ms", 100),
            ("1.5s", 1500),
            ("1h30m", 5_400_000),
            ("1h0m0s", 3_600_000),
            ("2us", 0),
        ] {
            assert_eq!(
                parse_duration(text).map(|duration| duration.as_millis()),
                Some(millis),
                "{text}"
            );
        }
        for text in ["", "5", "s", "1x", "-1s", "1s2", "1..5s", "9999999999h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
