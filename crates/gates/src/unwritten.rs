//! Features that are on but not written with: members do not write what their minimum
//! compatibility version cannot read.
//!
//! A feature declares the first version that reads what it writes
//! ([`Declaration::readable_since`](crate::Declaration::readable_since)). The server warns at
//! its start, `explain` notes it and `plan` compares it, all from [`Registered::unwritten`].

use serde::Serialize;

use crate::assignments::Assignments;
use crate::cluster::ClusterSpecs;
use crate::registry::{ALL_ALPHA, ALL_BETA, Registered};
use crate::spec::Versions;
use crate::stage::Stage;
use crate::version::MajorMinor;

/// A feature that a member does not write with, because the version that must be able to read
/// the member's data cannot read what the feature writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unwritten {
    /// The feature.
    pub feature: String,
    /// The first version that reads what it writes.
    pub readable_since: MajorMinor,
    /// The member's minimum compatibility version, which is an earlier one.
    pub min_compatibility_version: MajorMinor,
}

impl Unwritten {
    /// What makes the member write with the feature.
    pub fn advice(&self) -> String {
        format!(
            "start the members with --min-compatibility-version={}",
            self.readable_since
        )
    }
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "even while {} is on, a member with minimum compatibility version {} writes nothing \
             with it: only {} and later can read that",
            self.feature, self.min_compatibility_version, self.readable_since
        )
    }
}

impl Registered {
    /// Why a member with this minimum compatibility version writes nothing with the feature;
    /// `None` if it does.
    pub fn unwritten(&self, min_compat: MajorMinor) -> Option<Unwritten> {
        let readable_since = self.readable_since.filter(|since| min_compat < *since)?;
        Some(Unwritten {
            feature: self.name.clone(),
            readable_since,
            min_compatibility_version: min_compat,
        })
    }
}

impl ClusterSpecs {
    /// The features that a member's flags ask for and that the member would not write with.
    pub fn unwritten(&self, versions: Versions, flags: &Assignments) -> Vec<Unwritten> {
        let value = |name: &str| flags.get(name).map(|(value, _)| value);
        let wanted = |feature: &&Registered| {
            let spec = feature.at(Versions::exactly(versions.emulation)).spec;
            let of_stage = match spec.stage {
                Stage::Alpha => value(ALL_ALPHA),
                Stage::Beta => value(ALL_BETA),
                _ => None,
            };
            let said = value(&feature.name).or(of_stage);
            spec.stage.exists() && said.unwrap_or(spec.default)
        };
        let wanted = self.registry().sorted().filter(wanted);
        wanted
            .filter_map(|feature| feature.unwritten(versions.min_compat))
            .collect()
    }
}
