//! Benchmarks of a gate check, a decision, and the resolution at start.
//!
//! Run with `cargo bench -p portunus-gates`. The figures and what they mean are in
//! `docs/benchmarks.md`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use portunus_gates::cluster::*;
use portunus_gates::*;

feature! {
    /// A feature that is off by default.
    pub First {
        level: Cluster, owner: "bench", touches: Nothing, reversible: Free,
        specs: [Spec::beta("3.7")],
    }
}
feature! {
    /// A feature that is on by default.
    pub Second {
        level: Cluster, owner: "bench", touches: Nothing, reversible: Free,
        specs: [Spec::beta("3.7").on()],
    }
}
registry! {
    /// Two features.
    pub Two: Cluster = [First, Second]
}

const FEATURES: usize = 200;
const MEMBERS: u64 = 9;

fn registry(level: Level) -> Arc<Registry> {
    let mut builder = RegistryBuilder::new(level);
    let features = (0..FEATURES).map(|i| {
        let feature = NewFeature::new(
            format!("Feature{i:03}"),
            [
                Spec::alpha("3.5"),
                Spec::beta("3.6").on(),
                Spec::ga("3.8").on(),
            ],
        );
        if i % 10 == 9 {
            feature.depending_on([format!("Feature{:03}", i - 1)])
        } else {
            feature
        }
    });
    builder.add_all(features).unwrap();
    Arc::new(builder.build())
}

fn flags(every: usize) -> BTreeMap<String, bool> {
    (0..FEATURES)
        .step_by(every)
        .map(|i| (format!("Feature{i:03}"), true))
        .collect()
}

fn check(c: &mut Criterion) {
    let version = MajorMinor::new(3, 7);
    let features = Features::<Two>::declared().unwrap();
    let gates = features
        .gates(Versions::emulating(version), &Assignments::new())
        .unwrap();
    c.bench_function("check/server gate by handle", |b| {
        b.iter(|| black_box(&gates).enabled(Second));
    });
    let view = features.view(Some(&ClusterParams {
        version,
        features: [("First".to_owned(), true)].into(),
    }));
    c.bench_function("check/cluster gate by handle", |b| {
        b.iter(|| black_box(&view).enabled(First));
    });
}

fn decision(c: &mut Criterion) {
    let version = MajorMinor::new(3, 7);
    let specs = ClusterSpecs::new(registry(Level::Cluster), version, MajorMinor::new(3, 0));
    for (name, every) in [("every feature named", 1), ("every tenth named", 10)] {
        let members: Vec<Member> = (0..MEMBERS)
            .map(|id| Member {
                id: MemberId(id),
                name: format!("m{id}"),
                voter: true,
                started: true,
                publication: Publication::Proposal(Proposal {
                    version,
                    flags: flags(every),
                }),
            })
            .collect();
        c.bench_function(&format!("decide/200 features, 9 members, {name}"), |b| {
            b.iter(|| {
                decide(
                    &specs,
                    Some(version),
                    black_box(&members),
                    &Previous::Absent,
                )
            });
        });
    }
}

fn build(c: &mut Criterion) {
    let registry = registry(Level::Server);
    let versions = Versions::emulating(MajorMinor::new(3, 7));
    for (name, every) in [("every feature named", 1), ("every tenth named", 10)] {
        let given = Assignments::from_map(Origin::Flag, flags(every));
        c.bench_function(&format!("build/gate set of 200 features, {name}"), |b| {
            b.iter(|| {
                GateSet::builder(registry.clone(), versions)
                    .stage(black_box(&given))
                    .build()
            });
        });
    }
}

criterion_group!(benches, check, decision, build);
criterion_main!(benches);
