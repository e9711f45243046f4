//! A member's consensus on a real disk.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use portunus_consensus::{
    CommittedReceiver, CompactError, Config, FatalError, Handle, Hooks, InitialState, Leadership,
    LogWriter, NoPeers, PeerSink, Proposal, ProposeError, ReadIndexError, RecvTimeoutError, Role,
    bootstrap::{
        self, BackendPosition, Boot, Identity, InitialMember, NewClusterError, RestartError,
    },
    start,
};
use portunus_gates::cluster::MemberId;
use portunus_proto::{
    ClusterId, LogIndex, Term,
    raftpb::{
        ConfChange, ConfChangeType, ConfState, Entry, EntryType, HardState, Message, MessageType,
    },
    walpb::Snapshot,
};
use portunus_wal::{ReleaseError, SnapshotPoint, Wal, WalOptions, WriteError};
use prost::Message as _;
use tempfile::TempDir;

const SMALL: WalOptions = WalOptions {
    segment_bytes: 1024 * 1024,
};

fn founders() -> Vec<InitialMember> {
    vec![InitialMember {
        name: "a".to_owned(),
        peer_urls: vec!["http://localhost:2380".to_owned()],
    }]
}

fn found(dir: &Path) -> Boot {
    bootstrap::new_cluster(dir, SMALL, "a", &founders(), "etcd-cluster").unwrap()
}

/// A state machine that records everything it applies and every callback.
struct Member {
    handle: Handle,
    committed: CommittedReceiver,
    applied: Vec<Entry>,
    applied_index: u64,
    conf_state: ConfState,
    fatal: mpsc::Receiver<FatalError>,
    leadership: Arc<Mutex<Vec<Leadership>>>,
}

impl Member {
    fn start(initial: InitialState, log: impl LogWriter + 'static, config: Config) -> Self {
        Self::start_with(initial, log, config, Box::new(NoPeers))
    }

    fn start_with(
        initial: InitialState,
        log: impl LogWriter + 'static,
        config: Config,
        peers: Box<dyn PeerSink>,
    ) -> Self {
        let (on_fatal, fatal) = mpsc::channel();
        let leadership = Arc::new(Mutex::new(Vec::new()));
        let hooks = Hooks {
            peers,
            on_leadership: Box::new({
                let leadership = Arc::clone(&leadership);
                move |change| leadership.lock().unwrap().push(change)
            }),
            on_fatal: Box::new(move |error| on_fatal.send(error).unwrap()),
        };
        let applied_index = initial.applied_index;
        let conf_state = initial.conf_state.clone();
        let (handle, committed) = start(config, log, initial, hooks).unwrap();
        Self {
            handle,
            committed,
            applied: Vec::new(),
            applied_index,
            conf_state,
            fatal,
            leadership,
        }
    }

    fn found(dir: &Path) -> Self {
        let boot = found(dir);
        Self::start(boot.initial, boot.wal, Config::default())
    }

    /// Applies one batch; false when there is none any more.
    fn apply_next(&mut self) -> bool {
        let Some(batch) = self.committed.recv() else {
            return false;
        };
        for entry in batch.entries {
            assert_eq!(entry.index, self.applied_index + 1, "in order");
            self.applied_index = entry.index;
            if entry.r#type() == EntryType::EntryConfChange {
                let change = ConfChange::decode(entry.data.clone()).unwrap();
                self.conf_state = self.handle.apply_conf_change(&change).unwrap();
            }
            self.applied.push(entry);
        }
        self.handle.applied(self.applied_index);
        true
    }

    fn apply_until(&mut self, index: u64) {
        while self.applied_index < index {
            assert!(self.apply_next(), "closed too early");
        }
    }

    fn values(&self) -> Vec<&[u8]> {
        self.applied
            .iter()
            .filter(|entry| entry.r#type() == EntryType::EntryNormal && !entry.data.is_empty())
            .map(|entry| &entry.data[..])
            .collect()
    }

    fn backend(&self) -> BackendPosition {
        BackendPosition {
            applied_index: self.applied_index,
            conf_state: Some(self.conf_state.clone()),
        }
    }

    /// Applies the founder's entry and the leader's own entry.
    fn lead(mut self) -> Self {
        self.apply_until(2);
        self
    }
}

fn value(number: u32) -> Bytes {
    Bytes::from(format!("value {number}"))
}

/// Copies the files as a crash at this moment would leave them.
fn copy_of(dir: &Path) -> (TempDir, PathBuf) {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("wal");
    fs::create_dir(&path).unwrap();
    for file in fs::read_dir(dir).unwrap() {
        let file = file.unwrap();
        match fs::copy(file.path(), path.join(file.file_name())) {
            // A prepared segment may be renamed at any time.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => drop(other.unwrap()),
        }
    }
    (copy, path)
}

fn temp() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal");
    (dir, path)
}

#[test]
fn new_cluster_of_one_elects_itself_and_commits() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path);
    member.handle.propose(value(1)).unwrap();
    member.apply_until(3);
    assert_eq!(member.values(), [b"value 1"]);

    let status = member.handle.status();
    assert_eq!(status.id, MemberId(0x8e9e_05c5_2164_694d));
    assert_eq!(status.leader, status.id);
    assert_eq!(status.role, Role::Leader);
    assert_eq!(
        (status.term, status.commit, status.applied),
        (Term(2), 3, 3)
    );
    assert!(!status.is_learner);
    let last = *member.leadership.lock().unwrap().last().unwrap();
    assert_eq!(
        last,
        Leadership {
            leader: status.id,
            role: Role::Leader,
            term: Term(2)
        }
    );
}

/// A log that can be paused between two writes, so that a copy of its files is one that a crash
/// could leave.
struct PausableLog {
    wal: Wal,
    running: Arc<Mutex<()>>,
}

impl LogWriter for PausableLog {
    fn append(&mut self, state: Option<&HardState>, entries: &[Entry]) -> Result<(), WriteError> {
        self.wal.append(state, entries).map(drop)
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        let _running = self.running.lock().unwrap();
        self.wal.sync()
    }

    fn save_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), WriteError> {
        self.wal.save_snapshot(snapshot)
    }

    fn release_to(&mut self, index: u64) -> Result<usize, ReleaseError> {
        self.wal.release_to(index)
    }
}

#[test]
fn acknowledged_writes_survive_a_crash_at_any_moment() {
    const WRITES: u32 = 10_000;
    let (_dir, path) = temp();
    let boot = found(&path);
    let running = Arc::new(Mutex::new(()));
    let log = PausableLog {
        wal: boot.wal,
        running: Arc::clone(&running),
    };
    let config = Config {
        proposal_queue_entries_max: 100,
        ..Config::default()
    };
    let mut member = Member::start(boot.initial, log, config).lead();
    let handle = member.handle.clone();
    // Never far ahead of the applied index, so that the copies are spread over the whole run.
    const AHEAD_MAX: u64 = 300;
    let applied = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&applied);
    let proposer = thread::spawn(move || {
        for number in 0..WRITES {
            while u64::from(number) > seen.load(Ordering::Relaxed) + AHEAD_MAX {
                thread::yield_now();
            }
            while let Err(error) = handle.propose(value(number)) {
                assert!(matches!(error, ProposeError::Overloaded { .. }));
                thread::yield_now();
            }
        }
    });
    let mut crashes = Vec::new();
    let mut next_crash = 500;
    let last_index = u64::from(WRITES) + 2;
    while member.applied_index < last_index {
        member.apply_next();
        applied.store(member.applied_index, Ordering::Relaxed);
        if member.applied_index >= next_crash {
            // Everything applied so far was acknowledged before this copy.
            let _paused = running.lock().unwrap();
            crashes.push((member.applied.clone(), copy_of(&path)));
            next_crash += 1500;
        }
    }
    proposer.join().unwrap();
    crashes.push((member.applied.clone(), copy_of(&path)));
    assert!(crashes.len() >= 4);

    for (acknowledged, (_dir, path)) in crashes {
        let boot = bootstrap::restart(&path, SMALL, &BackendPosition::default()).unwrap();
        let mut again = Member::start(boot.initial, boot.wal, Config::default());
        again.apply_until(acknowledged.len() as u64);
        assert_eq!(again.applied[..acknowledged.len()], acknowledged);
    }
}

/// The commit index of the last entries is not in the log yet when a process is killed.
#[test]
fn forced_new_cluster_keeps_every_acknowledged_entry() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..5 {
        member.handle.propose(value(number)).unwrap();
    }
    member.apply_until(7);
    let (_copy, path) = copy_of(&path);
    let mut boot = bootstrap::restart(&path, SMALL, &BackendPosition::default()).unwrap();
    assert!(boot.initial.hard_state.commit < 7, "the test needs a tail");
    bootstrap::force_new_cluster(&mut boot).unwrap();
    let mut again = Member::start(boot.initial, boot.wal, Config::default());
    again.apply_until(7);
    assert_eq!(again.applied[..7], member.applied[..7]);
}

#[test]
fn restart_replays_only_entries_missing_in_the_backend() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..10 {
        member.handle.propose(value(number)).unwrap();
    }
    member.apply_until(7);
    let backend = BackendPosition {
        applied_index: 7,
        conf_state: Some(member.conf_state.clone()),
    };
    member.apply_until(12);
    member.handle.stop();

    let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
    assert_eq!(boot.identity.member_id, MemberId(0x8e9e_05c5_2164_694d));
    assert_eq!(boot.identity.cluster_id, ClusterId(0xcdf8_1819_4e3a_8c32));
    assert_eq!(boot.initial.hard_state.commit, 12, "stop wrote the commit");
    let mut again = Member::start(boot.initial, boot.wal, Config::default());
    again.apply_until(13);
    assert_eq!(again.applied[0].index, 8);
    assert_eq!(again.values().len(), 5);
    assert_eq!(again.handle.status().term, Term(3));
}

#[test]
fn sole_voter_with_everything_applied_leads_without_a_tick() {
    let (_dir, path) = temp();
    let member = Member::found(&path).lead();
    let backend = member.backend();
    member.handle.stop();
    let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
    let never = Config {
        tick_interval: Duration::from_secs(3600),
        ..Config::default()
    };
    let mut again = Member::start(boot.initial, boot.wal, never);
    again.apply_until(3);
    assert_eq!(again.handle.status().role, Role::Leader);
}

#[test]
fn sole_voter_configured_to_wait_leads_only_after_an_election_timeout() {
    let (_dir, path) = temp();
    let member = Member::found(&path).lead();
    let backend = member.backend();
    member.handle.stop();
    for (tick_interval, leads) in [
        (Duration::from_secs(3600), false),
        (Duration::from_millis(5), true),
    ] {
        let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
        let patient = Config {
            tick_interval,
            leads_at_once_if_alone: false,
            ..Config::default()
        };
        let mut again = Member::start(boot.initial, boot.wal, patient);
        if leads {
            again.apply_until(3);
        }
        let is_leader = again.handle.status().role == Role::Leader;
        assert_eq!(is_leader, leads, "{tick_interval:?}");
        again.handle.stop();
    }
}

#[test]
fn stop_commits_accepted_proposals_and_refuses_new_ones() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..1000 {
        member.handle.propose(value(number)).unwrap();
    }
    member.handle.stop();
    while member.apply_next() {}
    assert_eq!(member.values().len(), 1000);
    assert_eq!(member.handle.propose(value(0)), Err(ProposeError::Stopped));
    assert_eq!(
        member.handle.compact_log(1, ConfState::default()).err(),
        Some(CompactError::Stopped)
    );
    member.handle.stop();
    assert!(member.fatal.try_recv().is_err());
}

#[test]
fn dropping_the_last_handle_ends_the_threads() {
    let (_dir, path) = temp();
    let member = Member::found(&path).lead();
    let Member {
        handle, committed, ..
    } = member;
    drop(handle);
    assert_eq!(committed.recv(), None);
    // The log is unlocked once the disk thread has ended.
    loop {
        match bootstrap::restart(&path, SMALL, &BackendPosition::default()) {
            Ok(_) => break,
            Err(RestartError::Open(_)) => thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A log in memory whose syncs wait for the test, or fail.
#[derive(Default)]
struct Controls {
    /// How many syncs may still pass; `None` for all.
    allowed: Mutex<Option<usize>>,
    changed: Condvar,
    blocked: AtomicBool,
    fail: AtomicBool,
    batches: Mutex<Vec<usize>>,
}

impl Controls {
    fn allow(&self, syncs: Option<usize>) {
        *self.allowed.lock().unwrap() = syncs;
        self.changed.notify_all();
    }

    /// Waits until a sync is blocked.
    fn wait_until_blocked(&self) {
        while !self.blocked.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

#[derive(Clone, Default)]
struct TestLog {
    controls: Arc<Controls>,
    appended: usize,
}

impl LogWriter for TestLog {
    fn append(&mut self, _: Option<&HardState>, entries: &[Entry]) -> Result<(), WriteError> {
        self.appended += entries.len();
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        let mut allowed = self.controls.allowed.lock().unwrap();
        while *allowed == Some(0) {
            self.controls.blocked.store(true, Ordering::SeqCst);
            allowed = self.controls.changed.wait(allowed).unwrap();
        }
        self.controls.blocked.store(false, Ordering::SeqCst);
        if let Some(allowed) = &mut *allowed {
            *allowed -= 1;
        }
        if self.controls.fail.load(Ordering::Relaxed) {
            return Err(WriteError::Sync {
                path: "here".into(),
                source: io::Error::other("injected"),
            });
        }
        let appended = std::mem::take(&mut self.appended);
        self.controls.batches.lock().unwrap().push(appended);
        Ok(())
    }

    fn save_snapshot(&mut self, _: &Snapshot) -> Result<(), WriteError> {
        self.sync()
    }

    fn release_to(&mut self, _: u64) -> Result<usize, ReleaseError> {
        Ok(0)
    }
}

/// Starts a founder whose log is under the test's control.
fn with_test_log(config: Config) -> (Member, Arc<Controls>) {
    let (_dir, path) = temp();
    let log = TestLog::default();
    let controls = Arc::clone(&log.controls);
    (Member::start(found(&path).initial, log, config), controls)
}

#[test]
fn proposals_during_a_sync_form_one_batch() {
    let (member, controls) = with_test_log(Config::default());
    let mut member = member.lead();
    let before = member.handle.status();
    controls.allow(Some(0));
    member.handle.propose(value(0)).unwrap();
    // The first is being written when the others arrive.
    controls.wait_until_blocked();
    for number in 1..=100 {
        member.handle.propose(value(number)).unwrap();
    }
    controls.allow(None);
    member.apply_until(103);
    assert_eq!(controls.batches.lock().unwrap()[1..], [1, 100]);
    let after = member.handle.status();
    assert_eq!(after.wal_syncs - before.wal_syncs, 2);
    assert_eq!(after.wal_entries - before.wal_entries, 101);
}

#[test]
fn single_write_costs_one_sync_and_its_commit_none() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..50 {
        let before = member.handle.status();
        member.handle.propose(value(number)).unwrap();
        member.apply_until(before.last_index + 1);
        assert_eq!(member.handle.status().wal_syncs, before.wal_syncs + 1);
    }
}

#[test]
fn disk_failure_is_fatal_once_and_stops_the_driver() {
    let (member, controls) = with_test_log(Config::default());
    let mut member = member.lead();
    controls.fail.store(true, Ordering::Relaxed);
    member.handle.propose(value(1)).unwrap();
    let error = member.fatal.recv().unwrap();
    assert!(matches!(error, FatalError::Log(WriteError::Sync { .. })));

    assert!(!member.apply_next(), "nothing unsynced is ever committed");
    assert_eq!(member.handle.propose(value(2)), Err(ProposeError::Stopped));
    assert_eq!(
        member
            .handle
            .compact_log(2, member.conf_state.clone())
            .err(),
        Some(CompactError::Stopped)
    );
    member.handle.stop();
    assert!(member.fatal.recv().is_err(), "once");
    assert_eq!(controls.batches.lock().unwrap().len(), 1, "never retried");
}

#[test]
fn applied_index_beyond_the_commit_is_fatal() {
    let (_dir, path) = temp();
    let member = Member::found(&path).lead();
    member.handle.applied(1000);
    member.handle.propose(value(1)).unwrap();
    let error = member.fatal.recv().unwrap();
    assert!(matches!(error, FatalError::Applied(_)), "{error}");
}

#[test]
fn lost_log_is_fatal() {
    let (_dir, path) = temp();
    let member = Member::found(&path).lead();
    let status = member.handle.status();
    let heartbeat = Message {
        r#type: MessageType::MsgHeartbeat.into(),
        from: 2,
        to: 1,
        term: u64::from(u32::MAX),
        commit: status.last_index + 1,
        ..Message::default()
    };
    let refused = member.handle.step(heartbeat).unwrap_err();
    let error = member.fatal.recv().unwrap();
    assert!(matches!(error, FatalError::LogLost(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("was the raft log corrupted, truncated, or lost?")
    );
    assert_eq!(error.to_string(), refused.to_string());
    assert_eq!(member.handle.propose(value(1)), Err(ProposeError::Stopped));
}

#[test]
fn full_proposal_queue_refuses_and_recovers() {
    let config = Config {
        proposal_queue_entries_max: 10,
        proposal_queue_bytes_max: 1000,
        // A tick would take proposals out of the queue.
        tick_interval: Duration::from_secs(3600),
        ..Config::default()
    };
    let (member, controls) = with_test_log(config);
    let mut member = member.lead();
    controls.allow(Some(0));
    let before = member.handle.status().last_index;
    member.handle.propose(value(0)).unwrap();
    controls.wait_until_blocked();
    for number in 0..10 {
        member.handle.propose(value(number)).unwrap();
    }
    assert!(matches!(
        member.handle.propose(value(11)),
        Err(ProposeError::Overloaded { entries: 10, .. })
    ));
    controls.allow(None);
    member.apply_until(before + 11);
    controls.allow(Some(0));
    member.handle.propose(vec![0; 5000].into()).unwrap();
    controls.wait_until_blocked();
    member.handle.propose(vec![0; 900].into()).unwrap();
    assert!(matches!(
        member.handle.propose(vec![0; 200].into()),
        Err(ProposeError::Overloaded { bytes: 900, .. })
    ));
    controls.allow(None);
    member.apply_until(before + 13);
}

#[test]
fn lagging_state_machine_holds_back_the_log() {
    const BACKLOG: u32 = 10;
    let config = Config {
        apply_backlog_entries_max: BACKLOG as usize,
        ..Config::default()
    };
    let (member, controls) = with_test_log(config);
    let mut member = member.lead();
    for number in 0..BACKLOG {
        member.handle.propose(value(number)).unwrap();
        while member.handle.status().commit < 3 + u64::from(number) {
            thread::yield_now();
        }
    }
    let written = controls.batches.lock().unwrap().len();
    member.handle.propose(value(BACKLOG)).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(controls.batches.lock().unwrap().len(), written);
    member.apply_until(13);
    assert_eq!(member.values().len(), 11);
}

#[test]
fn read_of_a_sole_voter_waits_for_the_first_commit_and_then_costs_nothing() {
    let (mut member, controls) = with_test_log(Config::default());
    controls.allow(Some(0));
    member.apply_until(1);
    while member.handle.status().role != Role::Leader {
        thread::yield_now();
    }
    let early = member.handle.read_index();
    let also_early = member.handle.read_index();
    assert_eq!(
        member.committed.recv_timeout(Duration::from_millis(50)),
        Err(RecvTimeoutError::Timeout)
    );
    controls.allow(None);
    assert_eq!(early.wait(), Ok(LogIndex(2)));
    assert_eq!(also_early.wait(), Ok(LogIndex(2)));

    member.apply_until(2);
    controls.allow(Some(0));
    member.handle.propose(value(1)).unwrap();
    for _ in 0..1000 {
        assert_eq!(
            member.handle.read_index().wait(),
            Ok(LogIndex(2)),
            "no disk needed"
        );
    }
    controls.allow(None);
    member.apply_until(3);
    assert_eq!(member.handle.read_index().wait(), Ok(LogIndex(3)));
}

#[test]
fn reads_see_every_write_acknowledged_before_them() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..200 {
        member.handle.propose(value(number)).unwrap();
        let wanted = member.applied_index + 1;
        member.apply_until(wanted);
        assert!(member.handle.read_index().wait().unwrap() >= LogIndex(member.applied_index));
    }
}

#[test]
fn waiting_readers_fail_when_the_driver_stops() {
    let (member, controls) = with_test_log(Config::default());
    controls.allow(Some(0));
    let reader = member.handle.read_index();
    controls.fail.store(true, Ordering::Relaxed);
    let handle = member.handle.clone();
    let waiting = thread::spawn(move || reader.wait());
    let mut member = member;
    member.apply_until(1);
    controls.allow(None);
    assert_eq!(waiting.join().unwrap(), Err(ReadIndexError::Stopped));
    assert_eq!(handle.read_index().wait(), Err(ReadIndexError::Stopped));
}

#[test]
fn compaction_leaves_a_log_that_starts_at_the_snapshot() {
    let (_dir, path) = temp();
    let boot = found(&path);
    let config = Config {
        catch_up_entries: 100,
        ..Config::default()
    };
    let mut member = Member::start(boot.initial, boot.wal, config).lead();
    for _ in 0..100 {
        for _ in 0..10 {
            member.handle.propose(vec![7; 5000].into()).unwrap();
        }
        let wanted = member.applied_index + 10;
        member.apply_until(wanted);
    }
    let segments = || {
        fs::read_dir(&path)
            .unwrap()
            .filter(|file| {
                let name = file.as_ref().unwrap().file_name();
                name.to_string_lossy().ends_with(".wal")
            })
            .count()
    };
    let before = segments();
    assert!(before > 4);
    assert_eq!(
        member.handle.compact_log(5000, ConfState::default()).err(),
        Some(CompactError::NotApplied {
            index: 5000,
            applied_index: 1002
        })
    );
    let compacted = member
        .handle
        .compact_log(1000, member.conf_state.clone())
        .unwrap();
    assert_eq!(compacted.memory_starts_after, 900);
    assert!(compacted.release_error.is_none());
    assert_eq!(segments(), before - compacted.segments_released);
    assert!(segments() <= 2);
    assert_eq!(
        member
            .handle
            .compact_log(1000, member.conf_state.clone())
            .err(),
        Some(CompactError::AlreadyCompacted { index: 1000 })
    );
    member.handle.propose(value(1)).unwrap();
    member.apply_until(1003);
    let backend = member.backend();
    drop(member);

    let (_copy, path) = copy_of(&path);
    let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
    assert_eq!(boot.initial.base_index, 1000);
    let mut again = Member::start(boot.initial, boot.wal, Config::default());
    again.apply_until(1004);
    assert_eq!(again.applied[0].index, 1004, "only the new leader's entry");
    drop(again);
    let (_copy, path) = copy_of(&path);
    let old = BackendPosition {
        applied_index: 999,
        ..backend
    };
    let refused = bootstrap::restart(&path, SMALL, &old).err().unwrap();
    assert!(
        matches!(refused, RestartError::BackendBehindLog { .. }),
        "{refused}"
    );
}

/// The commit index is written late; the snapshot must have it.
#[test]
fn compaction_right_after_a_restart_survives_a_crash() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    for number in 0..10 {
        member.handle.propose(value(number)).unwrap();
        let wanted = member.applied_index + 1;
        member.apply_until(wanted);
    }
    let backend = member.backend();
    let (_copy, path) = copy_of(&path);
    let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
    let again = Member::start(boot.initial, boot.wal, Config::default());
    again
        .handle
        .compact_log(backend.applied_index, member.conf_state.clone())
        .unwrap();
    let (_copy, path) = copy_of(&path);
    let boot = bootstrap::restart(&path, SMALL, &backend).unwrap();
    assert_eq!(boot.initial.base_index, backend.applied_index);
}

#[test]
fn log_behind_its_backend_is_refused_with_advice() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    member.handle.propose(value(1)).unwrap();
    member.apply_until(3);
    let older = copy_of(&path);
    member.handle.propose(value(2)).unwrap();
    member.apply_until(4);
    let refused = bootstrap::restart(&older.1, SMALL, &member.backend())
        .err()
        .unwrap();
    assert!(matches!(
        refused,
        RestartError::LogBehindBackend {
            last_index: 3,
            applied_index: 4,
            ..
        }
    ));
    assert!(refused.to_string().contains("add it again"));
    let unknown = BackendPosition {
        applied_index: 2,
        conf_state: None,
    };
    let refused = bootstrap::restart(&older.1, SMALL, &unknown).err().unwrap();
    assert!(matches!(refused, RestartError::MembersUnknown { .. }));
}

#[test]
fn bootstrap_is_repeatable_until_the_log_holds_entries() {
    let (_dir, path) = temp();
    let none = bootstrap::restart(&path, SMALL, &BackendPosition::default());
    assert!(matches!(none.err(), Some(RestartError::NoLog { .. })));

    // A first start that was interrupted after it had created an empty log.
    let identity = found(&temp().1).identity;
    drop(bootstrap::join(&path, SMALL, identity).unwrap());
    let blank = bootstrap::restart(&path, SMALL, &BackendPosition::default());
    assert!(matches!(blank.err(), Some(RestartError::Blank { .. })));

    drop(found(&path));
    let again = bootstrap::new_cluster(&path, SMALL, "a", &founders(), "etcd-cluster");
    assert!(matches!(again.err(), Some(NewClusterError::InUse { .. })));
    let boot = bootstrap::restart(&path, SMALL, &BackendPosition::default()).unwrap();
    assert_eq!(boot.initial.last_index(), 1);

    let (_dir, path) = temp();
    let stranger = Identity {
        member_id: MemberId(1),
        ..identity
    };
    drop(bootstrap::join(&path, SMALL, stranger).unwrap());
    let foreign = bootstrap::new_cluster(&path, SMALL, "a", &founders(), "etcd-cluster");
    assert!(matches!(foreign.err(), Some(NewClusterError::InUse { .. })));
}

#[test]
fn contradicting_initial_members_are_refused() {
    let (_dir, path) = temp();
    let found = |name: &str, members: &[InitialMember]| {
        bootstrap::new_cluster(&path, SMALL, name, members, "token").err()
    };
    assert!(matches!(
        found("b", &founders()),
        Some(NewClusterError::NotAMember { .. })
    ));
    let mut twins = founders();
    twins.push(InitialMember {
        name: "b".to_owned(),
        ..twins[0].clone()
    });
    assert!(matches!(
        found("a", &twins),
        Some(NewClusterError::SameMember { .. })
    ));
    let crowd: Vec<_> = (0..=bootstrap::INITIAL_MEMBERS_MAX)
        .map(|number| InitialMember {
            name: number.to_string(),
            peer_urls: vec![format!("http://{number}")],
        })
        .collect();
    assert!(matches!(
        found("1", &crowd),
        Some(NewClusterError::TooManyMembers { .. })
    ));
    assert!(!path.exists(), "nothing was written");
}

#[test]
fn all_initial_members_write_the_same_log() {
    let members: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| InitialMember {
            name: (*name).to_owned(),
            peer_urls: vec![format!("http://{name}:2380")],
        })
        .collect();
    let logs: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let (_dir, path) = temp();
            let boot = bootstrap::new_cluster(&path, SMALL, name, &members, "token").unwrap();
            drop(boot.wal);
            let (_, recovered) = Wal::open(&path, SnapshotPoint::default()).unwrap();
            (recovered.hard_state, recovered.entries)
        })
        .collect();
    assert!(logs.iter().all(|log| *log == logs[0]));
    let (hard_state, entries) = &logs[0];
    assert_eq!((hard_state.term, hard_state.commit), (1, 3));
    let ids: Vec<u64> = entries
        .iter()
        .map(|entry| {
            let change = ConfChange::decode(entry.data.clone()).unwrap();
            assert_eq!(change.r#type(), ConfChangeType::ConfChangeAddNode);
            change.node_id
        })
        .collect();
    assert!(ids.is_sorted());
}

#[test]
fn sole_voter_reads_alone_after_a_learner_joins() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    let add = ConfChange {
        r#type: ConfChangeType::ConfChangeAddLearnerNode.into(),
        node_id: 7,
        ..Default::default()
    };
    member.handle.propose_conf_change(add).unwrap();
    member.apply_until(3);
    assert_eq!(member.conf_state.learners, [7]);
    assert_eq!(member.handle.read_index().wait(), Ok(LogIndex(3)));

    // A second voter that never responds: reads need a round.
    let promote = ConfChange {
        r#type: ConfChangeType::ConfChangeAddNode.into(),
        node_id: 7,
        ..Default::default()
    };
    member.handle.propose_conf_change(promote).unwrap();
    member.apply_until(4);
    assert_eq!(member.conf_state.voters.len(), 2);
    let read = member.handle.read_index();
    let handle = member.handle.clone();
    let waiting = thread::spawn(move || read.wait());
    // Without its quorum the leader steps down within an election timeout or two.
    assert_eq!(waiting.join().unwrap(), Err(ReadIndexError::LeaderChanged));
    assert_eq!(handle.status().leader, MemberId::NONE);
}

type Sent = Arc<Mutex<Vec<Message>>>;

struct SentTo(Sent);

impl PeerSink for SentTo {
    fn send(&self, messages: Vec<Message>) {
        self.0.lock().unwrap().extend(messages);
    }
}

/// Starts one of three founders, without a leader until the test provides one.
fn one_of_three(config: Config) -> (Member, Sent) {
    let (_dir, path) = temp();
    let members: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| InitialMember {
            name: (*name).to_owned(),
            peer_urls: vec![format!("http://{name}:2380")],
        })
        .collect();
    let boot = bootstrap::new_cluster(&path, SMALL, "a", &members, "token").unwrap();
    let sent = Sent::default();
    let peers = Box::new(SentTo(Arc::clone(&sent)));
    let mut member = Member::start_with(boot.initial, TestLog::default(), config, peers);
    member.apply_until(3);
    (member, sent)
}

/// Makes another founder the leader of this term.
fn follow_leader_of_term(member: &Member, term: u64) {
    let MemberId(own) = member.handle.status().id;
    let voters = &member.conf_state.voters;
    let heartbeat = Message {
        r#type: MessageType::MsgHeartbeat.into(),
        from: *voters.iter().find(|id| **id != own).unwrap(),
        to: own,
        term,
        ..Default::default()
    };
    member.handle.step(heartbeat).unwrap();
}

/// Returns the proposals forwarded to the leader, once there are any: the disk comes first.
fn forwarded(sent: &Sent) -> Vec<Bytes> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let forwarded: Vec<_> = (sent.lock().unwrap().iter())
            .filter(|message| message.r#type() == MessageType::MsgProp)
            .flat_map(|message| message.entries.iter().map(|entry| entry.data.clone()))
            .collect();
        if !forwarded.is_empty() || Instant::now() > deadline {
            return forwarded;
        }
        thread::yield_now();
    }
}

/// A request was reported to its client as failed. A leader that appears later must not commit
/// it.
#[test]
fn proposal_whose_ticket_is_dropped_without_a_leader_is_never_proposed() {
    let never = Config {
        tick_interval: Duration::from_secs(3600),
        proposal_queue_entries_max: 3,
        ..Config::default()
    };
    let (member, sent) = one_of_three(never);
    let kept = member.handle.submit(Proposal::normal(value(1))).unwrap();
    let dropped = member.handle.submit(Proposal::normal(value(2))).unwrap();
    let withdrawn = member.handle.submit(Proposal::normal(value(3))).unwrap();
    assert!(matches!(
        member.handle.submit(Proposal::normal(value(4))),
        Err(ProposeError::Overloaded { entries: 3, .. })
    ));
    drop(dropped);
    assert!(withdrawn.withdraw(), "it was not proposed");
    // They take no room in the queue any more.
    let progress = {
        let proposal = Proposal::normal(value(5));
        let progress = proposal.progress();
        member.handle.submit(proposal).unwrap().detach();
        progress
    };
    assert_eq!(progress.term(), None);

    follow_leader_of_term(&member, 9);
    assert_eq!(progress.term(), Some(Term(9)));
    assert_eq!(forwarded(&sent), [value(1), value(5)]);
    assert!(!kept.withdraw(), "it may be committed");
}

/// A successor must not propose what a leader decided by its own clock.
#[test]
fn proposal_bound_to_a_term_is_proposed_by_the_leader_of_that_term_only() {
    let (_dir, path) = temp();
    let mut member = Member::found(&path).lead();
    assert_eq!(member.handle.led_term(), Some(Term(2)));
    let bound = |number, term| Proposal::normal(value(number)).only_as_leader_of(Term(term));
    for (number, term) in [(1, 1), (2, 2), (3, 3)] {
        member.handle.submit(bound(number, term)).unwrap().detach();
    }
    member.handle.propose(value(4)).unwrap();
    member.apply_until(4);
    assert_eq!(member.values(), [b"value 2", b"value 4"]);

    let never = Config {
        tick_interval: Duration::from_secs(3600),
        ..Config::default()
    };
    let (follower, sent) = one_of_three(never);
    assert_eq!(follower.handle.led_term(), None);
    follower.handle.submit(bound(1, 9)).unwrap().detach();
    follower.handle.propose(value(2)).unwrap();
    follow_leader_of_term(&follower, 9);
    assert_eq!(forwarded(&sent), [value(2)]);
}

/// The turn thread never ticks here.
#[test]
fn skipped_ticks_bring_an_election_unless_there_is_a_leader() {
    let never = Config {
        tick_interval: Duration::from_secs(3600),
        ..Config::default()
    };
    let (member, _) = one_of_three(never.clone());
    let longest = 2 * never.election_ticks;
    member.handle.skip_ticks_without_leader(longest);
    assert_eq!(member.handle.status().role, Role::PreCandidate);

    let (member, _) = one_of_three(never);
    follow_leader_of_term(&member, 9);
    member.handle.skip_ticks_without_leader(longest);
    assert_eq!(member.handle.status().role, Role::Follower);
}
