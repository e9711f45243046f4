//! Several cores in one loop, with a network and disks under the test's control.
//!
//! Every message and every write waits until the test releases it. Four invariants are checked
//! all the time: one leader per term, the same entry at the same committed index everywhere,
//! reads that see what was committed before they began, and no message of a term that is not on
//! its sender's disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use portunus_consensus::{
    InitialState, Role,
    core::{Core, CoreConfig, Ready},
};
use portunus_gates::cluster::MemberId;
use portunus_proto::LogIndex;
use portunus_proto::raftpb::{
    ConfChange, ConfChangeType, Entry, EntryType, HardState, Message, MessageType, SnapshotMetadata,
};
use prost::Message as _;

/// What survives a crash.
#[derive(Default)]
struct Disk {
    hard_state: HardState,
    /// The snapshot the log starts after.
    snapshot: SnapshotMetadata,
    entries: Vec<Entry>,
}

pub struct Node {
    pub core: Core,
    disk: Disk,
    unwritten: VecDeque<Ready>,
    /// Entries in the state machine; a crash loses those after the snapshot.
    pub applied: Vec<Entry>,
    pub reads: BTreeMap<u64, u64>,
}

pub struct Cluster {
    pub nodes: BTreeMap<u64, Node>,
    pub network: VecDeque<Message>,
    /// Members whose messages are lost in both directions.
    pub cut_off: BTreeSet<u64>,
    pub seed: u64,
    random: u64,
    leaders: BTreeMap<u64, u64>,
    committed: Vec<Entry>,
    /// Per read: the index that was committed when it began.
    floors: BTreeMap<u64, u64>,
    next_read: u64,
}

impl Cluster {
    /// Creates founders 1 to n, all followers.
    pub fn new(founders: u64, seed: u64) -> Self {
        let entries: Vec<Entry> = (1..=founders)
            .map(|id| Entry {
                r#type: EntryType::EntryConfChange.into(),
                term: 1,
                index: id,
                data: conf_change(ConfChangeType::ConfChangeAddNode, id)
                    .encode_to_vec()
                    .into(),
            })
            .collect();
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            network: VecDeque::new(),
            cut_off: BTreeSet::new(),
            seed,
            random: seed,
            leaders: BTreeMap::new(),
            committed: Vec::new(),
            floors: BTreeMap::new(),
            next_read: 1,
        };
        for id in 1..=founders {
            let disk = Disk {
                hard_state: HardState {
                    term: 1,
                    vote: 0,
                    commit: founders,
                },
                entries: entries.clone(),
                ..Disk::default()
            };
            cluster.boot(id, disk);
        }
        cluster
    }

    /// Adds a member with an empty log that is no founder.
    pub fn join(&mut self, id: u64) {
        self.boot(id, Disk::default());
    }

    fn boot(&mut self, id: u64, disk: Disk) {
        let config = CoreConfig {
            seed: self.seed.wrapping_mul(31) + id,
            ..CoreConfig::new(id)
        };
        let initial = InitialState {
            member_id: id,
            hard_state: disk.hard_state,
            conf_state: disk.snapshot.conf_state.clone().unwrap_or_default(),
            applied_index: disk.snapshot.index,
            base_index: disk.snapshot.index,
            base_term: disk.snapshot.term,
            entries: disk.entries.clone(),
        };
        let base = usize::try_from(disk.snapshot.index).unwrap();
        let node = Node {
            core: Core::new(&config, initial).unwrap(),
            disk,
            unwritten: VecDeque::new(),
            applied: self.committed[..base].to_vec(),
            reads: BTreeMap::new(),
        };
        self.nodes.insert(id, node);
        self.drain(id);
    }

    /// Restarts the member from its disk; everything else is lost.
    pub fn crash(&mut self, id: u64) {
        let disk = self.nodes.remove(&id).unwrap().disk;
        self.network.retain(|message| message.from != id);
        self.boot(id, disk);
    }

    pub fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Calls `act` with a core, then takes its readies.
    pub fn act<R>(&mut self, id: u64, act: impl FnOnce(&mut Core) -> R) -> R {
        let result = act(&mut self.node(id).core);
        self.drain(id);
        result
    }

    fn drain(&mut self, id: u64) {
        while let Some(mut ready) = self.nodes.get_mut(&id).unwrap().core.ready() {
            if let Some(leadership) = ready.leadership
                && leadership.role == Role::Leader
            {
                let leader = *self.leaders.entry(leadership.term.0).or_insert(id);
                assert_eq!(leader, id, "two leaders in term {}", leadership.term);
            }
            for read in &ready.reads {
                let floor = self.floors[&read.context];
                let LogIndex(index) = read.index;
                assert!(index >= floor, "stale read: {index} < {floor}");
                self.node(id).reads.insert(read.context, index);
            }
            self.assert_durable(id, &ready.messages);
            self.network.extend(ready.messages.drain(..));
            let committed = std::mem::take(&mut ready.committed);
            self.node(id).unwritten.push_back(ready);
            for entry in committed {
                self.apply(id, entry);
            }
        }
    }

    fn apply(&mut self, id: u64, entry: Entry) {
        let place = usize::try_from(entry.index).unwrap() - 1;
        match self.committed.get(place) {
            Some(known) => assert_eq!(*known, entry, "members disagree at {}", entry.index),
            None => {
                assert_eq!(place, self.committed.len(), "committed with a gap");
                self.committed.push(entry.clone());
            }
        }
        let node = self.node(id);
        assert_eq!(node.applied.len(), place, "applied with a gap");
        if entry.r#type() == EntryType::EntryConfChange {
            let change = ConfChange::decode(entry.data.clone()).unwrap();
            node.core.apply_conf_change(&change).unwrap();
        }
        node.core.applied(entry.index).unwrap();
        node.applied.push(entry);
        // Effects of the change come with the next ready.
    }

    /// Completes one write of this member. False if there was none.
    pub fn write(&mut self, id: u64) -> bool {
        let node = self.node(id);
        let Some(ready) = node.unwritten.pop_front() else {
            return false;
        };
        if let Some(snapshot) = &ready.snapshot {
            assert!(ready.must_sync, "a snapshot that need not be written");
            node.disk.snapshot = snapshot.clone();
            node.disk.entries.clear();
        }
        if let Some(first) = ready.entries.first() {
            let kept = usize::try_from(first.index - node.disk.snapshot.index).unwrap() - 1;
            assert!(kept <= node.disk.entries.len(), "a hole in the log");
            node.disk.entries.truncate(kept);
            node.disk.entries.extend(ready.entries);
        }
        if let Some(hard_state) = ready.hard_state {
            let last = node.disk.snapshot.index + node.disk.entries.len() as u64;
            assert!(hard_state.commit <= last);
            assert!(hard_state.commit >= node.disk.snapshot.index);
            node.disk.hard_state = hard_state;
        }
        if let Some(snapshot) = &ready.snapshot {
            let index = usize::try_from(snapshot.index).unwrap();
            assert!(node.applied.len() < index, "the state machine goes back");
            let replaced = self.committed[..index].to_vec();
            // The state machine is replaced before anything later is applied.
            let node = self.node(id);
            node.applied = replaced;
            node.core.persisted(ready.number);
            node.core.applied(snapshot.index).unwrap();
        } else {
            node.core.persisted(ready.number);
        }
        self.assert_durable(id, &ready.messages_after_persist);
        self.network.extend(ready.messages_after_persist);
        self.drain(id);
        true
    }

    /// Checks that no message has a term that is not on its sender's disk. Pre-votes are
    /// excepted: their term does not begin with them.
    fn assert_durable(&mut self, id: u64, messages: &[Message]) {
        let durable = self.node(id).disk.hard_state.term;
        for message in messages {
            let asks = matches!(
                message.r#type(),
                MessageType::MsgPreVote | MessageType::MsgPreVoteResp
            );
            assert!(
                asks || message.term <= durable,
                "member {id} sent {message:?} while only term {durable} was durable"
            );
        }
    }

    /// Delivers one message, through its encoding, as the real wire would.
    pub fn deliver(&mut self, message: &Message) {
        let lost = [message.from, message.to]
            .iter()
            .any(|id| self.cut_off.contains(id) || !self.nodes.contains_key(id));
        self.report(message, !lost);
        if lost {
            return;
        }
        let message = Message::decode(Bytes::from(message.encode_to_vec())).unwrap();
        self.act(message.to, |core| {
            // Refusals are expected: proposals without a leader, responses from removed
            // members.
            let _ = core.step(message);
        });
    }

    /// Drops a message.
    pub fn lose(&mut self, message: &Message) {
        self.report(message, false);
    }

    /// Reports to the sender of a snapshot whether it arrived; other messages are not reported.
    fn report(&mut self, message: &Message, delivered: bool) {
        if message.r#type() == MessageType::MsgSnap && self.nodes.contains_key(&message.from) {
            self.act(message.from, |core| {
                core.report_snapshot(message.to, delivered);
            });
        }
    }

    /// Releases all messages and writes, in order, until nothing is left.
    pub fn settle(&mut self) {
        loop {
            let ids: Vec<u64> = self.nodes.keys().copied().collect();
            let mut moved = false;
            for id in ids {
                while self.write(id) {
                    moved = true;
                }
            }
            while let Some(message) = self.network.pop_front() {
                self.deliver(&message);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    pub fn tick_all(&mut self) {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        for id in ids {
            self.act(id, Core::tick);
        }
        self.settle();
    }

    /// Returns the leader of the newest term, if it is reachable.
    pub fn leader(&self) -> Option<u64> {
        self.nodes
            .values()
            .map(|node| (node.core.current_leadership(), node.core.id()))
            .filter(|(leadership, id)| {
                leadership.role == Role::Leader && !self.cut_off.contains(id)
            })
            .max_by_key(|(leadership, _)| leadership.term)
            .map(|(_, id)| id)
    }

    /// Ticks until all reachable members follow one leader.
    pub fn elect(&mut self) -> u64 {
        for _ in 0..500 {
            self.settle();
            if let Some(leader) = self.leader() {
                let followed = self.nodes.values().all(|node| {
                    self.cut_off.contains(&node.core.id())
                        || !node.core.conf_state().voters.contains(&node.core.id())
                        || node.core.current_leadership().leader == MemberId(leader)
                });
                if followed {
                    return leader;
                }
            }
            self.tick_all();
        }
        panic!("no leader after 500 ticks; seed {}", self.seed);
    }

    pub fn propose(&mut self, id: u64, data: &'static str) -> bool {
        self.act(id, |core| core.propose([data.into()])).is_ok()
    }

    /// Begins a linearizable read; see [`Self::read_answer`].
    pub fn begin_read(&mut self, id: u64) -> Option<u64> {
        let context = self.next_read;
        self.next_read += 1;
        self.floors.insert(context, self.committed.len() as u64);
        self.act(id, |core| core.read_index(context))
            .ok()
            .map(|()| context)
    }

    pub fn read_answer(&mut self, id: u64, context: u64) -> Option<u64> {
        self.node(id).reads.get(&context).copied()
    }

    /// Returns the content of the normal entries that a member has applied.
    pub fn values(&self, id: u64) -> Vec<String> {
        self.nodes[&id]
            .applied
            .iter()
            .filter(|entry| entry.r#type() == EntryType::EntryNormal && !entry.data.is_empty())
            .map(|entry| String::from_utf8(entry.data.to_vec()).unwrap())
            .collect()
    }

    pub fn committed_len(&self) -> usize {
        self.committed.len()
    }

    /// Returns a number below `bound`, the same in every run with this seed.
    pub fn dice(&mut self, bound: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % bound
    }
}

pub fn conf_change(change_type: ConfChangeType, node_id: u64) -> ConfChange {
    ConfChange {
        r#type: change_type.into(),
        node_id,
        ..Default::default()
    }
}
