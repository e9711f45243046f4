//! Watches.

use serde_json::{Value, json};

use super::{PARTIAL, Requests, Resource, TABLE, with_query};
use crate::known::Known;
use crate::servers::Sent;

/// A watch: its request and an object that it certainly selects.
#[derive(Debug, Clone)]
pub struct WatchStep {
    pub sent: Sent,
    pub resource: Resource,
    pub namespace: String,
    pub selected_name: Option<String>,
    pub selected_labels: Value,
    /// How many requests are sent while it is open.
    pub steps: u64,
}

impl Requests {
    /// Returns a watch.
    pub fn watch(&mut self, known: &Known) -> WatchStep {
        let resource = self.resource();
        let namespace = match self.chance(30) {
            true => "",
            false => self.namespace(resource),
        };
        let mut parameters = vec!["watch=true".to_owned()];
        let (mut selected_name, mut selected_labels) = (None, json!({}));
        match self.random.below(8) {
            0 => {
                parameters.push("labelSelector=app=x".to_owned());
                selected_labels = json!({"app": "x"});
            }
            1 => {
                parameters.push("labelSelector=app+in+(x,y),tier".to_owned());
                selected_labels = json!({"app": "y", "tier": "front"});
            }
            2 => {
                parameters.push("labelSelector=app!%3Dx".to_owned());
                selected_labels = json!({"app": "z"});
            }
            3 => {
                parameters.push("fieldSelector=metadata.name=a".to_owned());
                selected_name = Some("a".to_owned());
            }
            _ => {}
        }
        match self.random.below(6) {
            0 => {}
            1 => parameters.push("resourceVersion=0".to_owned()),
            2 => {
                parameters.push("sendInitialEvents=true".to_owned());
                parameters.push("resourceVersionMatch=NotOlderThan".to_owned());
                parameters.push("allowWatchBookmarks=true".to_owned());
            }
            _ => {
                let past = self.random.below(30);
                let version = known.revision().saturating_sub(past).max(2);
                parameters.push(format!("resourceVersion={version}"));
            }
        }
        let accept = match self.chance(30) {
            true => Some(self.pick(&[TABLE, PARTIAL, "application/json;stream=watch"])),
            false => None,
        };
        WatchStep {
            sent: Sent {
                method: "GET",
                target: with_query(&resource.collection(namespace), &parameters),
                accept,
                ..Sent::default()
            },
            resource,
            namespace: match namespace {
                "" => self.namespace(resource).to_owned(),
                namespace => namespace.to_owned(),
            },
            selected_name,
            selected_labels,
            steps: 1 + self.random.below(12),
        }
    }
}
