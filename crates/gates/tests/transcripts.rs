//! Transcripts of gates and clusters: each file under `testdata` is one.
//!
//! A step is a command, its input lines, `----`, and its output. After a change of
//! behaviour, `REWRITE=1 cargo test -p portunus-gates --test transcripts` writes the new
//! output into the files; read the diff before committing it.
//!
//! Commands:
//! - `server`, `cluster`: declares features, `Name: alpha 3.6, beta 3.7 on; needs Other; never`
//! - `gates`: `emulation 3.7`, `min-compat 3.6`, `flag A=true`, `config B=false`
//! - `explain`: names, of either level
//! - `members`: `m1 3.7 A=true`, with `learner`, `foreign` or `silent` before the flags
//! - `version`: sets the cluster version and prints the decision
//! - `do`: `upgrade 3.8`, `downgrade 3.7`, `restart m1 A=true`, `add ...`, `remove m1`,
//!   `promote m1` or `publish m1`; prints the decision
//! - `plan`: the same changes, but only prints their effect
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use portunus_gates::cluster::*;
use portunus_gates::plan::*;
use portunus_gates::*;

struct World {
    server: Arc<Registry>,
    cluster: ClusterSpecs,
    gates: Option<GateSet>,
    fleet: Fleet,
    index: u64,
    since_index: u64,
}

impl World {
    fn new() -> World {
        World {
            server: Arc::new(RegistryBuilder::new(Level::Server).build()),
            cluster: specs(RegistryBuilder::new(Level::Cluster).build()),
            gates: None,
            fleet: Fleet {
                downgrade_target: None,
                cluster_version: None,
                previous: Previous::Absent,
                members: Vec::new(),
                used: BTreeSet::new(),
            },
            index: 0,
            since_index: 0,
        }
    }

    fn run(&mut self, directive: &str, input: &str) -> String {
        match directive {
            "server" => match declare(Level::Server, input) {
                Ok(registry) => {
                    self.server = Arc::new(registry);
                    String::new()
                }
                Err(error) => error,
            },
            "cluster" => match declare(Level::Cluster, input) {
                Ok(registry) => {
                    self.cluster = specs(registry);
                    String::new()
                }
                Err(error) => error,
            },
            "gates" => self.gates(input),
            "explain" => input.lines().map(|name| self.explain(name)).collect(),
            "members" => {
                self.fleet.members = input.lines().map(|line| self.member(line)).collect();
                let new_cluster = self.fleet.cluster_version.is_none();
                let own = self.fleet.members[0].server_version;
                if new_cluster && let Some(params) = self.cluster.bootstrap(own) {
                    self.fleet.previous = Previous::Bootstrap(params);
                }
                let mut out = String::new();
                for member in &self.fleet.members {
                    let checked = self.cluster.check_member_version(
                        own,
                        self.fleet.cluster_version,
                        None,
                        &member.member,
                    );
                    if let Err(error) = checked {
                        writeln!(out, "{}: {error}", error.id()).unwrap();
                    }
                }
                out + &self.params()
            }
            "version" => {
                self.fleet.cluster_version = Some(input.trim().parse().unwrap());
                self.decide()
            }
            "plan" => self.plan(input),
            "do" => self.act(input),
            other => panic!("no such command: {other}"),
        }
    }

    fn gates(&mut self, input: &str) -> String {
        let mut versions = None;
        let mut min_compat = None;
        let mut assignments = Assignments::new();
        for line in input.lines() {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "emulation" => versions = Some(Versions::emulating(rest.parse().unwrap())),
                "min-compat" => min_compat = Some(rest.parse().unwrap()),
                "flag" | "config" => {
                    let origin = if key == "flag" {
                        Origin::Flag
                    } else {
                        Origin::Config
                    };
                    match Assignments::parse(origin, rest) {
                        Ok(assigned) => assignments.merge(&assigned),
                        Err(error) => return format!("{}: {error}\n", error.id()),
                    }
                }
                other => panic!("unknown input: {other}"),
            }
        }
        let mut versions = versions.expect("an emulation version");
        if let Some(min_compat) = min_compat {
            versions.min_compat = min_compat;
        }
        let builder = GateSet::builder(self.server.clone(), versions).stage(&assignments);
        match builder.build() {
            Err(errors) => {
                let line = |error: &SetError| format!("{}: {error}\n", error.id());
                errors.0.iter().map(line).collect()
            }
            Ok(gates) => {
                let mut out = String::new();
                for row in gates.statuses() {
                    let on = if row.enabled { "on" } else { "off" };
                    writeln!(out, "{} {on} ({}): {}", row.name, row.stage, row.reason).unwrap();
                }
                for warning in gates.warnings() {
                    writeln!(out, "warning: {warning}").unwrap();
                }
                self.gates = Some(gates);
                out
            }
        }
    }

    fn explain(&self, name: &str) -> String {
        if let Some(gates) = &self.gates
            && self.server.get(name).is_some()
        {
            return gates.explain(name).unwrap().to_string();
        }
        let members = self.known_members();
        let decision = decide(
            &self.cluster,
            self.fleet.cluster_version,
            &members,
            &self.fleet.previous,
        );
        let in_force = InForce {
            params: self.fleet.previous.params(),
            cluster_version: self.fleet.cluster_version,
            since_index: (self.since_index > 0).then_some(self.since_index),
        };
        match self.cluster.explain(name, in_force, &decision, &members) {
            Ok(explanation) => explanation.to_string(),
            Err(error) => format!("{}: {error}\n", error.id()),
        }
    }

    fn known_members(&self) -> Vec<Member> {
        self.fleet
            .members
            .iter()
            .map(|member| member.member.clone())
            .collect()
    }

    fn member(&self, line: &str) -> FleetMember {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap();
        let id = MemberId(name.trim_start_matches('m').parse().unwrap());
        let version: MajorMinor = words.next().unwrap().parse().unwrap();
        let (mut voter, mut foreign, mut silent, mut flags) = (true, false, false, "");
        for word in words {
            match word {
                "learner" => voter = false,
                "foreign" => foreign = true,
                "silent" => silent = true,
                text => flags = text,
            }
        }
        let flags = Assignments::parse(Origin::Flag, flags).unwrap();
        FleetMember {
            server_version: version,
            min_compat: None,
            server_flags: Assignments::new(),
            member: Member {
                id,
                name: name.to_owned(),
                voter,
                started: true,
                publication: if foreign {
                    Publication::Foreign
                } else if silent {
                    Publication::Nothing
                } else {
                    Publication::Proposal(Proposal {
                        version,
                        flags: flags.to_map(),
                    })
                },
            },
            cluster_flags: flags,
        }
    }

    fn change(&self, line: &str) -> Change {
        let words: Vec<&str> = line.split_whitespace().collect();
        let id = |name: &str| MemberId(name.trim_start_matches('m').parse().unwrap());
        match words[..] {
            ["upgrade", version] => Change::Upgrade(version.parse().unwrap()),
            ["downgrade", version] => Change::Downgrade(version.parse().unwrap()),
            ["restart", member, ref rest @ ..] => Change::Restart {
                member: id(member),
                version: rest.iter().find_map(|word| word.parse().ok()),
                min_compat: None,
                server_flags: rest
                    .iter()
                    .find_map(|word| word.strip_prefix("server:"))
                    .map(|text| Assignments::parse(Origin::Flag, text).unwrap()),
                cluster_flags: rest
                    .iter()
                    .find(|word| {
                        !word.starts_with("server:") && word.parse::<MajorMinor>().is_err()
                    })
                    .map(|text| Assignments::parse(Origin::Flag, text.trim_matches('-')).unwrap()),
            },
            ["add", ..] => Change::Add(self.member(line.strip_prefix("add ").unwrap())),
            ["remove", member] => Change::Remove(id(member)),
            ["promote", member] => Change::Promote(id(member)),
            _ => panic!("no such change: {line}"),
        }
    }

    fn plan(&self, input: &str) -> String {
        let mut out = String::new();
        for line in input.lines() {
            let plan = plan(&self.server, &self.cluster, &self.fleet, &self.change(line));
            for obstacle in &plan.obstacles {
                writeln!(out, "obstacle: {obstacle}").unwrap();
            }
            for row in plan.notable() {
                let show = |value: Option<bool>| match value {
                    None => "absent",
                    Some(true) => "on",
                    Some(false) => "off",
                };
                let whose = row
                    .member
                    .map_or_else(String::new, |id| format!(" of m{}", id.0));
                let block = row
                    .block
                    .map_or_else(String::new, |block| format!(" BLOCKS {block:?}"));
                writeln!(
                    out,
                    "{}{whose}: {} -> {}{block}: {}",
                    row.feature,
                    show(row.before),
                    show(row.after),
                    row.why
                )
                .unwrap();
            }
            if plan.notable().next().is_none() && plan.obstacles.is_empty() {
                out.push_str("nothing changes\n");
            }
        }
        out
    }

    fn act(&mut self, input: &str) -> String {
        let mut out = String::new();
        for line in input.lines() {
            if let Some(name) = line.strip_prefix("publish ") {
                let member = self
                    .fleet
                    .members
                    .iter_mut()
                    .find(|member| member.member.name == name)
                    .unwrap();
                member.member.publication = Publication::Proposal(Proposal {
                    version: member.server_version,
                    flags: member.cluster_flags.to_map(),
                });
                out += &self.decide();
                continue;
            }
            let before = self.fleet.previous.clone();
            match self.fleet.after(&self.cluster, &self.change(line)) {
                Ok(fleet) => self.fleet = fleet,
                Err(error) => return format!("{error}\n"),
            }
            self.index += 1;
            if self.fleet.previous == before {
                out.push_str("no new decision\n");
            } else {
                self.since_index = self.index;
                out += &self.params();
            }
        }
        out
    }

    fn decide(&mut self) -> String {
        self.index += 1;
        let decision = decide(
            &self.cluster,
            self.fleet.cluster_version,
            &self.known_members(),
            &self.fleet.previous,
        );
        match decision.outcome {
            Outcome::Hold(Hold::VersionUndecided) => return "hold: version undecided\n".to_owned(),
            Outcome::Hold(Hold::WaitingFor(ids)) => {
                let names: Vec<String> = ids.iter().map(|id| format!("m{}", id.0)).collect();
                return format!("hold: waiting for {}\n", names.join(", "));
            }
            Outcome::Unchanged => return "no new decision\n".to_owned(),
            Outcome::Set(params) => self.fleet.previous = Previous::Decided(params),
            Outcome::Delete => self.fleet.previous = Previous::Absent,
        }
        self.since_index = self.index;
        self.params()
    }

    fn params(&self) -> String {
        let kind = match &self.fleet.previous {
            Previous::Absent => return "no cluster params\n".to_owned(),
            Previous::Bootstrap(_) => "bootstrap",
            Previous::Decided(_) => "decided",
        };
        let params = self.fleet.previous.params().unwrap();
        let mut out = format!("{kind} at {}:", params.version);
        for (name, value) in &params.features {
            write!(out, " {name}={value}").unwrap();
        }
        out + "\n"
    }
}

fn specs(registry: Registry) -> ClusterSpecs {
    ClusterSpecs::new(
        registry.into(),
        MajorMinor::literal("3.7"),
        MajorMinor::literal("3.0"),
    )
}

fn declare(level: Level, input: &str) -> Result<Registry, String> {
    let mut features = Vec::new();
    for line in input.lines() {
        let (name, rest) = line.split_once(':').unwrap();
        let mut parts = rest.split(';').map(str::trim);
        let specs = parts.next().unwrap().split(',').map(|text| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let mut spec = match words[0] {
                "alpha" => Spec::alpha(words[1]),
                "beta" => Spec::beta(words[1]),
                "ga" => Spec::ga(words[1]),
                "deprecated" => Spec::deprecated(words[1]),
                "removed" => Spec::removed(words[1]),
                other => panic!("no such stage: {other}"),
            };
            for word in &words[2..] {
                spec = match *word {
                    "on" => spec.on(),
                    "locked" => spec.locked(),
                    version => spec.min_compat(version.strip_prefix("min:").unwrap()),
                };
            }
            spec
        });
        let mut feature = NewFeature::new(name, specs);
        for part in parts {
            match part.split_once(' ') {
                Some(("needs", names)) => {
                    feature = feature.depending_on(names.split_whitespace());
                }
                _ if part == "never" => feature = feature.reversible(Reversibility::Never),
                _ => panic!("no such part: {part}"),
            }
        }
        features.push(feature);
    }
    let mut builder = RegistryBuilder::new(level);
    builder
        .add_all(features)
        .map_err(|error| format!("{}: {error}\n", error.id()))?;
    Ok(builder.build())
}

/// Proves: S0-11, S0-13, S0-14, S0-34, S0-35, S0-36, S0-37, S0-A25, C27, C28, C29
#[test]
fn transcripts_match_their_recorded_output() {
    datadriven::walk("tests/testdata", |file| {
        let mut world = World::new();
        file.run(|case| -> String { world.run(&case.directive, &case.input) });
    });
}
