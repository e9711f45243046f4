//! The deadline that a client gives its request in `grpc-timeout`.
//!
//! Most clients send one with every request, so it costs nothing until a request waits, and then
//! uses the slow tick of its thread (`coarse_timeout`): a request may outlive its deadline by one
//! tick. Its client has given up by then; the server must not go on for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;
use tonic::{Code, Status};

use crate::coarse_timeout::next_tick;

const HEADER: &str = "grpc-timeout";
/// The most digits that the protocol allows.
const DIGITS_MAX: usize = 8;

/// Returns the status of a request whose deadline has passed, with the text of Go's library.
pub(super) fn exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "context deadline exceeded")
}

/// Returns the time that the client gives the request.
///
/// # Errors
/// The refusal of a header that is not a timeout, as Go's library words it.
pub(super) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let parsed = parse(value.as_bytes());
    let malformed = || Status::internal("malformed grpc-timeout: it takes a number and a unit");
    parsed.map(Some).ok_or_else(malformed)
}

/// Parses one to eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

pin_project! {
    /// The deadline of one request, if it has one.
    pub(super) struct Deadline {
        at: Option<Instant>,
        #[pin]
        tick: Option<OwnedNotified>,
    }
}

impl Deadline {
    pub(super) fn new(at: Option<Instant>) -> Deadline {
        Deadline { at, tick: None }
    }

    /// Returns when the request has to end.
    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// Waits until the deadline has passed. To be polled only while the request waits.
    pub(super) fn poll_passed(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(at) = *this.at else {
            return Poll::Pending;
        };
        loop {
            if this.tick.is_none() {
                this.tick.set(next_tick());
            }
            let Some(tick) = this.tick.as_mut().as_pin_mut() else {
                // Not on a serving thread.
                return Poll::Pending;
            };
            ready!(tick.poll(context));
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            this.tick.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::coarse_timeout::tick;

    #[test]
    fn timeouts_are_parsed_as_the_protocol_writes_them() {
        let second = Duration::from_secs(1);
        for (text, expected) in [
            ("1H", Some(3600 * second)),
            ("2M", Some(120 * second)),
            ("5S", Some(5 * second)),
            ("4999861u", Some(Duration::from_micros(4_999_861))),
            ("100m", Some(second / 10)),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("+5S", None),
            ("123456789S", None),
            ("1 S", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn deadline_passes_soon_after_its_time_and_never_without_one() {
        tokio::spawn(tick());
        tokio::task::yield_now().await;
        let started = Instant::now();
        let time = Duration::from_millis(300);
        let mut deadline = pin!(Deadline::new(Some(started + time)));
        std::future::poll_fn(|context| deadline.as_mut().poll_passed(context)).await;
        assert!(started.elapsed() >= time);
        let mut none = pin!(Deadline::new(None));
        let passed = std::future::poll_fn(|context| none.as_mut().poll_passed(context));
        assert!(tokio::time::timeout(2 * time, passed).await.is_err());
    }
}
