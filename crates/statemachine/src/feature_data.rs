//! What features store in the backend, and its removal when the cluster goes back to a version
//! without them.
//!
//! A member of that version would keep the data for ever, and a member that is upgraded later
//! would take it for new. So the entry that lowers the cluster version removes it: on all members
//! at one index, before one of them can be restarted as the lower version. The offline migration
//! to a lower version removes it, too. Turning a feature off removes nothing, because members that
//! know the feature can handle its data.
//!
//! A feature that stores data of its own gets a row in `STORED`; a test checks that.

use portunus_gates::{Declaration, MajorMinor};
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::{ApplyError, Store};

/// The data that one feature stores.
pub struct FeatureData {
    feature: Declaration,
    /// The keys that only this feature writes.
    pub entries: &'static [(Bucket, &'static [u8])],
}

/// One row for each cluster feature that stores data of its own.
const STORED: &[FeatureData] = &[
    #[cfg(feature = "test-features")]
    FeatureData {
        feature: <portunus_features::ApplyTag as portunus_gates::Feature>::DECLARATION,
        entries: &[(Bucket::Cluster, crate::apply::tag::MARK)],
    },
];

/// Returns the data of features that do not exist at `version`.
pub fn stored_beyond(version: MajorMinor) -> impl Iterator<Item = &'static FeatureData> {
    STORED.iter().filter(move |data| {
        let since = data.feature.specs.first().map(|spec| spec.version);
        since.is_some_and(|since| since > version)
    })
}

/// Removes the data of features that do not exist at `version`. Returns their names.
pub(crate) fn remove_beyond(
    store: &mut Store,
    version: MajorMinor,
) -> Result<Vec<&'static str>, ApplyError> {
    let mut names = Vec::new();
    for data in stored_beyond(version) {
        for (bucket, key) in data.entries {
            store.delete_raw(*bucket, key)?;
        }
        names.push(data.feature.name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_features::ClusterFeatures;
    use portunus_gates::{FeatureSet, Touches};

    /// Proves: S0-8
    #[test]
    fn every_feature_that_writes_to_the_backend_declares_its_data() {
        for feature in ClusterFeatures::DECLARATIONS {
            let stores_data = feature.touches == Touches::Backend && feature.inert.is_none();
            let is_declared = STORED.iter().any(|it| it.feature.name == feature.name);
            assert_eq!(stores_data, is_declared, "{}", feature.name);
        }
    }
}
