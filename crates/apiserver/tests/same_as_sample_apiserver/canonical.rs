//! Answers without what differs between any two servers: uids, times, generated names, and the
//! record of field managers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use regex::{Captures, Regex};
use serde_json::Value;

use crate::servers::Answer;

/// Removes what differs, for one server. Uids are numbered in the order in which they appear.
pub struct Canonical {
    uids: BTreeMap<String, usize>,
    uid: Regex,
    time: Regex,
    generated: Regex,
}

impl Canonical {
    pub fn new() -> Canonical {
        let uid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        Canonical {
            uids: BTreeMap::new(),
            uid: Regex::new(uid).unwrap(),
            time: Regex::new(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ").unwrap(),
            generated: Regex::new(r"gen-(\d+)-(a*)[b-z0-9]{5}").unwrap(),
        }
    }

    pub fn answer(&mut self, mut answer: Answer) -> Answer {
        answer.body = self.document(answer.body);
        for value in answer.headers.values_mut() {
            *value = self.text(value);
        }
        answer
    }

    pub fn document(&mut self, mut document: Value) -> Value {
        remove_managed_fields(&mut document);
        show_continue_token(&mut document);
        let text = self.text(&document.to_string());
        text.parse().unwrap()
    }

    fn text(&mut self, text: &str) -> String {
        let uids = &mut self.uids;
        let text = self.uid.replace_all(text, |found: &Captures<'_>| {
            let next = uids.len();
            let number = uids.entry(found[0].to_owned()).or_insert(next);
            format!("UID-{number}")
        });
        let text = self.time.replace_all(&text, "TIME");
        self.generated.replace_all(&text, "gen-$1-$2").into_owned()
    }
}

/// Decodes a continue token, which may have a generated name.
fn show_continue_token(document: &mut Value) {
    if let Some(token) = document.pointer_mut("/metadata/continue") {
        let bytes = URL_SAFE_NO_PAD.decode(token.as_str().unwrap()).unwrap();
        *token = String::from_utf8(bytes).unwrap().into();
    }
}

fn remove_managed_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
            fields.values_mut().for_each(remove_managed_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_managed_fields),
        _ => {}
    }
}
