//! Which members raft starts with.
//!
//! The backend says it twice: with one record for each member, and with raft's configuration
//! (`confState`). Normally both name the same members. `etcdutl snapshot restore` replaces only
//! the records, and etcd never corrects the other until a member is added or removed; it does
//! not read it either. So a configuration that names other members than the records is one of
//! the cluster before the restore, and the records hold. Where both name the same members, the
//! configuration holds: etcd 3.5 did not write down in the records that a learner was promoted.

use std::collections::BTreeSet;

use portunus_proto::raftpb::ConfState;

use super::membership::MemberRecord;

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
    fn records_hold_where_the_configuration_names_other_members() {
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
    fn the_configuration_holds_where_it_names_the_same_members() {
        let members = [member(1, false), member(2, true)];
        let promoted = Some(state(&[1, 2], &[]));
        assert_eq!(configuration(promoted.clone(), members.iter()), promoted);
        let none: [MemberRecord; 0] = [];
        assert_eq!(configuration(promoted.clone(), none.iter()), promoted);
        assert_eq!(configuration(None, none.iter()), None);
    }
}
