//! Paths to values of an object: the part of JSONPath that printer columns use.
//!
//! Fields (`.a`, `['a']`, `\.` for a dot in a name), indices (`[0]`, `[-1]`), all items (`[*]`)
//! and one comparison per item (`[?(@.type=="Ready")]`). Anything else is refused.

use serde_json::Value;
use thiserror::Error;

/// The most steps of a path.
pub const STEPS_MAX: usize = 64;

/// A text that is no path of the supported form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "JSONPath {path:?} is not supported at {rest:?}: use fields, indices, [*] and [?(@.field==\"text\")]"
)]
pub struct JsonPathError {
    path: String,
    rest: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Items whose value at the fields equals the literal, or does not.
    Filter {
        fields: Vec<String>,
        is_equal: bool,
        literal: Value,
    },
}

/// A path to zero or more values of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses a path such as `.spec.size` or `{.spec.size}`.
    pub fn parse(text: &str) -> Result<JsonPath, JsonPathError> {
        let inner = text.trim();
        let inner = inner
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(inner);
        let mut rest = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let parsed = parse_step(rest).filter(|_| steps.len() < STEPS_MAX);
            let Some((step, after)) = parsed else {
                return Err(JsonPathError {
                    path: text.to_owned(),
                    rest: rest.to_owned(),
                });
            };
            steps.push(step);
            rest = after;
        }
        Ok(JsonPath { steps })
    }

    /// Returns the values at this path, in order.
    #[must_use]
    pub fn find<'value>(&self, value: &'value Value) -> Vec<&'value Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| apply(step, value))
                .collect();
        }
        found
    }
}

fn apply<'value>(step: &Step, value: &'value Value) -> Vec<&'value Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
        (Step::Index(index), Value::Array(items)) => {
            let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let index = if *index < 0 { index + length } else { *index };
            let index = usize::try_from(index).ok();
            index
                .and_then(|index| items.get(index))
                .into_iter()
                .collect()
        }
        (Step::All, Value::Array(items)) => items.iter().collect(),
        (Step::All, Value::Object(map)) => map.values().collect(),
        (
            Step::Filter {
                fields,
                is_equal,
                literal,
            },
            Value::Array(items),
        ) => items
            .iter()
            .filter(|item| {
                let at = fields.iter().try_fold(*item, |value, name| value.get(name));
                at.is_some_and(|value| (value == literal) == *is_equal)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Parses one step and returns it with the rest of the text.
fn parse_step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        if rest.starts_with('[') {
            return parse_step(rest).filter(|_| !rest.starts_with(".["));
        }
        if let Some(rest) = rest.strip_prefix('*') {
            return Some((Step::All, rest));
        }
        let (name, rest) = parse_name(rest)?;
        return Some((Step::Field(name), rest));
    }
    let rest = text.strip_prefix('[')?;
    if let Some(rest) = rest.strip_prefix("*]") {
        return Some((Step::All, rest));
    }
    if let Some(rest) = rest.strip_prefix("?(@") {
        return parse_filter(rest);
    }
    if rest.starts_with(['\'', '"']) {
        let (name, rest) = parse_quoted(rest)?;
        return Some((Step::Field(name), rest.strip_prefix(']')?));
    }
    let (index, rest) = rest.split_once(']')?;
    Some((Step::Index(index.trim().parse().ok()?), rest))
}

/// Parses a field name; a backslash keeps the next letter.
fn parse_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.push(letters.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            letter if letter.is_alphanumeric() || "_-/$".contains(letter) => name.push(letter),
            _ => return None,
        }
    }
    (!name.is_empty()).then(|| (name, &text[end..]))
}

/// Parses a text in single or double quotes.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next()?;
    let mut value = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.push(letters.next()?.1),
            letter if letter == quote => return Some((value, &text[at + 1..])),
            letter => value.push(letter),
        }
    }
    None
}

/// Parses the part of a filter behind `[?(@`.
fn parse_filter(text: &str) -> Option<(Step, &str)> {
    let mut rest = text.trim_start();
    let mut fields = Vec::new();
    while let Some(after) = rest.strip_prefix('.') {
        let end = after.find(['.', '=', '!', ' ', ')'])?;
        let (name, _) = parse_name(&after[..end])?;
        fields.push(name);
        rest = &after[end..];
    }
    rest = rest.trim_start();
    let (is_equal, after) = match (rest.strip_prefix("=="), rest.strip_prefix("!=")) {
        (Some(after), _) => (true, after.trim_start()),
        (_, Some(after)) => (false, after.trim_start()),
        _ => return None,
    };
    let (literal, rest) = if after.starts_with(['\'', '"']) {
        let (text, rest) = parse_quoted(after)?;
        (Value::String(text), rest)
    } else {
        let end = after.find(')')?;
        let scalar: Value = serde_json::from_str(after[..end].trim()).ok()?;
        (scalar, &after[end..])
    };
    let step = Step::Filter {
        fields,
        is_equal,
        literal,
    };
    Some((step, rest.trim_start().strip_prefix(")]")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_values() {
        let value = json!({"a": {"b.c": 1, "d": [{"t": "x", "v": 1}, {"t": "y", "v": 2}, {"t": "x", "v": 3, "n": 5}]}});
        let cases = [
            ("", json!([value.clone()])),
            (".a.d[0].v", json!([1])),
            ("{.a.d[-1].v}", json!([3])),
            ("$.a['b.c']", json!([1])),
            (r".a.b\.c", json!([1])),
            (r#".a["b.c"]"#, json!([1])),
            (".a.d[*].v", json!([1, 2, 3])),
            (r#".a.d[?(@.t=="x")].v"#, json!([1, 3])),
            (".a.d[?(@.t != 'x')].v", json!([2])),
            (".a.d[?(@.n == 5)].v", json!([3])),
            (".a.d[9].v", json!([])),
            (".none.x", json!([])),
            (".a.d.x", json!([])),
        ];
        for (path, expected) in cases {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&value)), expected, "{path}");
        }
    }

    #[test]
    fn unsupported_paths_are_refused() {
        for path in [
            "a",
            "..a",
            ".a[",
            ".a[x]",
            ".a[0:1]",
            ".a[?(@.b)]",
            ".a[?(@.b>1)]",
            ".a b",
            ".",
            ".a[?(@.b=='x']",
            r".a\",
            ".a['b",
        ] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        assert!(JsonPath::parse(&".a".repeat(STEPS_MAX)).is_ok());
        assert!(JsonPath::parse(&".a".repeat(STEPS_MAX + 1)).is_err());
    }
}
