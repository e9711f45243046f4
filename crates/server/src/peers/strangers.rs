//! Members that must not be sent the log yet.
//!
//! While a cluster feature is on, the same entry may mean something else to a member that
//! does not know cluster features: Go's, or one with the mechanism off. Such a member may be
//! added at any time, and what it is shows only when it has started. Until then the leader
//! holds entries and snapshots back from it. Either it says by its `/version` that it knows
//! them, and gets everything; or it introduces itself without a word about them, which turns
//! all of them off (see `portunus_gates::cluster::decide`), and it gets a snapshot from after
//! that (`apply/gated.rs`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use portunus_proto::raftpb::{Message, MessageType};

use crate::member::membership::Membership;

/// Whom to hold entries back from.
#[derive(Debug, Default)]
pub struct Strangers {
    held: ArcSwap<BTreeSet<u64>>,
    /// Members that have said that they know cluster features.
    known: Mutex<BTreeSet<u64>>,
}

impl Strangers {
    /// Looks at the members and features as they are applied now.
    pub fn review(&self, membership: &Membership) {
        let has_feature = membership.has_feature();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaid = membership
            .iter()
            .filter(|member| has_feature && member.proposal.is_none())
            .map(|member| member.id);
        let held: BTreeSet<u64> = unsaid.filter(|id| !known.contains(id)).collect();
        if **self.held.load() != held {
            for id in &held {
                tracing::info!(
                    member = %format_args!("{id:x}"),
                    "a member that may not know cluster features gets nothing until it has said what it is"
                );
            }
            self.held.store(held.into());
        }
    }

    /// Members of which nothing is known.
    pub fn held(&self) -> BTreeSet<u64> {
        self.held.load().as_ref().clone()
    }

    /// A member has said that it knows cluster features.
    pub fn introduce(&self, id: u64, membership: &Membership) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        self.review(membership);
    }

    /// Whether a message would let a stranger apply something.
    pub fn holds_back(&self, message: &Message) -> bool {
        let carries_log = matches!(message.r#type(), MessageType::MsgApp | MessageType::MsgSnap);
        carries_log && self.held.load().contains(&message.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_gates::cluster::ClusterParams;

    fn to(id: u64, kind: MessageType) -> Message {
        Message {
            to: id,
            r#type: kind.into(),
            ..Message::default()
        }
    }

    #[test]
    fn only_the_log_is_held_back_only_while_a_feature_is_on() {
        let mut membership: Membership = Membership::of_test(&[(1, true), (2, false), (3, false)]);
        let strangers = Strangers::default();
        strangers.review(&membership);
        assert!(!strangers.holds_back(&to(2, MessageType::MsgApp)));
        let version = portunus_gates::MajorMinor::literal("3.8");
        membership.params = Some(ClusterParams {
            version,
            features: [("A".to_owned(), true), ("B".to_owned(), false)].into(),
        });
        strangers.review(&membership);
        assert!(!strangers.holds_back(&to(1, MessageType::MsgApp)));
        assert!(strangers.holds_back(&to(2, MessageType::MsgApp)));
        assert!(strangers.holds_back(&to(2, MessageType::MsgSnap)));
        assert!(!strangers.holds_back(&to(2, MessageType::MsgHeartbeat)));
        strangers.introduce(2, &membership);
        assert!(!strangers.holds_back(&to(2, MessageType::MsgApp)));
        assert_eq!(strangers.held(), BTreeSet::from([3]));
        membership.params = None;
        strangers.review(&membership);
        assert!(strangers.held().is_empty());
    }
}
