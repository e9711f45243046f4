//! The Warning event of a CSV whose copies are disabled.

use portunus_objects::{metadata, timestamp};
use serde_json::{Value, json};

/// The name of this controller in events.
const COMPONENT: &str = "copied-csvs";
/// The reason of the event.
pub const REASON: &str = "DisabledCopiedCSVs";
/// The longest part of a CSV's name in the name of its event.
const NAME_LENGTH_MAX: usize = 200;

/// Returns the event. One state of the configuration has one event per CSV: its name contains the
/// generation, so a controller that starts again does not report it twice.
pub fn disabled_copies(csv: &Value, config_generation: i64, now_unix_s: i64) -> Value {
    let (namespace, name) = (metadata::namespace(csv), metadata::name(csv));
    let short: String = name.chars().take(NAME_LENGTH_MAX).collect();
    let short = short.trim_end_matches(['.', '-']);
    let uid: String = metadata::uid(csv).chars().take(8).collect();
    let now = timestamp::format(now_unix_s);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{short}.{uid}-{config_generation}"), "namespace": namespace},
        "involvedObject": {
            "apiVersion": csv["apiVersion"],
            "kind": csv["kind"],
            "namespace": namespace,
            "name": name,
            "uid": metadata::uid(csv),
            "resourceVersion": metadata::resource_version(csv),
        },
        "type": "Warning",
        "reason": REASON,
        "message": format!("copies of {namespace}/{name} are disabled by OLMConfig cluster"),
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_named_after_csv_and_generation() {
        let csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "etcd.v1", "namespace": "operators",
                "uid": "0123456789ab", "resourceVersion": "9"}});
        let event = disabled_copies(&csv, 4, 0);
        assert_eq!(event["metadata"]["name"], "etcd.v1.01234567-4");
        assert_eq!(event["metadata"]["namespace"], "operators");
        assert_eq!(event["involvedObject"]["name"], "etcd.v1");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["reason"], "DisabledCopiedCSVs");
        assert_eq!(event["firstTimestamp"], "1970-01-01T00:00:00Z");
    }
}
