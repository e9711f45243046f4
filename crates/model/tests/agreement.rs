//! The agreement about cluster features, in every order of events.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use portunus_model::properties::{
    DECISION_FOLLOWS_FLAGS, MEMBERS_AGREE, NO_DECISION_WITHOUT_PROPOSAL, SETTLED_VALUES,
};
use portunus_model::{Agreement, Limits, PlantedBug};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// The broken properties with the steps that broke them, and the examples found.
#[derive(Clone)]
struct Explored {
    broken: BTreeMap<&'static str, String>,
    examples: BTreeSet<&'static str>,
    states: usize,
}

fn explore(limits: Limits, bug: Option<PlantedBug>) -> Explored {
    let checker = Agreement::new(limits, bug)
        .unwrap()
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let mut explored = Explored {
        broken: BTreeMap::new(),
        examples: BTreeSet::new(),
        states: checker.unique_state_count(),
    };
    for (name, path) in checker.discoveries() {
        if checker.model().property(name).expectation == Expectation::Always {
            let steps: Vec<String> = path
                .into_actions()
                .iter()
                .map(|action| format!("{action:?}"))
                .collect();
            explored.broken.insert(name, steps.join("\n"));
        } else {
            explored.examples.insert(name);
        }
    }
    explored
}

/// Three members and two features, every order of publishing, deciding, losing, applying,
/// crashing, restarting with other flags or versions, and changing members.
///
/// `cargo run --release -p portunus-model -- --depth 2` goes further.
///
/// Proves: S0-1, S0-5, S0-7, S0-11, S0-12, S0-26, S0-27, S0-34, S0-35, S0-36, S0-37, S0-A27, X9
#[test]
fn members_agree_about_features_in_every_order_of_events() {
    let next = AtomicUsize::new(0);
    let starts = Limits::all(1);
    let explored = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some(limits) = starts.get(next.fetch_add(1, Ordering::Relaxed)) {
                found.push(explore(limits.clone(), None));
            }
            found
        };
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().unwrap()).concat()
    });
    for one in &explored {
        assert_eq!(one.broken, BTreeMap::new());
    }
    // Every `sometimes` property needs an example, or the others could be vacuous.
    let model = Agreement::new(Limits::all(1).remove(0), None).unwrap();
    let missing: Vec<&str> = model
        .properties()
        .iter()
        .filter(|property| property.expectation == Expectation::Sometimes)
        .map(|property| property.name)
        .filter(|name| !explored.iter().any(|one| one.examples.contains(name)))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    let states: usize = explored.iter().map(|one| one.states).sum();
    assert!(states > 1_000_000, "{states}");
}

/// The model can fail.
#[test]
fn planted_bug_breaks_its_property() {
    for (bug, property, about) in [
        (PlantedBug::ReadsNewest, MEMBERS_AGREE, "restarts"),
        (PlantedBug::DecidesAlone, DECISION_FOLLOWS_FLAGS, "restarts"),
        (PlantedBug::TwoEntries, DECISION_FOLLOWS_FLAGS, "upgrade"),
        (
            PlantedBug::SilentLeaderIdles,
            SETTLED_VALUES,
            "the mechanism turned",
        ),
        (
            PlantedBug::SilentLeaderBegins,
            NO_DECISION_WITHOUT_PROPOSAL,
            "founding with the",
        ),
    ] {
        let mut starts = Limits::all(1).into_iter();
        let limits = starts.find(|it| it.about.contains(about)).unwrap();
        let explored = explore(limits, Some(bug));
        let broken: Vec<&str> = explored.broken.keys().copied().collect();
        assert_eq!(broken, [property], "{bug:?}");
        println!("{bug:?}:\n{}", explored.broken[property]);
    }
}
