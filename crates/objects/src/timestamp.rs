//! Timestamps of objects: RFC 3339 in UTC with whole seconds.

use jiff::Timestamp;

/// Returns the text of a time in seconds since 1970, such as `2026-11-18T06:00:00Z`; `None`
/// outside of the years that a timestamp can show.
#[must_use]
pub fn format(unix_s: i64) -> Option<String> {
    Some(Timestamp::from_second(unix_s).ok()?.to_string())
}

/// Returns the seconds since 1970 of a timestamp; fractions of a second are dropped.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let time: Timestamp = text.parse().ok()?;
    // Rounds down for times before 1970 as well.
    let seconds = time.as_second();
    Some(if time.subsec_nanosecond() < 0 {
        seconds - 1
    } else {
        seconds
    })
}

/// Returns an approximate duration with two or three digits, such as `5m12s`, as kubectl prints
/// ages.
#[must_use]
pub fn human_duration(duration_s: i64) -> String {
    const MINUTE_S: i64 = 60;
    const HOUR_S: i64 = 60 * MINUTE_S;
    const DAY_S: i64 = 24 * HOUR_S;
    const YEAR_S: i64 = 365 * DAY_S;

    let two = |unit_s: i64, unit: char, smaller_s: i64, smaller: char| {
        let rest = duration_s % unit_s / smaller_s;
        match rest {
            0 => format!("{}{unit}", duration_s / unit_s),
            _ => format!("{}{unit}{rest}{smaller}", duration_s / unit_s),
        }
    };
    match duration_s {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if duration_s < 2 * MINUTE_S => format!("{duration_s}s"),
        _ if duration_s < 10 * MINUTE_S => two(MINUTE_S, 'm', 1, 's'),
        _ if duration_s < 3 * HOUR_S => format!("{}m", duration_s / MINUTE_S),
        _ if duration_s < 8 * HOUR_S => two(HOUR_S, 'h', MINUTE_S, 'm'),
        _ if duration_s < 2 * DAY_S => format!("{}h", duration_s / HOUR_S),
        _ if duration_s < 8 * DAY_S => two(DAY_S, 'd', HOUR_S, 'h'),
        _ if duration_s < 2 * YEAR_S => format!("{}d", duration_s / DAY_S),
        _ if duration_s < 8 * YEAR_S => two(YEAR_S, 'y', DAY_S, 'd'),
        _ => format!("{}y", duration_s / YEAR_S),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_survives_formatting_and_parsing() {
        assert_eq!(format(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(
            format(1_794_981_600).as_deref(),
            Some("2026-11-18T06:00:00Z")
        );
        assert_eq!(parse("2026-11-18T06:00:00Z"), Some(1_794_981_600));
        assert_eq!(parse("2026-11-18T07:00:00.75+01:00"), Some(1_794_981_600));
        assert_eq!(format(i64::MAX), None);
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn durations_have_the_texts_of_kubectl() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (601, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (duration_s, text) in cases {
            assert_eq!(human_duration(duration_s), text);
        }
    }
}
