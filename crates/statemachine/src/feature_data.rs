//! What features store in the backend, and its removal when the cluster goes back to a version
//! without them.
//!
//! A member of that version would keep the data for ever, and a member that is upgraded later
//! would take it for new. So the entry that lowers the cluster version removes it: on all members
//! at one index, before one of them can be restarted as the lower version. The offline migration
//! to a lower version removes it, too. Turning a feature off removes nothing, because members that
//! know the feature can handle its data.
//!
//! The records are those that the features declare (`stores`); this module names no feature.

use portunus_features::ClusterFeatures;
use portunus_gates::{Declaration, FeatureSet, MajorMinor};
use portunus_mvcc::backend::Bucket;
use portunus_mvcc::{ApplyError, Store};

/// The data that one feature stores.
pub struct FeatureData {
    /// The name of the feature.
    pub feature: &'static str,
    /// The keys that only this feature writes.
    pub entries: Vec<(Bucket, &'static [u8])>,
}

/// Returns the data of features that do not exist at `version`.
pub fn stored_beyond(version: MajorMinor) -> impl Iterator<Item = FeatureData> {
    stored_by(ClusterFeatures::DECLARATIONS, version)
}

/// Returns the data of those of the declared features that do not exist at `version`.
pub fn stored_by(
    declarations: &'static [Declaration],
    version: MajorMinor,
) -> impl Iterator<Item = FeatureData> {
    let stores = |feature: &&Declaration| !feature.stores.is_empty();
    let gone = declarations.iter().filter(stores);
    gone.filter(move |feature| feature.since() > version)
        .map(|feature| FeatureData {
            feature: feature.name,
            entries: feature.stores.iter().map(record).collect(),
        })
}

/// Resolves a declared record.
#[allow(clippy::panic)]
fn record(&(name, key): &(&'static str, &'static [u8])) -> (Bucket, &'static [u8]) {
    let Some(bucket) = Bucket::ALL.into_iter().find(|it| it.name() == name) else {
        // A test resolves every declared record, so this never happens in a released program.
        panic!("a feature stores to {name}, which is no bucket");
    };
    (bucket, key)
}

/// Removes the data of features that do not exist at `version`. Returns their names.
pub(crate) fn remove_beyond(
    store: &mut Store,
    version: MajorMinor,
) -> Result<Vec<&'static str>, ApplyError> {
    let mut names = Vec::new();
    for data in stored_beyond(version) {
        for (bucket, key) in data.entries {
            store.delete_raw(bucket, key)?;
        }
        names.push(data.feature);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portunus_gates::Touches;

    /// Proves: S0-8
    #[test]
    fn every_feature_that_writes_to_the_backend_declares_its_data() {
        for feature in ClusterFeatures::DECLARATIONS {
            let writes = feature.touches == Touches::Backend && feature.inert.is_none();
            assert_eq!(writes, !feature.stores.is_empty(), "{}", feature.name);
        }
        // Resolves every record.
        let all = stored_beyond(MajorMinor::ZERO).count();
        let declared = ClusterFeatures::DECLARATIONS.iter();
        assert_eq!(all, declared.filter(|it| !it.stores.is_empty()).count());
    }
}
