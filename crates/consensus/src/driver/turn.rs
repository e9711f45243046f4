//! A turn of the engine: waiting inputs are passed to it and its effects are carried out, until
//! there are none.
//!
//! Every thread that holds the lock on the engine may turn it: the turn thread, the disk
//! thread, a peer's connection, the apply thread. That saves the two thread changes per write
//! that a separate consensus thread would cost.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::{
    errors::FatalError,
    inbox::Phase,
    member::Member,
    proposal::{Content, Proposal},
    reads::Answered,
};
use crate::engine::{Effects, Engine};

/// The work that a turn leaves for after the lock.
#[derive(Default)]
#[must_use]
pub(super) struct AfterTurn {
    pub(super) answered: Vec<Answered>,
    pub(super) fatal: Option<FatalError>,
    pub(super) disk_has_work: bool,
}

impl Member {
    /// Feeds the engine and carries out its effects, until there are none.
    pub(super) fn turn(&self, engine: &mut Engine) -> AfterTurn {
        let mut after = AfterTurn::default();
        loop {
            if let Err(error) = engine.applied(self.status.applied.load(Ordering::Acquire)) {
                after.fatal = Some(error.into());
                return after;
            }
            engine.campaign_if_alone();
            self.take_proposals(engine);
            let leader = engine.core().current_leadership().leader;
            self.lock_reads()
                .begin(leader, |context| engine.read_index(context).is_ok());

            let mut progressed = false;
            while let Some(effects) = engine.advance() {
                progressed = true;
                self.carry_out(engine, effects, &mut after);
            }
            if !progressed {
                break;
            }
        }
        self.status.publish(engine.core());
        let is_urgent = engine.applied_is_urgent();
        self.applied_is_urgent.store(is_urgent, Ordering::Release);
        after.disk_has_work = engine.has_batch();
        after
    }

    fn take_proposals(&self, engine: &mut Engine) {
        // Without a leader proposals stay in the inbox.
        let Some(room) = engine.proposal_room() else {
            return;
        };
        if self.inbox.phase() == Phase::Ended {
            return;
        }
        let leadership = engine.core().current_leadership();
        let mut proposals = self.inbox.take_proposals(room);
        // From here on a proposal may be committed, or it is withdrawn and dropped.
        proposals.retain(|_, proposal| proposal.begin(leadership));
        while let Some((_, proposal)) = proposals.first_key_value() {
            let (count, result) = match &proposal.content {
                Content::ConfChange(change) => (1, engine.propose_conf_change(change)),
                Content::Normal(_) => {
                    let run = proposals.values().map_while(Proposal::data);
                    let run: Vec<Bytes> = run.cloned().collect();
                    (run.len(), engine.propose(run))
                }
            };
            if result.is_err() {
                // The leader is handing over; the next leader gets them.
                self.inbox.put_back(proposals);
                return;
            }
            for _ in 0..count {
                proposals.pop_first();
            }
        }
    }

    /// Carries out effects, under the engine's lock, so that their order is kept.
    pub(super) fn carry_out(&self, engine: &Engine, effects: Effects, after: &mut AfterTurn) {
        self.status.publish(engine.core());
        if !effects.messages.is_empty() {
            self.hooks.peers.send(effects.messages);
        }
        for read in effects.reads {
            let answered = self.lock_reads().answer(read.context, read.index);
            after.answered.extend(answered);
        }
        if let Some(leadership) = effects.leadership {
            let lost = self.lock_reads().leader_changed(leadership.leader);
            after.answered.extend(lost);
            (self.hooks.on_leadership)(leadership);
        }
        let term = engine.core().current_leadership().term;
        self.apply.push(effects.committed, term);
        for snapshot in effects.snapshots {
            self.apply.push_snapshot(snapshot);
            self.status.publish_membership(engine.core());
        }
    }
}
