//! Detects heartbeats that this member, while it leads, sends too late.
//!
//! It is called for every outgoing message, under the lock of consensus: so it looks at
//! heartbeats only, of which there are few. It only counts and logs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portunus_proto::raftpb::{Message, MessageType};
use prometheus::IntCounter;

/// A heartbeat more than this many intervals after the previous one is late.
const LATE_AFTER_INTERVALS: u32 = 2;
/// The shortest time between two warnings, however many heartbeats are late.
const WARN_PAUSE: Duration = Duration::from_secs(10);

/// Counts late heartbeats and warns about them.
pub struct Heartbeats {
    gap_max: Duration,
    late: IntCounter,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By peer: the term and the time of the last heartbeat. A new term starts anew.
    last: HashMap<u64, (u64, Instant)>,
    warned: Option<Instant>,
}

impl Heartbeats {
    /// Counts late heartbeats in `late`.
    pub fn new(interval: Duration, late: IntCounter) -> Heartbeats {
        Heartbeats {
            gap_max: interval * LATE_AFTER_INTERVALS,
            late,
            seen: Mutex::default(),
        }
    }

    /// Checks the heartbeats among messages that are sent now.
    pub fn sending(&self, messages: &[Message], now: Instant) {
        let heartbeats = messages
            .iter()
            .filter(|message| message.r#type() == MessageType::MsgHeartbeat);
        for message in heartbeats {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let last = seen.last.insert(message.to, (message.term, now));
            let gap = last
                .filter(|(term, _)| *term == message.term)
                .map(|(_, at)| now.saturating_duration_since(at));
            let Some(gap) = gap.filter(|gap| *gap > self.gap_max) else {
                continue;
            };
            self.late.inc();
            let may_warn = seen
                .warned
                .is_none_or(|at| now.saturating_duration_since(at) >= WARN_PAUSE);
            if may_warn {
                seen.warned = Some(now);
                tracing::warn!(
                    to = %format_args!("{:x}", message.to),
                    gap_ms = gap.as_millis() as u64,
                    "a heartbeat was late: this machine is overloaded or its disk is slow"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(to: u64, term: u64) -> Message {
        Message {
            r#type: MessageType::MsgHeartbeat as i32,
            to,
            term,
            ..Message::default()
        }
    }

    #[test]
    fn heartbeat_after_more_than_two_intervals_of_a_term_is_late() {
        let late = IntCounter::new("late", "late").unwrap();
        let heartbeats = Heartbeats::new(Duration::from_millis(100), late.clone());
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        heartbeats.sending(&[heartbeat(2, 5), heartbeat(3, 5)], at(0));
        heartbeats.sending(&[heartbeat(2, 5)], at(200));
        assert_eq!(late.get(), 0);
        heartbeats.sending(&[heartbeat(2, 5), heartbeat(3, 5)], at(350));
        assert_eq!(late.get(), 1, "350 ms after the last to 3");
        heartbeats.sending(&[heartbeat(2, 7)], at(10_000));
        assert_eq!(late.get(), 1, "it was no leader in between");
        let other = Message {
            to: 2,
            term: 7,
            ..Message::default()
        };
        heartbeats.sending(&[other], at(20_000));
        assert_eq!(late.get(), 1);
    }
}
