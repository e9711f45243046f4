//! Raft messages of a peer, in any order and with any content.

use bytes::Bytes;
use portunus_consensus::InitialState;
use portunus_consensus::core::{Core, CoreConfig};
use portunus_proto::raftpb::{
    ConfChange, ConfState, Entry, EntryType, HardState, Message, MessageType,
};
use prost::Message as _;

use crate::input::{take_byte, take_part};

/// Messages of one input.
const STEPS_MAX: usize = 64;
const LOCAL: u64 = 1;
const REMOTE: u64 = 2;
/// The log at the start: entries of term 1, of which the last one is not committed.
const LAST_INDEX: u64 = 5;
const COMMITTED_INDEX: u64 = 4;

fn core() -> Core {
    let entries = (1..=LAST_INDEX).map(|index| Entry {
        term: 1,
        index,
        r#type: EntryType::EntryNormal.into(),
        data: Bytes::new(),
    });
    let initial = InitialState {
        member_id: LOCAL,
        hard_state: HardState {
            term: 1,
            vote: 0,
            commit: COMMITTED_INDEX,
        },
        conf_state: ConfState {
            voters: vec![LOCAL, REMOTE, 3],
            ..ConfState::default()
        },
        applied_index: COMMITTED_INDEX,
        entries: entries.collect(),
        ..InitialState::default()
    };
    Core::new(&CoreConfig::new(LOCAL), initial).expect("a legal state")
}

/// Carries out what the core asks for: writes, and entries that are applied.
fn carry_out(core: &mut Core) {
    while let Some(ready) = core.ready() {
        core.persisted(ready.number);
        if let Some(snapshot) = &ready.snapshot {
            let _ = core.applied(snapshot.index);
        }
        for entry in ready.committed {
            if entry.r#type() == EntryType::EntryConfChange
                && let Ok(change) = ConfChange::decode(entry.data)
            {
                let _ = core.apply_conf_change(&change);
            }
            core.applied(entry.index).expect("a committed entry");
        }
    }
}

/// Steps messages of a peer into one member of three, and lets time pass between them.
///
/// A step is a byte that selects what happens, and for a message a part with its bytes. Most
/// messages get an address and a term that the member accepts.
pub fn raft_steps(mut data: &[u8]) {
    let mut core = core();
    carry_out(&mut core);
    for _ in 0..STEPS_MAX {
        if data.is_empty() {
            break;
        }
        let control = take_byte(&mut data);
        match control % 8 {
            0 => core.tick(),
            1 => (0..25).for_each(|_| {
                core.tick();
                carry_out(&mut core);
            }),
            2 => core.transfer_leader(REMOTE),
            _ => {
                let Ok(mut message) = Message::decode(take_part(&mut data)) else {
                    continue;
                };
                if control % 8 > 3 {
                    message.from = if control & 0x40 == 0 { REMOTE } else { 3 };
                    message.to = LOCAL;
                    message.term = core.hard_state().term;
                    if message.r#type == MessageType::MsgHup as i32 {
                        message.r#type = i32::from(control >> 3);
                    }
                }
                let before = core.hard_state();
                let _ = core.step(message);
                let after = core.hard_state();
                assert!(after.term >= before.term && after.commit >= before.commit);
            }
        }
        carry_out(&mut core);
        assert!(core.hard_state().commit <= core.last_index());
    }
}
