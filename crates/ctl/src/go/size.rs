//! Sizes for people, as etcdctl shows them: powers of 1000, two or more digits.

const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

/// `20 kB`, `2.1 GB`.
#[must_use]
pub fn humanize(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let exponent = (bytes.ilog10() / 3) as usize;
    let scaled = bytes as f64 / 1000_f64.powi(exponent as i32);
    let rounded = (scaled * 10.0 + 0.5).floor() / 10.0;
    let unit = UNITS[exponent];
    if rounded < 10.0 {
        format!("{rounded:.1} {unit}")
    } else {
        format!("{rounded:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::humanize;

    #[test]
    fn sizes_format_as_in_etcdctl() {
        for (bytes, text) in [
            (0, "0 B"),
            (9, "9 B"),
            (10, "10 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (16_384, "16 kB"),
            (20_480, "20 kB"),
            (9_949, "9.9 kB"),
            (9_999, "10 kB"),
            (2_147_483_648, "2.1 GB"),
            (u64::MAX, "18 EB"),
        ] {
            assert_eq!(humanize(bytes), text);
        }
    }
}
