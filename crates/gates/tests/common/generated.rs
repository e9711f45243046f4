//! Generators of legal registries, and of flags.

use std::collections::BTreeMap;
use std::sync::Arc;

use portunus_gates::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

pub const NAMES: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];

pub fn version() -> impl Strategy<Value = MajorMinor> {
    (5u64..=9).prop_map(|minor| MajorMinor::new(3, minor))
}

pub fn spec() -> impl Strategy<Value = Spec> {
    let stage = select(vec![
        Stage::Alpha,
        Stage::Beta,
        Stage::Ga,
        Stage::Deprecated,
        Stage::Removed,
    ]);
    let min_compat = proptest::option::weighted(0.2, version());
    (
        version(),
        stage,
        any::<bool>(),
        proptest::bool::weighted(0.2),
        min_compat,
    )
        .prop_map(|(version, stage, default, locked, min_compat)| Spec {
            version,
            stage,
            default: default && stage != Stage::Removed,
            locked,
            min_compat,
        })
}

/// Generates a legal history: random entries, without those that break a rule.
pub fn history() -> impl Strategy<Value = Vec<Spec>> {
    vec(spec(), 1..6).prop_map(|mut candidates| {
        candidates.sort_by_key(|spec| spec.version);
        let mut kept: Vec<Spec> = Vec::new();
        for candidate in candidates {
            kept.push(candidate);
            let raw: Vec<RawSpec> = kept.iter().copied().map(RawSpec::from).collect();
            if complete(&raw).is_err() {
                kept.pop();
            }
        }
        if kept.is_empty() {
            kept.push(Spec::beta("3.6"));
        }
        kept
    })
}

/// Generates a legal registry: dependencies that break a rule are left out.
pub fn registry(level: Level) -> impl Strategy<Value = Arc<Registry>> {
    let reversible = select(vec![
        Reversibility::Free,
        Reversibility::UntilUsed,
        Reversibility::Never,
    ]);
    let features = vec((history(), reversible), 1..=NAMES.len());
    let dependencies = vec((0..NAMES.len(), 0..NAMES.len()), 0..12);
    (features, dependencies).prop_map(move |(features, dependencies)| {
        let mut builder = RegistryBuilder::new(level);
        for (name, (history, reversible)) in NAMES.iter().zip(features) {
            builder
                .add(NewFeature::new(*name, history).reversible(reversible))
                .unwrap();
        }
        for (from, to) in dependencies {
            let one = BTreeMap::from([(NAMES[from].to_owned(), vec![NAMES[to].to_owned()])]);
            let _ = builder.add_dependencies(&one);
        }
        Arc::new(builder.build())
    })
}

pub fn flag_map() -> impl Strategy<Value = BTreeMap<String, bool>> {
    let name = select(vec![
        "A", "B", "C", "D", "E", "F", "G", "H", "AllAlpha", "AllBeta", "Unknown",
    ]);
    btree_map(name.prop_map(str::to_owned), any::<bool>(), 0..6)
}
