//! Raft's configuration: as stored in the backend, at start, and after a change.
//!
//! The backend holds the members twice: as one record per member, and as raft's configuration
//! (`confState`). Normally both name the same members. `etcdutl snapshot restore` replaces only
//! the records, and etcd neither reads `confState` nor corrects it until a member is added or
//! removed. So a configuration with other members than the records is that of the cluster before
//! the restore, and the records hold. Where both name the same members, the configuration holds:
//! etcd 3.5 did not record the promotion of a learner.

use std::collections::BTreeSet;

use bytes::Bytes;
use portunus_mvcc::Store;
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::backend::meta;
use portunus_proto::raftpb::{ConfChange, ConfChangeType, ConfState};
use serde::{Deserialize, Serialize};

use crate::membership::{MemberRecord, MembershipError, to_json};

/// The configuration at the backend's applied index, from what the backend holds.
pub fn configuration<'a>(
    stored: Option<ConfState>,
    members: impl Iterator<Item = &'a MemberRecord>,
) -> Option<ConfState> {
    let (learners, voters): (Vec<_>, Vec<_>) = members.partition(|member| member.is_learner);
    let ids = |members: Vec<&MemberRecord>| members.iter().map(|member| member.id).collect();
    let recorded = ConfState {
        voters: ids(voters),
        learners: ids(learners),
        ..ConfState::default()
    };
    if all_ids(&recorded).is_empty() {
        return stored;
    }
    match stored {
        Some(stored) if all_ids(&stored) == all_ids(&recorded) => Some(stored),
        _ => Some(recorded),
    }
}

/// Returns raft's configuration after a change, as raft computes it. Ids are in ascending order,
/// as etcd stores them.
pub fn after_change(before: &ConfState, change: &ConfChange) -> ConfState {
    let id = change.node_id;
    let mut voters: BTreeSet<u64> = before.voters.iter().copied().collect();
    let mut learners: BTreeSet<u64> = before.learners.iter().copied().collect();
    match change.r#type() {
        // Raft ignores a change without a member.
        _ if id == 0 => {}
        ConfChangeType::ConfChangeUpdateNode => {}
        ConfChangeType::ConfChangeAddNode => {
            learners.remove(&id);
            voters.insert(id);
        }
        ConfChangeType::ConfChangeAddLearnerNode => {
            voters.remove(&id);
            learners.insert(id);
        }
        ConfChangeType::ConfChangeRemoveNode => {
            voters.remove(&id);
            learners.remove(&id);
        }
    }
    ConfState {
        voters: voters.into_iter().collect(),
        learners: learners.into_iter().collect(),
        ..before.clone()
    }
}

/// The confState of the `meta` bucket, as etcd writes it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ConfStateRecord {
    #[serde(default)]
    voters: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    learners: Vec<u64>,
    #[serde(default)]
    auto_leave: bool,
}

/// Stores raft's configuration.
pub fn put_conf_state(store: &mut Store, state: &ConfState) -> Result<(), MembershipError> {
    let record = ConfStateRecord {
        voters: state.voters.clone(),
        learners: state.learners.clone(),
        auto_leave: state.auto_leave,
    };
    let key = Bytes::from_static(meta::CONF_STATE.as_bytes());
    store.put_raw(Bucket::Meta, key, to_json(&record)?)?;
    Ok(())
}

/// Reads raft's configuration from a store.
pub fn stored_conf_state(store: &Store) -> Result<Option<ConfState>, MembershipError> {
    let json = store.get_raw(Bucket::Meta, meta::CONF_STATE.as_bytes());
    json.map(|json| decode_conf_state(json)).transpose()
}

/// Decodes raft's configuration from the value of its key.
pub fn decode_conf_state(json: &[u8]) -> Result<ConfState, MembershipError> {
    let record: ConfStateRecord =
        serde_json::from_slice(json).map_err(|source| MembershipError::Record {
            key: meta::CONF_STATE.to_owned(),
            source,
        })?;
    Ok(ConfState {
        voters: record.voters,
        learners: record.learners,
        auto_leave: record.auto_leave,
        ..ConfState::default()
    })
}

fn all_ids(state: &ConfState) -> BTreeSet<u64> {
    state
        .voters
        .iter()
        .chain(&state.learners)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, is_learner: bool) -> MemberRecord {
        MemberRecord {
            id,
            is_learner,
            peer_urls: None,
            name: String::new(),
            client_urls: Vec::new(),
            proposal: None,
        }
    }

    fn state(voters: &[u64], learners: &[u64]) -> ConfState {
        ConfState {
            voters: voters.to_vec(),
            learners: learners.to_vec(),
            ..ConfState::default()
        }
    }

    #[test]
    fn member_records_replace_a_configuration_of_other_members() {
        let members = [member(1, false), member(2, false), member(3, true)];
        let recorded = Some(state(&[1, 2], &[3]));
        for stored in [
            None,
            Some(state(&[7, 8, 9], &[])),
            Some(state(&[1, 2], &[])),
            Some(state(&[1, 2, 4], &[3])),
        ] {
            assert_eq!(configuration(stored, members.iter()), recorded);
        }
    }

    #[test]
    fn configuration_of_the_same_members_is_kept() {
        let members = [member(1, false), member(2, true)];
        let promoted = Some(state(&[1, 2], &[]));
        assert_eq!(configuration(promoted.clone(), members.iter()), promoted);
        let none: [MemberRecord; 0] = [];
        assert_eq!(configuration(promoted.clone(), none.iter()), promoted);
        assert_eq!(configuration(None, none.iter()), None);
    }
}
