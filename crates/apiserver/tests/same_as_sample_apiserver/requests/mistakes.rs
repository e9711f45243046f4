//! Requests that are wrong in their body, path, parameters or headers.

use super::{JSON, JSON_PATCH, MERGE_PATCH, ROOT, Requests, Step, with_query};
use crate::known::{Known, Object};
use crate::servers::Sent;

impl Requests {
    /// Returns a request whose body is no object of the resource, or one with problems.
    pub(super) fn bad_body(&mut self, known: &Known) -> Step {
        let target = self.target(known);
        let resource = target.resource;
        let api_version = resource.api_version();
        let kind = resource.kind;
        let head = format!(r#""apiVersion":"{api_version}","kind":"{kind}""#);
        let named = r#""metadata":{"name":"bad"}"#;
        let body = match self.random.below(26) {
            0 => String::new(),
            1 => "{".to_owned(),
            2 => "[]".to_owned(),
            3 => r#""text""#.to_owned(),
            4 => "nonsense".to_owned(),
            5 => "{}".to_owned(),
            6 => format!(r#"{{{head},"metadata":{{}}}}"#),
            7 => format!(r#"{{{head},"metadata":{{"name":"Bad_Name"}}}}"#),
            8 => format!(r#"{{{head},"metadata":{{"name":"{}"}}}}"#, "x".repeat(254)),
            9 => format!(r#"{{{head},"metadata":{{"name":5}}}}"#),
            10 => format!(r#"{{{head},"metadata":{{"name":"bad","labels":{{"a":1}}}}}}"#),
            11 => format!(r#"{{{head},"metadata":{{"name":"bad","labels":{{"a b":"c"}}}}}}"#),
            12 => format!(r#"{{{head},"metadata":{{"name":"bad","labels":{{"a":"b c"}}}}}}"#),
            13 => format!(r#"{{{head},"metadata":{{"name":"bad","annotations":{{"a b":"c"}}}}}}"#),
            14 => format!(r#"{{{head},"metadata":{{"name":"bad","finalizers":["no slash"]}}}}"#),
            15 => format!(r#"{{{head},"metadata":{{"name":"bad","finalizers":["plain"]}}}}"#),
            16 => format!(
                r#"{{{head},"metadata":{{"name":"bad","ownerReferences":[{{"name":"o"}}]}}}}"#
            ),
            17 => format!(r#"{{"apiVersion":"{api_version}","kind":"Other",{named}}}"#),
            18 => format!(r#"{{"apiVersion":"other/v1","kind":"{kind}",{named}}}"#),
            19 => format!(r#"{{"kind":"{kind}",{named}}}"#),
            20 => format!(r#"{{{head},{named},"unknown":1,"spec":{{"other":2}}}}"#),
            21 => format!(r#"{{{head},{named},{named}}}"#),
            22 => format!(r#"{{{head},{named},"spec":5}}"#),
            23 => format!(r#"{{{head},{named},"spec":{{"referenceType":5}}}}"#),
            24 => format!(r#"{{{head},"metadata":{{"name":"bad","odd":1}}}}"#),
            _ => format!(r#"{{{head},{named},"status":{{"odd":1}}}}"#),
        };
        let is_patch = !body.is_empty() && self.chance(15);
        let mut sent = match self.chance(75) {
            true => Sent {
                method: "POST",
                target: resource.collection(&target.namespace),
                ..Sent::default()
            },
            false => Sent {
                method: if is_patch { "PATCH" } else { "PUT" },
                target: target.path(),
                ..Sent::default()
            },
        };
        sent.content_type = match sent.method {
            "PATCH" => Some(self.pick(&[JSON_PATCH, MERGE_PATCH])),
            _ => Some(JSON),
        };
        sent.body = body;
        if self.chance(50) {
            let mode = self.pick(&["Strict", "Warn", "Ignore"]);
            sent.target = with_query(&sent.target, &[format!("fieldValidation={mode}")]);
        }
        Step {
            sent,
            object: Some(Object::new(resource, &target.namespace, "bad")),
            is_dry_run: false,
        }
    }

    /// Returns a request that is wrong in its path, parameters or headers.
    pub(super) fn bad_request(&mut self, known: &Known) -> Step {
        let object = self.target(known);
        let collection = object.resource.collection(&object.namespace);
        let path = object.path();
        let body = self.object(object.resource, "bad").to_string();
        let mut sent = Sent {
            method: "GET",
            ..Sent::default()
        };
        match self.random.below(22) {
            0 => sent.target = format!("{collection}?labelSelector=app%3D%3D%3Dx"),
            1 => sent.target = format!("{collection}?labelSelector=app+in+x"),
            2 => sent.target = format!("{collection}?labelSelector=-bad-=x"),
            3 => sent.target = format!("{collection}?labelSelector=app=b%20c"),
            4 => sent.target = format!("{collection}?fieldSelector=spec.reference=x"),
            5 => sent.target = format!("{collection}?fieldSelector=metadata.name"),
            6 => sent.target = format!("{collection}?limit=x"),
            7 => sent.target = format!("{path}/status"),
            8 => sent.target = format!("{path}/other"),
            9 => (sent.method, sent.target) = ("POST", path),
            10 => (sent.method, sent.target) = ("PUT", collection),
            11 => (sent.method, sent.target) = ("PATCH", collection),
            12 => (sent.target, sent.accept) = (path, Some("text/html")),
            13 => (sent.target, sent.accept) = (path, Some("application/json;as=Table;v=v9;g=x")),
            14 => {
                sent.method = "PATCH";
                sent.target = path;
                sent.content_type = Some("application/json");
                sent.body = "{}".to_owned();
            }
            15 => {
                sent.method = "POST";
                sent.target = collection;
                sent.content_type = Some("text/plain");
                sent.body = body;
            }
            16 => sent.target = format!("{collection}/Bad_Name"),
            17 => {
                // A namespaced object without a namespace, and the reverse.
                sent.method = "POST";
                sent.content_type = Some(JSON);
                sent.body = body;
                sent.target = match object.resource.namespaced {
                    true => format!("{ROOT}/v1beta1/flunders"),
                    false => format!("{ROOT}/v1alpha1/namespaces/one/fischers"),
                };
            }
            18 => sent.target = format!("{ROOT}/v1beta1/flunders/a"),
            19 => sent.target = format!("{ROOT}/v1alpha1/namespaces/one/fischers/a"),
            20 => {
                sent.method = "DELETE";
                sent.target = path;
                sent.content_type = Some(JSON);
                sent.body = self.pick(&["{", "[]", r#"{"kind":"Other"}"#]).to_owned();
            }
            _ => sent.target = format!("{collection}?watch=true&resourceVersion=abc"),
        }
        Step {
            sent,
            object: Some(object),
            is_dry_run: true,
        }
    }
}
