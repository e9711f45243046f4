//! Histories with known verdicts, and a comparison of the search with brute force.

mod brute_force;
mod generator;
mod small;

use super::etcd::{Etcd, History, Store};
use super::{Model, Verdict, check};
use brute_force::is_linearizable_by_brute_force;
use generator::{Bug, Generator};
use proptest::prelude::*;

/// More than any history in these tests needs.
const STEPS_MAX: u64 = 20_000_000;

/// Returns whether an order exists; verifies the order by repeating its steps.
fn is_linearizable(start: &Store, history: &History) -> bool {
    let model = Etcd::for_history(start.clone(), history);
    match check(&model, history, STEPS_MAX) {
        Verdict::Linearizable { order, end } => {
            let mut state = model.start();
            let mut last_call = 0;
            for index in &order {
                let operation = &history[*index];
                let output = operation.output();
                state = model.step(&state, &operation.input, output).unwrap();
                last_call = last_call.max(operation.called_at);
                assert!(operation.answered_at().is_none_or(|at| at >= last_call));
            }
            assert_eq!(state, end);
            let answered = (0..history.len()).filter(|index| history[*index].output().is_some());
            assert!(answered.into_iter().all(|index| order.contains(&index)));
            true
        }
        Verdict::Violated(violation) => {
            let text = violation.explain(&model, history);
            assert!(
                text.contains("One of these would have to be next"),
                "{text}"
            );
            assert!(!violation.candidates.is_empty(), "{text}");
            false
        }
        Verdict::Undecided { steps } => panic!("undecided after {steps} steps"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    /// Small histories, correct and falsified ones.
    #[test]
    fn search_agrees_with_brute_force(
        seed in any::<u64>(),
        falsified in 0..3u32,
    ) {
        let mut generator = Generator::new(seed, 3, 2);
        let mut history = generator.run(7, 4, None);
        for _ in 0..falsified {
            generator.falsify(&mut history);
        }
        let expected = is_linearizable_by_brute_force(&Store::default(), &history);
        prop_assert_eq!(is_linearizable(&Store::default(), &history), expected, "{:#?}", history);
        prop_assert!(expected || falsified > 0, "{:#?}", history);
    }
}

/// Ten clients, thousands of requests, dozens of crashes with an open request per client.
#[test]
fn long_histories_with_many_unanswered_requests_are_decided() {
    for seed in 1..=3 {
        let history = Generator::new(seed, 10, 6).run(6_000, 150, None);
        let unknown = history.iter().filter(|op| op.output().is_none()).count();
        assert!(unknown > 200, "{unknown}");
        assert!(is_linearizable(&Store::default(), &history));
    }
}

#[test]
fn history_starts_from_any_store() {
    let mut generator = Generator::new(7, 4, 3);
    let mut start = Store::default();
    for _ in 0..5 {
        let history = generator.run(200, 60, None);
        assert!(is_linearizable(&start, &history));
        start = generator.store().clone();
    }
}

#[test]
fn every_planted_bug_is_detected() {
    for bug in [
        Bug::StaleRead,
        Bug::LostUpdate,
        Bug::ForgottenInCrash,
        Bug::RepeatedRevision,
        Bug::ConditionIgnored,
        Bug::HalfATransaction,
        Bug::LeaseKeepsItsKeys,
        Bug::AppliedTwice,
    ] {
        let found = (1..=10)
            .filter(|seed| {
                let history = Generator::new(*seed, 8, 4).run(2_000, 100, Some(bug));
                !is_linearizable(&Store::default(), &history)
            })
            .count();
        assert_eq!(found, 10, "{bug:?}");
    }
}
