//! A state machine over a store in memory, and entries for it.
#![allow(dead_code)] // each test file uses a part

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use portunus_features::OwnFeatures;
use portunus_mvcc::backend::{Backend, Bucket, MemoryBackend};
use portunus_mvcc::{Config, Hooks, Store};
use portunus_proto::etcdserverpb::{InternalRaftRequest, RequestHeader};
use portunus_proto::raftpb::{ConfChange, Entry, EntryType};
use portunus_statemachine::{Applied, EntryError, Local, Settings, State, StateMachine};
use prost::Message;

pub const TERM: u64 = 2;

pub fn settings() -> Settings {
    Settings {
        member_id: 1,
        version: "3.8".parse().unwrap(),
        max_learners: 1,
        lease_ttl_s_min: 2,
        quota_bytes: None,
        snapshot_count: 1000,
    }
}

/// A state machine with its backend and its local inputs.
pub struct Machine {
    pub backend: Arc<MemoryBackend>,
    pub machine: StateMachine,
    pub settings: Settings,
    pub now_ms: u64,
    pub answers_clients: bool,
}

impl Machine {
    pub fn new(settings: Settings) -> Machine {
        Machine::open(Arc::new(MemoryBackend::new()), settings)
    }

    pub fn open(backend: Arc<MemoryBackend>, settings: Settings) -> Machine {
        let opened = Store::open(backend.clone(), Config::default(), Hooks::default());
        let (store, _) = opened.unwrap();
        let state = State::load(&store, settings.lease_ttl_s_min).unwrap();
        let own = OwnFeatures::declared().unwrap();
        Machine {
            backend,
            machine: StateMachine::new(settings.clone(), &own, store, state, 0),
            settings,
            now_ms: 0,
            answers_clients: false,
        }
    }

    /// Ends the process in good order and starts another one.
    pub fn restarted(self) -> Machine {
        self.machine.close().unwrap();
        Machine::open(self.backend, self.settings)
    }

    pub fn try_apply(&mut self, entry: Entry) -> Result<Applied, EntryError> {
        let is_waiting = |_| self.answers_clients;
        let local = Local {
            now_ms: self.now_ms,
            is_waiting: &is_waiting,
        };
        self.machine.apply(entry, &local)
    }

    pub fn apply(&mut self, entry: Entry) -> Applied {
        self.try_apply(entry).unwrap()
    }

    /// Everything in the backend.
    pub fn dump(&self) -> Vec<(&'static str, Bytes, Bytes)> {
        self.machine.reader().flush().unwrap();
        let snapshot = self.backend.snapshot().unwrap();
        let mut dump = Vec::new();
        for bucket in Bucket::ALL {
            let each = &mut |key: &[u8], value: &[u8]| {
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                dump.push((bucket.name(), key, value));
                ControlFlow::Continue(())
            };
            snapshot.scan(bucket, b"", each).unwrap();
        }
        dump
    }
}

/// An entry with a request, whose id is the index.
pub fn normal(index: u64, mut request: InternalRaftRequest) -> Entry {
    request.header = Some(RequestHeader {
        id: index,
        ..RequestHeader::default()
    });
    Entry {
        index,
        term: TERM,
        r#type: EntryType::EntryNormal.into(),
        data: request.encode_to_vec().into(),
    }
}

/// An entry with a configuration change, whose id is the index.
pub fn conf_change(index: u64, change: ConfChange) -> Entry {
    let change = ConfChange {
        id: index,
        ..change
    };
    Entry {
        index,
        term: TERM,
        r#type: EntryType::EntryConfChange.into(),
        data: change.encode_to_vec().into(),
    }
}
