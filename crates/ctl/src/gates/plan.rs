//! The plan of a change: its effect on features, before it is made.
//!
//! The rules are `portunus_gates::plan`'s. This module adds what they do not know: that a member
//! takes part in deciding only with one particular server gate, and the last version whose
//! features this program knows.

use std::collections::BTreeSet;

use portunus_features::OwnFeatures;
use portunus_features::version::{ETCD_VERSION, effective_version};
use portunus_gates::cluster::{ClusterSpecs, MemberId, Publication};
use portunus_gates::plan::{Change, FleetMember, Plan, PlanRow, WriteRow, plan_dropping_flags};
use portunus_gates::{Assignments, EMULATION_FLAG, Level, MIN_COMPAT_FLAG, MajorMinor};

use super::fleet::{MECHANISM, ObservedFleet, has_mechanism};
use super::member_flags::flag_text;

/// A plan with its assumptions.
#[derive(Debug)]
pub struct PlannedChange {
    /// A description of the change.
    pub change: String,
    /// The cluster version now.
    pub cluster_version_before: Option<MajorMinor>,
    /// The effect of the change.
    pub plan: Plan,
    /// The names of the members in the plan.
    pub names: Vec<(MemberId, String)>,
    /// The member that the change adds.
    pub added: Option<MemberId>,
    /// The assumptions, one sentence each.
    pub assumptions: Vec<String>,
}

impl PlannedChange {
    /// The rows whose value changes or that block. Every server feature of a new member would be a
    /// change; only those that block are included.
    pub fn notable(&self) -> impl Iterator<Item = &PlanRow> {
        let is_new = |row: &PlanRow| row.level == Level::Server && row.member == self.added;
        let rows = self.plan.notable();
        rows.filter(move |row| row.block.is_some() || !is_new(row))
    }

    /// The notable rows about what members write.
    pub fn writes(&self) -> impl Iterator<Item = &WriteRow> {
        self.plan.notable_writes()
    }

    /// A member's name, or its id if it has none.
    pub fn name_of(&self, id: MemberId) -> String {
        let found = self.names.iter().find(|(other, _)| *other == id);
        found.map_or_else(|| id.to_string(), |(_, name)| name.clone())
    }
}

/// Plans a change.
pub fn plan_change(
    mut observed: ObservedFleet,
    own: &OwnFeatures,
    change: &Change,
) -> PlannedChange {
    let specs = own.cluster_specs();
    let before = observed.fleet.cluster_version;
    let mut change = change.clone();
    let starts = set_publications(&mut observed, own, &mut change);
    let mut plan = plan_dropping_flags(own.server.registry(), &specs, &observed.fleet, &change);
    let obstacles = start_obstacles(&observed, &specs, &change, &starts, &plan);
    plan.obstacles.extend(obstacles);
    let mut names: Vec<(MemberId, String)> = Vec::new();
    let added = match &change {
        Change::Add(member) => Some(member),
        _ => None,
    };
    for member in observed.fleet.members.iter().chain(added) {
        names.push((member.member.id, member.member.display_name()));
    }
    PlannedChange {
        change: describe_change(&change, &observed),
        cluster_version_before: before,
        plan,
        added: added.map(|member| member.member.id),
        names,
        assumptions: observed.assumptions,
    }
}

/// Sets whether each started member publishes a proposal, from the flags it will have. Returns
/// the members that start.
fn set_publications(
    observed: &mut ObservedFleet,
    own: &OwnFeatures,
    change: &mut Change,
) -> BTreeSet<MemberId> {
    let mut starts = BTreeSet::new();
    for member in &mut observed.fleet.members {
        let id = member.member.id;
        let Some(then) = started_by(change, member) else {
            continue;
        };
        starts.insert(id);
        // A member that is started with this flag knows feature gates.
        let has_mechanism_flag = then.server_flags.get(MECHANISM).is_some();
        if has_mechanism_flag {
            observed.gateless.remove(&id);
        }
        let takes_part = !observed.gateless.contains(&id) && has_mechanism(&then, own);
        set_publication(&mut member.member.publication, takes_part);
    }
    if let Change::Add(member) = change {
        starts.insert(member.member.id);
        let takes_part = has_mechanism(member, own);
        set_publication(&mut member.member.publication, takes_part);
    }
    starts
}

fn set_publication(publication: &mut Publication, takes_part: bool) {
    if !takes_part {
        *publication = Publication::Foreign;
    } else if *publication == Publication::Foreign {
        *publication = Publication::Nothing;
    }
}

/// The member as a change starts it again; `None` if it does not.
fn started_by(change: &Change, member: &FleetMember) -> Option<FleetMember> {
    let mut then = member.clone();
    match change {
        Change::Upgrade(target) | Change::Downgrade(target) => then.server_version = *target,
        Change::Restart {
            member: id,
            version,
            server_flags,
            ..
        } if *id == member.member.id => {
            then.server_version = version.unwrap_or(then.server_version);
            if let Some(flags) = server_flags {
                then.server_flags = flags.clone();
            }
        }
        _ => return None,
    }
    Some(then)
}

/// Why members would refuse to start, by the check that a server makes of its version flags.
fn start_obstacles(
    observed: &ObservedFleet,
    specs: &ClusterSpecs,
    change: &Change,
    starts: &BTreeSet<MemberId>,
    plan: &Plan,
) -> Vec<String> {
    let Ok(after) = observed.fleet.after(specs, change) else {
        return Vec::new();
    };
    let mut obstacles = Vec::new();
    for member in after
        .members
        .iter()
        .filter(|it| starts.contains(&it.member.id))
    {
        let name_or_id = member.member.display_name();
        if observed.gateless.contains(&member.member.id) {
            continue;
        }
        let mut version = effective_version();
        version.set_emulation(member.server_version);
        let mut dropped = plan.flags_to_drop.iter();
        let is_dropped = dropped.any(|it| it.member == member.member.id && it.feature.is_none());
        if let Some(min_compat) = member.min_compat.filter(|_| !is_dropped) {
            version.set_min_compat(min_compat);
        }
        if let Err(error) = version.validate() {
            obstacles.push(format!("{name_or_id} would not start: {error}"));
        }
    }
    obstacles
}

fn describe_change(change: &Change, observed: &ObservedFleet) -> String {
    let with = |flag: &str, flags: &Option<Assignments>| {
        let flags = flags.as_ref();
        flags.map_or_else(String::new, |flags| format!(" {flag}={}", flag_text(flags)))
    };
    let at = |flag: &str, version: Option<MajorMinor>| {
        version.map_or_else(String::new, |version| format!(" --{flag}={version}"))
    };
    match change {
        Change::Upgrade(target) => format!("upgrade to {target}"),
        Change::Downgrade(target) => format!("downgrade to {target}"),
        Change::CancelDowngrade => "cancel the downgrade".to_owned(),
        Change::Restart {
            member,
            version,
            min_compat,
            server_flags,
            cluster_flags,
        } => {
            format!(
                "restart {}{}{}{}{}",
                observed.name_of(*member),
                with("--feature-gates", server_flags),
                with("--cluster-feature-gates", cluster_flags),
                at(EMULATION_FLAG, *version),
                at(MIN_COMPAT_FLAG, *min_compat),
            )
        }
        Change::Add(member) => {
            let kind = match member.member.voter {
                true => "member",
                false => "learner",
            };
            let min_compat = at(MIN_COMPAT_FLAG, member.min_compat);
            format!("add {kind} {}{min_compat}", member.member.display_name())
        }
        Change::Remove(id) => format!("remove {}", observed.name_of(*id)),
        Change::Promote(id) => format!("promote {}", observed.name_of(*id)),
    }
}

/// Whether this program knows the features of a version: those up to its own.
pub fn knows_features_of(version: MajorMinor) -> bool {
    version <= ETCD_VERSION
}
