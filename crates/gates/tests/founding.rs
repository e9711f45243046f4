//! Founders of a new cluster in every order of starts, requests and answers.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;

use portunus_gates::MajorMinor;
use portunus_gates::cluster::{FounderAnswer, FoundingPhase, MixedFounders, next_founding_phase};

const OLD: MajorMinor = MajorMinor::literal("3.7");
const NEW: MajorMinor = MajorMinor::literal("3.8");

fn answer(version: MajorMinor, phase: FoundingPhase) -> FounderAnswer {
    FounderAnswer::Participant { version, phase }
}

/// The state of a founder in the search.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Founder {
    /// `None` before its start and after its end.
    phase: Option<FoundingPhase>,
    has_ended: bool,
    /// The answers of its current round, oldest first.
    answers: Vec<FounderAnswer>,
    /// The founders that got an answer since this one decided to stop.
    informed: Vec<usize>,
}

type State = Vec<Founder>;

fn shown(state: &State, versions: &[Option<MajorMinor>], founder: usize) -> FounderAnswer {
    match (state[founder].phase, versions[founder]) {
        (None, _) => FounderAnswer::Silent,
        (Some(_), None) => FounderAnswer::Exempt,
        (Some(phase), Some(version)) => answer(version, phase),
    }
}

/// Returns all successors of a state. Founders request answers one after the other; one that
/// takes no part in cluster features serves as soon as it runs. A founder that stops ends once
/// it has answered every other one that runs, which holds because it waits much longer than a
/// round takes.
fn next_states(state: &State, versions: &[Option<MajorMinor>]) -> Vec<State> {
    let mut next = Vec::new();
    for founder in 0..state.len() {
        let here = &state[founder];
        let Some(phase) = here.phase else {
            if !here.has_ended {
                let mut started = state.clone();
                started[founder].phase = Some(match versions[founder] {
                    Some(_) => FoundingPhase::Checking,
                    None => FoundingPhase::Serving,
                });
                next.push(started);
            }
            continue;
        };
        let Some(version) = versions[founder] else {
            continue;
        };
        let others: Vec<usize> = (0..state.len()).filter(|it| *it != founder).collect();
        let all_informed = others.iter().all(|other| {
            state[*other]
                .phase
                .is_none_or(|it| it == FoundingPhase::Serving)
                || versions[*other].is_none()
                || here.informed.contains(other)
        });
        if phase == FoundingPhase::Stopping && all_informed {
            let mut ended = state.clone();
            ended[founder].phase = None;
            ended[founder].has_ended = true;
            next.push(ended);
        }
        if phase == FoundingPhase::Serving {
            continue;
        }
        let mut asked = state.clone();
        let other = others[here.answers.len()];
        let answer = shown(state, versions, other);
        asked[founder].answers.push(answer);
        if state[other].phase == Some(FoundingPhase::Stopping)
            && !asked[other].informed.contains(&founder)
        {
            asked[other].informed.push(founder);
            asked[other].informed.sort_unstable();
        }
        if asked[founder].answers.len() == others.len() {
            let answers = std::mem::take(&mut asked[founder].answers);
            asked[founder].phase = Some(next_founding_phase(version, phase, &answers));
        }
        next.push(asked);
    }
    next.retain(|it| it != state);
    next
}

fn final_states(versions: &[Option<MajorMinor>]) -> Vec<State> {
    let blank = Founder {
        phase: None,
        has_ended: false,
        answers: Vec::new(),
        informed: Vec::new(),
    };
    let mut open = vec![vec![blank; versions.len()]];
    let mut seen: HashSet<State> = open.iter().cloned().collect();
    let mut final_states = Vec::new();
    while let Some(state) = open.pop() {
        let next = next_states(&state, versions);
        if is_settled(&state, versions) {
            final_states.push(state);
        }
        open.extend(next.into_iter().filter(|it| seen.insert(it.clone())));
    }
    final_states
}

/// Returns whether another full round of all founders would change nothing.
fn is_settled(state: &State, versions: &[Option<MajorMinor>]) -> bool {
    (0..state.len()).all(|founder| match (state[founder].phase, versions[founder]) {
        (None, _) => state[founder].has_ended,
        (Some(FoundingPhase::Stopping), _) => false,
        (Some(_), None) => true,
        (Some(phase), Some(version)) => {
            let others = (0..state.len()).filter(|it| *it != founder);
            let answers: Vec<_> = others.map(|it| shown(state, versions, it)).collect();
            next_founding_phase(version, phase, &answers) == phase
        }
    })
}

/// In every order, a quorum of one version serves and the others stop, or all founders stop
/// that saw another version. With one version all serve.
/// Proves: S0-A2
#[test]
fn founders_of_each_version_all_serve_or_all_stop_in_every_order() {
    let cases: [&[MajorMinor]; 6] = [
        &[NEW, NEW],
        &[NEW, OLD],
        &[NEW, NEW, NEW],
        &[NEW, NEW, OLD],
        &[OLD, OLD, NEW],
        &[NEW, OLD, MajorMinor::literal("3.6")],
    ];
    for case in cases {
        let versions: Vec<_> = case.iter().copied().map(Some).collect();
        let outcomes = final_states(&versions);
        assert!(!outcomes.is_empty(), "{case:?}");
        let mut seen = HashSet::new();
        for state in outcomes {
            let serving: Vec<MajorMinor> = (0..case.len())
                .filter(|it| state[*it].phase == Some(FoundingPhase::Serving))
                .map(|it| case[it])
                .collect();
            // A founder that started after the others had ended waits for a quorum; one that
            // waits beside running founders would be stuck.
            let running = state.iter().filter(|it| it.phase.is_some()).count();
            let waits_alone = serving.is_empty() && running == 1;
            assert!(
                waits_alone || serving.len() == running,
                "{case:?}: {state:?}"
            );
            seen.insert(serving.len());
            if let Some(version) = serving.first() {
                let of_version = case.iter().filter(|it| *it == version).count();
                assert_eq!(serving.len(), of_version, "{case:?}: {state:?}");
                assert!(serving.len() > case.len() / 2, "{case:?}: {state:?}");
            }
        }
        let is_uniform = case.iter().all(|it| *it == case[0]);
        if is_uniform {
            assert_eq!(seen, HashSet::from([case.len()]), "{case:?}");
        }
    }
}

/// A founder that takes no part in cluster features does not stop the others.
#[test]
fn exempt_founders_are_not_compared() {
    for versions in [
        vec![Some(NEW), Some(NEW), None],
        vec![Some(NEW), None, None],
        vec![Some(NEW), None],
    ] {
        for state in final_states(&versions) {
            let all_serve = state
                .iter()
                .all(|it| it.phase == Some(FoundingPhase::Serving));
            assert!(all_serve, "{versions:?}: {state:?}");
        }
    }
}

#[test]
fn next_phase_follows_from_the_answers_of_the_others() {
    use FounderAnswer::{Exempt, Silent};
    use FoundingPhase::{Checking, Ready, Serving, Stopping};
    let of = |phase| answer(NEW, phase);
    let other = |phase| answer(OLD, phase);
    for (phase, others, expected) in [
        // One of three waits; two of three are a quorum.
        (Checking, vec![Silent, Silent], Checking),
        (Checking, vec![of(Checking), Silent], Ready),
        (Ready, vec![of(Checking), Silent], Ready),
        (Ready, vec![of(Ready), Silent], Serving),
        (Checking, vec![of(Serving), Silent], Serving),
        (Checking, vec![Exempt, Silent], Ready),
        // Another version while no founder of the own version is ready.
        (Checking, vec![of(Checking), other(Checking)], Stopping),
        (Checking, vec![Silent, other(Checking)], Stopping),
        (Checking, vec![Exempt, other(Checking)], Stopping),
        // Another version after a founder of the own version is ready.
        (Checking, vec![of(Ready), other(Checking)], Ready),
        (Ready, vec![of(Checking), other(Checking)], Ready),
        (Ready, vec![of(Stopping), other(Checking)], Stopping),
        (Ready, vec![Silent, other(Checking)], Ready),
        (Stopping, vec![of(Serving), other(Checking)], Serving),
        (Stopping, vec![of(Ready), other(Checking)], Stopping),
        // Another version serves already, or this founder does.
        (Checking, vec![other(Serving), other(Serving)], Stopping),
        (Serving, vec![other(Checking), Silent], Serving),
    ] {
        let next = next_founding_phase(NEW, phase, &others);
        assert_eq!(next, expected, "{phase:?} {others:?}");
    }
}

#[test]
fn mixed_founders_message_names_members_versions_and_the_next_step() {
    let others = |phase| {
        vec![
            ("m1".to_owned(), answer(OLD, phase)),
            ("m2".to_owned(), answer(OLD, phase)),
            ("m3".to_owned(), FounderAnswer::Silent),
        ]
    };
    let text = MixedFounders::new(("m0", NEW), &others(FoundingPhase::Checking)).to_string();
    assert!(text.contains("m0 3.8, m1 3.7, m2 3.7"), "{text}");
    assert!(text.contains("--emulated-version"), "{text}");
    let text = MixedFounders::new(("m0", NEW), &others(FoundingPhase::Serving)).to_string();
    assert!(text.contains("serve as 3.7 (m1, m2)"), "{text}");
    assert!(text.contains("--emulated-version=3.7"), "{text}");
    for phase in [FoundingPhase::Checking, FoundingPhase::Stopping] {
        assert_eq!(phase.text().parse(), Ok(phase));
    }
    assert!("".parse::<FoundingPhase>().is_err());
}
