//! Periodic probes of each peer: round trip time and clock difference.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::uri::PathAndQuery;
use http::{Method, Request, StatusCode};
use serde::{Deserialize, Serialize};

use crate::body;
use crate::headers::hex;
use crate::peer::Peer;

/// The path of the probe.
pub(crate) const PATH: &str = "/raft/probing";

const ANSWER_BYTES_MAX: usize = 1024;
/// A larger clock difference is logged.
const CLOCK_DRIFT_MAX: Duration = Duration::from_secs(1);
/// The shortest pause between two log lines about a clock difference.
const DRIFT_LOG_PAUSE: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Health {
    #[serde(rename = "OK")]
    ok: bool,
    #[serde(rename = "Now")]
    now: String,
}

/// Returns the answer to a probe.
pub(crate) fn answer() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let health = Health {
        ok: true,
        now: rfc3339(now.unwrap_or_default()),
    };
    // Serialising a bool and a string does not fail.
    let mut text = serde_json::to_string(&health).unwrap_or_default();
    text.push('\n');
    text
}

/// Probes one peer until the task is aborted.
pub(crate) async fn run(peer: Arc<Peer>) {
    peer.shared.raft.wait().await;
    let interval = peer.shared.config.probe_interval;
    let mut drift_logged: Option<Instant> = None;
    loop {
        tokio::time::sleep(interval).await;
        let Some((round_trip, there)) = probe(&peer).await else {
            continue;
        };
        peer.metrics
            .round_trip_seconds
            .observe(round_trip.as_secs_f64());
        let here = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let drift = there.map_or(Duration::ZERO, |there| {
            (there + round_trip / 2).abs_diff(here)
        });
        let silent = drift_logged.is_some_and(|logged| logged.elapsed() < DRIFT_LOG_PAUSE);
        if drift > CLOCK_DRIFT_MAX && !silent {
            drift_logged = Some(Instant::now());
            tracing::warn!(
                peer = hex(peer.id),
                drift_ms = u64::try_from(drift.as_millis()).unwrap_or(u64::MAX),
                "prober found high clock drift"
            );
        }
    }
}

async fn probe(peer: &Peer) -> Option<(Duration, Option<Duration>)> {
    let url = peer.urls.pick()?;
    let shared = &peer.shared;
    let mut request = Request::new(body::full(Default::default()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = url.join(&PathAndQuery::from_static(PATH));
    let started = Instant::now();
    let answer = shared.post_client.send_whole(request, ANSWER_BYTES_MAX);
    // Failures are ignored: streams and posts report them.
    let (status, _, text) = tokio::time::timeout(shared.config.probe_interval, answer)
        .await
        .ok()?
        .ok()?;
    let round_trip = started.elapsed();
    let health: Health = serde_json::from_slice(&text).ok()?;
    (status == StatusCode::OK && health.ok).then(|| (round_trip, parse_rfc3339(&health.now)))
}

const DAY_S: u64 = 24 * 60 * 60;

/// Formats a time since 1970 as Go does, in UTC.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil_from_days(seconds / DAY_S);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let nanos = since_epoch.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Parses a time between 1970 and 9999; `None` for any other text.
fn parse_rfc3339(text: &str) -> Option<Duration> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        if plain { digits.parse().ok() } else { None }
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators
        .iter()
        .any(|(place, byte)| bytes.get(*place) != Some(byte))
    {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let day_exists = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !day_exists || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut zone = text.get(19..)?;
    let mut nanos = 0u32;
    if let Some(fraction) = zone.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let nine = fraction.get(..digits.min(9))?;
        nanos = format!("{nine:0<9}").parse().ok()?;
        zone = fraction.get(digits..)?;
    }
    let local = days_from_civil(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
    let seconds = if zone == "Z" {
        local
    } else {
        let at = text.len() - zone.len();
        let ahead_s = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
        match (zone.len(), zone.as_bytes().first()?) {
            (6, b'+') => local.checked_sub(ahead_s)?,
            (6, b'-') => local + ahead_s,
            _ => return None,
        }
    };
    Some(Duration::new(seconds, nanos))
}

/// Returns the days from 1970-01-01 to a date; years start in March, so a leap day is last.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).saturating_sub(719_468)
}

fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_and_parsed_as_in_go() {
        let cases = [
            ("1970-01-01T00:00:00.000000000Z", 0, 0),
            ("2000-02-29T12:34:56.500000000Z", 951_827_696, 500_000_000),
            ("2024-12-31T23:59:59.000000001Z", 1_735_689_599, 1),
            ("2026-03-01T00:00:00.000000000Z", 1_772_323_200, 0),
        ];
        for (text, seconds, nanos) in cases {
            let time = Duration::new(seconds, nanos);
            assert_eq!(rfc3339(time), text);
            assert_eq!(parse_rfc3339(text), Some(time));
        }
        let zone = parse_rfc3339("2026-03-01T01:30:00.25+01:30").unwrap();
        assert_eq!(zone, Duration::new(1_772_323_200, 250_000_000));
        let west = parse_rfc3339("2026-02-28T19:00:00-05:00").unwrap();
        assert_eq!(west.as_secs(), 1_772_323_200);
    }

    #[test]
    fn text_that_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-03-01",
            "2026-03-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "2026-03-01T00:00:00+1",
            "1969-12-31T23:59:59Z",
            "2026-03-01T00:00:00é",
            "+026-03-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn probe_answer_can_be_parsed() {
        let answer: Health = serde_json::from_str(&answer()).unwrap();
        assert!(answer.ok);
        assert!(parse_rfc3339(&answer.now).is_some());
    }
}
