//! The checks of a member's own flags and of other members' versions.

use thiserror::Error;

use crate::assignments::Assignments;
use crate::cluster::{ClusterSpecs, Member, Publication};
use crate::error::{Classified, ErrorClass};
use crate::registry::toggled_stage;
use crate::resolve::{SetError, SetErrors, Warning, check_value};
use crate::spec::Versions;
use crate::stage::Stage;
use crate::version::MajorMinor;

impl ClusterSpecs {
    /// Checks a member's own `--cluster-feature-gates` at its server version: a feature that
    /// is unknown, does not exist at that version or is locked to another value stops the
    /// start. A value without effect at the (lower) cluster version is a warning: it is
    /// published and counts once the version rises.
    pub fn check_flags(
        &self,
        server_version: MajorMinor,
        cluster_version: Option<MajorMinor>,
        flags: &Assignments,
    ) -> Result<Vec<Warning>, SetErrors> {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        for (name, value, _) in flags.iter() {
            if toggled_stage(name).is_some() {
                continue;
            }
            let Some(feature) = self.registry().get(name) else {
                errors.push(SetError::Unknown(self.registry().unknown(name)));
                continue;
            };
            let versions = Versions::exactly(server_version);
            match check_value(name, value, versions, feature.at(versions)) {
                Err(error) => errors.push(error),
                Ok(warning) => warnings.extend(warning),
            }
            if let Some(cluster_version) = self.decided(cluster_version) {
                let spec = feature.at(Versions::exactly(cluster_version)).spec;
                let why = if spec.stage == Stage::PreAlpha {
                    Some("the feature does not exist there".to_owned())
                } else if spec.locked && spec.default != value {
                    Some(format!("the feature is locked to {} there", spec.default))
                } else {
                    None
                };
                warnings.extend(why.map(|why| Warning::NotYetHeeded {
                    name: name.to_owned(),
                    value,
                    cluster_version,
                    why,
                }));
            }
        }
        if errors.is_empty() {
            Ok(warnings)
        } else {
            Err(SetErrors(errors))
        }
    }

    /// Compares a member's published version with the own version. While the cluster version
    /// is undecided both must be the same minor, so that all founders decide by the same
    /// specs. Afterwards only a member below the cluster version is refused, unless a
    /// downgrade to its version is enabled. Patch versions are not compared.
    pub fn check_member_version(
        &self,
        own_version: MajorMinor,
        cluster_version: Option<MajorMinor>,
        downgrade_target: Option<MajorMinor>,
        member: &Member,
    ) -> Result<(), MixedVersions> {
        let Publication::Proposal(proposal) = &member.publication else {
            return Ok(());
        };
        let theirs = proposal.version;
        let (allowed, needed) = match self.decided(cluster_version) {
            None => (theirs == own_version, own_version),
            Some(cluster) => (
                theirs >= cluster || downgrade_target == Some(theirs),
                cluster,
            ),
        };
        if allowed {
            return Ok(());
        }
        Err(MixedVersions {
            member: member.display_name(),
            theirs,
            needed,
            new_cluster: self.decided(cluster_version).is_none(),
        })
    }

    /// Returns whether a starting member publishes its flags: in a new cluster, or where the
    /// cluster version already has params. Otherwise an older member could not read them.
    pub fn publishes(&self, cluster_version: Option<MajorMinor>, new_cluster: bool) -> bool {
        match self.decided(cluster_version) {
            None => new_cluster,
            Some(version) => version >= self.since(),
        }
    }

    /// Returns whether a change of the cluster version makes a member publish again: when it
    /// rises to the first version with params or beyond.
    pub fn publishes_again(&self, before: Option<MajorMinor>, after: MajorMinor) -> bool {
        after >= self.since() && before.is_none_or(|before| before < self.since())
    }
}

/// The error for a member of the wrong minor version. The process ends with this message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "member {member} runs version {theirs}, but {needed} is needed: {advice}",
    advice = if *new_cluster {
        "all members of a new cluster start with the same minor version; upgrade afterwards, one by one"
    } else {
        "the cluster has moved on; start that member with a newer version, or enable a downgrade first"
    }
)]
pub struct MixedVersions {
    /// The name or id of the other member.
    pub member: String,
    /// The version of the other member.
    pub theirs: MajorMinor,
    /// The version it must have, at least where the cluster version is decided.
    pub needed: MajorMinor,
    /// Whether the cluster version is undecided.
    pub new_cluster: bool,
}

impl Classified for MixedVersions {
    fn id(&self) -> &'static str {
        "E-MIXED-VERSIONS"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Range
    }
}
