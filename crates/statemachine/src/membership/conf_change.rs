//! Changes of membership: whether a committed change is made, and what it does to the records.

use bytes::Bytes;
use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;
use portunus_proto::{EtcdError, raftpb};
use serde::Deserialize;

use super::record::{MemberRecord, REMOVED, hex};
use super::{Membership, MembershipError};

/// The context of a configuration change: a member, and whether it is only promoted.
#[derive(Debug, Deserialize)]
struct ChangeContext {
    #[serde(flatten)]
    member: MemberRecord,
    #[serde(rename = "isPromote", default)]
    is_promote: bool,
}

/// A change of membership that passed the checks of [`Membership::check_change`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedChange {
    /// A new member.
    Add(MemberRecord),
    /// A learner becomes a voter.
    Promote(MemberRecord),
    /// Other peer URLs.
    Update(MemberRecord),
    /// A member is removed, and its id never used again.
    Remove(u64),
}

impl Membership {
    /// Whether one of these peer URLs belongs to another member than `except`.
    fn has_peer_url(&self, urls: &[String], except: u64) -> bool {
        let others = self.iter().filter(|member| member.id != except);
        let mut taken = others.flat_map(|member| member.peer_urls.iter().flatten());
        taken.any(|url| urls.contains(url))
    }

    /// Checks a committed change against the members before it. Every member comes to the same
    /// result, so a refused change is made by none.
    pub fn check_change(
        &self,
        change: &raftpb::ConfChange,
        max_learners: usize,
    ) -> Result<Result<PlannedChange, EtcdError>, MembershipError> {
        use raftpb::ConfChangeType as Type;
        let id = change.node_id;
        if self.is_removed(id) {
            return Ok(Err(EtcdError::MemberNotFound));
        }
        let known = self.get(id);
        if change.r#type() == Type::ConfChangeRemoveNode {
            return Ok(match known {
                Some(_) => Ok(PlannedChange::Remove(id)),
                None => Err(EtcdError::MemberNotFound),
            });
        }
        let record = |source| MembershipError::Record {
            key: hex(id),
            source,
        };
        let context: ChangeContext = serde_json::from_slice(&change.context).map_err(record)?;
        let urls = context.member.peer_urls.clone().unwrap_or_default();
        Ok(match (change.r#type(), known) {
            (Type::ConfChangeUpdateNode, None) => Err(EtcdError::MemberNotFound),
            (Type::ConfChangeUpdateNode, Some(known)) => {
                if self.has_peer_url(&urls, id) {
                    return Ok(Err(EtcdError::PeerUrlExists));
                }
                Ok(PlannedChange::Update(MemberRecord {
                    peer_urls: Some(urls),
                    ..known.clone()
                }))
            }
            (_, known) if context.is_promote => match known {
                None => Err(EtcdError::MemberNotFound),
                Some(known) if !known.is_learner => Err(EtcdError::MemberNotLearner),
                Some(known) => Ok(PlannedChange::Promote(MemberRecord {
                    is_learner: false,
                    ..known.clone()
                })),
            },
            (_, Some(_)) => Err(EtcdError::MemberExists),
            (_, None) if self.has_peer_url(&urls, 0) => Err(EtcdError::PeerUrlExists),
            (kind, None) => {
                let is_learner = kind == Type::ConfChangeAddLearnerNode;
                if is_learner && self.learners() >= max_learners {
                    return Ok(Err(EtcdError::TooManyLearners));
                }
                Ok(PlannedChange::Add(MemberRecord {
                    is_learner,
                    ..context.member
                }))
            }
        })
    }

    /// Makes a change that passed [`Membership::check_change`].
    pub fn make_change(
        &mut self,
        store: &mut Store,
        change: &PlannedChange,
    ) -> Result<(), MembershipError> {
        match change {
            PlannedChange::Remove(id) => {
                self.members.remove(id);
                self.removed.insert(*id);
                store.delete_raw(Bucket::Members, hex(*id).as_bytes())?;
                store.put_raw(
                    Bucket::MembersRemoved,
                    Bytes::from(hex(*id)),
                    Bytes::from_static(REMOVED),
                )?;
                Ok(())
            }
            PlannedChange::Add(record)
            | PlannedChange::Promote(record)
            | PlannedChange::Update(record) => self.put(store, record.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn change(kind: raftpb::ConfChangeType, id: u64, context: &str) -> raftpb::ConfChange {
        raftpb::ConfChange {
            r#type: kind.into(),
            node_id: id,
            context: context.to_owned().into(),
            ..raftpb::ConfChange::default()
        }
    }

    fn members() -> Membership {
        let record = |id: u64, is_learner| MemberRecord {
            id,
            peer_urls: Some(vec![format!("http://m{id}:2380")]),
            is_learner,
            name: format!("m{id}"),
            client_urls: vec![format!("http://m{id}:2379")],
            proposal: None,
        };
        let members = [record(1, false), record(2, false), record(3, true)];
        Membership {
            members: members
                .into_iter()
                .map(|member| (member.id, member))
                .collect(),
            removed: BTreeSet::from([9]),
            ..Membership::default()
        }
    }

    /// Every member comes to the same verdict from the entry and the members before it.
    #[test]
    fn membership_changes_are_accepted_and_refused_as_in_etcd() {
        use raftpb::ConfChangeType as Type;
        let (add, learn) = (Type::ConfChangeAddNode, Type::ConfChangeAddLearnerNode);
        let (update, remove) = (Type::ConfChangeUpdateNode, Type::ConfChangeRemoveNode);
        let members = members();
        let judge = |kind, id, context: &str, max_learners| {
            members
                .check_change(&change(kind, id, context), max_learners)
                .unwrap()
        };
        let refused = |kind, id, context: &str, max_learners| {
            judge(kind, id, context, max_learners).unwrap_err()
        };
        let new = r#"{"id":4,"peerURLs":["http://m4:2380"]}"#;
        let PlannedChange::Add(added) = judge(add, 4, new, 1).unwrap() else {
            panic!("an addition");
        };
        assert!(!added.is_learner);
        assert_eq!(refused(learn, 4, new, 1), EtcdError::TooManyLearners);
        let PlannedChange::Add(added) = judge(learn, 4, new, 2).unwrap() else {
            panic!("an addition");
        };
        assert!(added.is_learner);
        assert_eq!(refused(add, 1, new, 1), EtcdError::MemberExists);
        assert_eq!(refused(add, 9, new, 1), EtcdError::MemberNotFound);
        let taken = r#"{"id":4,"peerURLs":["http://m2:2380"]}"#;
        assert_eq!(refused(add, 4, taken, 1), EtcdError::PeerUrlExists);

        let promote = |id| format!(r#"{{"id":{id},"peerURLs":null,"isPromote":true}}"#);
        let PlannedChange::Promote(promoted) = judge(add, 3, &promote(3), 1).unwrap() else {
            panic!("a promotion");
        };
        assert_eq!((promoted.is_learner, promoted.name.as_str()), (false, "m3"));
        assert_eq!(refused(add, 2, &promote(2), 1), EtcdError::MemberNotLearner);
        assert_eq!(refused(add, 4, &promote(4), 1), EtcdError::MemberNotFound);

        let moved = r#"{"id":3,"peerURLs":["http://n3:2380"]}"#;
        let PlannedChange::Update(updated) = judge(update, 3, moved, 1).unwrap() else {
            panic!("an update");
        };
        assert!(updated.is_learner, "an update promotes nobody");
        assert_eq!(refused(update, 3, taken, 1), EtcdError::PeerUrlExists);
        assert_eq!(refused(update, 4, moved, 1), EtcdError::MemberNotFound);
        assert_eq!(judge(remove, 2, "", 1), Ok(PlannedChange::Remove(2)));
        assert_eq!(refused(remove, 4, "", 1), EtcdError::MemberNotFound);
    }
}
