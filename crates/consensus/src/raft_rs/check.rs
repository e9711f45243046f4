//! Refuses messages that no correct peer sends.
//!
//! The engine trusts its peers: some malformed messages make it panic, others
//! corrupt what it knows. A broken or hostile peer must not stop this member.

use portunus_proto::raftpb;
use prost::Message as _;

use crate::core::StepError;

/// Refuses what would make the engine panic or misbehave.
pub(super) fn check(message: &raftpb::Message) -> Result<(), StepError> {
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
    match message_type {
        Type::MsgSnap => return Err(StepError::SnapshotUnsupported),
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
                .all(|(entry, index)| entry.index == index && entry.term <= message.term);
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
