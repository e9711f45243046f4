//! The engine without threads: the effects before a write, and those after it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use portunus_consensus::Role;
use portunus_consensus::core::{Core, CoreConfig, InitialState};
use portunus_consensus::engine::{Batch, CompactionRefused, Effects, Engine};
use portunus_proto::raftpb::{ConfState, Entry, Message, MessageType};

fn engine(voters: &[u64]) -> Engine {
    let initial = InitialState {
        member_id: 1,
        conf_state: ConfState {
            voters: voters.to_vec(),
            ..ConfState::default()
        },
        ..InitialState::default()
    };
    let core = Core::new(&CoreConfig::new(1), initial).unwrap();
    Engine::new(core, 0, true)
}

/// Collects all effects until there are none.
fn drain(engine: &mut Engine) -> Effects {
    let mut all = Effects::default();
    while let Some(effects) = engine.advance() {
        all.messages.extend(effects.messages);
        all.committed.extend(effects.committed);
        all.snapshots.extend(effects.snapshots);
        all.leadership = effects.leadership.or(all.leadership);
    }
    all
}

fn kinds<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<MessageType> {
    messages.into_iter().map(Message::r#type).collect()
}

fn entries_of(batch: &Batch) -> usize {
    batch.writes().map(|write| write.entries.len()).sum()
}

/// A member whose vote is not durable could vote twice in one term.
#[test]
fn vote_leaves_only_when_it_is_written() {
    let mut engine = engine(&[1, 2, 3]);
    engine
        .step(Message {
            r#type: MessageType::MsgVote.into(),
            from: 2,
            to: 1,
            term: 5,
            ..Message::default()
        })
        .unwrap();
    assert_eq!(kinds(&drain(&mut engine).messages), []);
    let batch = engine.take_batch().expect("the vote has to be written");
    let hard_state = batch.writes().find_map(|write| write.hard_state).unwrap();
    assert_eq!((hard_state.term, hard_state.vote), (5, 2));
    assert!(!engine.has_batch(), "one write at a time");
    assert_eq!(kinds(&drain(&mut engine).messages), []);
    let effects = engine.finish_write(batch);
    assert_eq!(kinds(&effects.messages), [MessageType::MsgVoteResp]);
}

/// A follower acknowledges only entries that it has written.
#[test]
fn acknowledgement_of_entries_leaves_only_when_they_are_written() {
    let mut engine = engine(&[1, 2, 3]);
    let entry = Entry {
        index: 1,
        term: 1,
        data: Bytes::from_static(b"x"),
        ..Entry::default()
    };
    engine
        .step(Message {
            r#type: MessageType::MsgApp.into(),
            from: 2,
            to: 1,
            term: 1,
            entries: vec![entry],
            commit: 1,
            ..Message::default()
        })
        .unwrap();
    assert_eq!(kinds(&drain(&mut engine).messages), []);
    let batch = engine.take_batch().unwrap();
    assert_eq!(entries_of(&batch), 1);
    let mut effects = engine.finish_write(batch);
    let rest = drain(&mut engine);
    effects.messages.extend(rest.messages);
    assert_eq!(kinds(&effects.messages), [MessageType::MsgAppResp]);
}

/// Proposals that arrive during a write are written together, and a commit index alone is not.
#[test]
fn proposals_gather_while_a_batch_is_written() {
    let mut engine = engine(&[1]);
    engine.campaign_if_alone();
    let mut committed = 0;
    loop {
        committed += drain(&mut engine).committed.len();
        let Some(batch) = engine.take_batch() else {
            break;
        };
        let _ = engine.finish_write(batch);
        engine.applied(engine.core().hard_state().commit).unwrap();
    }
    assert_eq!(engine.core().current_leadership().role, Role::Leader);
    assert_eq!(committed, 1, "the first entry of the term");

    engine.propose(vec![Bytes::from_static(b"a")]).unwrap();
    drop(drain(&mut engine));
    let first = engine.take_batch().unwrap();
    for _ in 0..3 {
        engine.propose(vec![Bytes::from_static(b"b")]).unwrap();
        assert_eq!(drain(&mut engine).committed.len(), 0);
    }
    let _ = engine.finish_write(first);
    assert_eq!(drain(&mut engine).committed.len(), 1);
    let second = engine.take_batch().unwrap();
    assert_eq!(entries_of(&second), 3);
    let _ = engine.finish_write(second);
    assert_eq!(drain(&mut engine).committed.len(), 3);
    assert!(
        engine.take_batch().is_none(),
        "only the commit index is new"
    );
    let commit = engine.take_last_commit().unwrap().unwrap();
    assert_eq!(commit.commit, 5);
}

#[test]
fn log_is_shortened_to_an_applied_index_and_only_between_writes() {
    let mut engine = engine(&[1]);
    engine.campaign_if_alone();
    let state = ConfState {
        voters: vec![1],
        ..ConfState::default()
    };
    loop {
        drop(drain(&mut engine));
        let Some(batch) = engine.take_batch() else {
            break;
        };
        let _ = engine.finish_write(batch);
    }
    let refused = engine.begin_compaction(1, &state).unwrap_err();
    let expected = CompactionRefused::NotApplied {
        index: 1,
        applied_index: 0,
    };
    assert_eq!(refused, expected);
    engine.applied(1).unwrap();
    engine.propose(vec![Bytes::from_static(b"a")]).unwrap();
    drop(drain(&mut engine));
    assert!(engine.begin_compaction(1, &state).unwrap().is_none());
    let batch = engine.take_batch().unwrap();
    let _ = engine.finish_write(batch);
    drop(drain(&mut engine));
    let write = engine.begin_compaction(1, &state).unwrap().unwrap();
    assert_eq!(write.snapshot.index, 1);
    assert!(write.hard_state.unwrap().commit >= 1);
    engine.finish_compaction(1);
    let again = engine.begin_compaction(1, &state).unwrap_err();
    assert_eq!(again, CompactionRefused::AlreadyCompacted { index: 1 });
}
