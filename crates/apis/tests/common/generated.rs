//! Random declarations and options. Every value follows from a seed, so that a failure is
//! reproduced by the number that its message prints.

use std::collections::BTreeMap;

use portunus_apis::*;
use portunus_gates::{EffectiveVersion, MajorMinor, Version as Release};

pub const GROUPS: [&str; 3] = ["", "a.io", "b.io"];
pub const VERSIONS: [&str; 9] = [
    "v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1", "v2", "v2beta1", "v2alpha1", "draft",
];
pub const RESOURCES: [(&str, &str); 2] = [("things", "Thing"), ("others", "Other")];

/// A generator of pseudo-random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The generator of one case.
    pub fn of_case(case: u64) -> Random {
        let mut random = Random(case.wrapping_mul(0x2545_f491_4f6c_dd1d));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A release near the emulated ones; rarely of another major.
pub fn release(random: &mut Random) -> MajorMinor {
    match random.below(40) {
        0 => MajorMinor::ZERO,
        1 => MajorMinor::new(2, 0),
        _ => MajorMinor::new(1, 30 + random.below(10)),
    }
}

/// A legal lifecycle: introduced before removed, deprecated between.
pub fn lifecycle(random: &mut Random) -> Lifecycle {
    let introduced = release(random);
    let mut lifecycle = Lifecycle::introduced_in(introduced);
    let steps = 1 + random.below(4);
    let removed = introduced.plus_minors(steps);
    match random.below(4) {
        0 => {}
        1 => lifecycle = lifecycle.kept(),
        2 => {
            let deprecated = introduced.plus_minors(random.below(steps + 1));
            lifecycle = lifecycle
                .deprecated_in(Some(deprecated))
                .removed_in(Some(removed));
        }
        _ => lifecycle = lifecycle.deprecated_in(None).removed_in(Some(removed)),
    }
    if random.chance(30) {
        lifecycle = lifecycle.replaced_by(GroupVersionKind::new("a.io", "v1", "Thing"));
    }
    lifecycle
}

fn scale() -> GroupVersionKind {
    GroupVersionKind::new("scaling.io", "v1", "Scale")
}

fn resource(random: &mut Random, plural: &str, kind: &str) -> Resource {
    let mut resource = Resource::new(plural, kind, lifecycle(random));
    if random.chance(30) {
        resource = resource.with_subresource(Subresource::new("status"));
    }
    if random.chance(20) {
        resource = resource.with_subresource(Subresource::new("scale").with_kind(scale()));
    }
    if random.chance(20) {
        let on = random.chance(50);
        resource = resource.served_by_default_from(release(random), on);
    }
    resource
}

fn version(random: &mut Random, name: &str) -> Version {
    let mut version = Version::new(name);
    if random.chance(40) {
        let on = random.chance(70);
        version = version.served_by_default_from(release(random), on);
    }
    for (plural, kind) in RESOURCES {
        if random.chance(70) {
            version = version.with_resource(resource(random, plural, kind));
        }
    }
    version
}

/// One to three groups with up to five versions each.
pub fn declarations(random: &mut Random) -> Declarations {
    let mut groups: Vec<Group> = Vec::new();
    for name in GROUPS {
        if groups.is_empty() || random.chance(40) {
            let mut group = Group::new(name);
            for _ in 0..=random.below(5) {
                let name = *random.pick(&VERSIONS);
                if group.version(name).is_none() {
                    group = group.with_version(version(random, name));
                }
            }
            groups.push(group);
        }
    }
    let declarations = Declarations::new(groups).unwrap_or_else(|error| panic!("{error}"));
    match random.chance(70) {
        true => declarations.with_kind(scale(), lifecycle(random)),
        false => declarations,
    }
}

/// A group and version, mostly one that the declarations know.
fn known_version(random: &mut Random, declarations: &Declarations) -> String {
    let group = random.pick(declarations.groups());
    match random.chance(97) {
        true => format!("{}/{}", group.name, random.pick(&group.versions).name),
        false => format!("{}/{}", random.pick(&GROUPS), random.pick(&VERSIONS)),
    }
}

/// Keys of every class, mostly ones that the declarations know.
pub fn runtime_config(random: &mut Random, declarations: &Declarations) -> RuntimeConfig {
    const VALUES: [&str; 12] = [
        "true", "true", "true", "true", "false", "false", "false", "", "1", "F", "TRUE", "no",
    ];
    const CLASSES: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];
    let mut config = RuntimeConfig::default();
    for _ in 0..random.below(4) {
        let version = known_version(random, declarations);
        let key = match random.below(40) {
            0..=8 => (*random.pick(&CLASSES)).to_owned(),
            9..=24 => version,
            25..=37 => format!("{version}/{}", random.pick(&RESOURCES).0),
            38 => format!("{version}/Things"),
            _ => (*random.pick(&["x", "a/b/c/d", "api/v1", "v1", "c.io/v1", "a.io/v9"])).to_owned(),
        };
        let value = match key.starts_with("api/") && random.chance(97) {
            true => *random.pick(&["true", "false"]),
            false if random.chance(90) => *random.pick(&["true", "false"]),
            false => *random.pick(&VALUES),
        };
        config.set(&key, value);
    }
    config
}

const BINARIES: [&str; 6] = [
    "1.36.0",
    "1.36.0",
    "1.36.0-alpha.0",
    "1.36.0-alpha.1",
    "1.36.0-beta.2",
    "1.37.0-alpha.2",
];

/// Options of a process; most of them start.
pub fn options(random: &mut Random, declarations: &Declarations) -> Options {
    let binary = Release::parse(BINARIES[random.below(6) as usize]).unwrap();
    let mut options = Options::new(EffectiveVersion::new(binary));
    let emulation = options
        .versions
        .binary()
        .major_minor()
        .minus_minors(random.below(4));
    options.versions.set_emulation(emulation);
    if random.chance(30) {
        options
            .versions
            .set_min_compat(emulation.minus_minors(random.below(4)));
    }
    if random.chance(60) {
        options.runtime_config = runtime_config(random, declarations);
    }
    let is_emulating = options.versions.is_emulating();
    options.forward.emulation = is_emulating && random.chance(30);
    options.forward.runtime_config = is_emulating && random.chance(30);
    options.strict_emulation = random.chance(5);
    options.serve_removed_one_more_release = random.chance(20);
    options.strict_removal_in_alpha = random.chance(20);
    options
}

/// One to three changes of options.
pub fn changes(random: &mut Random, declarations: &Declarations) -> Vec<Change> {
    let mut changes = Vec::new();
    for _ in 0..=random.below(3) {
        let on = random.chance(50);
        let key = known_version(random, declarations);
        changes.push(match random.below(9) {
            0 | 1 => Change::Emulation(MajorMinor::new(1, 33 + random.below(5))),
            2 => Change::MinCompat(MajorMinor::new(1, 32 + random.below(5))),
            3 => Change::set_key(format!("{key}/things"), on),
            4 => Change::set_key(key, on),
            5 => Change::set_key(*random.pick(&["api/all", "api/beta", "api/alpha"]), on),
            6 => Change::RemoveKey(key),
            7 => Change::ForwardCompatible(on),
            _ => Change::OneMoreRelease(on),
        });
    }
    changes
}

/// Everything that is served, with its deprecation warning.
pub fn outcome(apis: &ServedApis) -> BTreeMap<GroupVersionResource, Option<String>> {
    let mut outcome = BTreeMap::new();
    for served in apis.resources() {
        let warning = served.deprecation.as_ref().map(|it| it.warning.clone());
        for sub in &served.resource.subresources {
            let mut name = served.name.clone();
            name.resource = format!("{}/{}", name.resource, sub.name);
            outcome.insert(name, warning.clone());
        }
        outcome.insert(served.name.clone(), warning);
    }
    outcome
}
