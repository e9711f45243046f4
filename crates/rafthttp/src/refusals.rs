//! Rate-limited log lines about refused requests: a refused peer may retry ten times a
//! second without end.

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
    suppressed: u64,
}

impl RefusalLog {
    /// Logs a refusal. `from` is the unverified sender of the request.
    pub fn log(&self, from: &str, path: &str, reason: &str) {
        let mut state = lock(&self.state);
        if state.last.is_some_and(|last| last.elapsed() < LOG_PAUSE) {
            state.suppressed += 1;
            tracing::debug!(from, path, reason, "refused peer request");
            return;
        }
        let not_logged = std::mem::take(&mut state.suppressed);
        state.last = Some(Instant::now());
        tracing::warn!(from, path, reason, not_logged, "refused peer request");
    }
}
