//! Paths and operations of a resource.

use portunus_apis::Verb;
use serde_json::{Map, Value, json};

use super::metadata::{DELETE_OPTIONS, PATCH, STATUS};
use super::schemas::{group_version_kind, name_of};
use crate::api::Target;

const PATCH_TYPES: [&str; 2] = [
    "application/json-patch+json",
    "application/merge-patch+json",
];

fn query(name: &str, kind: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "uniqueItems": true},
    })
}

fn in_path(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

fn dry_run() -> Value {
    query("dryRun", "string", "With All nothing is stored.")
}

fn write_parameters() -> Vec<Value> {
    vec![
        dry_run(),
        query(
            "fieldValidation",
            "string",
            "What happens to unknown and repeated fields: Ignore, Warn or Strict.",
        ),
        query("fieldManager", "string", "The name of the client."),
    ]
}

fn list_parameters() -> Vec<Value> {
    vec![
        query(
            "allowWatchBookmarks",
            "boolean",
            "Whether a watch sends bookmarks.",
        ),
        query(
            "continue",
            "string",
            "The token of the part of the list to read.",
        ),
        query("fieldSelector", "string", "Selects objects by fields."),
        query("labelSelector", "string", "Selects objects by labels."),
        query(
            "limit",
            "integer",
            "The most objects of this part of the list.",
        ),
        query(
            "resourceVersion",
            "string",
            "The version to read or to watch from.",
        ),
        query(
            "resourceVersionMatch",
            "string",
            "How the version is applied: Exact or NotOlderThan.",
        ),
        query(
            "sendInitialEvents",
            "boolean",
            "Whether a watch begins with the present objects.",
        ),
        query(
            "timeoutSeconds",
            "integer",
            "The longest time of the call in seconds.",
        ),
        query(
            "watch",
            "boolean",
            "Whether to receive changes instead of a list.",
        ),
    ]
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn content(media_types: &[&str], schema: &Value) -> Value {
    let types = media_types.iter();
    let types = types.map(|name| ((*name).to_owned(), json!({"schema": schema})));
    Value::Object(types.collect())
}

/// One operation, without what depends on the method.
struct Operation<'api> {
    target: Target<'api>,
    action: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    answer: Value,
    code: &'static str,
}

impl Operation<'_> {
    fn document(self, scope: &str, subresource: &str) -> Value {
        let kind = &self.target.resource.definition.kind;
        let id = format!("{}{scope}{kind}{subresource}", self.action);
        let mut document = json!({
            "operationId": id,
            "description": format!("{} {kind}", self.action),
            "tags": [self.target.resource.api_version(&self.target.version.name)],
            "parameters": self.parameters,
            "responses": {
                self.code: {
                    "description": "OK",
                    "content": content(&["application/json"], &self.answer),
                },
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": group_version_kind(self.target, ""),
        });
        if let Some(body) = self.body {
            document["requestBody"] = json!({"required": true, "content": body});
        }
        document
    }
}

/// Returns the paths of a resource with their operations.
pub(super) fn of(target: Target<'_>) -> Map<String, Value> {
    let root = match &*target.resource.definition.group {
        "" => "/api".to_owned(),
        group => format!("/apis/{group}"),
    };
    let root = format!("{root}/{}", target.version.name);
    let plural = &target.resource.definition.plural;
    let namespaced = target.resource.definition.namespaced;
    let mut paths = Map::new();
    let (collection, scope) = if namespaced {
        let path = format!("{root}/namespaces/{{namespace}}/{plural}");
        (path, "Namespaced")
    } else {
        (format!("{root}/{plural}"), "")
    };
    let mut shared = vec![];
    if namespaced {
        shared.push(in_path("namespace", "The namespace of the object."));
        let list = list_operation(target).document("", "ForAllNamespaces");
        paths.insert(
            format!("{root}/{plural}"),
            json!({"get": list, "parameters": []}),
        );
    }
    let mut item = shared.clone();
    item.push(in_path("name", "The name of the object."));
    let mut document = collection_operations(target, scope);
    document.insert("parameters".to_owned(), json!(shared));
    paths.insert(collection.clone(), Value::Object(document));
    let mut document = item_operations(target, scope, "");
    document.insert("parameters".to_owned(), json!(item));
    paths.insert(format!("{collection}/{{name}}"), Value::Object(document));
    if target.served.subresource("status").is_some() {
        let mut document = item_operations(target, scope, "Status");
        document.insert("parameters".to_owned(), json!(item));
        let path = format!("{collection}/{{name}}/status");
        paths.insert(path, Value::Object(document));
    }
    paths
}

fn has(target: Target<'_>, verb: Verb) -> bool {
    target.served.resource.verbs.contains(&verb)
}

fn list_operation(target: Target<'_>) -> Operation<'_> {
    Operation {
        target,
        action: "list",
        parameters: list_parameters(),
        body: None,
        answer: reference(&format!("{}List", name_of(target))),
        code: "200",
    }
}

fn collection_operations(target: Target<'_>, scope: &str) -> Map<String, Value> {
    let name = name_of(target);
    let object = reference(&name);
    let mut operations = Map::new();
    operations.insert("get".to_owned(), list_operation(target).document(scope, ""));
    if has(target, Verb::Create) {
        let post = Operation {
            target,
            action: "post",
            parameters: write_parameters(),
            body: Some(content(&["application/json"], &object)),
            answer: object,
            code: "201",
        };
        operations.insert("post".to_owned(), post.document(scope, ""));
    }
    if has(target, Verb::DeleteCollection) {
        let mut parameters = list_parameters();
        parameters.push(dry_run());
        let delete = Operation {
            target,
            action: "deletecollection",
            parameters,
            body: Some(content(&["application/json"], &reference(DELETE_OPTIONS))),
            answer: reference(STATUS),
            code: "200",
        };
        operations.insert("delete".to_owned(), delete.document(scope, ""));
    }
    operations
}

fn item_operations(target: Target<'_>, scope: &str, subresource: &str) -> Map<String, Value> {
    let object = reference(&name_of(target));
    let operation = |action, parameters, body, answer| Operation {
        target,
        action,
        parameters,
        body,
        answer,
        code: "200",
    };
    let version = query("resourceVersion", "string", "The oldest version to read.");
    let get = operation("get", vec![version], None, object.clone());
    let mut operations = Map::new();
    operations.insert("get".to_owned(), get.document(scope, subresource));
    if has(target, Verb::Update) {
        let body = content(&["application/json"], &object);
        let put = operation("put", write_parameters(), Some(body), object.clone());
        operations.insert("put".to_owned(), put.document(scope, subresource));
    }
    if has(target, Verb::Patch) {
        let body = content(&PATCH_TYPES, &reference(PATCH));
        let patch = operation("patch", write_parameters(), Some(body), object);
        operations.insert("patch".to_owned(), patch.document(scope, subresource));
    }
    if has(target, Verb::Delete) && subresource.is_empty() {
        let parameters = vec![
            dry_run(),
            query("propagationPolicy", "string", "What happens to dependents."),
        ];
        let body = content(&["application/json"], &reference(DELETE_OPTIONS));
        let delete = operation("delete", parameters, Some(body), reference(STATUS));
        operations.insert("delete".to_owned(), delete.document(scope, subresource));
    }
    operations
}
