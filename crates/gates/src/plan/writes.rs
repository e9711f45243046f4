//! What members write with features that not every version can read, before and after a change.

use serde::Serialize;

use super::{Fleet, FleetMember, value};
use crate::cluster::{ClusterSpecs, MemberId, Publication};
use crate::registry::Registered;
use crate::version::MajorMinor;

/// Whether one member writes with one feature while the feature is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteRow {
    /// The feature.
    pub feature: String,
    /// The member.
    pub member: MemberId,
    /// Whether the member writes with it now; absent where the member is new or the feature
    /// does not exist.
    pub before: Option<bool>,
    /// Whether the member writes with it then.
    pub after: bool,
    /// The first version that reads what is written with it.
    pub readable_since: MajorMinor,
    /// What that means.
    pub why: String,
    /// Whether the member first has reason to write with it: the feature comes on, or the
    /// member's new flags ask for it.
    #[serde(skip)]
    is_first_wanted: bool,
}

impl WriteRow {
    pub(super) fn is_notable(&self) -> bool {
        let changes = self.before.is_some_and(|before| before != self.after);
        changes || self.is_first_wanted && !self.after
    }
}

/// One row per feature that declares which version reads it and member that knows the feature.
pub(super) fn rows(cluster: &ClusterSpecs, fleet: &Fleet, after: &Fleet) -> Vec<WriteRow> {
    let mut rows = Vec::new();
    for feature in cluster.registry().sorted() {
        let (Some(since), Some(is_on)) = (feature.readable_since, value(cluster, after, feature))
        else {
            continue;
        };
        let was_on = value(cluster, fleet, feature);
        let members = after.members.iter();
        for then in members.filter(|it| it.member.publication != Publication::Foreign) {
            let mut members = fleet.members.iter();
            let now = members.find(|now| now.member.id == then.member.id);
            let before = now.filter(|_| was_on.is_some());
            rows.push(WriteRow {
                feature: feature.name.clone(),
                member: then.member.id,
                before: before.map(|now| writes(feature, now)),
                after: writes(feature, then),
                readable_since: since,
                why: write_reason(feature, then, since, is_on),
                is_first_wanted: is_on && (was_on != Some(true) || now.is_none())
                    || warns_at_start(cluster, feature, then)
                        && !now.is_some_and(|now| warns_at_start(cluster, feature, now)),
            });
        }
    }
    rows
}

/// Whether the member warns at its start that it writes nothing with the feature.
fn warns_at_start(cluster: &ClusterSpecs, feature: &Registered, member: &FleetMember) -> bool {
    let unwritten = cluster.unwritten(member.versions(), &member.cluster_flags);
    unwritten.iter().any(|it| it.feature == feature.name)
}

fn writes(feature: &Registered, member: &FleetMember) -> bool {
    feature.unwritten(member.versions().min_compat).is_none()
}

fn write_reason(
    feature: &Registered,
    member: &FleetMember,
    since: MajorMinor,
    is_on: bool,
) -> String {
    match feature.unwritten(member.versions().min_compat) {
        Some(unwritten) => format!(
            "its minimum compatibility version is {}, and only {since} and later can read that; {}",
            unwritten.min_compatibility_version,
            unwritten.advice()
        ),
        None if is_on => format!("only {since} and later can read the member's data from then on"),
        None => format!("once it is on, only {since} and later can read the member's data"),
    }
}
