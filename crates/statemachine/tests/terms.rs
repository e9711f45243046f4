//! The first entry of a term.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Machine, settings};
use portunus_proto::Term;
use portunus_proto::raftpb::{Entry, EntryType};
use portunus_statemachine::Effect;

fn empty(index: u64, term: u64) -> Entry {
    Entry {
        index,
        term,
        r#type: EntryType::EntryNormal.into(),
        ..Entry::default()
    }
}

/// Raft commits an empty entry in place of a change of membership that it refuses. If it began the
/// term again, the leader would restart the clocks of all leases, and renew leases whose
/// revocation is already in the log.
#[test]
fn only_the_first_empty_entry_of_a_term_begins_it() {
    let mut machine = Machine::new(settings());
    let began = |term| vec![Effect::TermBegan { term: Term(term) }];
    assert_eq!(machine.apply(empty(1, 2)).effects, began(2));
    assert_eq!(machine.apply(empty(2, 2)).effects, []);
    assert_eq!(machine.apply(empty(3, 5)).effects, began(5));
    let mut machine = machine.restarted();
    assert_eq!(machine.apply(empty(4, 5)).effects, []);
    assert_eq!(machine.apply(empty(5, 6)).effects, began(6));
}
