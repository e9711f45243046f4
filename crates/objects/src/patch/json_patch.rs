//! JSON Patch, RFC 6902, with the details of the library that Kubernetes uses.

use serde_json::{Map, Value};

use crate::decode::{DEPTH_MAX, Decoded, decode, depth, type_name};
use crate::go_format;
use crate::patch::{COPIED_BYTES_MAX, OPERATIONS_MAX, PatchError};

const MISSING: &str = "missing value";
const INVALID_INDEX: &str = "invalid index referenced";
const TEST_FAILED: &str = "test failed";

/// A list of operations on a document.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Map<String, Value>>,
    strict_errors: Vec<String>,
}

impl JsonPatch {
    /// Parses the body of a request.
    pub fn parse(body: &[u8]) -> Result<JsonPatch, PatchError> {
        let Decoded { value, duplicates } =
            decode(body).map_err(|error| PatchError::Malformed(error.to_string()))?;
        let items = match value {
            Value::Array(items) => items,
            other => return Err(wrong_type(&other, "Patch")),
        };
        if items.len() > OPERATIONS_MAX {
            return Err(PatchError::TooManyOperations { count: items.len() });
        }
        let mut operations = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Object(operation) => operations.push(operation),
                // Has no kind, so it does not apply.
                Value::Null => operations.push(Map::new()),
                other => return Err(wrong_type(&other, "Operation")),
            }
        }
        let unknown = operations
            .iter()
            .enumerate()
            .flat_map(|(index, operation)| {
                let names = operation.keys().filter(|name| !is_known_field(name));
                names.map(move |name| {
                    format!(
                        "unknown field {}",
                        go_format::quote(&format!("[{index}].{name}"))
                    )
                })
            });
        let strict_errors = duplicates
            .into_iter()
            .chain(unknown)
            .map(|text| format!("json patch {text}"))
            .collect();
        Ok(JsonPatch {
            operations,
            strict_errors,
        })
    }

    /// Returns the texts about repeated and unknown fields, for strict field validation.
    #[must_use]
    pub fn strict_errors(&self) -> &[String] {
        &self.strict_errors
    }

    /// Returns the document with all operations applied.
    pub fn apply(&self, mut document: Value) -> Result<Value, PatchError> {
        let mut copied_bytes = 0;
        for operation in &self.operations {
            let operation = Operation(operation);
            match operation.kind() {
                "add" => operation.add(&mut document),
                "remove" => operation.remove(&mut document),
                "replace" => operation.replace(&mut document),
                "move" => operation.move_value(&mut document),
                "test" => operation.test(&document),
                "copy" => operation.copy(&mut document, &mut copied_bytes),
                other => fail(format!("Unexpected kind: {other}")),
            }?;
        }
        Ok(document)
    }
}

fn is_known_field(name: &str) -> bool {
    matches!(name, "op" | "path" | "from" | "value")
}

fn wrong_type(value: &Value, target: &str) -> PatchError {
    let found = type_name(value);
    PatchError::Malformed(format!(
        "json: cannot unmarshal {found} into Go value of type jsonpatch.{target}"
    ))
}

fn fail<T>(text: String) -> Result<T, PatchError> {
    Err(PatchError::DoesNotApply(text))
}

/// One operation; its parts are checked when it is applied, as in Kubernetes.
struct Operation<'patch>(&'patch Map<String, Value>);

impl Operation<'_> {
    fn kind(&self) -> &str {
        let kind = self.0.get("op").and_then(Value::as_str);
        kind.unwrap_or("unknown")
    }

    fn text(&self, field: &str, missing: &str) -> Result<&str, String> {
        match self.0.get(field) {
            None | Some(Value::Null) => Err(format!("{missing}: {MISSING}")),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(format!(
                "json: cannot unmarshal {} into Go value of type string",
                type_name(other)
            )),
        }
    }

    fn path(&self) -> Result<&str, PatchError> {
        self.text("path", "operation missing path field")
            .or_else(|error| {
                let kind = self.kind();
                // Three kinds report the cause, three do not.
                let cause = match kind {
                    "add" | "remove" | "copy" => MISSING,
                    _ => &error,
                };
                fail(format!("{kind} operation failed to decode path: {cause}"))
            })
    }

    fn from(&self) -> Result<&str, PatchError> {
        self.text("from", "operation, missing from field")
            .or_else(|error| {
                fail(format!(
                    "{} operation failed to decode from: {error}",
                    self.kind()
                ))
            })
    }

    /// Returns the value; an operation without one writes null.
    fn value(&self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }

    fn add(&self, document: &mut Value) -> Result<(), PatchError> {
        let path = self.path()?;
        let Some((container, key)) = find_container(document, path) else {
            return fail(format!(
                "add operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        let value = self.value();
        check_depth(path, &value)?;
        add_to(container, &key, value)
            .or_else(|error| fail(format!("error in add for path: '{path}': {error}")))
    }

    fn remove(&self, document: &mut Value) -> Result<(), PatchError> {
        let path = self.path()?;
        let Some((container, key)) = find_container(document, path) else {
            return fail(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"
            ));
        };
        match remove_from(container, &key) {
            Ok(_) => Ok(()),
            Err(error) => fail(format!("error in remove for path: '{path}': {error}")),
        }
    }

    fn replace(&self, document: &mut Value) -> Result<(), PatchError> {
        let path = self.path()?;
        let value = self.value();
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return fail(
                    "replace operation value must be object or array: %!w(<nil>)".to_owned(),
                );
            }
            *document = value;
            return Ok(());
        }
        let Some((container, key)) = find_container(document, path) else {
            return fail(format!(
                "replace operation does not apply: doc is missing path: {path}: {MISSING}"
            ));
        };
        check_depth(path, &value)?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
                Ok(())
            }
            Value::Array(items) => match existing_index(items.len(), &key) {
                Ok(index) => {
                    items[index] = value;
                    Ok(())
                }
                Err(_) => fail(format!(
                    "replace operation does not apply: doc is missing key: {path}: {MISSING}"
                )),
            },
            _ => Ok(()),
        }
    }

    fn move_value(&self, document: &mut Value) -> Result<(), PatchError> {
        let from = self.from()?;
        let Some((container, key)) = find_container(document, from) else {
            return fail(format!(
                "move operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let value = match remove_from(container, &key) {
            Ok(value) => value,
            Err(error) => return fail(format!("error in move for path: '{key}': {error}")),
        };
        let path = self.path()?;
        let Some((container, key)) = find_container(document, path) else {
            return fail(format!(
                "move operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        check_depth(path, &value)?;
        add_to(container, &key, value)
            .or_else(|error| fail(format!("error in move for path: '{path}': {error}")))
    }

    fn test(&self, document: &Value) -> Result<(), PatchError> {
        let path = self.path()?;
        let wanted = self.value();
        let failed = || fail(format!("testing value {path} failed: {TEST_FAILED}"));
        if path.is_empty() {
            return if *document == wanted {
                Ok(())
            } else {
                failed()
            };
        }
        let Some((container, key)) = find(document, path) else {
            return fail(format!(
                "test operation does not apply: is missing path: {path}: {MISSING}"
            ));
        };
        match get_from(container, &key) {
            Err(error) => fail(format!("error in test for path: '{path}': {error}")),
            // A missing field equals null.
            Ok(found) if found.unwrap_or(&Value::Null) == &wanted => Ok(()),
            Ok(_) => failed(),
        }
    }

    fn copy(&self, document: &mut Value, copied_bytes: &mut usize) -> Result<(), PatchError> {
        let from = self.from()?;
        let Some((container, key)) = find(document, from) else {
            return fail(format!(
                "copy operation does not apply: doc is missing from path: {from}: {MISSING}"
            ));
        };
        let source = match get_from(container, &key) {
            Ok(source) => source.cloned(),
            Err(error) => return fail(format!("error in copy for from: '{from}': {error}")),
        };
        let path = self.path()?;
        let Some((container, key)) = find_container(document, path) else {
            return fail(format!(
                "copy operation does not apply: doc is missing destination path: {path}: {MISSING}"
            ));
        };
        *copied_bytes += source
            .as_ref()
            .map_or(0, |value| go_format::json(value).len());
        if *copied_bytes > COPIED_BYTES_MAX {
            let copied_bytes = *copied_bytes;
            return Err(PatchError::CopyTooLarge { copied_bytes });
        }
        let value = source.unwrap_or_default();
        check_depth(path, &value)?;
        add_to(container, &key, value)
            .or_else(|error| fail(format!("error while adding value during copy: {error}")))
    }
}

/// Refuses a value that would be nested too deeply at this path.
fn check_depth(path: &str, value: &Value) -> Result<(), PatchError> {
    let containers = path.matches('/').count();
    if containers + depth(value) > DEPTH_MAX {
        return Err(PatchError::TooDeep);
    }
    Ok(())
}

/// Splits a path into the keys of containers and the last key. The text before the first slash
/// is ignored.
fn split_path(path: &str) -> Option<(Vec<String>, String)> {
    let mut keys: Vec<String> = path.split('/').skip(1).map(decode_key).collect();
    let last = keys.pop()?;
    Some((keys, last))
}

fn decode_key(key: &str) -> String {
    // Left to right without overlaps: `~01` is `~1`, not `/`.
    let mut decoded = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(at) = rest.find('~') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let (text, length) = match rest.as_bytes().get(1) {
            Some(b'1') => ("/", 2),
            Some(b'0') => ("~", 2),
            _ => ("~", 1),
        };
        decoded.push_str(text);
        rest = &rest[length..];
    }
    decoded.push_str(rest);
    decoded
}

/// Returns the map or list that holds the last key of a path.
fn find<'document>(document: &'document Value, path: &str) -> Option<(&'document Value, String)> {
    let (keys, last) = split_path(path)?;
    let mut container = document;
    for key in keys {
        container = get_from(container, &key).ok().flatten()?;
    }
    is_container(container).then_some((container, last))
}

fn find_container<'document>(
    document: &'document mut Value,
    path: &str,
) -> Option<(&'document mut Value, String)> {
    let (keys, last) = split_path(path)?;
    let mut container = document;
    for key in keys {
        container = match container {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let index = existing_index(items.len(), &key).ok()?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    is_container(container).then_some((container, last))
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn get_from<'value>(container: &'value Value, key: &str) -> Result<Option<&'value Value>, String> {
    match container {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => Ok(items.get(existing_index(items.len(), key)?)),
        _ => Ok(None),
    }
}

fn add_to(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = parse_index(key)
                .map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
            // The new item may stand behind the last one.
            let index = resolve_index(index, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => {}
    }
    Ok(())
}

fn remove_from(container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::Object(map) => map
            .remove(key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}")),
        Value::Array(items) => Ok(items.remove(existing_index(items.len(), key)?)),
        _ => Ok(Value::Null),
    }
}

fn existing_index(length: usize, key: &str) -> Result<usize, String> {
    resolve_index(parse_index(key)?, length)
}

fn parse_index(key: &str) -> Result<i64, String> {
    key.parse().map_err(|_| {
        let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
        let is_number = !digits.is_empty() && digits.bytes().all(|letter| letter.is_ascii_digit());
        let problem = if is_number {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("strconv.Atoi: parsing {}: {problem}", go_format::quote(key))
    })
}

/// Returns the index in a list; a negative one counts from the end.
fn resolve_index(index: i64, length: usize) -> Result<usize, String> {
    let refuse = || format!("Unable to access invalid index: {index}: {INVALID_INDEX}");
    let length = i64::try_from(length).map_err(|_| refuse())?;
    let resolved = if index < 0 { index + length } else { index };
    if resolved < 0 || resolved >= length {
        return Err(refuse());
    }
    usize::try_from(resolved).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn apply(document: Value, operations: Value) -> Result<Value, String> {
        JsonPatch::parse(operations.to_string().as_bytes())
            .and_then(|patch| patch.apply(document))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn operations_change_maps_and_lists() {
        let document = json!({"a": {"b": 1}, "l": [1, 2, 3], "x/y": {"~": 0}});
        let cases = [
            (
                json!([{"op": "add", "path": "/a/c", "value": 2}]),
                "/a/c",
                json!(2),
            ),
            (
                json!([{"op": "add", "path": "/l/1", "value": 9}]),
                "/l",
                json!([1, 9, 2, 3]),
            ),
            (
                json!([{"op": "add", "path": "/l/-", "value": 9}]),
                "/l",
                json!([1, 2, 3, 9]),
            ),
            (
                json!([{"op": "add", "path": "/l/-1", "value": 9}]),
                "/l",
                json!([1, 2, 3, 9]),
            ),
            (
                json!([{"op": "remove", "path": "/l/-1"}]),
                "/l",
                json!([1, 2]),
            ),
            (
                json!([{"op": "replace", "path": "/l/0", "value": 7}]),
                "/l",
                json!([7, 2, 3]),
            ),
            (
                json!([{"op": "replace", "path": "/a/new", "value": 7}]),
                "/a/new",
                json!(7),
            ),
            (
                json!([{"op": "replace", "path": "/x~1y/~0", "value": 7}]),
                "/x~1y/~0",
                json!(7),
            ),
            (
                json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
                "/c",
                json!(1),
            ),
            (
                json!([{"op": "copy", "from": "/a", "path": "/l/0"}]),
                "/l/0",
                json!({"b": 1}),
            ),
            (
                json!([{"op": "copy", "from": "/none", "path": "/c"}]),
                "/c",
                json!(null),
            ),
            (
                json!([{"op": "test", "path": "/a", "value": {"b": 1}}, {"op": "test", "path": "/none"}]),
                "/a/b",
                json!(1),
            ),
            (
                json!([{"op": "add", "path": "ignored/c"}]),
                "/c",
                json!(null),
            ),
            (
                json!([{"op": "replace", "path": "", "value": {"z": 1}}]),
                "/z",
                json!(1),
            ),
        ];
        for (operations, pointer, expected) in cases {
            let patched = apply(document.clone(), operations.clone()).unwrap();
            assert_eq!(patched.pointer(pointer), Some(&expected), "{operations}");
        }
    }

    #[test]
    fn refusals_have_the_texts_of_kubernetes() {
        let document = json!({"a": {"b": 1}, "l": [1]});
        let cases = [
            (
                json!([{"op": "add", "path": "/x/y", "value": 1}]),
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (
                json!([{"op": "add", "path": "", "value": 1}]),
                "add operation does not apply: doc is missing path: \"\": missing value",
            ),
            (
                json!([{"op": "add", "value": 1}]),
                "add operation failed to decode path: missing value",
            ),
            (
                json!([{"op": "test", "value": 1}]),
                "test operation failed to decode path: operation missing path field: missing value",
            ),
            (
                json!([{"op": "replace", "path": 1}]),
                "replace operation failed to decode path: json: cannot unmarshal number into Go value of type string",
            ),
            (
                json!([{"op": "move", "path": "/a"}]),
                "move operation failed to decode from: operation, missing from field: missing value",
            ),
            (
                json!([{"op": "add", "path": "/l/7", "value": 1}]),
                "error in add for path: '/l/7': Unable to access invalid index: 7: invalid index referenced",
            ),
            (
                json!([{"op": "add", "path": "/l/x", "value": 1}]),
                "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
            (
                json!([{"op": "add", "path": "/l/99999999999999999999", "value": 1}]),
                "error in add for path: '/l/99999999999999999999': value was not a proper array index: '99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": value out of range",
            ),
            (
                json!([{"op": "remove", "path": "/x"}]),
                "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "remove", "path": "/l/-2"}]),
                "error in remove for path: '/l/-2': Unable to access invalid index: -2: invalid index referenced",
            ),
            (
                json!([{"op": "replace", "path": "/x/y", "value": 1}]),
                "replace operation does not apply: doc is missing path: /x/y: missing value",
            ),
            (
                json!([{"op": "replace", "path": "/l/5", "value": 1}]),
                "replace operation does not apply: doc is missing key: /l/5: missing value",
            ),
            (
                json!([{"op": "move", "from": "/x", "path": "/y"}]),
                "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "copy", "from": "/x/y", "path": "/y"}]),
                "copy operation does not apply: doc is missing from path: /x/y: missing value",
            ),
            (
                json!([{"op": "test", "path": "/a/b", "value": 2}]),
                "testing value /a/b failed: test failed",
            ),
            (
                json!([{"op": "test", "path": "/a/b", "value": 1.0}]),
                "testing value /a/b failed: test failed",
            ),
            (
                json!([{"op": "test", "path": "/a/b/c", "value": 2}]),
                "test operation does not apply: is missing path: /a/b/c: missing value",
            ),
            (
                json!([{"op": "frob", "path": "/a"}]),
                "Unexpected kind: frob",
            ),
            (json!([null]), "Unexpected kind: unknown"),
            (
                json!({}),
                "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
            ),
            (
                json!([1]),
                "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
            ),
        ];
        for (operations, text) in cases {
            assert_eq!(
                apply(document.clone(), operations.clone()).unwrap_err(),
                text
            );
        }
    }

    #[test]
    fn number_of_operations_is_limited() {
        let operation = json!({"op": "test", "path": "/a", "value": 1});
        let body = Value::Array(vec![operation.clone(); OPERATIONS_MAX]).to_string();
        assert!(JsonPatch::parse(body.as_bytes()).is_ok());
        let body = Value::Array(vec![operation; OPERATIONS_MAX + 1]).to_string();
        let error = JsonPatch::parse(body.as_bytes()).unwrap_err();
        assert_eq!(error, PatchError::TooManyOperations { count: 10_001 });
        assert_eq!(
            error.status().message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    #[test]
    fn copies_cannot_grow_a_document_without_bound() {
        let mut operations = vec![json!({"op": "add", "path": "/l", "value": ["x".repeat(1000)]})];
        operations.extend((0..200).map(|_| json!({"op": "copy", "from": "/l", "path": "/l/-"})));
        let patch = JsonPatch::parse(Value::Array(operations).to_string().as_bytes()).unwrap();
        let error = patch.apply(json!({})).unwrap_err();
        assert!(
            matches!(error, PatchError::CopyTooLarge { copied_bytes } if copied_bytes > COPIED_BYTES_MAX)
        );
        assert_eq!(error.status().code, 422);
    }

    #[test]
    fn moves_cannot_nest_a_document_without_bound() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for _ in 0..DEPTH_MAX {
            operations.push(json!({"op": "add", "path": "/b", "value": {}}));
            operations.push(json!({"op": "move", "from": "/a", "path": "/b/a"}));
            operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
        }
        let patch = JsonPatch::parse(Value::Array(operations).to_string().as_bytes()).unwrap();
        assert_eq!(patch.apply(json!({})).unwrap_err(), PatchError::TooDeep);
    }

    #[test]
    fn strict_validation_reports_unknown_and_repeated_fields() {
        let patch =
            JsonPatch::parse(br#"[{"op": "add", "op": "add", "path": "/a", "what": 1}]"#).unwrap();
        assert_eq!(
            patch.strict_errors(),
            [
                r#"json patch duplicate field "[0].op""#,
                r#"json patch unknown field "[0].what""#
            ]
        );
    }
}
