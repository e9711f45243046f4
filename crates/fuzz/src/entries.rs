//! Committed entries of the log: every member applies them, so none may end the process.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use portunus_features::OwnFeatures;
use portunus_mvcc::backend::{Backend, Bucket, MemoryBackend};
use portunus_mvcc::{CompactionStep, Config, Hooks, Store};
use portunus_proto::etcdserverpb::InternalRaftRequest;
use portunus_proto::lenient::decode_raft_request;
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_statemachine::{Local, Settings, State, StateMachine};
use prost::Message;

use crate::input::{take_byte, take_part};

/// Entries of one input.
const ENTRIES_MAX: usize = 24;

struct Replica {
    backend: Arc<MemoryBackend>,
    machine: StateMachine,
    /// Whether a client waits for every answer, as on the member that proposed an entry.
    answers_clients: bool,
}

fn settings() -> Settings {
    Settings {
        member_id: 1,
        version: "3.8".parse().expect("a version"),
        max_learners: 1,
        lease_ttl_s_min: 2,
        quota_bytes: Some(1 << 20),
        snapshot_count: 5,
    }
}

impl Replica {
    fn open(backend: Arc<MemoryBackend>, answers_clients: bool) -> Replica {
        let opened = Store::open(backend.clone(), Config::default(), Hooks::default());
        let (store, _) = opened.expect("a store that was written by a machine");
        let settings = settings();
        let state = State::load(&store, settings.lease_ttl_s_min);
        let state = state.expect("the state that was written by a machine");
        let own = OwnFeatures::declared().expect("legal features");
        Replica {
            backend,
            machine: StateMachine::new(settings, &own, store, state, 0),
            answers_clients,
        }
    }

    /// Returns whether the member goes on.
    fn apply(&mut self, entry: Entry, now_ms: u64) -> bool {
        let index = entry.index;
        let is_waiting = |_| self.answers_clients;
        let local = Local {
            now_ms,
            is_waiting: &is_waiting,
        };
        let is_applied = self.machine.apply(entry, &local).is_ok();
        if is_applied {
            let _ = self.machine.end_batch(index, &|_| true);
        }
        is_applied
    }

    /// Does the work of compactions, which a member does between entries when it has time.
    fn finish_compactions(&mut self) {
        loop {
            self.machine.reader().flush().expect("a flushed store");
            match self.machine.compaction_step() {
                Ok(CompactionStep::Idle) => return,
                Ok(_) => {}
                Err(error) => panic!("compaction failed: {error}"),
            }
        }
    }

    fn dump(&self) -> Vec<(&'static str, Bytes, Bytes)> {
        self.machine.reader().flush().expect("a flushed store");
        let snapshot = self.backend.snapshot().expect("a snapshot");
        let mut dump = Vec::new();
        for bucket in Bucket::ALL {
            let each = &mut |key: &[u8], value: &[u8]| {
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                dump.push((bucket.name(), key, value));
                ControlFlow::Continue(())
            };
            snapshot.scan(bucket, b"", each).expect("a scan");
        }
        dump
    }
}

/// Applies entries on two members, of which one answers clients: none panics, both store the
/// same, and what they store can be loaded.
///
/// An entry is a byte with its type and the step of the time, and a part with its data.
pub fn log_entries(mut data: &[u8]) {
    let mut replicas = [true, false]
        .map(|answers_clients| Replica::open(Arc::new(MemoryBackend::new()), answers_clients));
    let (mut index, mut term, mut now_ms) = (0, 1, 0);
    while !data.is_empty() && index < ENTRIES_MAX as u64 {
        let control = take_byte(&mut data);
        let kind = match control % 8 {
            0 => EntryType::EntryConfChange,
            1 => EntryType::EntryConfChangeV2,
            _ => EntryType::EntryNormal,
        };
        index += 1;
        term += u64::from(control & 0x80 != 0);
        now_ms += u64::from(control & 0x70) * 100;
        let entry = Entry {
            index,
            term,
            r#type: kind.into(),
            data: Bytes::copy_from_slice(take_part(&mut data)),
        };
        let goes_on = replicas
            .each_mut()
            .map(|replica| replica.apply(entry.clone(), now_ms));
        assert_eq!(goes_on[0], goes_on[1], "members decide alike");
        if !goes_on[0] {
            // The member stops; what it wrote before is on disk.
            return;
        }
    }
    for replica in &mut replicas {
        replica.finish_compactions();
    }
    let [first, second] = &replicas;
    let before = first.dump();
    assert_eq!(before, second.dump(), "members store alike");
    let [first, _] = replicas;
    first.machine.close().expect("a closed store");
    let restarted = Replica::open(first.backend, true);
    assert_eq!(before, restarted.dump());
}

/// Decodes the data of a log entry, strictly and as Go's members do.
pub fn raft_requests(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let strict = InternalRaftRequest::decode(data.clone());
    let lenient = decode_raft_request(data.clone());
    if let Ok(strict) = &strict {
        assert_eq!(Ok(strict), lenient.as_ref(), "what is valid is not changed");
    }
    if let Ok(request) = lenient {
        let encoded = request.encode_to_vec();
        assert_eq!(InternalRaftRequest::decode(encoded.as_slice()), Ok(request));
    }
    let _ = portunus_statemachine::v2_request::read(1, data);
}
