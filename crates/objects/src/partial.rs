//! The metadata of objects alone, for clients that need no more.

use serde_json::{Map, Value, json};

use crate::table::ListMeta;

const API_VERSION: &str = "meta.k8s.io/v1";

/// Returns the `PartialObjectMetadata` of an object.
#[must_use]
pub fn partial_metadata(object: &Value) -> Value {
    let empty = || Value::Object(Map::new());
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": API_VERSION,
        "metadata": object.get("metadata").cloned().unwrap_or_else(empty),
    })
}

/// Returns the `PartialObjectMetadataList` of objects.
#[must_use]
pub fn partial_metadata_list<'object>(
    objects: impl IntoIterator<Item = &'object Value>,
    metadata: &ListMeta,
) -> Value {
    let items: Vec<Value> = objects.into_iter().map(partial_metadata).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_the_metadata_of_their_items() {
        let object = json!({"kind": "K", "metadata": {"name": "a"}, "spec": {"x": 1}});
        let metadata = ListMeta {
            resource_version: "3".into(),
            ..ListMeta::default()
        };
        assert_eq!(
            partial_metadata_list([&object], &metadata),
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "3"},
                "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}]})
        );
        assert_eq!(partial_metadata(&json!({}))["metadata"], json!({}));
    }
}
