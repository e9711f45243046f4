//! Makes a cluster of one from the data of a member of a larger cluster.
//!
//! For the case that a quorum is lost for good. The log is continued with the removal of all
//! other members, as if they had agreed. Entries beyond the last recorded commit index are
//! kept: a commit index is written only with the next entries, so they may have been
//! acknowledged.

use std::collections::BTreeSet;

use portunus_proto::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use portunus_wal::WriteError;
use prost::Message as _;

use super::Boot;

/// Makes the member that is about to start the only one of its cluster.
///
/// # Errors
/// If the log cannot be written. Nothing is decided then.
pub fn force_new_cluster(boot: &mut Boot) -> Result<(), WriteError> {
    let own = boot.identity.member_id.0;
    let state = &mut boot.initial;
    let mut voters: BTreeSet<u64> = state.conf_state.voters.iter().copied().collect();
    let mut all: BTreeSet<u64> = voters.clone();
    all.extend(&state.conf_state.learners);
    for entry in &state.entries {
        if entry.index <= state.applied_index || entry.r#type() != EntryType::EntryConfChange {
            continue;
        }
        // An unreadable change is found again when it is applied, with a better message.
        let Ok(change) = ConfChange::decode(entry.data.clone()) else {
            continue;
        };
        match change.r#type() {
            ConfChangeType::ConfChangeAddNode => {
                all.insert(change.node_id);
                voters.insert(change.node_id);
            }
            ConfChangeType::ConfChangeAddLearnerNode => {
                all.insert(change.node_id);
            }
            ConfChangeType::ConfChangeRemoveNode => {
                all.remove(&change.node_id);
                voters.remove(&change.node_id);
            }
            ConfChangeType::ConfChangeUpdateNode => {}
        }
    }
    let promotion = (!voters.contains(&own)).then(|| ConfChange {
        r#type: ConfChangeType::ConfChangeAddNode.into(),
        node_id: own,
        context: format!(r#"{{"id":{own},"peerURLs":null,"isPromote":true}}"#).into(),
        ..ConfChange::default()
    });
    let removals = all
        .into_iter()
        .filter(|id| *id != own)
        .map(|id| ConfChange {
            r#type: ConfChangeType::ConfChangeRemoveNode.into(),
            node_id: id,
            ..ConfChange::default()
        });
    let first = state.last_index() + 1;
    let changes: Vec<Entry> = promotion
        .into_iter()
        .chain(removals)
        .zip(first..)
        .map(|(change, index)| Entry {
            r#type: EntryType::EntryConfChange.into(),
            term: state.hard_state.term,
            index,
            data: change.encode_to_vec().into(),
        })
        .collect();
    state.hard_state.commit = state.last_index() + changes.len() as u64;
    boot.wal.save(Some(&state.hard_state), &changes, true)?;
    state.entries.extend(changes);
    Ok(())
}
