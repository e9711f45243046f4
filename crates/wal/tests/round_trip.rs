//! Records written in any batches are recovered unchanged.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod support;

use portunus_proto::raftpb::{Entry, HardState};
use proptest::prelude::*;
use support::{OPTIONS, START, Scratch, entry, payload, state};

/// One step of a raft member.
#[derive(Debug, Clone)]
enum Step {
    /// Append entries of these sizes in the current term.
    Append(Vec<usize>),
    /// A new leader replaces this many uncommitted entries.
    Replace {
        count: usize,
        payload_bytes: usize,
    },
    /// Commit this many more entries, without a sync.
    Commit(u64),
    /// Append into the batch without writing it; the next sync does.
    Buffer(usize),
    Sync,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![4 => 0..200usize, 1 => 200..6000usize];
    prop_oneof![
        5 => prop::collection::vec(size(), 0..6).prop_map(Step::Append),
        2 => (0..5usize, size())
            .prop_map(|(count, payload_bytes)| Step::Replace { count, payload_bytes }),
        3 => (0..4u64).prop_map(Step::Commit),
        1 => size().prop_map(Step::Buffer),
        1 => Just(Step::Sync),
        2 => Just(Step::Reopen),
    ]
}

/// The expected content of the log.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    state: HardState,
    seed: u64,
}

impl Model {
    fn push(&mut self, payload_bytes: usize) -> Entry {
        self.seed += 1;
        let index = self.entries.len() as u64 + 1;
        let data = payload(self.seed, payload_bytes);
        let next = entry(self.state.term.max(1), index, data);
        self.entries.push(next.clone());
        next
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn reopening_yields_exactly_what_was_written(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let scratch = Scratch::new();
        let mut wal = scratch.create();
        let mut model = Model { state: state(1, 0), ..Default::default() };
        wal.save(Some(&model.state), &[], true).unwrap();

        for step in steps.into_iter().chain([Step::Reopen]) {
            match step {
                Step::Append(sizes) => {
                    let batch: Vec<_> = sizes.into_iter().map(|size| model.push(size)).collect();
                    wal.save(None, &batch, true).unwrap();
                }
                Step::Replace { count, payload_bytes } => {
                    let uncommitted = model.entries.len() - model.state.commit as usize;
                    let kept = model.entries.len() - count.min(uncommitted);
                    model.entries.truncate(kept);
                    model.state = state(model.state.term + 1, model.state.commit);
                    let replacement = model.push(payload_bytes);
                    wal.save(Some(&model.state), &[replacement], true).unwrap();
                }
                Step::Commit(more) => {
                    let commit = (model.state.commit + more).min(model.entries.len() as u64);
                    model.state = state(model.state.term, commit);
                    wal.save(Some(&model.state), &[], false).unwrap();
                }
                Step::Buffer(size) => {
                    let buffered = model.push(size);
                    prop_assert!(wal.append(None, &[buffered]).unwrap() >= size);
                }
                Step::Sync => wal.sync().unwrap(),
                Step::Reopen => {
                    wal.sync().unwrap();
                    drop(wal);
                    let (reopened, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
                    prop_assert_eq!(&recovered.entries, &model.entries);
                    prop_assert_eq!(recovered.hard_state, model.state);
                    prop_assert_eq!(recovered.torn_tail, None);
                    prop_assert_eq!(reopened.last_index(), model.entries.len() as u64);
                    wal = reopened;
                }
            }
        }
    }
}

#[test]
fn entries_share_the_memory_they_were_read_into() {
    let scratch = Scratch::new();
    let mut wal = scratch.create();
    let batch: Vec<_> = (1..=8)
        .map(|index| entry(1, index, payload(index, 100)))
        .collect();
    wal.save(None, &batch, true).unwrap();
    drop(wal);
    let (_, recovered) = OPTIONS.open(&scratch.dir, START).unwrap();
    let addresses: Vec<_> = recovered
        .entries
        .iter()
        .map(|entry| entry.data.as_ptr() as usize)
        .collect();
    let spread = addresses[7] - addresses[0];
    assert!(spread < 2000, "not one allocation each: {spread}");
}
