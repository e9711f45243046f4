//! Moments as Go writes them in RFC 3339, in universal time.

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;
/// Days from the first of March of year 0 to the first of January 1970.
const DAYS_TO_UNIX_EPOCH: i64 = 719_468;

/// A Unix time as `2006-01-02T15:04:05Z`; `-` for none.
#[must_use]
pub fn rfc3339(unix_seconds: i64) -> String {
    if unix_seconds == 0 {
        return "-".to_owned();
    }
    let (year, month, day) = date(unix_seconds.div_euclid(SECONDS_PER_DAY));
    let second = unix_seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day. Years are counted from March, so that a leap day is a year's last.
fn date(unix_days: i64) -> (i64, i64, i64) {
    let days = unix_days.saturating_add(DAYS_TO_UNIX_EPOCH);
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    // Leap days so far: one every 4 years, none every 100, one at the very end of the era.
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / (DAYS_PER_ERA - 1);
    let year_of_era = (day_of_era - leap_days) / 365;
    let first_day = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
    let day_of_year = day_of_era - first_day;
    // From March on, five months always have 153 days.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let is_next_year = month_from_march >= 10;
    let month = if is_next_year {
        month_from_march - 9
    } else {
        month_from_march + 3
    };
    (
        400 * era + year_of_era + i64::from(is_next_year),
        month,
        day,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_format_as_rfc3339_in_utc() {
        for (unix_seconds, text) in [
            (0, "-"),
            (1, "1970-01-01T00:00:01Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(unix_seconds), text);
        }
    }
}
