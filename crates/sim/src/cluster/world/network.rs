//! Messages between members: lost, repeated, delayed, reordered, blocked.

use std::collections::BTreeSet;

use bytes::Bytes;
use portunus_consensus::core::StepError;
use portunus_proto::raftpb::{Message, MessageType};
use prost::Message as _;

use super::super::member::SnapshotFile;
use super::super::scenario::TICK;
use super::super::violation::Violation;
use super::{Event, World};

pub(super) struct Packet {
    message: Message,
    /// The file of a snapshot message.
    snapshot: Option<SnapshotFile>,
}

impl World<'_> {
    pub(super) fn send(&mut self, from: u64, message: Message) {
        let mut packet = Packet {
            message,
            snapshot: None,
        };
        if packet.message.r#type() == MessageType::MsgSnap {
            packet.snapshot = self.snapshot_file(from);
            // The transferred state is at least as new as the announced one.
            if let (Some(file), Some(announced)) = (&packet.snapshot, &mut packet.message.snapshot)
                && let Some(metadata) = &mut announced.metadata
            {
                metadata.index = file.position.index;
                metadata.term = file.position.term;
                metadata.conf_state = Some(file.position.conf_state.clone());
            }
            self.report.snapshots_sent += 1;
        }
        if self.random.permille(self.scenario.loss) {
            self.lose(&packet.message);
            return;
        }
        // Raft takes a repeated proposal for a second one. A connection between members loses
        // proposals, but never repeats one.
        let may_repeat = packet.message.r#type() != MessageType::MsgProp;
        if self.random.permille(self.scenario.repetition) && may_repeat {
            let delay = self.message_delay();
            let copy = Packet {
                message: packet.message.clone(),
                snapshot: packet.snapshot.clone(),
            };
            self.after(delay, Event::Deliver(Box::new(copy)));
        }
        let delay = self.message_delay();
        self.after(delay, Event::Deliver(Box::new(packet)));
    }

    fn snapshot_file(&mut self, from: u64) -> Option<SnapshotFile> {
        let bug = self.bug;
        self.members.get_mut(&from)?.snapshot_file(bug)
    }

    fn message_delay(&mut self) -> u64 {
        let delay = 1 + self.random.below(self.scenario.delay_max);
        if self.random.permille(self.scenario.long_delay) {
            delay + self.random.below(20 * TICK)
        } else {
            delay
        }
    }

    /// Drops a message. The sender of a snapshot gets a report, other senders sometimes.
    fn lose(&mut self, message: &Message) {
        self.report.lost_messages += 1;
        let (id, about) = (message.from, message.to);
        self.note(|| format!("lost: {}", show(message)));
        if message.r#type() == MessageType::MsgSnap {
            let delay = self.random.below(3 * TICK);
            let delivered = false;
            self.after(
                delay,
                Event::SnapshotReport {
                    id,
                    about,
                    delivered,
                },
            );
        } else if self.random.below(4) == 0 {
            let delay = self.random.below(TICK);
            self.after(delay, Event::Unreachable { id, about });
        }
    }

    pub(super) fn deliver(&mut self, packet: Packet) -> Result<(), Violation> {
        let Packet { message, snapshot } = packet;
        let (from, to) = (message.from, message.to);
        let receiver = self.members.get(&to).and_then(|it| it.running.as_ref());
        // A server refuses messages of a removed member.
        let is_refused = receiver.is_none_or(|it| it.replica.is_removed(from));
        if self.is_blocked(from, to) || is_refused || self.is_deaf(to) {
            self.lose(&message);
            return Ok(());
        }
        self.note(|| format!("delivered: {}", show(&message)));
        if message.r#type() == MessageType::MsgSnap {
            let delay = self.random.below(TICK);
            let report = Event::SnapshotReport {
                id: from,
                about: to,
                delivered: true,
            };
            self.after(delay, report);
        }
        let bug = self.bug;
        self.with_member(to, |member, around| {
            if let Some(file) = snapshot {
                member.receive_snapshot(file, bug);
            }
            // Encoded and decoded, as on the network.
            let Ok(message) = Message::decode(Bytes::from(message.encode_to_vec())) else {
                return Ok(());
            };
            // Raft refuses some: proposals without a leader, answers from removed members.
            match member.act(around, |engine| engine.step(message))? {
                Some(Err(source @ (StepError::Malformed(_) | StepError::LogLost(_)))) => {
                    Err(Violation::MessageRefused { id: to, source })
                }
                _ => Ok(()),
            }
        })
    }

    /// Whether messages from one member to another are lost.
    pub(super) fn is_blocked(&self, from: u64, to: u64) -> bool {
        self.blocked.values().any(|it| it.contains(&(from, to)))
    }

    pub(super) fn partition(&mut self) {
        let ids = self.ids();
        let Some(&one) = self.random.choose(&ids) else {
            return;
        };
        let kind = self.random.below(4);
        let halves: BTreeSet<u64> = ids
            .iter()
            .copied()
            .filter(|_| self.random.below(2) == 0)
            .collect();
        let is_cut = |from: u64, to: u64| match kind {
            0 => from == one || to == one,
            1 => from == one,
            2 => to == one,
            _ => halves.contains(&from) != halves.contains(&to),
        };
        let pairs = ids
            .iter()
            .flat_map(|from| ids.iter().map(|to| (*from, *to)));
        let cut = pairs.filter(|(from, to)| is_cut(*from, *to)).collect();
        let number = self.number();
        self.blocked.insert(number, cut);
        self.report.partitions += 1;
        self.note(|| format!("partition {number} of kind {kind} around {one:x}, {halves:x?}"));
        let delay = self.random.below(40 * TICK);
        self.after(delay, Event::Heal { number });
    }
}

fn show(message: &Message) -> String {
    let Message {
        from,
        to,
        term,
        log_term,
        index,
        commit,
        reject,
        ..
    } = message;
    let entries = message.entries.len();
    let snapshot = message
        .snapshot
        .as_ref()
        .and_then(|it| it.metadata.as_ref());
    let snapshot = snapshot.map_or(String::new(), |it| format!(" snapshot {}", it.index));
    format!(
        "{:?} {from:x} → {to:x} term {term} log ({log_term}, {index}) +{entries} \
         commit {commit} reject {reject}{snapshot}",
        message.r#type()
    )
}
