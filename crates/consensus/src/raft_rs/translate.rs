//! Translation between etcd's messages and the engine's.
//!
//! The engine numbers its membership changes differently, and has fields of its own that must
//! not reach a Go member. Payloads are shared, not copied.

use portunus_proto::raftpb;
use raft::{StateRole, eraftpb};

use crate::core::Role;

fn entry_type_to_engine(number: i32) -> Option<eraftpb::EntryType> {
    use raftpb::EntryType as Theirs;
    Some(match Theirs::try_from(number).ok()? {
        Theirs::EntryNormal => eraftpb::EntryType::EntryNormal,
        Theirs::EntryConfChange => eraftpb::EntryType::EntryConfChange,
        Theirs::EntryConfChangeV2 => eraftpb::EntryType::EntryConfChangeV2,
    })
}

fn message_type_to_engine(number: i32) -> Option<eraftpb::MessageType> {
    use eraftpb::MessageType as Engine;
    use raftpb::MessageType as Theirs;
    Some(match Theirs::try_from(number).ok()? {
        Theirs::MsgProp => Engine::MsgPropose,
        Theirs::MsgApp => Engine::MsgAppend,
        Theirs::MsgAppResp => Engine::MsgAppendResponse,
        Theirs::MsgVote => Engine::MsgRequestVote,
        Theirs::MsgVoteResp => Engine::MsgRequestVoteResponse,
        Theirs::MsgHeartbeat => Engine::MsgHeartbeat,
        Theirs::MsgHeartbeatResp => Engine::MsgHeartbeatResponse,
        Theirs::MsgTransferLeader => Engine::MsgTransferLeader,
        Theirs::MsgTimeoutNow => Engine::MsgTimeoutNow,
        Theirs::MsgReadIndex => Engine::MsgReadIndex,
        Theirs::MsgReadIndexResp => Engine::MsgReadIndexResp,
        Theirs::MsgPreVote => Engine::MsgRequestPreVote,
        Theirs::MsgPreVoteResp => Engine::MsgRequestPreVoteResponse,
        Theirs::MsgSnap => Engine::MsgSnapshot,
        // These stay inside one process and never arrive from a peer.
        Theirs::MsgHup
        | Theirs::MsgBeat
        | Theirs::MsgUnreachable
        | Theirs::MsgSnapStatus
        | Theirs::MsgCheckQuorum
        | Theirs::MsgStorageAppend
        | Theirs::MsgStorageAppendResp
        | Theirs::MsgStorageApply
        | Theirs::MsgStorageApplyResp
        | Theirs::MsgForgetLeader => return None,
    })
}

pub(super) fn entry_to_engine(entry: raftpb::Entry) -> Option<eraftpb::Entry> {
    let translated = eraftpb::Entry {
        entry_type: entry_type_to_engine(entry.r#type)?,
        term: entry.term,
        index: entry.index,
        data: entry.data,
        ..Default::default()
    };
    Some(translated)
}

pub(super) fn entry_from_engine(entry: eraftpb::Entry) -> raftpb::Entry {
    raftpb::Entry {
        r#type: entry.entry_type as i32,
        term: entry.term,
        index: entry.index,
        data: entry.data,
    }
}

/// Translates a message; `None` for types that stay inside one Go process and for entries of
/// unknown type.
pub(super) fn message_to_engine(message: raftpb::Message) -> Option<eraftpb::Message> {
    let entries: Option<Vec<_>> = message.entries.into_iter().map(entry_to_engine).collect();
    let translated = eraftpb::Message {
        msg_type: message_type_to_engine(message.r#type)?,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: entries?.into(),
        commit: message.commit,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context,
        snapshot: message.snapshot.map(snapshot_to_engine).into(),
        ..Default::default()
    };
    Some(translated)
}

/// Translates the metadata only; the engine does not need the content.
fn snapshot_to_engine(snapshot: raftpb::Snapshot) -> eraftpb::Snapshot {
    let metadata = snapshot.metadata.map(|metadata| eraftpb::SnapshotMetadata {
        conf_state: metadata.conf_state.map(conf_state_to_engine).into(),
        index: metadata.index,
        term: metadata.term,
        ..Default::default()
    });
    eraftpb::Snapshot {
        metadata: metadata.into(),
        ..Default::default()
    }
}

pub(super) fn snapshot_from_engine(snapshot: &eraftpb::Snapshot) -> raftpb::SnapshotMetadata {
    let metadata = snapshot.get_metadata();
    raftpb::SnapshotMetadata {
        conf_state: Some(conf_state_from_engine(metadata.get_conf_state().clone())),
        index: metadata.index,
        term: metadata.term,
    }
}

pub(super) fn message_from_engine(mut message: eraftpb::Message) -> raftpb::Message {
    use eraftpb::MessageType as Type;
    // The engine sends voters its commit index, with the term in a field of its own. Go members
    // send neither.
    let is_vote = matches!(
        message.msg_type,
        Type::MsgRequestVote
            | Type::MsgRequestPreVote
            | Type::MsgRequestVoteResponse
            | Type::MsgRequestPreVoteResponse
    );
    let is_snapshot = message.msg_type == Type::MsgSnapshot;
    let entries = message.take_entries().into_vec();
    raftpb::Message {
        r#type: message.msg_type as i32,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: entries.into_iter().map(entry_from_engine).collect(),
        commit: if is_vote { 0 } else { message.commit },
        snapshot: is_snapshot.then(|| raftpb::Snapshot {
            metadata: Some(snapshot_from_engine(message.get_snapshot())),
            ..Default::default()
        }),
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context,
        vote: 0,
        responses: Vec::new(),
    }
}

pub(super) fn hard_state_to_engine(state: raftpb::HardState) -> eraftpb::HardState {
    eraftpb::HardState {
        term: state.term,
        vote: state.vote,
        commit: state.commit,
        ..Default::default()
    }
}

pub(super) fn hard_state_from_engine(state: &eraftpb::HardState) -> raftpb::HardState {
    raftpb::HardState {
        term: state.term,
        vote: state.vote,
        commit: state.commit,
    }
}

pub(super) fn conf_state_to_engine(state: raftpb::ConfState) -> eraftpb::ConfState {
    eraftpb::ConfState {
        voters: state.voters,
        learners: state.learners,
        voters_outgoing: state.voters_outgoing,
        learners_next: state.learners_next,
        auto_leave: state.auto_leave,
        ..Default::default()
    }
}

/// Translates with sorted ids, because the engine keeps them in unordered sets.
pub(super) fn conf_state_from_engine(state: eraftpb::ConfState) -> raftpb::ConfState {
    let sorted = |mut ids: Vec<u64>| {
        ids.sort_unstable();
        ids
    };
    raftpb::ConfState {
        voters: sorted(state.voters),
        learners: sorted(state.learners),
        voters_outgoing: sorted(state.voters_outgoing),
        learners_next: sorted(state.learners_next),
        auto_leave: state.auto_leave,
    }
}

/// Translates a change; `None` if it only updates a member's addresses or was refused by the
/// state machine (member 0).
pub(super) fn conf_change_to_engine(change: &raftpb::ConfChange) -> Option<eraftpb::ConfChange> {
    let change_type = match change.r#type() {
        raftpb::ConfChangeType::ConfChangeAddNode => eraftpb::ConfChangeType::AddNode,
        raftpb::ConfChangeType::ConfChangeRemoveNode => eraftpb::ConfChangeType::RemoveNode,
        raftpb::ConfChangeType::ConfChangeAddLearnerNode => eraftpb::ConfChangeType::AddLearnerNode,
        raftpb::ConfChangeType::ConfChangeUpdateNode => return None,
    };
    if change.node_id == 0 {
        return None;
    }
    let translated = eraftpb::ConfChange {
        change_type,
        node_id: change.node_id,
        ..Default::default()
    };
    Some(translated)
}

pub(super) fn role_from_engine(role: StateRole) -> Role {
    match role {
        StateRole::Follower => Role::Follower,
        StateRole::PreCandidate => Role::PreCandidate,
        StateRole::Candidate => Role::Candidate,
        StateRole::Leader => Role::Leader,
    }
}
