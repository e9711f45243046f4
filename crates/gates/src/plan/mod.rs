//! Plans: the effect of a change on every gate, computed before the change is made.
//!
//! [`plan`] applies a [`Change`] to a [`Fleet`] and compares the gates before and after.
//! The values after come from [`decide`] and from the resolution that a starting server
//! uses; there is no second set of rules, so a plan cannot differ from the outcome.

mod drop_flags;
mod fleet;
mod writes;

use serde::Serialize;

use crate::assignments::Assignments;
use crate::cluster::{
    ClusterSpecs, Member, MemberId, MixedVersions, Outcome, Publication, Reason, decide,
    find_feature, reason,
};
use crate::error::Classified;
use crate::feature::{Level, Reversibility};
use crate::registry::{Registered, Registry};
use crate::resolve::{SetError, resolve};
use crate::spec::Versions;
use crate::version::MajorMinor;

pub use drop_flags::{FlagToDrop, plan_dropping_flags};
pub use fleet::{Change, ChangeError, Fleet, FleetMember};
pub use writes::WriteRow;

/// The effect of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// One row per feature and, for server features, per member; sorted by level, name
    /// and member.
    pub rows: Vec<PlanRow>,
    /// One row per member and cluster feature that writes what not every version can read.
    pub writes: Vec<WriteRow>,
    /// The flags that the rows take as dropped; only [`plan_dropping_flags`] finds any.
    pub flags_to_drop: Vec<FlagToDrop>,
    /// Reasons against the change that concern no single feature.
    pub obstacles: Vec<String>,
    /// The cluster version after the change.
    pub cluster_version: Option<MajorMinor>,
}

impl Plan {
    /// Returns whether an obstacle or a row blocks the change. Flags to drop do not.
    pub fn is_blocked(&self) -> bool {
        !self.obstacles.is_empty() || self.rows.iter().any(|row| row.block.is_some())
    }

    /// Iterates over the rows whose value changes or that block.
    pub fn notable(&self) -> impl Iterator<Item = &PlanRow> {
        self.rows
            .iter()
            .filter(|row| row.before != row.after || row.block.is_some())
    }

    /// Returns the notable rows about writing: a member begins or ceases to write, or does not
    /// write with a feature that comes on or that its new flags ask for.
    pub fn notable_writes(&self) -> impl Iterator<Item = &WriteRow> {
        self.writes.iter().filter(|row| row.is_notable())
    }
}

/// One feature before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanRow {
    /// The feature's name.
    pub feature: String,
    /// The level that decides its value.
    pub level: Level,
    /// The member of a server feature, or the member whose flag blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The value before; absent where the feature or the member does not exist.
    pub before: Option<bool>,
    /// The value after; absent where the feature would not exist or the member not start.
    pub after: Option<bool>,
    /// The reason for the value after.
    pub why: String,
    /// How the feature blocks the change, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<Block>,
}

/// How a feature blocks a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    /// The flag names a feature that does not exist there: the member would not start.
    Unknown,
    /// The flag names a feature that was removed by then: the member would not start.
    Removed,
    /// The flag's value is not the one it is locked to: the member would not start.
    Locked,
    /// A dependency of the feature goes off.
    DependencyLost,
    /// The change turns the feature off, but it cannot be turned off any more.
    OneWay,
}

/// Computes the effect of a change on server and cluster features. Members keep the flags
/// that the change does not set; one that a member cannot start with blocks.
pub fn plan(server: &Registry, cluster: &ClusterSpecs, fleet: &Fleet, change: &Change) -> Plan {
    compare(server, cluster, fleet, fleet.after(cluster, change))
}

/// Compares a fleet with what a change makes of it.
fn compare(
    server: &Registry,
    cluster: &ClusterSpecs,
    fleet: &Fleet,
    after: Result<Fleet, ChangeError>,
) -> Plan {
    let mut obstacles = Vec::new();
    let after = match after {
        Ok(after) => after,
        Err(error) => {
            return Plan {
                rows: Vec::new(),
                writes: Vec::new(),
                flags_to_drop: Vec::new(),
                obstacles: vec![error.to_string()],
                cluster_version: fleet.cluster_version,
            };
        }
    };
    obstacles.extend(version_obstacles(cluster, fleet, &after));
    let mut rows = Vec::new();
    for member in &after.members {
        let before = fleet
            .members
            .iter()
            .find(|old| old.member.id == member.member.id);
        rows.extend(server_rows(server, fleet, before, member));
        rows.extend(cluster_flag_rows(cluster, &after, member));
    }
    rows.extend(cluster_rows(cluster, fleet, &after));
    rows.sort_by(|a, b| (a.level, &a.feature, a.member).cmp(&(b.level, &b.feature, b.member)));
    Plan {
        rows,
        writes: writes::rows(cluster, fleet, &after),
        flags_to_drop: Vec::new(),
        obstacles,
        cluster_version: after.cluster_version,
    }
}

/// Returns one row per server feature of one member, and one per flag that would stop its
/// start.
fn server_rows(
    registry: &Registry,
    fleet: &Fleet,
    before: Option<&FleetMember>,
    after: &FleetMember,
) -> Vec<PlanRow> {
    let now = before.map(|member| resolve(registry, member.versions(), &member.server_flags));
    let then = resolve(registry, after.versions(), &after.server_flags);
    let mut rows: Vec<PlanRow> = registry
        .features()
        .iter()
        .zip(&then.states)
        .enumerate()
        .map(|(index, (feature, state))| {
            let now = now.as_ref().map(|now| now.states[index]);
            let exists = |state: crate::resolve::State| {
                state.selected.spec.stage.exists().then_some(state.value)
            };
            let before = now.and_then(exists);
            let after_value = exists(*state);
            PlanRow {
                feature: feature.name.clone(),
                level: feature.level,
                member: Some(after.member.id),
                before,
                after: after_value,
                why: format!("{} at {}", state.source, after.server_version),
                block: one_way_block(fleet, feature, before, after_value),
            }
        })
        .collect();
    for error in &then.errors {
        block_row(
            &mut rows,
            registry.level(),
            after.member.id,
            &after.server_flags,
            error,
        );
    }
    rows
}

/// Returns one row per cluster flag that would stop the start of a member.
fn cluster_flag_rows(cluster: &ClusterSpecs, after: &Fleet, member: &FleetMember) -> Vec<PlanRow> {
    let mut rows = Vec::new();
    let checked = cluster.check_flags(
        member.server_version,
        after.cluster_version,
        &member.cluster_flags,
    );
    for error in checked.err().map_or_else(Vec::new, |errors| errors.0) {
        block_row(
            &mut rows,
            Level::Cluster,
            member.member.id,
            &member.cluster_flags,
            &error,
        );
    }
    rows
}

/// Marks the row of the feature that an error names as blocking, or adds one.
fn block_row(
    rows: &mut Vec<PlanRow>,
    level: Level,
    member: MemberId,
    flags: &Assignments,
    error: &SetError,
) {
    let (name, block) = match error {
        SetError::Unknown(unknown) => {
            // The error holds the name in quotes; the flags hold it as given.
            let plain = flags.iter().map(|(name, ..)| name);
            let found = plain
                .into_iter()
                .find(|name| unknown.name == crate::error::quoted(name));
            (found.unwrap_or(&unknown.name), Block::Unknown)
        }
        SetError::PreAlpha { name, .. } => (name.as_str(), Block::Unknown),
        SetError::Removed { name, .. } => (name.as_str(), Block::Removed),
        SetError::Locked { name, .. } => (name.as_str(), Block::Locked),
        SetError::DependencyDisabled { name, .. } => (name.as_str(), Block::DependencyLost),
    };
    let why = format!("{}: {error}", error.id());
    match rows.iter_mut().find(|row| row.feature == name) {
        Some(row) => {
            row.after = None;
            row.why = why;
            row.block = Some(block);
        }
        None => rows.push(PlanRow {
            feature: name.to_owned(),
            level,
            member: Some(member),
            before: None,
            after: None,
            why,
            block: Some(block),
        }),
    }
}

/// Returns one row per cluster feature.
fn cluster_rows(cluster: &ClusterSpecs, fleet: &Fleet, after: &Fleet) -> Vec<PlanRow> {
    let registry = cluster.registry();
    let members: Vec<Member> = after
        .members
        .iter()
        .map(|member| member.member.clone())
        .collect();
    // `after` already holds the result; decide again for the reasons.
    let decision = decide(cluster, after.cluster_version, &members, &after.previous);
    let version = after.cluster_version.unwrap_or(MajorMinor::ZERO);
    registry
        .sorted()
        .map(|feature| {
            let before = value(cluster, fleet, feature);
            let after_value = value(cluster, after, feature);
            let decided = find_feature(&decision, &feature.name);
            let lost = matches!(
                decided.map(|decided| &decided.reason),
                Some(Reason::Dependency(_))
            );
            let went_off = before == Some(true) && after_value != Some(true);
            PlanRow {
                feature: feature.name.clone(),
                level: Level::Cluster,
                member: None,
                before,
                after: after_value,
                why: reason(
                    feature,
                    decided,
                    &decision,
                    &members,
                    version,
                    cluster.since(),
                ),
                block: one_way_block(fleet, feature, before, after_value)
                    .or((lost && went_off).then_some(Block::DependencyLost)),
            }
        })
        .collect()
}

/// Returns the value of a cluster feature; absent where it does not exist.
fn value(cluster: &ClusterSpecs, fleet: &Fleet, feature: &Registered) -> Option<bool> {
    let version = fleet.cluster_version.unwrap_or(MajorMinor::ZERO);
    if !feature.at(Versions::exactly(version)).spec.stage.exists() {
        return None;
    }
    let params = fleet.previous.params();
    Some(params.is_some_and(|params| params.enabled(cluster.registry(), &feature.name)))
}

fn one_way_block(
    fleet: &Fleet,
    feature: &Registered,
    before: Option<bool>,
    after: Option<bool>,
) -> Option<Block> {
    let one_way = match feature.reversible {
        Reversibility::Free => false,
        Reversibility::UntilUsed => fleet.used.contains(&feature.name),
        Reversibility::Never => true,
    };
    (one_way && before == Some(true) && after != Some(true)).then_some(Block::OneWay)
}

/// Returns the obstacles from member versions that the cluster does not allow.
fn version_obstacles(cluster: &ClusterSpecs, before: &Fleet, after: &Fleet) -> Vec<String> {
    let mut obstacles = Vec::new();
    if cluster
        .decided(before.clone().settled(cluster).cluster_version)
        .is_none()
    {
        obstacles.extend(mixed_founders(before, after).map(|error| error.to_string()));
    }
    for member in &after.members {
        // Such a member would not start, whether or not it publishes a proposal.
        if let Some(needed) = cluster.decided(after.cluster_version)
            && member.member.started
            && member.server_version < needed
        {
            let error = MixedVersions {
                member: member.member.display_name(),
                theirs: member.server_version,
                needed,
                new_cluster: false,
            };
            obstacles.push(error.to_string());
        }
        // The only member of a cluster may skip minors.
        if let Some(current) = cluster.decided(before.cluster_version)
            && after.members.len() > 1
            && (member.server_version.major() != current.major()
                || member.server_version > current.plus_minors(1))
        {
            obstacles.push(format!(
                "member {} would not start as {} in a cluster at {current}: go one minor at a time, first with --emulated-version={}",
                member.member.display_name(),
                member.server_version,
                current.plus_minors(1)
            ));
        }
    }
    obstacles
}

/// Returns the obstacle where founders that have published would differ in version. While a
/// new cluster waits for a member to start, restarting the others one by one with another
/// version makes them refuse each other.
fn mixed_founders(before: &Fleet, after: &Fleet) -> Option<MixedVersions> {
    let published = |it: &&FleetMember| matches!(it.member.publication, Publication::Proposal(_));
    let founders = || {
        before.members.iter().filter(published).filter_map(|now| {
            let mut then = after.members.iter();
            Some((now, then.find(|then| then.member.id == now.member.id)?))
        })
    };
    founders().find_map(|(_, member)| {
        let is_other = |it: &&FleetMember| it.member.id != member.member.id;
        let mut others = founders()
            .flat_map(|(now, then)| [now, then])
            .filter(is_other);
        let other = others.find(|it| it.server_version != member.server_version)?;
        Some(MixedVersions {
            member: member.member.display_name(),
            theirs: member.server_version,
            needed: other.server_version,
            new_cluster: true,
        })
    })
}

/// Returns the params in force after the pending decision about a fleet.
pub(crate) fn settled(cluster: &ClusterSpecs, fleet: &Fleet) -> crate::cluster::Previous {
    use crate::cluster::Previous;
    let members: Vec<Member> = fleet
        .members
        .iter()
        .map(|member| member.member.clone())
        .collect();
    let decision = decide(cluster, fleet.cluster_version, &members, &fleet.previous);
    match decision.outcome {
        Outcome::Hold(_) | Outcome::Unchanged => fleet.previous.clone(),
        Outcome::Set(params) => Previous::Decided(params),
        Outcome::Delete => Previous::Absent,
    }
}
