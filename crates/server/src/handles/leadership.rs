//! The current leader, and notifications when it changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use portunus_consensus::Leadership;
use portunus_gates::cluster::MemberId;
use tokio::sync::watch;

/// The newest leadership, and when it changed. Written by consensus.
pub struct Leaders {
    newest: watch::Sender<Leadership>,
    since: Mutex<Since>,
}

/// When leadership last changed, as far as this member knows.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// When the newest leader was elected.
    elected_at: Option<Instant>,
    /// When the last leader was lost or the member started; `None` while there is a leader.
    leaderless: Option<Instant>,
}

impl Default for Leaders {
    fn default() -> Self {
        Leaders {
            newest: watch::Sender::new(Leadership::default()),
            since: Mutex::new(Since {
                elected_at: None,
                leaderless: Some(Instant::now()),
            }),
        }
    }
}

impl Leaders {
    /// Stores the leadership that consensus reports; true if a new leader is known.
    pub fn set(&self, leadership: Leadership) -> bool {
        let before = self.newest.send_replace(leadership);
        let is_new = leadership.leader != MemberId::NONE && leadership.leader != before.leader;
        let mut since = self.lock();
        if is_new {
            since.elected_at = Some(Instant::now());
        }
        since.leaderless = match leadership.leader {
            MemberId::NONE => since.leaderless.or_else(|| Some(Instant::now())),
            _ => None,
        };
        is_new
    }

    /// When the newest leader was elected, as far as this member knows.
    pub fn elected_at(&self) -> Option<Instant> {
        self.lock().elected_at
    }

    /// Since when this member knows no leader; `None` while it knows one.
    pub fn leaderless_since(&self) -> Option<Instant> {
        self.lock().leaderless
    }

    fn lock(&self) -> MutexGuard<'_, Since> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of leadership changes.
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led_by(leader: u64) -> Leadership {
        Leadership {
            leader: MemberId(leader),
            ..Leadership::default()
        }
    }

    #[test]
    fn time_without_a_leader_starts_with_the_loss_and_ends_with_an_election() {
        let leaders = Leaders::default();
        assert!(leaders.leaderless_since().is_some(), "none since the start");
        leaders.set(led_by(2));
        assert_eq!(leaders.leaderless_since(), None);
        leaders.set(led_by(0));
        let lost_at = leaders.leaderless_since();
        assert!(lost_at.is_some());
        leaders.set(led_by(0));
        assert_eq!(leaders.leaderless_since(), lost_at, "the first loss counts");
    }
}
