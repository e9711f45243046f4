//! Differences that are meant, each with its reason. docs/apiserver.md has the same table.

use serde_json::{Map, Value};

use crate::servers::{Answer, Sent};

/// A difference that is meant.
pub struct Rule {
    pub name: &'static str,
    pub reason: &'static str,
    /// Makes the two answers equal where the rule applies.
    pub forgive: fn(&Sent, &mut Answer, &mut Answer),
}

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        name: "nosniff",
        reason: "ours forbids browsers to guess the type of every answer",
        forgive: |_, _, ours| {
            ours.headers.remove("x-content-type-options");
        },
    },
    Rule {
        name: "generation",
        reason: "ours counts generations, as custom resources do; the sample's strategies do not",
        forgive: |_, sample, ours| {
            for answer in [sample, ours] {
                each_metadata(&mut answer.body, &|metadata| {
                    metadata.remove("generation");
                });
            }
        },
    },
    Rule {
        name: "deprecation",
        reason: "warnings name releases of the own line of versions",
        forgive: |_, sample, ours| {
            let pattern = "is deprecated in v";
            for answer in [sample, ours] {
                if let Some(warning) = answer.headers.get_mut("warning") {
                    let lines = warning.lines().map(|line| match line.split_once(pattern) {
                        Some((before, _)) => format!("{before}{pattern}"),
                        None => line.to_owned(),
                    });
                    *warning = lines.collect::<Vec<_>>().join("\n");
                }
            }
        },
    },
    Rule {
        name: "type of items",
        reason: "items of lists have apiVersion and kind, as those of custom resources have",
        forgive: |_, _, ours| {
            let items = ours.body.get_mut("items");
            if let Some(items) = items.and_then(Value::as_array_mut) {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    item.remove("apiVersion");
                    item.remove("kind");
                }
            }
        },
    },
    Rule {
        name: "HEAD",
        reason: "ours answers HEAD as GET without a body; the sample refuses it for resources",
        forgive: |sent, sample, ours| {
            if sent.method == "HEAD" && sample.code == 405 {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "descriptions of columns",
        reason: "the columns of tables are described in other words",
        forgive: |_, sample, ours| {
            for answer in [sample, ours] {
                each_column(&mut answer.body, &|column| {
                    column.remove("description");
                });
            }
        },
    },
    Rule {
        name: "patch that does not apply",
        reason: "ours names the operation that failed in a cause; the sample does not say why",
        forgive: |sent, sample, ours| {
            let words = "the server rejected our request";
            if sent.method == "PATCH" && both_say(sample, ours, 422, words) {
                ours.body["details"] = sample.body["details"].clone();
            }
        },
    },
    Rule {
        name: "texts about JSON",
        reason: "errors of JSON parsers and Go types are not repeated to the letter",
        forgive: |_, sample, ours| {
            for words in [
                "the object provided is unrecognized",
                "you requested PartialObjectMetadata",
                "couldn't get version/kind; json parse error",
                "invalid continue token",
                "Flunder in version",
                "Fischer in version",
            ] {
                let code = sample.code;
                if both_say(sample, ours, code, words) {
                    ours.body["message"] = sample.body["message"].clone();
                }
            }
        },
    },
    Rule {
        name: "types",
        reason: "another apiVersion, kind or field is refused with other texts, without the document",
        forgive: |_, sample, ours| {
            let is_about_types = [
                "is registered for version",
                "json: cannot unmarshal",
                "strict decoding error",
            ]
            .iter()
            .any(|words| message(sample).contains(words));
            let is_refused = matches!(sample.code, 400 | 422);
            if is_about_types && is_refused && matches!(ours.code, 400 | 404 | 422) {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "keys in texts",
        reason: "ours does not show keys of the store in the refusal of a wrong uid",
        forgive: |_, sample, ours| {
            if sample.code == 409
                && message(sample).contains("AdditionalErrorMsg: Precondition failed")
            {
                let text = message(sample).to_owned();
                let (before, rest) = text.split_once("StorageError").unwrap();
                let (_, after) = rest.split_once("AdditionalErrorMsg: ").unwrap();
                sample.body["message"] = format!("{before}{after}").into();
            }
            let _ = ours;
        },
    },
    Rule {
        name: "unusable resource versions",
        reason: "ours answers with 400 or 409 where the sample fails with 500",
        forgive: |_, sample, ours| {
            let is_meant = ["strconv.ParseUint", "resourceVersion should not be set"]
                .iter()
                .any(|words| message(sample).contains(words));
            if sample.code == 500 && is_meant && matches!(ours.code, 400 | 409) {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "Retry-After",
        reason: "ours sends it with every resource version that is too large; the sample does with its watch cache only",
        forgive: |_, sample, ours| {
            if both_say(sample, ours, 504, "Timeout: Too large resource version") {
                ours.headers.remove("retry-after");
                if let Some(details) = ours.body["details"].as_object_mut() {
                    details.remove("retryAfterSeconds");
                }
            }
        },
    },
    Rule {
        name: "unknown paths",
        reason: "ours answers with a Status; the sample lists its paths",
        forgive: |_, sample, ours| {
            if sample.code == 404 && ours.code == 404 && sample.body.get("paths").is_some() {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "media types",
        reason: "ours produces JSON alone, for application/* too, and names fewer media types",
        forgive: |sent, sample, ours| {
            let is_wide = sent.accept == Some("application/*");
            if matches!(sample.code, 406 | 415) && (ours.code == sample.code || is_wide) {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "discovery",
        reason: "ours names versions of documents and kinds, and stores another version",
        forgive: |sent, sample, ours| {
            if !sent.target.starts_with("/apis") || sample.code != 200 {
                return;
            }
            for answer in [sample, ours] {
                answer.headers.remove("vary");
                if let Some(document) = answer.body.as_object_mut() {
                    document.remove("apiVersion");
                }
                remove_everywhere(&mut answer.body, "serverAddressByClientCIDRs");
                remove_everywhere(&mut answer.body, "storageVersionHash");
                remove_everywhere(&mut answer.body, "responseKind");
            }
        },
    },
    Rule {
        name: "order of unknown fields",
        reason: "ours warns about unknown fields in the order of their names",
        forgive: |_, sample, ours| {
            for answer in [sample, ours] {
                if let Some(warning) = answer.headers.get_mut("warning") {
                    let mut lines: Vec<&str> = warning.lines().collect();
                    lines.sort_unstable();
                    *warning = lines.join("\n");
                }
            }
        },
    },
    Rule {
        name: "repeated causes",
        reason: "the sample checks the metadata of an update twice and says everything twice",
        forgive: |sent, sample, ours| {
            let causes = sample
                .body
                .pointer("/details/causes")
                .and_then(Value::as_array);
            if matches!(sent.method, "PUT" | "PATCH")
                && sample.code == 422
                && ours.code == 422
                && causes.is_some_and(|causes| causes.len() == 2 && causes[0] == causes[1])
            {
                let once = causes.map(|causes| causes[..1].to_vec());
                sample.body["details"]["causes"] = once.unwrap_or_default().into();
                sample.body["message"] = ours.body["message"].clone();
            }
        },
    },
    Rule {
        name: "field selectors",
        reason: "an unknown field is refused with the text for custom resources",
        forgive: |_, sample, ours| {
            if sample.code == 400 && message(sample).contains(" is not a known field selector") {
                ours.clone_from(sample);
            }
        },
    },
    Rule {
        name: "empty values",
        reason: "empty lists are lists, not null; bookmarks have metadata alone",
        forgive: |_, sample, _| {
            for field in ["items", "rows"] {
                if let Some(value) = sample.body.get_mut(field).filter(|it| it.is_null()) {
                    *value = Value::Array(Vec::new());
                }
            }
            if let Some(events) = sample.body.as_array_mut() {
                for event in events
                    .iter_mut()
                    .filter(|event| event["type"] == "BOOKMARK")
                {
                    if let Some(object) = event["object"].as_object_mut() {
                        object.remove("spec");
                        object.remove("status");
                    }
                    // The time of creation of an object that does not exist.
                    if let Some(cell) = event.pointer_mut("/object/rows/0/cells/1") {
                        *cell = "".into();
                    }
                }
            }
        },
    },
];

/// Returns whether both answers are failures with a code and with texts that begin with the same
/// words.
fn both_say(sample: &Answer, ours: &Answer, code: u16, words: &str) -> bool {
    [sample, ours]
        .iter()
        .all(|answer| answer.code == code && message(answer).starts_with(words))
}

fn message(answer: &Answer) -> &str {
    answer
        .body
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Changes the definition of every column of a table, or of the tables of a watch.
fn each_column(value: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    if let Some(events) = value.as_array_mut() {
        let objects = events
            .iter_mut()
            .filter_map(|event| event.get_mut("object"));
        return objects.for_each(|object| each_column(object, change));
    }
    let columns = value.get_mut("columnDefinitions");
    if let Some(columns) = columns.and_then(Value::as_array_mut) {
        columns
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(change);
    }
}

/// Removes a field from every map of a document.
fn remove_everywhere(value: &mut Value, field: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(field);
            let fields = fields.values_mut();
            fields.for_each(|value| remove_everywhere(value, field));
        }
        Value::Array(items) => {
            let items = items.iter_mut();
            items.for_each(|value| remove_everywhere(value, field));
        }
        _ => {}
    }
}

/// Changes the metadata of every object of a document.
fn each_metadata(value: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                change(metadata);
            }
            let fields = fields.values_mut();
            fields.for_each(|value| each_metadata(value, change));
        }
        Value::Array(items) => {
            let items = items.iter_mut();
            items.for_each(|value| each_metadata(value, change));
        }
        _ => {}
    }
}
