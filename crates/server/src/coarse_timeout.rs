//! A timeout for requests that is cheap where there are many of them.
//!
//! A timer of the runtime costs a system call each, because a timer that is shorter than all
//! others has to wake the sleeping thread. A request's limit of seconds need not be exact to the
//! millisecond, so a serving thread has one slow tick, and every waiting request reads the clock
//! at each tick.

use std::cell::RefCell;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// The time between two ticks, by which a wait may exceed its limit.
const TICK: Duration = Duration::from_millis(250);

thread_local! {
    /// The tick of this thread, if it has one.
    static TICKS: RefCell<Option<Arc<Notify>>> = const { RefCell::new(None) };
}

/// Gives the calling thread a tick. The thread has to run the returned future.
pub fn tick() -> impl Future<Output = ()> {
    let ticks = Arc::new(Notify::new());
    TICKS.set(Some(Arc::clone(&ticks)));
    async move {
        loop {
            tokio::time::sleep(TICK).await;
            ticks.notify_waiters();
        }
    }
}

/// Returns the next tick of the calling thread, if the thread has ticks.
pub fn next_tick() -> Option<OwnedNotified> {
    let ticks = TICKS.with_borrow(Option::clone)?;
    Some(ticks.notified_owned())
}

/// Waits for `wait`, but at most one tick longer than `limit`. Returns `None` at the limit.
pub async fn coarse_timeout<T>(limit: Duration, wait: impl Future<Output = T>) -> Option<T> {
    let Some(ticks) = TICKS.with_borrow(Option::clone) else {
        return tokio::time::timeout(limit, wait).await.ok();
    };
    let mut wait = pin!(wait);
    let mut deadline = None;
    loop {
        tokio::select! {
            biased;
            value = &mut wait => return Some(value),
            () = ticks.notified() => {
                // The first tick may come at once, so the time is taken from there.
                let now = Instant::now();
                if now >= *deadline.get_or_insert(now + limit) {
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn future_ends_with_its_value_or_soon_after_the_timeout() {
        for with_tick in [false, true] {
            if with_tick {
                tokio::spawn(tick());
            }
            assert_eq!(
                coarse_timeout(Duration::from_secs(60), async { 7 }).await,
                Some(7)
            );
            let slow = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                7
            };
            assert_eq!(coarse_timeout(Duration::from_secs(60), slow).await, Some(7));
            let forever = std::future::pending::<()>();
            let limit = Duration::from_millis(300);
            let started = Instant::now();
            assert_eq!(coarse_timeout(limit, forever).await, None);
            assert!(started.elapsed() >= limit);
        }
    }
}
