//! What features keep in the backend, and its removal when the cluster goes back to a version
//! that does not have them.
//!
//! A member of that version would not know what it is and keep it for ever; and one that is
//! upgraded later would find it and think it new. So it goes in the entry that lowers the
//! cluster version: on all members at one index, before any of them can be restarted as the
//! lower version; or in the offline migration to it. Switching a feature off removes nothing;
//! whoever knows a feature can live with its data.
//!
//! A feature that keeps something of its own gets a line in [`KEPT`]; a test looks for it.

use portunus_gates::{Declaration, MajorMinor};
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::{ApplyError, Store};

/// What one feature keeps.
pub(crate) struct Kept {
    feature: Declaration,
    /// Every entry of its own.
    pub(crate) entries: &'static [(Bucket, &'static [u8])],
}

/// One line for each cluster feature that writes to the backend.
const KEPT: &[Kept] = &[
    #[cfg(feature = "test-features")]
    Kept {
        feature: <portunus_features::ApplyTag as portunus_gates::Feature>::DECLARATION,
        entries: &[(Bucket::Cluster, super::tag::MARK)],
    },
];

/// What features may have kept that do not exist at `version`.
pub(crate) fn kept_beyond(version: MajorMinor) -> impl Iterator<Item = &'static Kept> {
    KEPT.iter().filter(move |kept| {
        let since = kept.feature.specs.first().map(|spec| spec.version);
        since.is_some_and(|since| since > version)
    })
}

/// Removes what features keep that do not exist at `version`. Returns their names.
pub(super) fn clean_up(
    store: &mut Store,
    version: MajorMinor,
) -> Result<Vec<&'static str>, ApplyError> {
    let mut cleaned = Vec::new();
    for kept in kept_beyond(version) {
        for (bucket, key) in kept.entries {
            store.delete_raw(*bucket, key)?;
        }
        cleaned.push(kept.feature.name);
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_features::ClusterFeatures;
    use portunus_gates::{FeatureSet, Touches};

    /// Proves: S0-8
    #[test]
    fn every_feature_that_writes_to_the_backend_has_a_clean_up() {
        for feature in ClusterFeatures::DECLARATIONS {
            let keeps_something = feature.touches == Touches::Backend && feature.inert.is_none();
            let is_cleaned = KEPT.iter().any(|it| it.feature.name == feature.name);
            assert_eq!(keeps_something, is_cleaned, "{}", feature.name);
        }
    }
}
