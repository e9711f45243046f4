//! What the cluster version should be, from the members' versions.
//!
//! The minimum includes learners, although their flags do not count: a learner that is
//! too old can hold back the version, not a feature.

use crate::cluster::ClusterSpecs;
use crate::version::MajorMinor;

impl ClusterSpecs {
    /// The version the leader should propose, or nothing.
    ///
    /// `members` are the server versions of all members, learners included; one that
    /// could not be asked is `None`, and then nothing changes. An undecided cluster takes
    /// the lowest. A decided one follows the lowest upwards within its major. A downgrade
    /// goes to its target, one minor down, when every member runs at most one minor above
    /// it; cancelling lets the version rise again.
    pub fn next_cluster_version(
        &self,
        current: Option<MajorMinor>,
        members: &[Option<MajorMinor>],
        downgrade_target: Option<MajorMinor>,
    ) -> Option<MajorMinor> {
        let versions: Option<Vec<MajorMinor>> = members.iter().copied().collect();
        let lowest = versions?.into_iter().min()?;
        let Some(current) = self.decided(current) else {
            return Some(lowest);
        };
        match downgrade_target {
            Some(target) => (target == current.minus_minors(1)
                && target < current
                && lowest <= target.plus_minors(1)
                && lowest >= target)
                .then_some(target),
            None => (lowest > current && lowest.major() == current.major()).then_some(lowest),
        }
    }
}
