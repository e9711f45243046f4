//! While the state machine installs a snapshot of the leader, raft continues: the member votes,
//! campaigns, and lists the snapshots it still needs.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portunus_consensus::core::{Core, CoreConfig, Ready};
use portunus_consensus::{Config, Hooks, InitialState, PeerSink, Role, bootstrap, start};
use portunus_gates::cluster::MemberId;
use portunus_proto::ClusterId;
use portunus_proto::raftpb::{
    ConfState, Entry, HardState, Message, MessageType, Snapshot, SnapshotMetadata,
};
use portunus_wal::WalOptions;

/// This member, its leader, and the third one.
const OWN: u64 = 1;
const LEADER: u64 = 2;
const OTHER: u64 = 3;
const TERM: u64 = 5;
const SNAPSHOT_INDEX: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(30);

fn message(kind: MessageType, from: u64, term: u64) -> Message {
    Message {
        r#type: kind.into(),
        from,
        to: OWN,
        term,
        ..Message::default()
    }
}

fn snapshot(index: u64, term: u64) -> Message {
    let metadata = SnapshotMetadata {
        conf_state: Some(ConfState {
            voters: vec![OWN, LEADER, OTHER],
            ..ConfState::default()
        }),
        index,
        term: TERM,
    };
    Message {
        snapshot: Some(Snapshot {
            metadata: Some(metadata),
            ..Snapshot::default()
        }),
        ..message(MessageType::MsgSnap, LEADER, term)
    }
}

fn vote_request(kind: MessageType, term: u64) -> Message {
    Message {
        index: SNAPSHOT_INDEX + 50,
        log_term: TERM,
        ..message(kind, OTHER, term)
    }
}

/// Creates a member that has just joined, with an empty log.
fn joined() -> Core {
    let initial = InitialState {
        member_id: OWN,
        ..InitialState::default()
    };
    Core::new(&CoreConfig::new(OWN), initial).unwrap()
}

/// Handles readies without applying; returns the messages to peers.
fn drain(core: &mut Core) -> Vec<Message> {
    let mut sent = Vec::new();
    while let Some(Ready {
        number,
        messages,
        messages_after_persist,
        ..
    }) = core.ready()
    {
        core.persisted(number);
        sent.extend(messages);
        sent.extend(messages_after_persist);
    }
    sent
}

fn has(sent: &[Message], kind: MessageType) -> bool {
    sent.iter().any(|message| message.r#type() == kind)
}

/// Returns a core whose snapshot is in the log and not installed.
fn installing() -> Core {
    let mut core = joined();
    core.step(snapshot(SNAPSHOT_INDEX, TERM)).unwrap();
    drain(&mut core);
    assert_eq!(core.applied_index(), 0);
    core
}

#[test]
fn vote_is_granted_while_a_snapshot_is_being_installed() {
    let mut core = installing();
    let election_ticks = CoreConfig::new(OWN).election_ticks;
    let pre_vote = vote_request(MessageType::MsgPreVote, TERM + 1);
    core.step(pre_vote.clone()).unwrap();
    let early = drain(&mut core);
    assert!(!has(&early, MessageType::MsgPreVoteResp), "in lease");
    for _ in 0..election_ticks {
        core.tick();
    }
    core.step(pre_vote).unwrap();
    let sent = drain(&mut core);
    let answer = sent
        .iter()
        .find(|message| message.r#type() == MessageType::MsgPreVoteResp);
    assert!(!answer.unwrap().reject, "{sent:?}");
    core.step(vote_request(MessageType::MsgVote, TERM + 1))
        .unwrap();
    let sent = drain(&mut core);
    let answer = sent
        .iter()
        .find(|message| message.r#type() == MessageType::MsgVoteResp);
    assert!(!answer.unwrap().reject, "{sent:?}");
    assert_eq!(core.applied_index(), 0, "and it is not installed yet");
}

#[test]
fn member_wins_an_election_while_a_snapshot_is_being_installed() {
    let mut core = installing();
    // Entries after the snapshot, committed and not applied either.
    let entries = (SNAPSHOT_INDEX + 1..=SNAPSHOT_INDEX + 3).map(|index| Entry {
        term: TERM,
        index,
        data: "x".into(),
        ..Entry::default()
    });
    core.step(Message {
        index: SNAPSHOT_INDEX,
        log_term: TERM,
        entries: entries.collect(),
        commit: SNAPSHOT_INDEX + 2,
        ..message(MessageType::MsgApp, LEADER, TERM)
    })
    .unwrap();
    drain(&mut core);
    let mut sent = Vec::new();
    for _ in 0..2 * CoreConfig::new(OWN).election_ticks {
        core.tick();
        sent.extend(drain(&mut core));
    }
    assert!(has(&sent, MessageType::MsgPreVote), "{sent:?}");
    core.step(message(MessageType::MsgPreVoteResp, OTHER, TERM + 1))
        .unwrap();
    assert!(has(&drain(&mut core), MessageType::MsgVote));
    core.step(message(MessageType::MsgVoteResp, OTHER, TERM + 1))
        .unwrap();
    drain(&mut core);
    assert_eq!(core.current_leadership().role, Role::Leader);
    assert_eq!(core.applied_index(), 0);

    // Then the state machine catches up, and the member continues as leader.
    core.applied(SNAPSHOT_INDEX).unwrap();
    core.applied(SNAPSHOT_INDEX + 2).unwrap();
    core.step(Message {
        index: core.last_index(),
        ..message(MessageType::MsgAppResp, OTHER, TERM + 1)
    })
    .unwrap();
    drain(&mut core);
    assert_eq!(core.hard_state().commit, core.last_index());
    assert_eq!(core.applied_index(), SNAPSHOT_INDEX + 2);
}

#[test]
fn snapshot_is_needed_from_its_arrival_until_it_is_installed() {
    let mut core = joined();
    assert!(core.pending_snapshots().is_empty());
    core.step(snapshot(SNAPSHOT_INDEX, TERM)).unwrap();
    assert_eq!(core.pending_snapshots(), [SNAPSHOT_INDEX], "not written");
    drain(&mut core);
    assert_eq!(core.pending_snapshots(), [SNAPSHOT_INDEX], "not installed");
    core.step(snapshot(SNAPSHOT_INDEX + 7, TERM)).unwrap();
    assert_eq!(
        core.pending_snapshots(),
        [SNAPSHOT_INDEX, SNAPSHOT_INDEX + 7],
        "one waits"
    );
    core.applied(SNAPSHOT_INDEX).unwrap();
    drain(&mut core);
    assert_eq!(core.pending_snapshots(), [SNAPSHOT_INDEX + 7]);
    core.applied(SNAPSHOT_INDEX + 7).unwrap();
    assert!(core.pending_snapshots().is_empty());
    core.step(snapshot(SNAPSHOT_INDEX, TERM)).unwrap();
    assert!(core.pending_snapshots().is_empty(), "out of date");
}

#[test]
fn older_snapshot_does_not_displace_a_waiting_one() {
    let mut core = installing();
    core.step(snapshot(SNAPSHOT_INDEX + 7, TERM)).unwrap();
    core.step(snapshot(SNAPSHOT_INDEX, TERM)).unwrap();
    assert_eq!(
        core.pending_snapshots(),
        [SNAPSHOT_INDEX, SNAPSHOT_INDEX + 7]
    );
    // The next leader's replaces it, though it may be older.
    core.step(snapshot(SNAPSHOT_INDEX + 3, TERM + 1)).unwrap();
    assert_eq!(
        core.pending_snapshots(),
        [SNAPSHOT_INDEX, SNAPSHOT_INDEX + 3]
    );
}

#[derive(Default, Clone)]
struct SentMessages(Arc<Mutex<Vec<Message>>>);

impl PeerSink for SentMessages {
    fn send(&self, messages: Vec<Message>) {
        self.0.lock().unwrap().extend(messages);
    }
}

/// The apply thread takes the snapshot and never finishes.
#[test]
fn driver_votes_while_its_apply_thread_installs() {
    let dir = tempfile::tempdir().unwrap();
    let identity = bootstrap::Identity {
        member_id: MemberId(OWN),
        cluster_id: ClusterId(7),
    };
    let boot = bootstrap::join(dir.path(), WalOptions::default(), identity).unwrap();
    assert_eq!(boot.initial.hard_state, HardState::default());
    let sent = SentMessages::default();
    let hooks = Hooks {
        peers: Box::new(sent.clone()),
        on_leadership: Box::new(|_| {}),
        on_fatal: Box::new(|error| panic!("{error}")),
    };
    let config = Config {
        tick_interval: Duration::from_millis(10),
        ..Config::default()
    };
    let (handle, committed) = start(config, boot.wal, boot.initial, hooks).unwrap();
    handle.step(snapshot(SNAPSHOT_INDEX, TERM)).unwrap();
    let batch = committed.recv().unwrap();
    assert_eq!(batch.snapshot.unwrap().index, SNAPSHOT_INDEX);
    assert_eq!(handle.pending_snapshots(), [SNAPSHOT_INDEX]);

    let deadline = Instant::now() + PATIENCE;
    let has_granted = || {
        let sent = sent.0.lock().unwrap();
        let mut answers = sent.iter().filter(|message| message.to == OTHER);
        answers.any(|message| message.r#type() == MessageType::MsgPreVoteResp && !message.reject)
    };
    while !has_granted() {
        assert!(Instant::now() < deadline, "no vote while it installs");
        // Retries, as a candidate does.
        handle
            .step(vote_request(MessageType::MsgPreVote, TERM + 100))
            .unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(handle.status().applied, 0, "it still installs");
    handle.applied(SNAPSHOT_INDEX);
    while !handle.pending_snapshots().is_empty() {
        assert!(Instant::now() < deadline, "the installation is not seen");
        std::thread::sleep(Duration::from_millis(5));
    }
    handle.stop();
}
