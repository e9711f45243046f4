//! Waiting for conditions, with a deadline.
//!
//! A test never sleeps for a fixed time and hopes: it looks again and again until the condition
//! holds, and fails at the deadline with the last state that it saw.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The time limit for anything that must happen. Only a failing test waits this long.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// The pause between two checks of a condition.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Repeats `look` until it succeeds; returns its last error after `time_max`.
///
/// # Errors
/// The last error of `look`.
pub async fn try_until<T, S>(
    time_max: Duration,
    mut look: impl AsyncFnMut() -> Result<T, S>,
) -> Result<T, S> {
    let deadline = Instant::now() + time_max;
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(state) if Instant::now() >= deadline => return Err(state),
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Like [`try_until`], for tests without a runtime.
///
/// # Errors
/// The last error of `look`.
pub fn try_until_blocking<T, S>(
    time_max: Duration,
    mut look: impl FnMut() -> Result<T, S>,
) -> Result<T, S> {
    let deadline = Instant::now() + time_max;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(state) if Instant::now() >= deadline => return Err(state),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Waits until `look` succeeds.
///
/// # Panics
/// After [`WAIT_MAX`], with the last error of `look`.
pub async fn until<T, S: Debug>(what: &str, look: impl AsyncFnMut() -> Result<T, S>) -> T {
    match try_until(WAIT_MAX, look).await {
        Ok(found) => found,
        Err(state) => panic!("no {what} within {WAIT_MAX:?}; last state: {state:?}"),
    }
}

/// Waits until `look` succeeds.
///
/// # Panics
/// After [`WAIT_MAX`], with the last error of `look`.
#[track_caller]
pub fn until_blocking<T, S: Debug>(what: &str, look: impl FnMut() -> Result<T, S>) -> T {
    match try_until_blocking(WAIT_MAX, look) {
        Ok(found) => found,
        Err(state) => panic!("no {what} within {WAIT_MAX:?}; last state: {state:?}"),
    }
}

/// Waits until `look` returns something.
///
/// # Panics
/// After [`WAIT_MAX`].
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    until(what, async || look().await.ok_or(())).await
}

/// Waits for an event.
///
/// # Panics
/// After [`WAIT_MAX`].
pub async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_MAX, event).await {
        Ok(value) => value,
        Err(_) => panic!("no {what} within {WAIT_MAX:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_checked_until_it_holds() {
        let mut checks = 0;
        let found = try_until_blocking(WAIT_MAX, || {
            checks += 1;
            if checks == 3 { Ok(checks) } else { Err(()) }
        });
        assert_eq!(found, Ok(3));
    }

    #[tokio::test]
    async fn last_state_is_returned_at_the_deadline() {
        let mut checks = 0;
        let state = try_until(POLL_INTERVAL, async || {
            checks += 1;
            Err::<(), u32>(checks)
        });
        assert!(state.await.unwrap_err() >= 2);
        let state = try_until_blocking(Duration::ZERO, || Err::<(), u32>(7));
        assert_eq!(state, Err(7));
    }
}
