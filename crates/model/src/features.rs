//! The features of the model, and the flags its machines are started with.

use std::sync::Arc;

use portunus_gates::cluster::ClusterSpecs;
use portunus_gates::{
    Assignments, Level, MajorMinor, NewFeature, Origin, RegisterError, RegistryBuilder, Spec,
};

use crate::state::Config;

/// The number of features.
pub const FEATURES: usize = 2;

/// The feature names by position: the first is on without a veto and locked one version
/// later; the second exists one version later and is on if all voters set it to true.
pub const NAMES: [&str; FEATURES] = ["Vetoed", "Wanted"];

/// The flag of each feature, by position.
pub type Flags = [Option<bool>; FEATURES];

const FLAGS: [Flags; 3] = [[None, None], [Some(false), None], [None, Some(true)]];

/// The first version with params.
pub const SINCE: MajorMinor = MajorMinor::literal("3.7");

pub fn specs() -> Result<ClusterSpecs, RegisterError> {
    let mut builder = RegistryBuilder::new(Level::Cluster);
    builder.add_all([
        NewFeature::new(
            NAMES[0],
            [Spec::beta("3.7").on(), Spec::ga("3.8").on().locked()],
        ),
        NewFeature::new(NAMES[1], [Spec::alpha("3.8")]),
    ])?;
    Ok(ClusterSpecs::new(
        Arc::new(builder.build()),
        SINCE,
        MajorMinor::literal("3.0"),
    ))
}

/// Returns the legal configs of a machine at these versions, with `mechanism` also those with
/// ClusterFeatureGate off.
pub fn configs(specs: &ClusterSpecs, versions: &[MajorMinor], mechanism: bool) -> Vec<Config> {
    let all = versions.iter().flat_map(|version| {
        let proposing = FLAGS.map(|flags| Config {
            version: *version,
            flags,
            proposes: true,
            is_foreign: false,
        });
        let silent = mechanism.then_some(Config {
            version: *version,
            flags: [None; FEATURES],
            proposes: false,
            is_foreign: false,
        });
        proposing.into_iter().chain(silent)
    });
    all.filter(|config| {
        let flags = Assignments::from_map(Origin::Flag, flags_by_name(&config.flags));
        specs.check_flags(config.version, None, &flags).is_ok()
    })
    .collect()
}

/// Returns flags by name, as members publish them.
pub fn flags_by_name(flags: &Flags) -> std::collections::BTreeMap<String, bool> {
    NAMES
        .iter()
        .zip(flags)
        .filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?)))
        .collect()
}
