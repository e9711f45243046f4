//! The choice of the next cluster version from the members' versions.
//!
//! The minimum includes learners, although their flags do not count: a learner that is
//! too old keeps the version down, but vetoes no feature.

use crate::cluster::ClusterSpecs;
use crate::version::MajorMinor;

impl ClusterSpecs {
    /// Returns the version the leader should propose, if any.
    ///
    /// `members` are the server versions of all members, learners included; an unknown
    /// version is `None`, and then nothing is proposed. An undecided cluster version becomes
    /// the lowest member version. A decided one rises to the lowest within its major. A
    /// downgrade lowers it to its target, one minor down, while the lowest member version is
    /// at most one minor above the target; after a cancelled downgrade it can rise again.
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
