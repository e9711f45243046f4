//! The phase of founding that this member is in; `member/founding.rs` has the rule.

use portunus_gates::cluster::FoundingPhase;
use tokio::sync::watch;

/// This member's phase of founding.
pub struct Founding {
    /// `None` if it takes no part. Set by the task that starts the member.
    phase: watch::Sender<Option<FoundingPhase>>,
}

impl Founding {
    /// Starts the phases of a member that takes part in deciding cluster features, or has none.
    pub fn new(takes_part: bool) -> Founding {
        Founding {
            phase: watch::Sender::new(takes_part.then_some(FoundingPhase::Checking)),
        }
    }

    /// The phase; `None` for a member that takes no part.
    pub fn phase(&self) -> Option<FoundingPhase> {
        *self.phase.borrow()
    }

    /// Whether this member may publish attributes and decide the cluster version.
    pub fn is_over(&self) -> bool {
        self.phase()
            .is_none_or(|phase| phase == FoundingPhase::Serving)
    }

    /// Enters a phase, unless this member takes no part.
    pub fn enter(&self, phase: FoundingPhase) {
        self.phase.send_if_modified(|shown| match shown {
            Some(before) if *before != phase => {
                *before = phase;
                true
            }
            // A member that takes no part has no phase.
            _ => false,
        });
    }
}
