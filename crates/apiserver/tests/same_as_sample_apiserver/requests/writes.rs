//! Requests that change objects.

use serde_json::{Value, json};

use super::{
    APPS, JSON, JSON_PATCH, MERGE_PATCH, NAME, NAMES, NAMESPACES, PARTIAL, Requests, Resource,
    Step, TABLE, UID, post, with_query,
};
use crate::known::{Known, Object};
use crate::servers::Sent;

impl Requests {
    pub(super) fn metadata(&mut self, name: &str) -> Value {
        let mut metadata = json!({});
        if !name.is_empty() {
            metadata["name"] = name.into();
        }
        if self.chance(70) {
            metadata["labels"] = self.labels();
        }
        if self.chance(15) {
            metadata["annotations"] = json!({"note": self.pick(&["", "one", "two"])});
        }
        if self.chance(8) {
            metadata["finalizers"] = json!(["example.com/wait"]);
        }
        if self.chance(4) {
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "u"}]);
        }
        metadata
    }

    fn labels(&mut self) -> Value {
        let mut labels = json!({"app": self.pick(&APPS)});
        if self.chance(30) {
            labels["tier"] = self.pick(&["front", "back"]).into();
        }
        labels
    }

    pub(super) fn fill(&mut self, resource: Resource, object: &mut Value) {
        match (resource.kind, resource.version) {
            ("Fischer", _) if self.chance(60) => {
                object["disallowedFlunders"] = self
                    .pick(&[r#"["q"]"#, r#"["q","r"]"#, "[]", "null"])
                    .parse()
                    .unwrap();
            }
            ("Flunder", "v1alpha1") => {
                let spec = self.pick(&[
                    "{}",
                    r#"{"reference":"a"}"#,
                    r#"{"reference":"a","referenceType":"Flunder"}"#,
                    r#"{"reference":"a","referenceType":"Fischer"}"#,
                    r#"{"reference":"","referenceType":""}"#,
                    r#"{"reference":"a","referenceType":"Other"}"#,
                ]);
                object["spec"] = spec.parse().unwrap();
            }
            ("Flunder", _) => {
                let spec = self.pick(&[
                    "{}",
                    r#"{"flunderReference":"a","referenceType":"Flunder"}"#,
                    r#"{"fischerReference":"b","referenceType":"Fischer"}"#,
                    r#"{"fischerReference":"","referenceType":""}"#,
                ]);
                object["spec"] = spec.parse().unwrap();
            }
            _ => {}
        }
        if resource.namespaced && self.chance(10) {
            object["status"] = json!({});
        }
    }

    /// Adds parameters of writes, and chooses the form of the answer.
    fn finish(&mut self, mut step: Step) -> Step {
        let mut parameters = Vec::new();
        if self.chance(8) {
            parameters.push("dryRun=All".to_owned());
            step.is_dry_run = true;
        } else if self.chance(1) {
            parameters.push("dryRun=Some".to_owned());
            step.is_dry_run = true;
        }
        if self.chance(6) {
            let mode = self.pick(&["Strict", "Warn", "Ignore", "Other"]);
            parameters.push(format!("fieldValidation={mode}"));
        }
        if self.chance(4) {
            parameters.push("fieldManager=test".to_owned());
        }
        step.sent.target = with_query(&step.sent.target, &parameters);
        if self.chance(6) {
            step.sent.accept = Some(self.pick(&[TABLE, PARTIAL, "application/json"]));
        }
        step
    }

    pub(super) fn create(&mut self) -> Step {
        let resource = self.resource();
        let namespace = self.namespace(resource);
        let name = self.pick(&NAMES);
        let mut object = self.object(resource, name);
        match self.random.below(30) {
            0 => object["metadata"]["namespace"] = self.pick(&NAMESPACES).into(),
            1 => object["metadata"]["resourceVersion"] = self.pick(&["5", "0", ""]).into(),
            2 => object["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into(),
            3 => object["spec"] = self.invalid_spec(resource),
            4 => object["metadata"]["creationTimestamp"] = Value::Null,
            5 => object["metadata"]["generation"] = 7.into(),
            6 => object["metadata"]["selfLink"] = "/x".into(),
            _ => {}
        }
        let has_version = object["metadata"].get("resourceVersion").is_some();
        let step = Step {
            sent: post(resource.collection(namespace), &object),
            object: Some(Object::new(resource, namespace, name)),
            is_dry_run: false,
        };
        match has_version {
            // The sample accepts any resource version in a dry run.
            true => step,
            false => self.finish(step),
        }
    }

    /// Returns a spec that the rules of a new Flunder refuse.
    fn invalid_spec(&mut self, resource: Resource) -> Value {
        let spec = match resource.version {
            "v1alpha1" => self.pick(&[
                r#"{"referenceType":"Flunder"}"#,
                r#"{"referenceType":"Fischer"}"#,
            ]),
            _ => self.pick(&[
                r#"{"flunderReference":"a","fischerReference":"b"}"#,
                r#"{"flunderReference":"a"}"#,
                r#"{"flunderReference":"a","referenceType":"Fischer"}"#,
                r#"{"fischerReference":"a","referenceType":"Flunder"}"#,
                r#"{"referenceType":"Flunder"}"#,
                r#"{"referenceType":"Other"}"#,
                r#"{"fischerReference":"a","referenceType":"Other"}"#,
            ]),
        };
        match resource.namespaced {
            true => spec.parse().unwrap(),
            false => json!({}),
        }
    }

    pub(super) fn generate_name(&mut self) -> Step {
        let resource = self.resource();
        let namespace = self.namespace(resource);
        self.generated += 1;
        let long = self.pick(&["", "", &"a".repeat(80)]).to_owned();
        let prefix = format!("gen-{}-{long}", self.generated);
        let mut object = self.object(resource, "");
        object["metadata"]["generateName"] = prefix.into();
        let sent = post(resource.collection(namespace), &object);
        self.finish(Step {
            sent,
            object: Some(Object::new(resource, namespace, "")),
            is_dry_run: false,
        })
    }

    pub(super) fn update(&mut self, known: &Known) -> Step {
        let target = self.target(known);
        let mut object = self.object(target.resource, NAME);
        let metadata = &mut object["metadata"];
        match self.random.below(14) {
            0 => {}
            1 => metadata["resourceVersion"] = "1".into(),
            2 => metadata["resourceVersion"] = "abc".into(),
            3 => metadata["resourceVersion"] = "0".into(),
            _ => metadata["resourceVersion"] = known.version_of(&target).into(),
        }
        match self.random.below(24) {
            0 => metadata["name"] = "other".into(),
            1 => metadata["name"] = "".into(),
            2 => metadata["namespace"] = self.pick(&NAMESPACES).into(),
            3 => metadata["uid"] = "00000000-0000-4000-8000-000000000000".into(),
            4..8 => metadata["uid"] = UID.into(),
            8 => metadata["generateName"] = "x-".into(),
            9 => metadata["deletionTimestamp"] = "2020-01-01T00:00:00Z".into(),
            10 => metadata["labels"] = json!({"-bad-": "x"}),
            11 => metadata["creationTimestamp"] = "2020-01-01T00:00:00Z".into(),
            _ => {}
        }
        let sent = Sent {
            method: "PUT",
            target: target.path(),
            content_type: Some(JSON),
            accept: None,
            body: object.to_string(),
        };
        self.finish(Step {
            sent,
            object: Some(target),
            is_dry_run: false,
        })
    }

    pub(super) fn merge_patch(&mut self, known: &Known) -> Step {
        let target = self.target(known);
        let patch = match self.random.below(16) {
            0 => json!({"metadata": {"labels": {"app": self.pick(&APPS), "tier": null}}}),
            1 => json!({"metadata": {"annotations": {"note": self.pick(&["p", "q"])}}}),
            2 => json!({"metadata": {"annotations": null, "labels": null}}),
            3 => json!({"metadata": {"finalizers": ["example.com/wait"]}}),
            4..6 => json!({"metadata": {"finalizers": null}}),
            6 => json!({"metadata": {"resourceVersion": "1"}}),
            7 => json!({"metadata": {"resourceVersion": known.version_of(&target)},
                "spec": null}),
            8 => json!({"metadata": {"name": "other"}}),
            9 => json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}}),
            10 => json!({"metadata": {"namespace": "three"}}),
            11 => json!({"kind": "Other"}),
            12 => json!({"apiVersion": "wardle.example.com/v9"}),
            13 => json!({"spec": {"unknown": 1}}),
            _ => {
                let mut object = json!({});
                self.fill(target.resource, &mut object);
                object
            }
        };
        self.patch(target, MERGE_PATCH, patch.to_string())
    }

    pub(super) fn json_patch(&mut self, known: &Known) -> Step {
        let target = self.target(known);
        let patch = match self.random.below(14) {
            0 => json!([{"op": "add", "path": "/metadata/labels", "value": self.labels()}]),
            1 => json!([{"op": "add", "path": "/metadata/labels/app", "value": "y"}]),
            2 => json!([{"op": "remove", "path": "/metadata/labels/app"}]),
            3 => json!([{"op": "remove", "path": "/metadata/labels/none"}]),
            4 => json!([{"op": "test", "path": "/metadata/name", "value": "a"}]),
            5 => json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}]),
            6 => json!([{"op": "replace", "path": "/metadata/annotations", "value": {"k": "v"}}]),
            7 => {
                json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/wait"]}])
            }
            8 => json!([{"op": "remove", "path": "/metadata/finalizers"}]),
            9 => {
                json!([{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/copied"}])
            }
            10 => {
                json!([{"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/tier"}])
            }
            11 => json!([{"op": "odd", "path": "/metadata/labels"}]),
            12 => json!([{"op": "add", "path": "metadata", "value": 1}]),
            _ => json!([]),
        };
        self.patch(target, JSON_PATCH, patch.to_string())
    }

    fn patch(&mut self, target: Object, content_type: &'static str, body: String) -> Step {
        let sent = Sent {
            method: "PATCH",
            target: target.path(),
            content_type: Some(content_type),
            accept: None,
            body,
        };
        self.finish(Step {
            sent,
            object: Some(target),
            is_dry_run: false,
        })
    }

    pub(super) fn delete(&mut self, known: &Known) -> Step {
        let target = self.target(known);
        let version = known.version_of(&target);
        let body = match self.random.below(12) {
            0 => json!({"preconditions": {"uid": UID}}),
            1 => json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}),
            2 => json!({"preconditions": {"resourceVersion": version}}),
            3 => json!({"preconditions": {"resourceVersion": "1"}}),
            4 => json!({"preconditions": {"uid": UID, "resourceVersion": "1"}}),
            5 => json!({"apiVersion": "v1", "kind": "DeleteOptions",
                "propagationPolicy": "Background"}),
            6 => json!({"propagationPolicy": "Other"}),
            7 => json!({"gracePeriodSeconds": 0}),
            8 => json!({"dryRun": ["Other"]}),
            _ => Value::Null,
        };
        let mut step = Step {
            sent: Sent {
                method: "DELETE",
                target: target.path(),
                ..Sent::default()
            },
            object: Some(target),
            is_dry_run: false,
        };
        if !body.is_null() {
            step.sent.content_type = Some(JSON);
            step.sent.body = body.to_string();
        }
        // The sample ignores the query of a deletion with a body, and would delete.
        if step.sent.body.is_empty() && self.chance(20) {
            step.sent.target = with_query(&step.sent.target, &["dryRun=All".to_owned()]);
            step.is_dry_run = true;
        }
        step
    }

    pub(super) fn delete_collection(&mut self) -> Step {
        let resource = self.resource();
        let namespace = self.namespace(resource);
        let mut parameters = self.selectors();
        if parameters.is_empty() && self.chance(70) {
            parameters.push("labelSelector=app=z".to_owned());
        }
        Step {
            sent: Sent {
                method: "DELETE",
                target: with_query(&resource.collection(namespace), &parameters),
                ..Sent::default()
            },
            ..Step::default()
        }
    }
}
