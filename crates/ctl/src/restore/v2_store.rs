//! The membership as etcd's version 2 store would hold it.
//!
//! etcd up to 3.6 refuses a `.snap` file without it. Only the members in it are read.

use super::cluster::{InitialCluster, RestoredMember};
use crate::go::json::{Object, array, string};

/// Length of the event history etcd writes out, mostly empty.
const EVENTS_KEPT: usize = 1000;
/// The expiry of a v2 node that never expires.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Encodes the store as JSON.
pub fn json(cluster: &InitialCluster) -> String {
    let members =
        cluster
            .members
            .iter()
            .zip(1..)
            .fold(Object::default(), |members, (member, index)| {
                let path = member_path(member);
                let attributes = node(&attributes_path(member), index, &attributes(member), "null");
                let children = Object::default().raw("raftAttributes", attributes).end();
                members.raw(
                    &format!("{:x}", member.id),
                    node(&path, index, "", &children),
                )
            });
    let members = node("/0/members", 1, "", &members.end());
    let cluster_root = Object::default().raw("members", members).end();
    let root = Object::default()
        .raw("0", node("/0", 0, "", &cluster_root))
        .raw("1", node("/1", 0, "", "{}"))
        .end();
    let count = cluster.members.len();
    Object::default()
        .raw("Root", node("/", 0, "", &root))
        .raw("WatcherHub", history(cluster))
        .raw("CurrentIndex", count)
        .raw("Stats", statistics(count))
        .raw("CurrentVersion", 2)
        .end()
}

fn member_path(member: &RestoredMember) -> String {
    format!("/0/members/{:x}", member.id)
}

fn attributes_path(member: &RestoredMember) -> String {
    format!("{}/raftAttributes", member_path(member))
}

fn attributes(member: &RestoredMember) -> String {
    let urls = member.peer_urls_json();
    Object::default().raw("peerURLs", urls).end()
}

fn node(path: &str, index: usize, value: &str, children: &str) -> String {
    Object::default()
        .text("Path", path)
        .raw("CreatedIndex", index)
        .raw("ModifiedIndex", index)
        .text("ExpireTime", NEVER)
        .text("Value", value)
        .raw("Children", children)
        .end()
}

fn history(cluster: &InitialCluster) -> String {
    let count = cluster.members.len();
    let created = cluster.members.iter().zip(1..).map(|(member, index)| {
        let node = Object::default()
            .text("key", &attributes_path(member))
            .text("value", &attributes(member))
            .raw("modifiedIndex", index)
            .raw("createdIndex", index)
            .end();
        Object::default()
            .raw("action", string("create"))
            .raw("node", node)
            .end()
    });
    let empty = std::iter::repeat_n("null".to_owned(), EVENTS_KEPT.saturating_sub(count));
    let queue = Object::default()
        .raw("Events", array(created.chain(empty)))
        .raw("Size", count)
        .raw("Front", 0)
        .raw("Back", count)
        .raw("Capacity", EVENTS_KEPT)
        .end();
    let history = Object::default()
        .raw("Queue", queue)
        .raw("StartIndex", 1)
        .raw("LastIndex", count)
        .end();
    Object::default().raw("EventHistory", history).end()
}

fn statistics(created: usize) -> String {
    let zeros = |object: Object, names: &[&str]| {
        names
            .iter()
            .fold(object, |object, name| object.raw(name, 0))
    };
    let before = [
        "getsSuccess",
        "getsFail",
        "setsSuccess",
        "setsFail",
        "deleteSuccess",
        "deleteFail",
        "updateSuccess",
        "updateFail",
    ];
    let after = [
        "createFail",
        "compareAndSwapSuccess",
        "compareAndSwapFail",
        "compareAndDeleteSuccess",
        "compareAndDeleteFail",
        "expireCount",
        "watchers",
    ];
    let object = zeros(Object::default(), &before).raw("createSuccess", created);
    zeros(object, &after).end()
}
