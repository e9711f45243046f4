//! The raft engine, behind our own types.
//!
//! The engine is the `raft` crate, the Rust port of etcd's raft. Its types appear only in this
//! module, so that it can be replaced. [`Core`] adds what the engine leaves to its user:
//! translation, refusal of messages that would make it panic, a seed instead of its own
//! randomness, a queue of reads until a new leader has committed in its term, snapshots that
//! wait for the entries committed before them, and a leader that steps down when it is removed.

mod check;
mod memory_log;
mod translate;

use bytes::Bytes;
use portunus_gates::cluster::MemberId;
use portunus_proto::{LogIndex, Term, raftpb};
use prost::Message as _;
use raft::{Config, RawNode, SnapshotStatus, StateRole, eraftpb};

use self::{
    check::{Position, check},
    memory_log::MemoryLog,
    translate::*,
};
use crate::core::{
    AppliedBeyondCommit, ConfChangeError, CoreConfig, DroppedError, InitialState, Leadership,
    ReadState, Ready, StartError, StepError,
};

/// Reads that may wait for a new leader's first commit. More are dropped; their senders retry.
const WAITING_READS_MAX: usize = 1024;

/// The raft of one member. See the [module](crate::core).
pub struct Core {
    node: RawNode<MemoryLog>,
    seed: u64,
    /// Reads that arrived before an entry of this term was committed.
    waiting_reads: Vec<eraftpb::Message>,
    /// A snapshot that arrived before all entries known to be committed were applied.
    waiting_snapshot: Option<eraftpb::Message>,
    /// The last index in the state machine. The engine's own applied index runs ahead of it
    /// while a snapshot of the log is being installed; see `persisted`.
    applied_index: u64,
    /// The newest ready that has something to write, and the newest that is written.
    last_to_persist: u64,
    last_persisted: u64,
    /// The last term and vote given out to be written, and the number of their ready.
    promise: (u64, u64),
    promise_ready: u64,
    leadership: Leadership,
}

impl Core {
    /// Creates a follower in the given state; nothing happens before the first tick, unless
    /// [`Self::campaign_if_alone`] is called.
    ///
    /// # Errors
    /// If the state is inconsistent.
    pub fn new(config: &CoreConfig, initial: InitialState) -> Result<Self, StartError> {
        let last_index = initial.last_index();
        let commit = initial.hard_state.commit;
        if commit > last_index || commit < initial.base_index {
            return Err(StartError::CommitOutsideLog {
                commit,
                base_index: initial.base_index,
                last_index,
            });
        }
        if initial.applied_index < initial.base_index || initial.applied_index > commit {
            return Err(StartError::AppliedOutsideLog {
                applied_index: initial.applied_index,
                base_index: initial.base_index,
                commit,
            });
        }
        let mut entries = std::collections::VecDeque::with_capacity(initial.entries.len());
        for (entry, index) in initial.entries.into_iter().zip(initial.base_index + 1..) {
            match entry_to_engine(entry) {
                Some(entry) if entry.index == index => entries.push_back(entry),
                _ => return Err(StartError::BrokenLog { index }),
            }
        }
        let mut log = MemoryLog::new(
            hard_state_to_engine(initial.hard_state),
            conf_state_to_engine(initial.conf_state),
            initial.base_index,
            initial.base_term,
            entries,
        );
        log.set_applied(initial.applied_index);
        let engine_config = Config {
            id: config.id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            applied: initial.applied_index,
            max_size_per_msg: config.message_bytes_max,
            max_inflight_msgs: config.inflight_messages_max,
            check_quorum: true,
            pre_vote: config.pre_vote,
            max_committed_size_per_ready: config.committed_bytes_max,
            ..Config::default()
        };
        engine_config
            .validate()
            .map_err(|error| StartError::Config(error.to_string()))?;
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&engine_config, log, &silent)
            .map_err(|error| StartError::Config(error.to_string()))?;
        let mut core = Self {
            node,
            seed: config.seed,
            waiting_reads: Vec::new(),
            waiting_snapshot: None,
            applied_index: initial.applied_index,
            last_to_persist: 0,
            last_persisted: 0,
            promise: (initial.hard_state.term, initial.hard_state.vote),
            promise_ready: 0,
            leadership: Leadership::default(),
        };
        core.settle();
        Ok(core)
    }

    /// Advances the clock by one tick.
    pub fn tick(&mut self) {
        if self.may_campaign() || self.is_leader() {
            let elapsed = self.node.raft.election_elapsed;
            self.node.tick();
            self.forget_silent_leader(elapsed);
        } else {
            // Only the campaign waits. If the clock stopped as well, this member would refuse
            // its vote to others for as long, because its leader would still count as active.
            self.node.raft.election_elapsed += 1;
        }
        self.settle();
    }

    /// Appends entries with these payloads to the log, in order, or sends them to the leader.
    ///
    /// # Errors
    /// If there is no leader that takes them. None of them was taken then.
    pub fn propose(
        &mut self,
        payloads: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), DroppedError> {
        let entries = payloads.into_iter().map(|data| eraftpb::Entry {
            data,
            ..Default::default()
        });
        self.propose_entries(entries.collect())
    }

    /// Appends a membership change to the log. If another one is not applied yet, an empty
    /// entry takes its place.
    ///
    /// # Errors
    /// If there is no leader that takes it.
    pub fn propose_conf_change(&mut self, change: &raftpb::ConfChange) -> Result<(), DroppedError> {
        let entry = eraftpb::Entry {
            entry_type: eraftpb::EntryType::EntryConfChange,
            data: change.encode_to_vec().into(),
            ..Default::default()
        };
        self.propose_entries(vec![entry])
    }

    fn propose_entries(&mut self, entries: Vec<eraftpb::Entry>) -> Result<(), DroppedError> {
        if entries.is_empty() {
            return Ok(());
        }
        let has_change = entries.iter().any(is_conf_change);
        let result = if has_change && self.is_leader() {
            self.append_with_changes(entries)
        } else {
            let message = eraftpb::Message {
                msg_type: eraftpb::MessageType::MsgPropose,
                from: self.node.raft.id,
                entries: entries.into(),
                ..Default::default()
            };
            let stepped = self.node.raft.step(message);
            stepped.map_err(|_| DroppedError::NoLeader)
        };
        self.settle();
        result
    }

    /// Appends a leader's proposals as the engine does, without decoding membership changes:
    /// the engine does not know learners by etcd's number, and its decoder does not limit
    /// nesting.
    fn append_with_changes(
        &mut self,
        mut entries: Vec<eraftpb::Entry>,
    ) -> Result<(), DroppedError> {
        let raft = &mut self.node.raft;
        let is_member = raft.prs().get(raft.id).is_some();
        if !is_member || raft.lead_transferee.is_some() {
            return Err(DroppedError::NoLeader);
        }
        let first_index = raft.raft_log.last_index() + 1;
        for (entry, index) in entries.iter_mut().zip(first_index..) {
            if !is_conf_change(entry) {
                continue;
            }
            if raft.has_pending_conf() {
                *entry = eraftpb::Entry::default();
            } else {
                raft.pending_conf_index = index;
            }
        }
        if !raft.append_entry(&mut entries) {
            return Err(DroppedError::NoLeader);
        }
        raft.bcast_append();
        Ok(())
    }

    /// Takes a message from a peer.
    ///
    /// # Errors
    /// If it was not taken. A malformed one changes nothing.
    pub fn step(&mut self, message: raftpb::Message) -> Result<(), StepError> {
        let own = Position {
            term: self.node.raft.term,
            last_index: self.node.raft.raft_log.last_index(),
            is_leader: self.is_leader(),
        };
        check(&message, own)?;
        let mut message = message_to_engine(message).ok_or(StepError::Malformed(
            "a message of this type stays inside one process",
        ))?;
        let result = match message.msg_type {
            eraftpb::MessageType::MsgPropose => {
                let entries = message.take_entries().into_vec();
                self.propose_entries(entries).map_err(StepError::Dropped)
            }
            eraftpb::MessageType::MsgReadIndex => {
                // The engine panics when it forwards one with a term.
                message.term = 0;
                self.take_read(message);
                Ok(())
            }
            // A peer sends it to the leader only, and the engine panics when it forwards one.
            eraftpb::MessageType::MsgTransferLeader if !self.is_leader() => Ok(()),
            eraftpb::MessageType::MsgSnapshot if !self.has_applied_all() => {
                self.keep_newest_snapshot(message);
                Ok(())
            }
            // See `tick`.
            eraftpb::MessageType::MsgTimeoutNow if !self.may_campaign() => Ok(()),
            _ => self.node.step(message).map_err(|error| match error {
                raft::Error::StepPeerNotFound => StepError::UnknownPeer,
                raft::Error::ProposalDropped => StepError::Dropped(DroppedError::NoLeader),
                _ => StepError::Malformed("the raft engine refused it"),
            }),
        };
        self.settle();
        result
    }

    /// Requests an index at which a read that starts now is linearizable. The result comes in
    /// [`Ready::reads`], or never: messages get lost. Then retry with a context that no member
    /// has used before.
    ///
    /// # Errors
    /// If there is no leader.
    pub fn read_index(&mut self, context: u64) -> Result<(), DroppedError> {
        if self.node.raft.leader_id == 0 {
            return Err(DroppedError::NoLeader);
        }
        let entry = eraftpb::Entry {
            data: Bytes::copy_from_slice(&context.to_be_bytes()),
            ..Default::default()
        };
        let message = eraftpb::Message {
            msg_type: eraftpb::MessageType::MsgReadIndex,
            entries: vec![entry].into(),
            ..Default::default()
        };
        self.take_read(message);
        self.settle();
        Ok(())
    }

    /// The engine drops reads until the leader has committed in its own term, because only then
    /// its commit index is current. They are queued until then.
    fn take_read(&mut self, message: eraftpb::Message) {
        if self.is_leader() && !self.node.raft.commit_to_current_term() {
            if self.waiting_reads.len() < WAITING_READS_MAX {
                self.waiting_reads.push(message);
            }
        } else {
            // A follower forwards it; nothing here can fail.
            let _ = self.node.raft.step(message);
        }
    }

    /// Returns the next work of the caller, if there is any.
    pub fn ready(&mut self) -> Option<Ready> {
        if !self.node.has_ready() && self.leadership == self.current_leadership() {
            return None;
        }
        let mut from_engine = self.node.ready();
        let snapshot = from_engine.snapshot();
        let snapshot = (snapshot.get_metadata().index > 0).then(|| snapshot.clone());
        let entries = from_engine.take_entries();
        let leadership = self.current_leadership();
        if let Some(state) = from_engine.hs()
            && self.promise != (state.term, state.vote)
        {
            self.promise = (state.term, state.vote);
            self.promise_ready = from_engine.number();
        }
        let mut at_once = messages(from_engine.take_messages());
        let mut after_persist = messages(from_engine.take_persisted_messages());
        // The engine lets a leader send at once, because votes are requested only after term
        // and own vote are durable. A sole voter requests no votes, and its learners would
        // receive a term that a power loss reverts.
        if self.last_persisted < self.promise_ready {
            after_persist.splice(..0, at_once.drain(..));
        }
        let ready = Ready {
            number: from_engine.number(),
            hard_state: from_engine.hs().map(hard_state_from_engine),
            must_sync: from_engine.must_sync() || snapshot.is_some(),
            snapshot: snapshot.as_ref().map(snapshot_from_engine),
            entries: entries.iter().cloned().map(entry_from_engine).collect(),
            messages: at_once,
            messages_after_persist: after_persist,
            committed: from_engine
                .take_committed_entries()
                .into_iter()
                .map(entry_from_engine)
                .collect(),
            reads: from_engine
                .take_read_states()
                .into_iter()
                .filter_map(read_state)
                .collect(),
            leadership: (leadership != self.leadership).then_some(leadership),
        };
        self.leadership = leadership;
        if ready.must_sync {
            self.last_to_persist = ready.number;
        }
        if let Some(snapshot) = &snapshot {
            self.node.mut_store().restart_from(snapshot.get_metadata());
        }
        self.node.mut_store().append(entries);
        self.node.advance_append_async(from_engine);
        Some(ready)
    }

    /// Reports that all readies up to this number are on disk.
    pub fn persisted(&mut self, number: u64) {
        self.last_persisted = self.last_persisted.max(number);
        self.node.on_persist_ready(number);
        // Before an election the engine examines all unapplied entries, and a snapshot has
        // replaced those before it. It carries the members of its own index, so an election
        // need not wait until it is installed.
        let base_index = self.node.store().base_index();
        let log = &self.node.raft.raft_log;
        if log.applied() < base_index && base_index <= log.persisted {
            self.node.advance_apply_to(base_index);
        }
        self.settle();
    }

    /// Reports that all entries up to `index` are applied.
    ///
    /// # Errors
    /// If the index is not committed.
    pub fn applied(&mut self, index: u64) -> Result<(), AppliedBeyondCommit> {
        let log = &self.node.raft.raft_log;
        if index > log.committed {
            return Err(AppliedBeyondCommit {
                applied_index: index,
                commit: log.committed,
            });
        }
        if index > self.applied_index {
            self.applied_index = index;
            if index > log.applied() {
                self.node.advance_apply_to(index);
            }
            self.node.mut_store().set_applied(index);
            self.settle();
        }
        Ok(())
    }

    /// Makes a committed membership change take effect. Call it when applying
    /// the entry, before [`Self::applied`]. A change that the state machine
    /// refuses is passed with member 0 and changes nothing.
    ///
    /// # Errors
    /// If the change is impossible; the members stay as they were.
    pub fn apply_conf_change(
        &mut self,
        change: &raftpb::ConfChange,
    ) -> Result<raftpb::ConfState, ConfChangeError> {
        if let Some(change) = conf_change_to_engine(change) {
            self.node
                .apply_conf_change(&change)
                .map_err(|error| ConfChangeError::Impossible(error.to_string()))?;
            let members = self.node.raft.prs().conf().to_conf_state();
            self.node.mut_store().set_members(members);
            // The engine keeps a removed leader as leader, and then fails because its progress
            // is gone.
            if self.is_leader() && !self.node.raft.promotable() {
                let term = self.node.raft.term;
                self.node.raft.become_follower(term, 0);
            }
            self.settle();
        }
        Ok(self.conf_state())
    }

    /// Transfers leadership to another voter, if this member leads.
    pub fn transfer_leader(&mut self, to: u64) {
        self.node.transfer_leader(to);
        self.settle();
    }

    /// Reports that a peer is unreachable.
    pub fn report_unreachable(&mut self, id: u64) {
        self.node.report_unreachable(id);
        self.settle();
    }

    /// Reports whether a snapshot was delivered to a peer.
    pub fn report_snapshot(&mut self, id: u64, delivered: bool) {
        let status = if delivered {
            SnapshotStatus::Finish
        } else {
            SnapshotStatus::Failure
        };
        self.node.report_snapshot(id, status);
        self.settle();
    }

    /// If this member is the only voter and does not lead, it becomes leader
    /// now instead of after an election timeout. Not before it has applied the
    /// membership changes it knows to be committed.
    pub fn campaign_if_alone(&mut self) {
        if self.is_sole_voter() && !self.is_leader() && self.may_campaign() {
            // The engine refuses only for the reasons above, and the next tick tries again.
            let _ = self.node.campaign();
            self.settle();
        }
    }

    /// Discards the entries up to `index`, or up to the applied index if that is lower. Returns
    /// the index after which the log starts.
    pub fn compact(&mut self, index: u64) -> u64 {
        let index = index.min(self.applied_index());
        self.node.mut_store().compact(index);
        self.node.store().base_index()
    }

    /// Returns the term of the entry at this index, until the log is compacted beyond it.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.node.store().known_term(index)
    }

    /// Returns the id of the member.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.node.raft.id
    }

    /// Returns the current term, vote and commit index.
    #[must_use]
    pub fn hard_state(&self) -> raftpb::HardState {
        hard_state_from_engine(&self.node.raft.hard_state())
    }

    /// Returns the current members.
    #[must_use]
    pub fn conf_state(&self) -> raftpb::ConfState {
        conf_state_from_engine(self.node.raft.prs().conf().to_conf_state())
    }

    /// Returns the current leader, role and term.
    #[must_use]
    pub fn current_leadership(&self) -> Leadership {
        Leadership {
            leader: MemberId(self.node.raft.leader_id),
            role: role_from_engine(self.node.raft.state),
            term: Term(self.node.raft.term),
        }
    }

    /// Returns the last index in the log.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Returns the last index reported as applied.
    #[must_use]
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Returns the indexes of the snapshots that are to be installed: the one in the log, and
    /// the one that waits for it. Any other snapshot passed to this member is obsolete.
    #[must_use]
    pub fn pending_snapshots(&self) -> Vec<u64> {
        let index_of = |snapshot: &eraftpb::Snapshot| snapshot.get_metadata().index;
        let base_index = self.node.store().base_index();
        let in_log = (self.applied_index < base_index).then_some(base_index);
        let unwritten = self.node.raft.snap().map(index_of);
        let waiting = self.waiting_snapshot.as_ref();
        let waiting = waiting.map(|message| index_of(message.get_snapshot()));
        [in_log, unwritten, waiting].into_iter().flatten().collect()
    }

    /// Returns the last index that a member is known to have in its log; only a leader knows
    /// it.
    #[must_use]
    pub fn matched(&self, id: u64) -> Option<u64> {
        let progress = self.node.raft.prs().get(id);
        progress
            .filter(|_| self.is_leader())
            .map(|progress| progress.matched)
    }

    /// Whether this member is the only voter.
    #[must_use]
    pub fn is_sole_voter(&self) -> bool {
        self.node.raft.promotable() && self.node.raft.prs().is_singleton()
    }

    /// Whether a read may use the commit index without a round to other members: this member
    /// leads, cannot have been replaced without its own vote, and has committed in its own
    /// term.
    #[must_use]
    pub fn can_read_alone(&self) -> bool {
        self.is_leader() && self.is_sole_voter() && self.node.raft.commit_to_current_term()
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The engine would make a sole voter leader at once, and it must not lead with entries
    /// that are not on disk yet. Nor may any member campaign with a snapshot that is not on
    /// disk yet; see `persisted`.
    /// Forgets the leader if the election timeout has passed and raft did not campaign. It refuses
    /// to while a committed change of membership is not applied, and restarts the timeout. A
    /// leader that it still knew would count as active, and this member would refuse its vote to
    /// others for as long as it takes to apply the change, perhaps after a large snapshot.
    fn forget_silent_leader(&mut self, elapsed_before: usize) {
        let raft = &mut self.node.raft;
        let has_timed_out = elapsed_before > 0 && raft.election_elapsed == 0;
        if has_timed_out && raft.state == raft::StateRole::Follower {
            raft.leader_id = raft::INVALID_ID;
        }
    }

    fn may_campaign(&self) -> bool {
        let log = &self.node.raft.raft_log;
        let is_snapshot_unwritten = log.applied() < self.node.store().base_index();
        !(is_snapshot_unwritten || self.is_sole_voter() && self.has_unpersisted())
    }

    /// Keeps one waiting snapshot, that of the newest leader and the highest index; the leader
    /// sends another if it is needed.
    fn keep_newest_snapshot(&mut self, message: eraftpb::Message) {
        let age = |message: &eraftpb::Message| {
            let index = message.get_snapshot().get_metadata().index;
            (message.term, index)
        };
        let waiting = self.waiting_snapshot.as_ref();
        if waiting.is_none_or(|waiting| age(waiting) <= age(&message)) {
            self.waiting_snapshot = Some(message);
        }
    }

    /// A snapshot carries the members of its own index. Entries committed before it that are
    /// not applied yet would change them again, and the state machine would get members that do
    /// not belong to that index.
    fn has_applied_all(&self) -> bool {
        self.applied_index >= self.node.raft.raft_log.committed
    }

    fn has_unpersisted(&self) -> bool {
        self.last_persisted < self.last_to_persist
            || !self.node.raft.raft_log.unstable_entries().is_empty()
    }

    /// Called after every input: replaces the engine's election timeout by a seeded one, and
    /// passes on snapshots and reads that need not wait any more.
    fn settle(&mut self) {
        if self.has_applied_all()
            && let Some(snapshot) = self.waiting_snapshot.take()
        {
            // It may be out of date by now; then the engine responds with its commit index.
            let _ = self.node.step(snapshot);
        }
        let election_ticks = self.node.raft.election_timeout();
        let dice = spread(self.seed, self.node.raft.term) % election_ticks as u64;
        let timeout = election_ticks + usize::try_from(dice).unwrap_or(0);
        self.node.raft.set_randomized_election_timeout(timeout);

        if self.waiting_reads.is_empty() {
            return;
        }
        if !self.is_leader() {
            // The readers retry.
            self.waiting_reads.clear();
        } else if self.node.raft.commit_to_current_term() {
            for read in std::mem::take(&mut self.waiting_reads) {
                let _ = self.node.raft.step(read);
            }
        }
    }
}

fn is_conf_change(entry: &eraftpb::Entry) -> bool {
    entry.entry_type != eraftpb::EntryType::EntryNormal
}

fn messages(from_engine: Vec<eraftpb::Message>) -> Vec<raftpb::Message> {
    from_engine.into_iter().map(message_from_engine).collect()
}

fn read_state(from_engine: raft::ReadState) -> Option<ReadState> {
    let context = from_engine.request_ctx.as_slice().try_into().ok()?;
    Some(ReadState {
        context: u64::from_be_bytes(context),
        index: LogIndex(from_engine.index),
    })
}

/// Mixes the arguments to a pseudorandom number (splitmix64).
fn spread(seed: u64, term: u64) -> u64 {
    let mut mixed = seed ^ term.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
