//! Cluster features as a cluster of one member with given flags decides them.

use portunus_features::{ClusterFeatureGate, OwnFeatures};
use portunus_gates::cluster::{
    ClusterSpecs, Decision, InForce, Member, MemberId, Previous, Proposal, Publication, decide,
};
use portunus_gates::{
    Assignments, Explanation, Feature, GateSet, MajorMinor, SetErrors, Status, UnknownFeature,
};

/// The name of the member in reasons and advice.
const MEMBER_NAME: &str = "this-member";

/// A cluster of one member and its decision.
pub(super) struct OneMember {
    specs: ClusterSpecs,
    version: MajorMinor,
    member: Member,
    decision: Decision,
}

impl OneMember {
    /// Decides at the emulated version of the member's server gates. Refuses the flags that
    /// would stop the member's start.
    pub(super) fn with_flags(
        own: &OwnFeatures,
        gates: &GateSet,
        flags: &Assignments,
    ) -> Result<OneMember, SetErrors> {
        let specs = own.cluster_specs();
        let version = gates.versions().emulation;
        specs.check_flags(version, None, flags)?;
        let proposes = gates.try_enabled(ClusterFeatureGate::DECLARATION.name);
        let publication = match proposes {
            Ok(true) => Publication::Proposal(Proposal {
                version,
                flags: flags
                    .iter()
                    .map(|(name, value, _)| (name.to_owned(), value))
                    .collect(),
            }),
            _ => Publication::Foreign,
        };
        let member = Member {
            id: MemberId(1),
            name: MEMBER_NAME.to_owned(),
            voter: true,
            started: true,
            publication,
        };
        let members = std::slice::from_ref(&member);
        let decision = decide(&specs, Some(version), members, &Previous::Absent);
        Ok(OneMember {
            specs,
            version,
            member,
            decision,
        })
    }

    /// Returns why a cluster feature has its value.
    pub(super) fn explain(&self, name: &str) -> Result<Explanation, UnknownFeature> {
        let members = std::slice::from_ref(&self.member);
        self.specs
            .explain(name, self.in_force(), &self.decision, members)
    }

    /// Returns one row per cluster feature, sorted by name.
    pub(super) fn statuses(&self) -> Vec<Status> {
        let members = std::slice::from_ref(&self.member);
        self.specs
            .statuses(self.in_force(), &self.decision, members)
    }

    fn in_force(&self) -> InForce<'_> {
        InForce {
            params: self.decision.outcome.params(&Previous::Absent),
            cluster_version: Some(self.version),
            since_index: None,
        }
    }
}
