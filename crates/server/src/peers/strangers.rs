//! Members that must not be sent the log yet.
//!
//! While a cluster feature is on, the same entry may mean something else to a member of etcd,
//! which does not know cluster features. Such a member may be added at any time, and what it
//! is shows only when it has started. So the leader holds entries and snapshots back from every
//! member without a proposal. If the member's `/version` says that it knows cluster features,
//! whether it proposes any or not, it is sent everything. Otherwise it publishes attributes
//! without a proposal, which turns all features off (see `portunus_gates::cluster::decide`),
//! and is sent a snapshot from after that (`gated.rs` of the state machine).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use portunus_proto::raftpb::{Message, MessageType};
use tokio::sync::Notify;

use portunus_statemachine::membership::Membership;

/// Whom to hold entries back from.
#[derive(Debug, Default)]
pub struct Strangers {
    held: ArcSwap<BTreeSet<u64>>,
    /// Members whose `/version` said that they know cluster features.
    known: Mutex<BTreeSet<u64>>,
    /// Wakes the task that asks held members.
    held_changed: Notify,
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
            self.held_changed.notify_one();
        }
    }

    /// Returns when members are held that were not before.
    pub async fn held_changed(&self) {
        self.held_changed.notified().await;
    }

    /// Whether a member's `/version` said that it knows cluster features.
    pub fn knows_gates(&self, id: u64) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&id)
    }

    /// Forgets what a member's `/version` said: it published attributes, so it was started
    /// anew, perhaps as another program.
    pub fn started_anew(&self, id: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&id);
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
    use std::collections::BTreeMap;

    use super::*;
    use portunus_gates::cluster::ClusterParams;
    use portunus_statemachine::membership::{MemberRecord, ProposalRecord};

    fn to(id: u64, kind: MessageType) -> Message {
        Message {
            to: id,
            r#type: kind.into(),
            ..Message::default()
        }
    }

    #[test]
    fn only_the_log_is_held_back_only_while_a_feature_is_on() {
        let record = |id, proposes: bool| MemberRecord {
            id,
            peer_urls: None,
            is_learner: false,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: proposes.then(|| ProposalRecord {
                version: "3.8".to_owned(),
                flags: BTreeMap::new(),
            }),
        };
        let members = [record(1, true), record(2, false), record(3, false)];
        let mut membership = Membership::of_members(members);
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
        assert!(strangers.knows_gates(2) && !strangers.knows_gates(3));
        assert_eq!(strangers.held(), BTreeSet::from([3]));
        // Started anew, it may be another program.
        strangers.started_anew(2);
        strangers.review(&membership);
        assert_eq!(strangers.held(), BTreeSet::from([2, 3]));
        membership.params = None;
        strangers.review(&membership);
        assert!(strangers.held().is_empty());
    }
}
