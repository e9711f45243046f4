//! A line in the log now and then about requests that were refused: strangers may ask
//! ten times a second, and for ever.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

const LOG_PAUSE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct RefusalLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    silent: u64,
}

impl RefusalLog {
    /// Notes a refusal. `from` is what the request says, true or not.
    pub fn note(&self, from: &str, path: &str, reason: &str) {
        let mut state = lock(&self.state);
        if state.last.is_some_and(|last| last.elapsed() < LOG_PAUSE) {
            state.silent += 1;
            tracing::debug!(from, path, reason, "refused a request of a peer");
            return;
        }
        let not_logged = std::mem::take(&mut state.silent);
        state.last = Some(Instant::now());
        tracing::warn!(
            from,
            path,
            reason,
            not_logged,
            "refused a request of a peer"
        );
    }
}
