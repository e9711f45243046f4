//! Peers that must not receive log entries yet.
//!
//! While a cluster feature is on, an entry may have another effect on a member of etcd, which
//! does not know cluster features. Such a member may be added at any time, and its program is
//! known only after it has started. So the leader holds entries and snapshots back from every
//! member without a proposal. If the member's `/version` reports that it knows cluster features,
//! whether it proposes any or not, replication to it starts. Otherwise it publishes attributes
//! without a proposal, which turns all features off (see `portunus_gates::cluster::decide`), and
//! it receives a snapshot from after that (`gated.rs` of the state machine).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use portunus_proto::raftpb::{Message, MessageType};
use tokio::sync::Notify;

use portunus_statemachine::membership::Membership;

/// The peers from which this member holds entries back while it leads.
#[derive(Debug, Default)]
pub struct ReplicationHold {
    held: ArcSwap<BTreeSet<u64>>,
    /// Members whose `/version` reported that they know cluster features.
    known: Mutex<BTreeSet<u64>>,
    /// Wakes the task that asks held members.
    held_changed: Notify,
}

impl ReplicationHold {
    /// Follows a change of members or features.
    pub fn review(&self, membership: &Membership) {
        let has_feature = membership.has_feature();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = membership
            .iter()
            .filter(|member| has_feature && member.proposal.is_none())
            .map(|member| member.id);
        let held: BTreeSet<u64> = unknown.filter(|id| !known.contains(id)).collect();
        if **self.held.load() != held {
            for id in &held {
                tracing::info!(
                    member = %format_args!("{id:x}"),
                    "replication held: feature support of peer unknown"
                );
            }
            self.held.store(held.into());
            self.held_changed.notify_one();
        }
    }

    /// Returns when the set of held members has changed.
    pub async fn held_changed(&self) {
        self.held_changed.notified().await;
    }

    /// Whether a member's `/version` reported that it knows cluster features.
    pub fn knows_gates(&self, id: u64) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&id)
    }

    /// Forgets what a member's `/version` reported: the member has published attributes, so it
    /// was started anew, perhaps as another program.
    pub fn started_anew(&self, id: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&id);
    }

    /// The members that are held.
    pub fn held(&self) -> BTreeSet<u64> {
        self.held.load().as_ref().clone()
    }

    /// Releases a member that knows cluster features.
    pub fn release(&self, id: u64, membership: &Membership) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        self.review(membership);
    }

    /// Whether a message carries log entries or a snapshot to a held member.
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
        let hold = ReplicationHold::default();
        hold.review(&membership);
        assert!(!hold.holds_back(&to(2, MessageType::MsgApp)));
        let version = portunus_gates::MajorMinor::literal("3.8");
        membership.params = Some(ClusterParams {
            version,
            features: [("A".to_owned(), true), ("B".to_owned(), false)].into(),
        });
        hold.review(&membership);
        assert!(!hold.holds_back(&to(1, MessageType::MsgApp)));
        assert!(hold.holds_back(&to(2, MessageType::MsgApp)));
        assert!(hold.holds_back(&to(2, MessageType::MsgSnap)));
        assert!(!hold.holds_back(&to(2, MessageType::MsgHeartbeat)));
        hold.release(2, &membership);
        assert!(!hold.holds_back(&to(2, MessageType::MsgApp)));
        assert!(hold.knows_gates(2) && !hold.knows_gates(3));
        assert_eq!(hold.held(), BTreeSet::from([3]));
        // After a restart it may be another program.
        hold.started_anew(2);
        hold.review(&membership);
        assert_eq!(hold.held(), BTreeSet::from([2, 3]));
        membership.params = None;
        hold.review(&membership);
        assert!(hold.held().is_empty());
    }
}
