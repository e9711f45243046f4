//! Features that need an API: a gate that is on while its API is not served does nothing,
//! and its operator should know.

use std::fmt;

use crate::names::GroupResource;
use crate::served::ServedApis;

/// An API that a feature needs in at least one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequirement {
    /// The name of the feature gate.
    pub feature: String,
    /// The resource that it needs.
    pub resource: GroupResource,
}

/// A requirement that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetRequirement {
    /// The requirement.
    pub requirement: ApiRequirement,
    /// The versions that the binary knows, with the reason why each is not served.
    pub reasons: Vec<String>,
}

impl fmt::Display for UnmetRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ApiRequirement { feature, resource } = &self.requirement;
        write!(
            f,
            "feature {feature} is on, but {resource}, which it needs, is not served"
        )?;
        match &self.reasons[..] {
            [] => f.write_str(": this binary does not know it"),
            reasons => write!(f, ": {}", reasons.join("; ")),
        }
    }
}

impl ServedApis {
    /// Returns the requirements of enabled features that what is served does not meet.
    pub fn unmet_requirements(
        &self,
        requirements: &[ApiRequirement],
        is_enabled: impl Fn(&str) -> bool,
    ) -> Vec<UnmetRequirement> {
        let is_served = |name: &GroupResource| {
            self.resources()
                .any(|served| served.name.group_resource() == *name)
        };
        requirements
            .iter()
            .filter(|needed| is_enabled(&needed.feature) && !is_served(&needed.resource))
            .map(|needed| UnmetRequirement {
                requirement: needed.clone(),
                reasons: self
                    .not_served()
                    .filter(|(name, _)| name.group_resource() == needed.resource)
                    .map(|(name, reason)| format!("in {}, {reason}", name.version))
                    .collect(),
            })
            .collect()
    }
}
