//! Guarantees of the raft core, tested with several cores in one loop.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_consensus::{
    InitialState, Role,
    core::{Core, CoreConfig, LogLost, StartError, StepError},
};
use portunus_gates::cluster::MemberId;
use portunus_proto::Term;
use portunus_proto::raftpb::{
    ConfChangeType, ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot,
    SnapshotMetadata,
};
use prost::Message as _;
use support::{Cluster, conf_change};

#[test]
fn sole_voter_leads_at_once_and_commits_durable_entries() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    assert_eq!(cluster.leader(), None);
    cluster.act(1, Core::campaign_if_alone);
    assert_eq!(cluster.leader(), Some(1), "without a single tick");

    assert!(cluster.propose(1, "a"));
    assert!(cluster.values(1).is_empty(), "not on disk, not committed");
    cluster.settle();
    assert_eq!(cluster.values(1), ["a"]);
    let status = cluster.node(1).core.hard_state();
    assert_eq!((status.term, status.vote, status.commit), (2, 1, 3));
}

#[test]
fn sole_voter_never_leads_before_its_log_is_durable() {
    // Two members; the leader leaves, and the entry that makes the other the sole voter is
    // committed but still being written.
    let mut cluster = Cluster::new(2, 3);
    let leader = cluster.elect();
    let other = 3 - leader;
    let removal = conf_change(ConfChangeType::ConfChangeRemoveNode, leader);
    cluster
        .act(leader, |core| core.propose_conf_change(&removal))
        .unwrap();
    for _ in 0..20 {
        cluster.act(other, Core::tick);
        cluster.act(other, Core::campaign_if_alone);
    }
    cluster.settle();
    for _ in 0..30 {
        cluster.act(other, Core::tick);
        cluster.settle();
    }
    assert_eq!(
        cluster.node(other).core.current_leadership().role,
        Role::Leader
    );
    assert_eq!(
        cluster.node(leader).core.current_leadership().role,
        Role::Follower,
        "a removed leader steps down"
    );
}

#[test]
fn three_members_elect_one_leader_and_agree() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    assert!(cluster.propose(leader, "a"));
    let follower = leader % 3 + 1;
    assert!(cluster.propose(follower, "b"), "forwarded to the leader");
    cluster.settle();
    for id in 1..=3 {
        assert_eq!(cluster.values(id), ["a", "b"]);
    }
}

#[test]
fn leader_sends_before_its_own_write_and_follower_only_after() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    let appends: Vec<Message> = cluster.network.drain(..).collect();
    assert_eq!(appends.len(), 2, "sent before the leader wrote");
    for append in &appends {
        cluster.deliver(append);
    }
    assert!(cluster.network.is_empty(), "no answer before the disk");
    for append in &appends {
        while cluster.write(append.to) {}
    }
    for answer in cluster.network.drain(..).collect::<Vec<_>>() {
        cluster.deliver(&answer);
    }
    // Two of three have it: committed, though the leader's disk lags.
    assert!(cluster.values(leader).is_empty(), "but not applied there");
    cluster.settle();
    assert_eq!(cluster.values(leader), ["a"]);
}

#[test]
fn leadership_transfers_to_the_requested_member() {
    let mut cluster = Cluster::new(3, 11);
    let leader = cluster.elect();
    let next = leader % 3 + 1;
    cluster.act(leader, |core| core.transfer_leader(next));
    cluster.settle();
    assert_eq!(cluster.leader(), Some(next), "without a single tick");
    assert!(cluster.propose(next, "a"));
    cluster.settle();
    assert_eq!(cluster.values(leader), ["a"]);
}

#[test]
fn leader_refuses_proposals_during_a_transfer() {
    let mut cluster = Cluster::new(3, 11);
    let leader = cluster.elect();
    cluster.act(leader, |core| core.transfer_leader(leader % 3 + 1));
    assert!(!cluster.propose(leader, "a"));
}

#[test]
fn leader_and_follower_answer_reads_after_a_round() {
    let mut cluster = Cluster::new(3, 5);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    cluster.settle();
    let committed = cluster.committed_len() as u64;
    for id in 1..=3 {
        let read = cluster.begin_read(id).unwrap();
        assert_eq!(cluster.read_answer(id, read), None, "needs a round");
        cluster.settle();
        assert_eq!(cluster.read_answer(id, read), Some(committed));
    }
}

#[test]
fn read_before_the_first_commit_of_a_leader_waits_for_it() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    assert_eq!(cluster.begin_read(1), None, "no leader");
    cluster.act(1, Core::campaign_if_alone);
    let read = cluster.begin_read(1).unwrap();
    assert_eq!(cluster.read_answer(1, read), None);
    assert!(!cluster.node(1).core.can_read_alone());
    cluster.settle();
    assert_eq!(cluster.read_answer(1, read), Some(2));
    assert!(cluster.node(1).core.can_read_alone());
    let read = cluster.begin_read(1).unwrap();
    assert_eq!(
        cluster.read_answer(1, read),
        Some(2),
        "now without the disk"
    );
}

#[test]
fn replaced_leader_answers_no_read() {
    let mut cluster = Cluster::new(3, 5);
    let old = cluster.elect();
    cluster.cut_off.insert(old);
    let read = cluster.begin_read(old).unwrap();
    cluster.settle();
    let new = cluster.elect();
    assert_ne!(old, new);
    cluster.propose(new, "a");
    cluster.settle();
    cluster.cut_off.clear();
    cluster.elect();
    assert_eq!(cluster.read_answer(old, read), None);
}

#[test]
fn learner_catches_up_and_is_promoted() {
    let mut cluster = Cluster::new(3, 13);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    cluster.settle();

    let add = conf_change(ConfChangeType::ConfChangeAddLearnerNode, 4);
    cluster
        .act(leader, |core| core.propose_conf_change(&add))
        .unwrap();
    cluster.settle();
    let with_learner = ConfState {
        voters: vec![1, 2, 3],
        learners: vec![4],
        ..Default::default()
    };
    assert_eq!(cluster.node(leader).core.conf_state(), with_learner);
    cluster.join(4);
    for _ in 0..5 {
        cluster.tick_all();
    }
    assert_eq!(cluster.values(4), ["a"]);
    assert_eq!(cluster.node(4).core.conf_state(), with_learner);

    let promote = conf_change(ConfChangeType::ConfChangeAddNode, 4);
    cluster
        .act(leader, |core| core.propose_conf_change(&promote))
        .unwrap();
    cluster.settle();
    for id in 1..=4 {
        assert_eq!(cluster.node(id).core.conf_state().voters, [1, 2, 3, 4]);
        assert!(cluster.node(id).core.conf_state().learners.is_empty());
    }
}

#[test]
fn second_conf_change_becomes_an_empty_entry_while_the_first_is_pending() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    cluster.act(1, Core::campaign_if_alone);
    cluster.settle();
    for id in [8, 9] {
        let add = conf_change(ConfChangeType::ConfChangeAddLearnerNode, id);
        cluster
            .act(1, |core| core.propose_conf_change(&add))
            .unwrap();
    }
    cluster.settle();
    assert_eq!(cluster.node(1).core.conf_state().learners, [8]);
    let last = cluster.node(1).applied.last().unwrap().clone();
    assert_eq!(last.r#type(), EntryType::EntryNormal);
    assert!(last.data.is_empty(), "an empty entry took its place");
}

#[test]
fn follower_can_propose_a_conf_change() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let add = conf_change(ConfChangeType::ConfChangeAddLearnerNode, 9);
    cluster
        .act(leader % 3 + 1, |core| core.propose_conf_change(&add))
        .unwrap();
    cluster.settle();
    for id in 1..=3 {
        assert_eq!(cluster.node(id).core.conf_state().learners, [9]);
    }
}

#[test]
fn conf_changes_without_raft_effect_change_nothing() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    let before = cluster.node(1).core.conf_state();
    let update = conf_change(ConfChangeType::ConfChangeUpdateNode, 1);
    let refused = conf_change(ConfChangeType::ConfChangeAddNode, 0);
    for change in [update, refused] {
        let after = cluster.act(1, |core| core.apply_conf_change(&change));
        assert_eq!(after, Ok(before.clone()));
    }
    let suicide = conf_change(ConfChangeType::ConfChangeRemoveNode, 1);
    assert!(
        cluster
            .act(1, |core| core.apply_conf_change(&suicide))
            .is_err()
    );
    assert_eq!(cluster.node(1).core.conf_state(), before);
}

#[test]
fn conf_changes_are_logged_with_etcd_type_numbers() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    cluster.act(1, Core::campaign_if_alone);
    cluster.settle();
    let add = conf_change(ConfChangeType::ConfChangeAddLearnerNode, 9);
    cluster
        .act(1, |core| core.propose_conf_change(&add))
        .unwrap();
    cluster.settle();
    let entry = cluster.node(1).applied.last().unwrap().clone();
    assert_eq!(entry.r#type(), EntryType::EntryConfChange);
    // Field 2 (type) is 3, field 3 (member) is 9.
    assert_eq!(entry.data, [0x10, 3, 0x18, 9].as_slice());
}

#[test]
fn leader_crash_before_its_write_loses_no_committed_entry() {
    let mut cluster = Cluster::new(3, 17);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    // Both followers get and write it; the leader's disk never does.
    for append in cluster.network.drain(..).collect::<Vec<_>>() {
        cluster.deliver(&append);
        while cluster.write(append.to) {}
    }
    for answer in cluster.network.drain(..).collect::<Vec<_>>() {
        cluster.deliver(&answer);
    }
    cluster.crash(leader);
    cluster.elect();
    cluster.settle();
    for id in 1..=3 {
        assert_eq!(cluster.values(id), ["a"], "member {id}");
    }
}

#[test]
fn entry_written_by_a_crashed_leader_may_still_be_committed() {
    let mut cluster = Cluster::new(3, 17);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    cluster.network.clear();
    while cluster.write(leader) {}
    cluster.crash(leader);
    // It has the longest log, so no other member can win.
    assert_eq!(cluster.elect(), leader);
    for id in 1..=3 {
        assert_eq!(cluster.values(id), ["a"], "member {id}");
    }
}

#[test]
fn entry_written_by_no_member_is_lost() {
    let mut cluster = Cluster::new(3, 17);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    cluster.network.clear();
    cluster.crash(leader);
    let leader = cluster.elect();
    cluster.propose(leader, "b");
    cluster.settle();
    for id in 1..=3 {
        assert_eq!(cluster.values(id), ["b"], "member {id}");
    }
}

/// A snapshot carries its own members; earlier changes must not be applied on top.
#[test]
fn snapshot_waits_until_earlier_commits_are_applied() {
    let changes: Vec<_> = (1..=2)
        .map(|id| conf_change(ConfChangeType::ConfChangeAddNode, id))
        .collect();
    let entries = changes.iter().zip(1..).map(|(change, index)| Entry {
        r#type: EntryType::EntryConfChange.into(),
        term: 1,
        index,
        data: change.encode_to_vec().into(),
    });
    let initial = InitialState {
        member_id: 1,
        hard_state: HardState {
            term: 1,
            vote: 0,
            commit: 2,
        },
        entries: entries.collect(),
        ..Default::default()
    };
    let mut core = Core::new(&CoreConfig::new(1), initial).unwrap();
    assert_eq!(core.ready().unwrap().committed.len(), 2);

    let members = ConfState {
        voters: vec![1, 3],
        ..Default::default()
    };
    let metadata = SnapshotMetadata {
        conf_state: Some(members.clone()),
        index: 9,
        term: 2,
    };
    core.step(Message {
        r#type: MessageType::MsgSnap.into(),
        from: 3,
        to: 1,
        term: 2,
        snapshot: Some(Snapshot {
            metadata: Some(metadata.clone()),
            ..Default::default()
        }),
        ..Default::default()
    })
    .unwrap();
    assert_eq!(core.ready(), None, "nothing yet");
    for (change, index) in changes.iter().zip(1..) {
        let after = core.apply_conf_change(change).unwrap();
        assert_eq!(after.voters.len() as u64, index, "without the snapshot's");
        core.applied(index).unwrap();
    }
    assert_eq!(core.ready().unwrap().snapshot, Some(metadata));
    assert_eq!(core.conf_state(), members);
}

/// Raft does not campaign with such a change, so it must not count on its leader for ever either.
#[test]
fn member_with_an_unapplied_change_votes_once_its_leader_is_silent() {
    let change = conf_change(ConfChangeType::ConfChangeAddNode, 4);
    let initial = InitialState {
        member_id: 1,
        conf_state: ConfState {
            voters: vec![1, 2, 3],
            ..Default::default()
        },
        hard_state: HardState {
            term: 2,
            vote: 0,
            commit: 1,
        },
        entries: vec![Entry {
            r#type: EntryType::EntryConfChange.into(),
            term: 2,
            index: 1,
            data: change.encode_to_vec().into(),
        }],
        ..Default::default()
    };
    // Timeouts are drawn from the seed.
    for seed in 0..20 {
        let config = CoreConfig {
            seed,
            ..CoreConfig::new(1)
        };
        let mut core = Core::new(&config, initial.clone()).unwrap();
        core.step(Message {
            r#type: MessageType::MsgHeartbeat.into(),
            from: 2,
            to: 1,
            term: 2,
            commit: 1,
            ..Default::default()
        })
        .unwrap();
        assert_eq!(core.current_leadership().leader, MemberId(2));
        for _ in 0..40 {
            core.tick();
        }
        assert_eq!(
            core.current_leadership().leader,
            MemberId::NONE,
            "seed {seed}"
        );
        core.step(Message {
            r#type: MessageType::MsgPreVote.into(),
            from: 3,
            to: 1,
            term: 3,
            log_term: 2,
            index: 1,
            ..Default::default()
        })
        .unwrap();
        let mut sent = Vec::new();
        while let Some(ready) = core.ready() {
            sent.extend(ready.messages);
            sent.extend(ready.messages_after_persist);
            core.persisted(ready.number);
        }
        let is_vote = |it: &Message| it.r#type() == MessageType::MsgPreVoteResp && !it.reject;
        assert!(sent.iter().any(is_vote), "seed {seed}: {sent:?}");
    }
}

/// Any order of events: reordering, loss, repetition, crashes, partitions, reads, slow disks.
/// The bus checks the safety of every step; afterwards the cluster must converge.
#[test]
fn members_agree_under_any_order_of_events() {
    const SEEDS: u64 = 300;
    for seed in 0..SEEDS {
        let mut cluster = Cluster::new(3, seed);
        for _ in 0..1500 {
            let id = cluster.dice(3) as u64 + 1;
            match cluster.dice(100) {
                0..40 => {
                    if !cluster.network.is_empty() {
                        let place = cluster.dice(cluster.network.len());
                        let message = cluster.network.remove(place).unwrap();
                        match cluster.dice(20) {
                            0 => cluster.lose(&message),
                            1 => {
                                cluster.deliver(&message);
                                cluster.network.push_back(message);
                            }
                            _ => cluster.deliver(&message),
                        }
                    }
                }
                40..65 => drop(cluster.write(id)),
                65..85 => cluster.act(id, Core::tick),
                85..92 => drop(cluster.propose(id, "x")),
                92..95 => drop(cluster.begin_read(id)),
                95..97 => cluster.act(id, |core| core.transfer_leader(id % 3 + 1)),
                97 if cluster.dice(2) == 0 => {
                    let applied = cluster.node(id).core.applied_index();
                    let keep = cluster.dice(4) as u64;
                    cluster.node(id).core.compact(applied.saturating_sub(keep));
                }
                97 => cluster.crash(id),
                98 => drop(cluster.cut_off.insert(id)),
                _ => cluster.cut_off.clear(),
            }
        }
        cluster.cut_off.clear();
        // Long enough for a pending transfer to be abandoned.
        for _ in 0..20 {
            cluster.tick_all();
        }
        let leader = cluster.elect();
        assert!(cluster.propose(leader, "last"), "seed {seed}");
        for _ in 0..20 {
            cluster.tick_all();
        }
        for id in 1..=3 {
            assert_eq!(
                cluster.nodes[&id].applied.len(),
                cluster.committed_len(),
                "member {id} is behind; seed {seed}"
            );
        }
    }
}

/// The same events give the same result; otherwise no failure could be replayed.
#[test]
fn run_depends_on_its_seed_only() {
    let run = |seed| {
        let mut cluster = Cluster::new(3, seed);
        let leader = cluster.elect();
        (leader, cluster.nodes[&1].core.hard_state())
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
    let leaders: std::collections::BTreeSet<_> = (0..20).map(|seed| run(seed).0).collect();
    assert_eq!(leaders.len(), 3, "and seeds differ");
}

#[test]
fn contradicting_initial_state_is_refused() {
    let entry = |index| Entry {
        term: 1,
        index,
        ..Default::default()
    };
    let start = |initial| Core::new(&CoreConfig::new(1), initial).err().unwrap();
    let commit = |commit| HardState {
        term: 1,
        vote: 0,
        commit,
    };
    let beyond = InitialState {
        hard_state: commit(2),
        entries: vec![entry(1)],
        ..Default::default()
    };
    assert!(matches!(
        start(beyond),
        StartError::CommitOutsideLog { commit: 2, .. }
    ));
    let applied_beyond = InitialState {
        hard_state: commit(1),
        applied_index: 2,
        entries: vec![entry(1), entry(2)],
        ..Default::default()
    };
    assert!(matches!(
        start(applied_beyond),
        StartError::AppliedOutsideLog { .. }
    ));
    let hole = InitialState {
        entries: vec![entry(1), entry(3)],
        ..Default::default()
    };
    assert!(matches!(start(hole), StartError::BrokenLog { index: 2 }));
}

/// The decoder of the raft engine recurses without a limit and would overflow the stack, so no
/// proposal of a peer may reach it.
#[test]
fn membership_change_with_deeply_nested_groups_is_refused() {
    let mut cluster = Cluster::new(3, 7);
    cluster.elect();
    // Each byte begins or ends a group of field 15.
    let depth = 1 << 20;
    let data = [vec![0x7b; depth], vec![0x7c; depth]].concat();
    for to in 1..=3 {
        let proposal = Message {
            r#type: MessageType::MsgProp.into(),
            from: to % 3 + 1,
            to,
            entries: vec![Entry {
                r#type: EntryType::EntryConfChange.into(),
                data: data.clone().into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let result = cluster.act(to, |core| core.step(proposal));
        assert!(matches!(result, Err(StepError::Malformed(_))), "{result:?}");
    }
}

#[test]
fn malformed_messages_are_refused_and_change_nothing() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let before = cluster.node(leader).core.hard_state();
    let message = |message_type: MessageType, term| Message {
        r#type: message_type.into(),
        from: leader % 3 + 1,
        to: leader,
        term,
        ..Default::default()
    };
    let with_entries = |message_type, entries| Message {
        entries,
        ..message(message_type, before.term)
    };
    let entry = |index, entry_type: EntryType, data: &'static [u8]| Entry {
        r#type: entry_type.into(),
        term: 1,
        index,
        data: data.into(),
    };
    let malformed = [
        Message {
            r#type: 99,
            ..message(MessageType::MsgApp, 1)
        },
        Message {
            from: 0,
            ..message(MessageType::MsgApp, 1)
        },
        message(MessageType::MsgApp, 0),
        message(MessageType::MsgVote, 0),
        message(MessageType::MsgHup, 1),
        message(MessageType::MsgStorageAppend, 1),
        message(MessageType::MsgProp, 0),
        message(MessageType::MsgReadIndex, 0),
        with_entries(
            MessageType::MsgApp,
            vec![entry(9, EntryType::EntryNormal, b"")],
        ),
        with_entries(
            MessageType::MsgProp,
            vec![entry(0, EntryType::EntryConfChange, b"\xff")],
        ),
        with_entries(
            MessageType::MsgProp,
            vec![entry(0, EntryType::EntryConfChangeV2, b"")],
        ),
    ];
    for message in malformed {
        let result = cluster.act(leader, |core| core.step(message.clone()));
        assert!(
            matches!(result, Err(StepError::Malformed(_))),
            "{message:?}: {result:?}"
        );
    }
    let members = |voters: &[u64], learners: &[u64]| ConfState {
        voters: voters.to_vec(),
        learners: learners.to_vec(),
        ..ConfState::default()
    };
    let snapshots = [
        None,
        Some((0, 1, members(&[1], &[]))),
        Some((9, 0, members(&[1], &[]))),
        Some((9, 1, members(&[], &[1]))),
        Some((9, 1, members(&[1, 1], &[]))),
        Some((9, 1, members(&[1], &[1]))),
        Some((9, 1, members(&[0, 1], &[]))),
        Some((u64::MAX, 1, members(&[1], &[]))),
        Some((9, u64::MAX, members(&[1], &[]))),
        Some((
            9,
            1,
            ConfState {
                auto_leave: true,
                ..members(&[1], &[])
            },
        )),
    ];
    for snapshot in snapshots {
        let snapshot = snapshot.map(|(index, term, conf_state)| Snapshot {
            metadata: Some(SnapshotMetadata {
                index,
                term,
                conf_state: Some(conf_state),
            }),
            ..Snapshot::default()
        });
        let message = Message {
            snapshot,
            ..message(MessageType::MsgSnap, before.term)
        };
        let result = cluster.act(leader, |core| core.step(message.clone()));
        assert!(
            matches!(result, Err(StepError::Malformed(_))),
            "{message:?}: {result:?}"
        );
    }
    let stranger = Message {
        from: 77,
        ..message(MessageType::MsgAppResp, before.term)
    };
    assert_eq!(
        cluster.act(leader, |core| core.step(stranger)),
        Err(StepError::UnknownPeer)
    );
    assert_eq!(cluster.node(leader).core.hard_state(), before);
    assert!(cluster.network.is_empty());
}

#[test]
fn messages_that_contradict_the_log_are_refused_and_change_nothing() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let follower = leader % 3 + 1;
    let term = cluster.node(leader).core.hard_state().term;
    let last_index = cluster.node(leader).core.last_index();
    let message = |message_type: MessageType, from, to| Message {
        r#type: message_type.into(),
        from,
        to,
        term,
        ..Message::default()
    };
    let heartbeat = message(MessageType::MsgHeartbeat, leader, follower);
    let append = message(MessageType::MsgApp, leader, follower);
    let response = message(MessageType::MsgAppResp, follower, leader);
    let contradicting = [
        Message {
            term: u64::MAX,
            ..heartbeat
        },
        Message {
            index: last_index + 9,
            commit: last_index + 9,
            ..append.clone()
        },
        Message {
            index: last_index,
            log_term: term,
            entries: [(0, 1), (term, 2)]
                .map(|(term, after)| Entry {
                    term,
                    index: last_index + after,
                    ..Entry::default()
                })
                .into(),
            ..append.clone()
        },
        Message {
            index: u64::MAX,
            log_term: term,
            ..append
        },
        Message {
            index: last_index + 1,
            ..response.clone()
        },
        Message {
            reject: true,
            index: last_index,
            reject_hint: u64::MAX,
            ..response
        },
    ];
    let before = [leader, follower].map(|id| cluster.node(id).core.hard_state());
    for message in contradicting {
        let result = cluster.act(message.to, |core| core.step(message.clone()));
        assert!(
            matches!(result, Err(StepError::Malformed(_))),
            "{message:?}: {result:?}"
        );
    }
    let after = [leader, follower].map(|id| cluster.node(id).core.hard_state());
    assert_eq!(after, before);
    assert!(cluster.network.is_empty());
}

/// A member that has lost acknowledged entries must not go on: it could elect a leader without them.
#[test]
fn heartbeat_with_a_commit_index_beyond_the_log_reports_the_lost_log() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let follower = leader % 3 + 1;
    let term = cluster.node(leader).core.hard_state().term;
    let last_index = cluster.node(follower).core.last_index();
    let commit = last_index + 1;
    let heartbeat = |term| Message {
        r#type: MessageType::MsgHeartbeat.into(),
        from: leader,
        to: follower,
        term,
        commit,
        ..Message::default()
    };
    let lost = StepError::LogLost(LogLost { commit, last_index });
    for term in [term, term + 1] {
        let result = cluster.act(follower, |core| core.step(heartbeat(term)));
        assert_eq!(result, Err(lost));
    }
    // A leader of an earlier term is only answered.
    let result = cluster.act(follower, |core| core.step(heartbeat(term - 1)));
    assert_eq!(result, Ok(()));
}

#[test]
fn forwarded_messages_with_a_term_do_not_end_a_follower() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let follower = leader % 3 + 1;
    let before = cluster.node(follower).core.hard_state();
    let message = |message_type: MessageType| Message {
        r#type: message_type.into(),
        from: leader,
        to: follower,
        term: before.term,
        ..Message::default()
    };
    let read = Message {
        entries: vec![Entry {
            data: b"12345678".as_slice().into(),
            ..Entry::default()
        }],
        ..message(MessageType::MsgReadIndex)
    };
    for message in [message(MessageType::MsgTransferLeader), read] {
        cluster.act(follower, |core| core.step(message)).unwrap();
    }
    assert_eq!(cluster.node(follower).core.hard_state(), before);
}

#[test]
fn compaction_keeps_entries_that_are_not_applied() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    cluster.act(1, Core::campaign_if_alone);
    for _ in 0..10 {
        cluster.propose(1, "x");
    }
    cluster.settle();
    let core = &mut cluster.node(1).core;
    assert_eq!(core.applied_index(), 12);
    assert_eq!(core.compact(5), 5);
    assert_eq!(core.compact(3), 5, "never back");
    assert_eq!(core.term_of(4), None);
    assert_eq!(core.term_of(5), Some(2));
    assert_eq!(core.compact(100), 12);
    assert!(cluster.propose(1, "after"));
    cluster.settle();
    assert_eq!(cluster.values(1).last().unwrap(), "after");
    assert!(cluster.node(1).core.applied(99).is_err());
}

#[test]
fn follower_behind_a_compaction_gets_a_snapshot() {
    let mut cluster = Cluster::new(3, 7);
    let leader = cluster.elect();
    let lagging = leader % 3 + 1;
    cluster.cut_off.insert(lagging);
    for _ in 0..20 {
        cluster.propose(leader, "x");
    }
    cluster.settle();
    let applied = cluster.node(leader).core.applied_index();
    assert_eq!(cluster.node(leader).core.compact(applied - 3), applied - 3);
    cluster.cut_off.clear();
    for _ in 0..50 {
        cluster.tick_all();
    }
    assert_eq!(cluster.values(lagging), vec!["x"; 20]);
    let leader = cluster.elect();
    assert!(cluster.propose(leader, "after"));
    cluster.settle();
    assert_eq!(cluster.values(lagging).last().unwrap(), "after");
    // It restarts from its own disk.
    cluster.crash(lagging);
    for _ in 0..50 {
        cluster.tick_all();
    }
    assert_eq!(cluster.values(lagging).len(), 21);
}

#[test]
fn new_member_starts_from_a_snapshot() {
    let mut cluster = Cluster::new(1, 1);
    cluster.settle();
    cluster.act(1, Core::campaign_if_alone);
    for _ in 0..10 {
        cluster.propose(1, "x");
    }
    cluster.settle();
    cluster.node(1).core.compact(8);
    let learner = conf_change(ConfChangeType::ConfChangeAddLearnerNode, 2);
    cluster
        .act(1, |core| core.propose_conf_change(&learner))
        .unwrap();
    cluster.settle();
    cluster.join(2);
    for _ in 0..20 {
        cluster.tick_all();
    }
    assert_eq!(cluster.values(2), vec!["x"; 10]);
    assert_eq!(cluster.node(2).core.conf_state().learners, [2]);
}

/// A sole voter requests no votes, so nothing else makes it wait for its disk.
#[test]
fn sole_voter_sends_nothing_of_a_new_term_before_the_term_is_durable() {
    let mut cluster = Cluster::new(1, 1);
    cluster.elect();
    let add = conf_change(ConfChangeType::ConfChangeAddLearnerNode, 2);
    cluster
        .act(1, |core| core.propose_conf_change(&add))
        .unwrap();
    cluster.join(2);
    cluster.settle();
    cluster.tick_all();
    cluster.crash(1);
    let before = cluster.node(1).core.hard_state().term;
    // Every message is checked when it is sent.
    cluster.act(1, Core::campaign_if_alone);
    assert_eq!(cluster.leader(), Some(1));
    assert!(cluster.network.is_empty(), "{:?}", cluster.network);
    cluster.settle();
    let learner = cluster.node(2).core.current_leadership();
    assert_eq!(
        (learner.leader, learner.term),
        (MemberId(1), Term(before + 1))
    );
}
