//! What the controller knows: the objects of the followed collections.

use std::collections::{BTreeMap, BTreeSet};

use portunus_objects::metadata;
use portunus_olm::SINGLETON;
use serde_json::Value;

use super::resources::Collection;

/// The namespace and the name of an object.
pub type ObjectKey = (String, String);

/// The objects of one collection.
pub type Objects = BTreeMap<ObjectKey, Value>;

/// A change of a followed collection.
#[derive(Debug)]
pub enum Change {
    /// The whole collection.
    Listed(Collection, Vec<Value>),
    /// An object was created or changed.
    Changed(Collection, Value),
    /// An object was deleted.
    Deleted(Collection, Value),
}

/// The objects of the followed collections.
#[derive(Debug, Default)]
pub struct Cache {
    collections: BTreeMap<Collection, Objects>,
}

impl Cache {
    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Listed(collection, objects) => {
                let objects = objects.into_iter().map(|object| (key(&object), object));
                self.collections.insert(collection, objects.collect());
            }
            Change::Changed(collection, object) => {
                let objects = self.collections.entry(collection).or_default();
                objects.insert(key(&object), object);
            }
            Change::Deleted(collection, object) => {
                let objects = self.collections.entry(collection).or_default();
                objects.remove(&key(&object));
            }
        }
    }

    /// Returns whether every collection was listed. Decisions before would remove copies whose
    /// source is not known yet.
    pub fn is_complete(&self) -> bool {
        self.collections.len() == Collection::ALL.len()
    }

    /// Returns the configuration.
    pub fn olm_config(&self) -> Option<&Value> {
        let key = (String::new(), SINGLETON.to_owned());
        self.collections.get(&Collection::OlmConfigs)?.get(&key)
    }

    /// Returns the CSVs.
    pub fn csvs(&self) -> Objects {
        let csvs = self.collections.get(&Collection::Csvs);
        csvs.cloned().unwrap_or_default()
    }

    /// Returns the names of the namespaces that are not being deleted.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let namespaces = self.collections.get(&Collection::Namespaces);
        let objects = namespaces.into_iter().flat_map(BTreeMap::values);
        objects
            .filter(|namespace| !metadata::is_deleting(namespace))
            .map(|namespace| metadata::name(namespace).to_owned())
            .collect()
    }
}

/// Returns the key of an object.
pub fn key(object: &Value) -> ObjectKey {
    let namespace = metadata::namespace(object).to_owned();
    (namespace, metadata::name(object).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cache_is_complete_when_every_collection_was_listed() {
        let mut cache = Cache::default();
        cache.apply(Change::Listed(Collection::Csvs, Vec::new()));
        cache.apply(Change::Listed(Collection::Namespaces, Vec::new()));
        assert!(!cache.is_complete());
        cache.apply(Change::Listed(Collection::OlmConfigs, Vec::new()));
        assert!(cache.is_complete());
        assert!(cache.olm_config().is_none());
    }

    #[test]
    fn list_replaces_what_was_deleted_in_the_meantime() {
        let namespace = |name: &str| json!({"metadata": {"name": name}});
        let mut cache = Cache::default();
        let listed = vec![namespace("a"), namespace("b")];
        cache.apply(Change::Listed(Collection::Namespaces, listed));
        cache.apply(Change::Changed(Collection::Namespaces, namespace("c")));
        cache.apply(Change::Deleted(Collection::Namespaces, namespace("a")));
        assert_eq!(cache.namespaces(), ["b", "c"].map(str::to_owned).into());
        cache.apply(Change::Listed(Collection::Namespaces, vec![namespace("c")]));
        assert_eq!(cache.namespaces(), ["c"].map(str::to_owned).into());
    }
}
