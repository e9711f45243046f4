//! Plans for a change in which flags are dropped.
//!
//! A version may not take a flag that the version before took: it does not know the feature, or
//! has locked it. That does not prevent an upgrade or a downgrade; the flag has to be dropped
//! when the member is restarted. A flag that the change itself sets is different: the question
//! was about that flag, and the answer is that it blocks.

use serde::Serialize;

use super::{Block, Change, Fleet, Plan, PlanRow, compare};
use crate::cluster::{ClusterSpecs, MemberId};
use crate::feature::Level;
use crate::registry::Registry;

/// A flag of a running member that the member could not be started with after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlagToDrop {
    /// The member.
    pub member: MemberId,
    /// The flag.
    pub flag: &'static str,
    /// The feature to drop from the flag; absent where the flag itself is to be dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature: Option<String>,
    /// Why the member could not be started with it.
    pub why: String,
}

/// Plans a change with the flags dropped that members could not be started with. Flags that
/// the change sets are kept.
pub fn plan_dropping_flags(
    server: &Registry,
    cluster: &ClusterSpecs,
    fleet: &Fleet,
    change: &Change,
) -> Plan {
    let mut kept = fleet.clone();
    let mut flags_to_drop = Vec::new();
    // An error can hide another one, so this looks again. Each turn drops a flag.
    loop {
        let after = kept.after(cluster, change);
        let mut dropped = match &after {
            Ok(after) => drop_min_compat(&mut kept, after, change),
            Err(_) => Vec::new(),
        };
        let plan = compare(server, cluster, fleet, after);
        dropped.extend(drop_gates(&mut kept, &plan.rows, change));
        if dropped.is_empty() {
            return Plan {
                flags_to_drop,
                ..plan
            };
        }
        flags_to_drop.extend(dropped);
    }
}

/// Drops minimum compatibility versions above the version that the member is to have.
fn drop_min_compat(kept: &mut Fleet, after: &Fleet, change: &Change) -> Vec<FlagToDrop> {
    let mut dropped = Vec::new();
    for member in &mut kept.members {
        let id = member.member.id;
        let mut then = after.members.iter();
        let Some(then) = then.find(|then| then.member.id == id) else {
            continue;
        };
        let is_given = matches!(
            change,
            Change::Restart { member, min_compat: Some(_), .. } if *member == id
        );
        if let Some(version) = member.min_compat
            && version > then.server_version
            && !is_given
        {
            member.min_compat = None;
            dropped.push(FlagToDrop {
                member: id,
                flag: "--min-compatibility-version",
                feature: None,
                why: format!(
                    "{version} is above {}, the version of the member",
                    then.server_version
                ),
            });
        }
    }
    dropped
}

/// Drops the features that rows name as ones a member could not be started with.
fn drop_gates(kept: &mut Fleet, rows: &[PlanRow], change: &Change) -> Vec<FlagToDrop> {
    let is_flag = |row: &&PlanRow| {
        let stops_start = [Block::Unknown, Block::Removed, Block::Locked];
        row.block.is_some_and(|block| stops_start.contains(&block))
    };
    let mut dropped = Vec::new();
    for row in rows.iter().filter(is_flag) {
        let mut members = kept.members.iter_mut();
        let member = members.find(|it| Some(it.member.id) == row.member);
        let Some(member) = member.filter(|it| !sets(change, it.member.id, row.level)) else {
            continue;
        };
        let flags = match row.level {
            Level::Cluster => &mut member.cluster_flags,
            Level::Server | Level::Component => &mut member.server_flags,
        };
        if !flags.remove(&row.feature) {
            continue;
        }
        dropped.push(FlagToDrop {
            member: member.member.id,
            flag: row.level.flag(),
            feature: Some(row.feature.clone()),
            why: row.why.clone(),
        });
    }
    dropped
}

/// Whether a change sets the flags of this level of a member.
fn sets(change: &Change, id: MemberId, level: Level) -> bool {
    match change {
        Change::Restart {
            member,
            server_flags,
            cluster_flags,
            ..
        } if *member == id => match level {
            Level::Cluster => cluster_flags.is_some(),
            Level::Server | Level::Component => server_flags.is_some(),
        },
        _ => false,
    }
}
