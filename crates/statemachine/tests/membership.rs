//! Changes of membership: raft and the store come to the same configuration.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Machine, conf_change, settings};
use portunus_consensus::core::{Core, CoreConfig, InitialState};
use portunus_mvcc::backend::{Backend, Bucket, meta};
use portunus_proto::EtcdError;
use portunus_proto::raftpb::{ConfChange, ConfChangeType, ConfState};
use portunus_statemachine::Effect;
use portunus_statemachine::conf_state::{after_change, decode_conf_state};
use portunus_statemachine::membership::PlannedChange;
use proptest::prelude::*;

fn change(kind: ConfChangeType, id: u64) -> ConfChange {
    ConfChange {
        r#type: kind.into(),
        node_id: id,
        context: format!(r#"{{"id":{id},"peerURLs":["http://m{id}:2380"]}}"#).into(),
        ..ConfChange::default()
    }
}

fn any_change() -> impl Strategy<Value = ConfChange> {
    let kind = prop_oneof![
        Just(ConfChangeType::ConfChangeAddNode),
        Just(ConfChangeType::ConfChangeAddLearnerNode),
        Just(ConfChangeType::ConfChangeRemoveNode),
        Just(ConfChangeType::ConfChangeUpdateNode),
    ];
    (kind, 0..5_u64).prop_map(|(kind, id)| change(kind, id))
}

proptest! {
    /// The state machine computes the configuration itself, so that it needs no raft.
    #[test]
    fn configuration_after_a_change_is_that_of_raft(
        changes in proptest::collection::vec(any_change(), 1..20),
    ) {
        let mut state = ConfState { voters: vec![1], ..ConfState::default() };
        let initial = InitialState { member_id: 1, conf_state: state.clone(), ..InitialState::default() };
        let mut raft = Core::new(&CoreConfig::new(1), initial).unwrap();
        for change in changes {
            // Raft refuses to remove its last voter; so does the server before it proposes.
            let Ok(mut of_raft) = raft.apply_conf_change(&change) else { continue };
            of_raft.voters.sort_unstable();
            of_raft.learners.sort_unstable();
            state = after_change(&state, &change);
            prop_assert_eq!(&state, &of_raft);
        }
    }
}

#[test]
fn made_change_reaches_the_store_before_raft_and_the_peers() {
    let mut machine = Machine::new(settings());
    machine.apply(conf_change(1, change(ConfChangeType::ConfChangeAddNode, 1)));
    let applied = machine.apply(conf_change(2, change(ConfChangeType::ConfChangeAddNode, 2)));
    let expected = ConfState {
        voters: vec![1, 2],
        ..ConfState::default()
    };
    let [
        Effect::MembershipChanged,
        Effect::ConfigureRaft {
            change: for_raft,
            expected: Some(state),
        },
        Effect::MemberChanged(PlannedChange::Add(record)),
    ] = &applied.effects[..]
    else {
        panic!("{:?}", applied.effects);
    };
    assert_eq!((for_raft.node_id, record.id), (2, 2));
    assert_eq!(*state, expected);
    machine.machine.reader().flush().unwrap();
    let snapshot = machine.backend.snapshot().unwrap();
    let stored = snapshot.get(Bucket::Meta, meta::CONF_STATE.as_bytes());
    let stored = decode_conf_state(&stored.unwrap().unwrap()).unwrap();
    assert_eq!(stored, expected);
}

/// A refused change goes to raft, too, because raft waits for it, but changes nothing there.
#[test]
fn refused_change_reaches_raft_without_a_member() {
    let mut machine = Machine::new(settings());
    machine.apply(conf_change(1, change(ConfChangeType::ConfChangeAddNode, 1)));
    let taken = ConfChange {
        node_id: 2,
        ..change(ConfChangeType::ConfChangeAddNode, 1)
    };
    let entry = conf_change(2, taken);
    let applied = machine.apply(entry.clone());
    assert_eq!(applied.answer.unwrap_err(), EtcdError::PeerUrlExists);
    let [Effect::ConfigureRaft { change, expected }] = &applied.effects[..] else {
        panic!("{:?}", applied.effects);
    };
    assert_eq!(change.node_id, 0);
    assert_eq!(expected.as_ref().unwrap().voters, [1]);
    // After a restart raft gets it once more, and the store stays as it is.
    let mut machine = machine.restarted();
    let before = machine.dump();
    let applied = machine.apply(entry);
    let [Effect::ConfigureRaft { change, expected }] = &applied.effects[..] else {
        panic!("{:?}", applied.effects);
    };
    assert_eq!((change.node_id, expected), (0, &None));
    assert_eq!(machine.dump(), before);
}
