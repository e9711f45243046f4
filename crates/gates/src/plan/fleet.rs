//! The state of all members, and its state after a change.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::assignments::Assignments;
use crate::cluster::{ClusterSpecs, Member, MemberId, Previous, Proposal, Publication};
use crate::spec::Versions;
use crate::version::MajorMinor;

use super::settled;

/// All members with the versions and params in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// The cluster version, once decided.
    pub cluster_version: Option<MajorMinor>,
    /// The target of a downgrade that is enabled.
    pub downgrade_target: Option<MajorMinor>,
    /// The params in force.
    pub previous: Previous,
    /// All members, voters and learners.
    pub members: Vec<FleetMember>,
    /// The features that have written data; it makes those reversible until used one-way.
    pub used: BTreeSet<String>,
}

/// A member with the version and flags of its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetMember {
    /// The member as the cluster knows it. If it published no flags only because the
    /// cluster version has no params yet, its publication is nothing, not foreign.
    pub member: Member,
    /// The version it emulates.
    pub server_version: MajorMinor,
    /// The minimum compatibility version that its flags set, if they do.
    pub min_compat: Option<MajorMinor>,
    /// Its server flags.
    pub server_flags: Assignments,
    /// Its cluster flags.
    pub cluster_flags: Assignments,
}

impl FleetMember {
    /// The versions that select its specs and bound what it writes.
    pub fn versions(&self) -> Versions {
        let usual = Versions::emulating(self.server_version);
        Versions::new(
            self.server_version,
            self.min_compat.unwrap_or(usual.min_compat),
        )
    }
}

/// A change that an operator can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Restart every member at a later version with the same flags.
    Upgrade(MajorMinor),
    /// Lower the cluster version by one minor, then restart every member there.
    Downgrade(MajorMinor),
    /// Cancel a downgrade that is enabled.
    CancelDowngrade,
    /// Restart one member; absent values stay as they are.
    Restart {
        /// The member to restart.
        member: MemberId,
        /// The version to emulate.
        version: Option<MajorMinor>,
        /// The minimum compatibility version.
        min_compat: Option<MajorMinor>,
        /// All its server flags.
        server_flags: Option<Assignments>,
        /// All its cluster flags.
        cluster_flags: Option<Assignments>,
    },
    /// Add a member and start it.
    Add(FleetMember),
    /// Remove a member.
    Remove(MemberId),
    /// Make a learner a voter.
    Promote(MemberId),
}

impl Fleet {
    /// Returns the fleet after the change and all decisions it triggers.
    pub fn after(&self, cluster: &ClusterSpecs, change: &Change) -> Result<Fleet, ChangeError> {
        let mut next = self.clone();
        match change {
            Change::Upgrade(target) => {
                if let Some(current) = self.cluster_version.filter(|current| target < current) {
                    return Err(ChangeError::NotUp {
                        target: *target,
                        current,
                    });
                }
                for member in &mut next.members {
                    member.server_version = *target;
                }
            }
            Change::Downgrade(target) => {
                let current = self.cluster_version.ok_or(ChangeError::VersionUndecided)?;
                let is_enabled = self.downgrade_target == Some(*target);
                if !is_enabled && (*target >= current || *target != current.minus_minors(1)) {
                    return Err(ChangeError::NotOneDown {
                        target: *target,
                        current,
                    });
                }
                next.cluster_version = Some(*target);
                next.previous = settled(cluster, &next);
                for member in &mut next.members {
                    member.server_version = *target;
                }
                // The leader ends a complete downgrade without an operator.
                next.downgrade_target = None;
            }
            Change::CancelDowngrade => {
                if next.downgrade_target.take().is_none() {
                    return Err(ChangeError::NoDowngrade);
                }
            }
            Change::Restart {
                member,
                version,
                min_compat,
                server_flags,
                cluster_flags,
            } => {
                let member = next.member(*member)?;
                if let Some(version) = version {
                    member.server_version = *version;
                }
                member.min_compat = min_compat.or(member.min_compat);
                if let Some(flags) = server_flags {
                    member.server_flags = flags.clone();
                }
                if let Some(flags) = cluster_flags {
                    member.cluster_flags = flags.clone();
                }
            }
            Change::Add(member) => {
                if self
                    .members
                    .iter()
                    .any(|other| other.member.id == member.member.id)
                {
                    return Err(ChangeError::MemberExists(member.member.id));
                }
                let mut member = member.clone();
                member.member.started = true;
                next.members.push(member);
            }
            Change::Remove(id) => {
                next.member(*id)?;
                next.members.retain(|member| member.member.id != *id);
            }
            Change::Promote(id) => {
                let member = next.member(*id)?;
                if member.member.voter {
                    return Err(ChangeError::NotALearner(*id));
                }
                member.member.voter = true;
            }
        }
        next.settle(cluster);
        Ok(next)
    }

    fn member(&mut self, id: MemberId) -> Result<&mut FleetMember, ChangeError> {
        self.members
            .iter_mut()
            .find(|member| member.member.id == id)
            .ok_or(ChangeError::NoSuchMember(id))
    }

    /// Returns the fleet after all pending decisions.
    pub(super) fn settled(mut self, cluster: &ClusterSpecs) -> Fleet {
        self.settle(cluster);
        self
    }

    /// Applies what members publish and the leader decides, until nothing changes.
    fn settle(&mut self, cluster: &ClusterSpecs) {
        self.publish(cluster);
        // The version of a member that never started is unknown, so the version stays.
        let version = |it: &FleetMember| it.member.started.then_some(it.server_version);
        let versions: Vec<Option<MajorMinor>> = self.members.iter().map(version).collect();
        let target = self.downgrade_target;
        if let Some(version) = cluster.next_cluster_version(self.cluster_version, &versions, target)
        {
            self.cluster_version = Some(version);
            self.publish(cluster);
        }
        self.previous = settled(cluster, self);
    }

    /// Sets what each started member publishes at the cluster version; foreign members stay
    /// foreign.
    fn publish(&mut self, cluster: &ClusterSpecs) {
        let publishes = cluster.publishes(self.cluster_version, self.previous == Previous::Absent);
        for member in &mut self.members {
            if !member.member.started || member.member.publication == Publication::Foreign {
                continue;
            }
            member.member.publication = if publishes {
                Publication::Proposal(Proposal {
                    version: member.server_version,
                    flags: member.cluster_flags.to_map(),
                })
            } else {
                Publication::Nothing
            };
        }
    }
}

/// Why a change cannot be made to this fleet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ChangeError {
    /// The fleet has no such member.
    #[error("there is no member {0}: see `member list`")]
    NoSuchMember(MemberId),
    /// The fleet already has a member with this id.
    #[error("member {0} is already there")]
    MemberExists(MemberId),
    /// The member to promote is a voter.
    #[error("member {0} votes already: only a learner can be promoted")]
    NotALearner(MemberId),
    /// The target of an upgrade is below the cluster version.
    #[error("{target} is below the cluster version {current}: that is a downgrade")]
    NotUp {
        target: MajorMinor,
        current: MajorMinor,
    },
    /// The target of a downgrade is not exactly one minor down.
    #[error("a downgrade goes one minor down, from {current} to {}, not to {target}", current.minus_minors(1))]
    NotOneDown {
        target: MajorMinor,
        current: MajorMinor,
    },
    /// No downgrade is enabled that could be cancelled.
    #[error("no downgrade is enabled: there is nothing to cancel")]
    NoDowngrade,
    /// The cluster version is undecided, so there is none to downgrade from.
    #[error("the cluster version is not decided yet: wait until all members have started")]
    VersionUndecided,
}
