//! What the answers have shown: objects with their versions and uids, and where lists continue.

use serde_json::Value;

use crate::requests::{CONTINUE, NAME, Resource, Step, UID};
use crate::servers::{Answer, Sent};

/// An object of both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub resource: Resource,
    pub namespace: String,
    /// The names at both servers: generated ones differ.
    pub names: [String; 2],
}

impl Object {
    pub fn new(resource: Resource, namespace: &str, name: &str) -> Object {
        Object {
            resource,
            namespace: namespace.to_owned(),
            names: [name.to_owned(), name.to_owned()],
        }
    }

    /// Returns its path, with [`NAME`] for the name.
    pub fn path(&self) -> String {
        format!("{}/{NAME}", self.resource.collection(&self.namespace))
    }

    fn is_same(&self, other: &Object) -> bool {
        self.resource.plural == other.resource.plural
            && self.namespace == other.namespace
            && self.names == other.names
    }
}

/// The state of an object after the last answer that showed it.
struct State {
    version: String,
    uids: [String; 2],
}

/// What is known.
#[derive(Default)]
pub struct Known {
    objects: Vec<Object>,
    states: Vec<State>,
    revision: u64,
    tokens: Option<[String; 2]>,
    collection: String,
    selectors: Vec<String>,
}

impl Known {
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the newest revision that an answer showed; never one that does not exist yet.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the resource version of an object; empty if it is not known.
    pub fn version_of(&self, object: &Object) -> String {
        let at = self.position(object);
        at.map_or_else(String::new, |at| self.states[at].version.clone())
    }

    fn position(&self, object: &Object) -> Option<usize> {
        self.objects.iter().position(|own| own.is_same(object))
    }

    pub fn has_continue(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the path of the list that continues, and its selectors.
    pub fn continued(&self) -> (&str, &[String]) {
        (&self.collection, &self.selectors)
    }

    /// Returns the request for one of the servers.
    pub fn sent_to(&self, side: usize, step: &Step) -> Sent {
        let mut sent = step.sent.clone();
        let name = step.object.as_ref().map(|object| &*object.names[side]);
        let state = step.object.as_ref().and_then(|it| self.position(it));
        let uid = state.map(|at| &*self.states[at].uids[side]);
        let token = self.tokens.as_ref().map(|tokens| &*tokens[side]);
        for text in [&mut sent.target, &mut sent.body] {
            for (mark, value) in [(NAME, name), (UID, uid), (CONTINUE, token)] {
                if text.contains(mark) {
                    *text = text.replace(mark, value.unwrap_or("missing"));
                }
            }
        }
        sent
    }

    /// Learns from the answers of both servers.
    pub fn learn(&mut self, step: &Step, answers: [&Answer; 2]) {
        for answer in answers {
            let version = text(&answer.body["metadata"]["resourceVersion"]);
            self.revision = self.revision.max(version.parse().unwrap_or(0));
        }
        if answers.iter().any(|answer| answer.code >= 300) {
            return;
        }
        match step.sent.method {
            "GET" => self.learn_list(step, answers),
            "DELETE" if !step.is_dry_run => self.forget(step, answers),
            "POST" | "PUT" | "PATCH" if !step.is_dry_run => self.learn_object(step, answers),
            _ => {}
        }
    }

    fn learn_list(&mut self, step: &Step, answers: [&Answer; 2]) {
        let token = |answer: &Answer| text(&answer.body["metadata"]["continue"]);
        let tokens = answers.map(token);
        if tokens.iter().any(String::is_empty) {
            return;
        }
        self.tokens = Some(tokens);
        let (path, query) = step.sent.target.split_once('?').unwrap_or_default();
        path.clone_into(&mut self.collection);
        let is_selector = |it: &&str| it.contains("Selector=");
        let selectors = query.split('&').filter(is_selector);
        self.selectors = selectors.map(str::to_owned).collect();
    }

    fn learn_object(&mut self, step: &Step, answers: [&Answer; 2]) {
        let Some(mut object) = step.object.clone() else {
            return;
        };
        let metadata = answers.map(|answer| &answer.body["metadata"]);
        if metadata.iter().any(|it| text(&it["uid"]).is_empty()) {
            return;
        }
        object.names = metadata.map(|metadata| text(&metadata["name"]));
        let state = State {
            version: text(&metadata[0]["resourceVersion"]),
            uids: metadata.map(|metadata| text(&metadata["uid"])),
        };
        match self.position(&object) {
            Some(at) => self.states[at] = state,
            None => {
                self.objects.push(object);
                self.states.push(state);
            }
        }
    }

    /// Forgets objects that were deleted. One that waits for its finalizers is still there.
    fn forget(&mut self, step: &Step, answers: [&Answer; 2]) {
        let Some(object) = &step.object else {
            return;
        };
        if answers[0].body["kind"] == "Status"
            && let Some(at) = self.position(object)
        {
            self.objects.remove(at);
            self.states.remove(at);
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
