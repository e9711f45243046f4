//! Refuses messages that no correct peer sends.
//!
//! The engine trusts its peers: some malformed messages make it panic, others corrupt its
//! state. A broken or hostile peer must not stop this member.

use portunus_proto::raftpb;
use prost::Message as _;

use crate::core::{LogLost, StepError};

/// The highest term and index of a message. The engine adds to them without a check, and no
/// cluster ever reaches it.
const POSITION_MAX: u64 = u64::MAX / 2;

/// The state of this member that a message can contradict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) term: u64,
    pub(super) last_index: u64,
    pub(super) is_leader: bool,
}

/// Refuses a message that would make the engine panic or misbehave.
pub(super) fn check(message: &raftpb::Message, own: Position) -> Result<(), StepError> {
    use raftpb::MessageType as Type;
    let message_type =
        Type::try_from(message.r#type).map_err(|_| StepError::Malformed("unknown message type"))?;
    if message.from == 0 {
        return Err(StepError::Malformed("no sender"));
    }
    let may_have_no_term = matches!(message_type, Type::MsgProp | Type::MsgReadIndex);
    if message.term == 0 && !may_have_no_term {
        return Err(StepError::Malformed("no term"));
    }
    let positions = [
        message.term,
        message.index,
        message.commit,
        message.reject_hint,
    ];
    if positions.iter().any(|position| *position > POSITION_MAX) {
        return Err(StepError::Malformed("a term or index that no log has"));
    }
    match message_type {
        // A leader commits here only what this member has acknowledged. The engine ignores earlier
        // terms.
        Type::MsgHeartbeat if message.commit > own.last_index && message.term >= own.term => {
            return Err(StepError::LogLost(LogLost {
                commit: message.commit,
                last_index: own.last_index,
            }));
        }
        // Only a leader uses it. After a restart as a follower it may have lost what it sent before
        // its own sync, and what peers acknowledge.
        Type::MsgAppResp if own.is_leader && !message.reject && message.index > own.last_index => {
            return Err(StepError::Malformed("an acknowledgement beyond the log"));
        }
        // The engine takes the term of every index that is not in its log for zero.
        Type::MsgApp if message.log_term == 0 && message.index > 0 => {
            return Err(StepError::Malformed("entries that follow on no term"));
        }
        Type::MsgSnap => check_snapshot(message.snapshot.as_ref())?,
        Type::MsgProp => {
            if message.entries.is_empty() {
                return Err(StepError::Malformed("a proposal without entries"));
            }
            for entry in &message.entries {
                let sound = match entry.r#type() {
                    raftpb::EntryType::EntryNormal => true,
                    raftpb::EntryType::EntryConfChange => {
                        raftpb::ConfChange::decode(entry.data.clone()).is_ok()
                    }
                    raftpb::EntryType::EntryConfChangeV2 => false,
                };
                if !sound {
                    return Err(StepError::Malformed("a membership change it cannot have"));
                }
            }
        }
        Type::MsgReadIndex | Type::MsgReadIndexResp if message.entries.len() != 1 => {
            return Err(StepError::Malformed("a read without its context"));
        }
        Type::MsgApp => {
            let follow_on = message
                .entries
                .iter()
                .zip(message.index.saturating_add(1)..)
                .all(|(entry, index)| {
                    entry.index == index && (1..=message.term).contains(&entry.term)
                });
            if !follow_on {
                return Err(StepError::Malformed(
                    "entries that do not follow each other",
                ));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Refuses a snapshot with impossible members, which the engine would accept.
fn check_snapshot(snapshot: Option<&raftpb::Snapshot>) -> Result<(), StepError> {
    let Some(metadata) = snapshot.and_then(|snapshot| snapshot.metadata.as_ref()) else {
        return Err(StepError::Malformed(
            "a snapshot message without a snapshot",
        ));
    };
    if metadata.index == 0 || metadata.term == 0 {
        return Err(StepError::Malformed("a snapshot of nothing"));
    }
    if metadata.index > POSITION_MAX || metadata.term > POSITION_MAX {
        return Err(StepError::Malformed("a snapshot that no log has"));
    }
    let members = metadata.conf_state.clone().unwrap_or_default();
    let is_joint = !members.voters_outgoing.is_empty()
        || !members.learners_next.is_empty()
        || members.auto_leave;
    if members.voters.is_empty() || is_joint {
        return Err(StepError::Malformed("a snapshot of no possible cluster"));
    }
    let mut ids: Vec<u64> = members.voters;
    ids.extend(members.learners);
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    if ids.len() < count || ids.first() == Some(&0) {
        return Err(StepError::Malformed("a snapshot of no possible cluster"));
    }
    Ok(())
}
