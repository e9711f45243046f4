//! The next cluster version and cluster params, as the leader decides them.
//!
//! The version rises once every member supports it, and falls only for a downgrade that an
//! operator requested. A member that does not answer keeps the version from changing. Version and
//! params go in one entry, so that no member applies one without the other.
//!
//! The monitor task of the server and the simulator call [`next_decision`] and propose the result.

use std::collections::BTreeMap;

use portunus_features::version::CLUSTER_VERSION_UNDECIDED;
use portunus_gates::MajorMinor;
use portunus_gates::cluster::{self, ClusterParams, ClusterSpecs, Outcome, Previous};

use crate::membership::{DowngradeRecord, Membership};
use crate::params::members;

/// What the leader does about the cluster version and the cluster params.
#[derive(Debug, Clone, PartialEq)]
pub enum NextDecision {
    /// Nothing has to change.
    Unchanged,
    /// A member has not published its attributes yet; decide again soon.
    Wait,
    /// Propose this.
    Propose {
        /// The cluster version, perhaps the current one.
        version: MajorMinor,
        /// The params to set with it. `None` keeps or deletes them, as applying the version
        /// decides.
        params: Option<ClusterParams>,
        /// Whether the params change.
        changes_params: bool,
    },
}

/// Returns the next decision. `versions` has the version of every member, or is `None` if a member
/// did not answer; `proposes` is whether the leader publishes proposed params.
pub fn next_decision(
    specs: &ClusterSpecs,
    membership: &Membership,
    versions: Option<&BTreeMap<u64, MajorMinor>>,
    proposes: bool,
) -> NextDecision {
    let next = next_version(specs, membership, versions);
    let next = next.filter(|next| is_proposed_by_all(membership, *next));
    let Some(version) = next.or(membership.cluster_version) else {
        return NextDecision::Unchanged;
    };
    // A new cluster decides version and params at once, so the first version waits until every
    // member has published. A leader that proposes nothing makes no first decision.
    let is_new = membership
        .cluster_version
        .is_none_or(|known| known == CLUSTER_VERSION_UNDECIDED);
    let has_unpublished = membership.iter().any(|record| !record.has_published());
    if proposes && is_new && version > CLUSTER_VERSION_UNDECIDED && has_unpublished {
        return NextDecision::Wait;
    }
    let (params, changes_params) = params_for(specs, membership, version, proposes);
    if next.is_none() && !changes_params {
        return NextDecision::Unchanged;
    }
    NextDecision::Propose {
        version,
        params,
        changes_params,
    }
}

/// Returns the version that the leader should propose, if it is a change.
fn next_version(
    specs: &ClusterSpecs,
    membership: &Membership,
    versions: Option<&BTreeMap<u64, MajorMinor>>,
) -> Option<MajorMinor> {
    let Some(versions) = versions else {
        let is_unknown = membership.cluster_version.is_none();
        return is_unknown.then_some(CLUSTER_VERSION_UNDECIDED);
    };
    let versions: Vec<Option<MajorMinor>> = versions.values().copied().map(Some).collect();
    let target = downgrade_target(&membership.downgrade);
    specs.next_cluster_version(membership.cluster_version, &versions, target)
}

/// Returns the version that an operator has requested the cluster to be downgraded to.
pub fn downgrade_target(downgrade: &DowngradeRecord) -> Option<MajorMinor> {
    downgrade
        .enabled
        .then(|| downgrade.target_version.parse().ok())
        .flatten()
}

/// Returns whether every proposal of cluster features in the log is for at least `version`, if
/// that is a raise. A member that was just restarted reports its version before the log has its
/// proposal, and the features of a version are decided together with it.
fn is_proposed_by_all(membership: &Membership, version: MajorMinor) -> bool {
    let is_lower = membership
        .cluster_version
        .is_some_and(|current| version <= current);
    is_lower
        || membership.iter().all(|record| match &record.proposal {
            // An unreadable proposal is no reason to wait.
            Some(proposal) => proposal
                .version
                .parse()
                .map_or(true, |proposed: MajorMinor| proposed >= version),
            None => true,
        })
}

/// Returns the params that the leader proposes with a version, and whether they are a change.
pub fn params_for(
    specs: &ClusterSpecs,
    membership: &Membership,
    version: MajorMinor,
    proposes: bool,
) -> (Option<ClusterParams>, bool) {
    let previous = match &membership.params {
        Some(params) => Previous::Decided(params.clone()),
        None => Previous::Absent,
    };
    match cluster::leader_outcome(specs, version, &members(membership), &previous, proposes) {
        Outcome::Set(params) => (Some(params), true),
        Outcome::Delete => (None, true),
        Outcome::Hold(_) | Outcome::Unchanged => (None, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> MajorMinor {
        text.parse().unwrap()
    }

    fn membership(current: Option<&str>, target: Option<&str>) -> Membership {
        let mut membership = Membership::default();
        membership.cluster_version = current.map(version);
        membership.downgrade = DowngradeRecord {
            target_version: target.map(|text| format!("{text}.0")).unwrap_or_default(),
            enabled: target.is_some(),
        };
        membership
    }

    #[test]
    fn version_follows_the_lowest_member_and_falls_only_for_a_downgrade() {
        for (current, target, lowest, expected) in [
            (None, None, None, Some("3.0")),
            (None, None, Some("3.7"), Some("3.7")),
            (Some("3.6"), None, Some("3.8"), Some("3.8")),
            (Some("3.7"), None, None, None),
            (Some("3.7"), None, Some("3.7"), None),
            (Some("3.8"), None, Some("3.7"), None),
            (Some("3.8"), Some("3.7"), Some("3.8"), Some("3.7")),
            (Some("3.8"), Some("3.7"), None, None),
            // Already there, some members have arrived.
            (Some("3.7"), Some("3.7"), Some("3.7"), None),
            (Some("3.8"), Some("3.6"), Some("3.8"), None),
        ] {
            let versions = lowest.map(|lowest| BTreeMap::from([(1, version(lowest))]));
            let specs = portunus_features::OwnFeatures::declared()
                .unwrap()
                .cluster_specs();
            let membership = membership(current, target);
            let decided = next_version(&specs, &membership, versions.as_ref());
            assert_eq!(
                decided,
                expected.map(version),
                "{current:?} {target:?} {lowest:?}"
            );
        }
    }
}
