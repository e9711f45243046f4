//! The membership as etcd's version 2 store would hold it.
//!
//! Members up to 3.6 refuse a snapshot without it, and later take members out of it that
//! leave. The rest of it is not read.

use serde_json::{Map, Value, json};

use crate::membership::{MemberRecord, Membership, hex};

/// Length of the event history, which the format requires.
const EVENTS_KEPT: usize = 1000;
/// The expiry of a v2 node that never expires.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Encodes the store as JSON.
pub fn json(membership: &Membership) -> String {
    let members = membership
        .iter()
        .map(|member| (hex(member.id), member_node(member)));
    let removed = membership.removed().map(|id| {
        let path = format!("/0/removed_members/{}", hex(id));
        (hex(id), leaf(&path, "removed"))
    });
    let mut cluster = Map::new();
    cluster.insert("members".into(), folder("/0/members", members));
    cluster.insert(
        "removed_members".into(),
        folder("/0/removed_members", removed),
    );
    if let Some(version) = membership.cluster_version {
        cluster.insert(
            "version".into(),
            leaf("/0/version", &format!("{version}.0")),
        );
    }
    let root = [
        ("0".to_owned(), folder("/0", cluster)),
        ("1".to_owned(), folder("/1", [])),
    ];
    let queue = json!({
        "Events": vec![Value::Null; EVENTS_KEPT],
        "Size": 0, "Front": 0, "Back": 0, "Capacity": EVENTS_KEPT,
    });
    json!({
        "Root": folder("/", root),
        "WatcherHub": {"EventHistory": {"Queue": queue, "StartIndex": 0, "LastIndex": 0}},
        "CurrentIndex": 0,
        "Stats": {},
        "CurrentVersion": 2,
    })
    .to_string()
}

fn member_node(member: &MemberRecord) -> Value {
    let path = format!("/0/members/{}", hex(member.id));
    let mut raft = json!({"peerURLs": member.peer_urls});
    if member.is_learner {
        raft["isLearner"] = true.into();
    }
    let mut attributes = Map::new();
    if !member.name.is_empty() {
        attributes.insert("name".into(), json!(member.name));
    }
    if !member.client_urls.is_empty() {
        attributes.insert("clientURLs".into(), json!(member.client_urls));
    }
    let raft = leaf(&format!("{path}/raftAttributes"), &raft.to_string());
    let attributes = leaf(
        &format!("{path}/attributes"),
        &Value::Object(attributes).to_string(),
    );
    let children = [
        ("raftAttributes".to_owned(), raft),
        ("attributes".to_owned(), attributes),
    ];
    folder(&path, children)
}

fn leaf(path: &str, value: &str) -> Value {
    node(path, value, Value::Null)
}

fn folder(path: &str, children: impl IntoIterator<Item = (String, Value)>) -> Value {
    node(path, "", Value::Object(children.into_iter().collect()))
}

fn node(path: &str, value: &str, children: Value) -> Value {
    json!({
        "Path": path,
        "CreatedIndex": 0,
        "ModifiedIndex": 0,
        "ExpireTime": NEVER,
        "Value": value,
        "Children": children,
    })
}
