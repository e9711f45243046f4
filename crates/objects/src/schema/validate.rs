//! Validation of an object against its schema, with the field errors of Kubernetes.
//!
//! On an update, the errors of a value that did not change are dropped (ratcheting): a schema that
//! became stricter does not block writes to other fields. Values of a list are compared with
//! their predecessors only in list-maps, by key.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::list_type::identity;
use super::{Additional, Bound, ListType, Schema, Type};
use crate::field::{FieldError, FieldErrorType, Path};
use crate::go_format::{format_float, quote};
use crate::place::Place;
use crate::timestamp;

/// The most errors that are reported for one object.
pub const ERRORS_MAX: usize = 1000;

impl Schema {
    /// Reports the errors of a new object, at most [`ERRORS_MAX`].
    #[must_use]
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check(object, None, &Place::Root, &mut errors);
        self.validate_lists(object, &mut errors);
        errors.truncate(ERRORS_MAX);
        errors
    }

    /// Reports the errors of an object that its predecessor did not have in the same value.
    #[must_use]
    pub fn validate_update(&self, after: &Value, before: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check(after, Some(before), &Place::Root, &mut errors);
        let mut errors_before = Vec::new();
        self.validate_lists(before, &mut errors_before);
        if errors_before.is_empty() {
            self.validate_lists(after, &mut errors);
        }
        errors.truncate(ERRORS_MAX);
        errors
    }

    /// Checks a value; `before` is its predecessor, if it has one.
    fn check(
        &self,
        value: &Value,
        before: Option<&Value>,
        place: &Place<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if before == Some(value) || errors.len() >= ERRORS_MAX {
            return;
        }
        errors.extend(self.check_type(value, place));
        if !value.is_null() {
            self.check_junctors(value, place, errors);
            match value {
                Value::String(text) => errors.extend(self.check_text(text, place)),
                Value::Number(_) => self.check_number(value, place, errors),
                Value::Array(items) => self.check_list(items, before, place, errors),
                _ => {}
            }
        }
        errors.extend(self.check_enumeration(value, place));
        if let Value::Object(map) = value {
            self.check_map(map, before, place, errors);
        }
    }

    fn type_names(&self) -> &'static str {
        match self.kind {
            Type::Any => "",
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::IntOrString => "integer,string",
        }
    }

    fn allows(&self, found: &str) -> bool {
        self.type_names().split(',').any(|name| name == found)
    }

    fn check_type(&self, value: &Value, place: &Place<'_>) -> Option<FieldError> {
        if self.kind == Type::Any && self.format.is_empty() {
            return None;
        }
        let (found, found_format) = type_of(value);
        if value.is_null() {
            let is_refused = self.kind != Type::Any && !self.is_nullable;
            return is_refused.then(|| type_error(place, self.type_names(), "null"));
        }
        let has_type = self.allows(found)
            || (found == "number" && is_whole(value) && self.allows("integer"))
            || (found == "integer" && self.allows("number"));
        let is_text_or_list = value.is_string() || value.is_array();
        if !is_text_or_list && !self.format.is_empty() && !has_type && found_format != self.format {
            return Some(type_error(place, &self.format, found_format));
        }
        let is_numeric = self.allows("number") || self.allows("integer");
        if !is_numeric && !self.format.is_empty() && is_text_or_list {
            return None;
        }
        (!has_type).then(|| type_error(place, self.type_names(), found))
    }

    fn check_junctors(&self, value: &Value, place: &Place<'_>, errors: &mut Vec<FieldError>) {
        let name = || quote(&place.text());
        let check = |schema: &Schema| {
            let mut errors = Vec::new();
            schema.check(value, None, place, &mut errors);
            errors
        };
        let results: Vec<Vec<FieldError>> = self.any_of.iter().map(check).collect();
        if !results.is_empty() && results.iter().all(|errors| !errors.is_empty()) {
            errors.push(untyped(&format!(
                "{} must validate at least one schema (anyOf)",
                name()
            )));
            errors.extend(fewest(results));
        }
        let results: Vec<Vec<FieldError>> = self.one_of.iter().map(check).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if !results.is_empty() && valid != 1 {
            let count = match valid {
                0 => "Found none valid".to_owned(),
                valid => format!("Found {valid} valid alternatives"),
            };
            errors.push(untyped(&format!(
                "{} must validate one and only one schema (oneOf). {count}",
                name()
            )));
            if valid == 0 {
                errors.extend(fewest(results));
            }
        }
        let results: Vec<Vec<FieldError>> = self.all_of.iter().map(check).collect();
        let valid = results.iter().filter(|errors| errors.is_empty()).count();
        if valid != results.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.extend(results.into_iter().flatten());
            errors.push(untyped(&format!(
                "{} must validate all the schemas (allOf){none}",
                name()
            )));
        }
        if self
            .not
            .as_ref()
            .is_some_and(|schema| check(schema).is_empty())
        {
            errors.push(untyped(&format!(
                "{} must not validate the schema (not)",
                name()
            )));
        }
    }

    /// Reports the first error of a text.
    fn check_text(&self, text: &str, place: &Place<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let length = text.chars().count() as u64;
        let pattern = self
            .pattern
            .as_ref()
            .filter(|pattern| !pattern.is_match(text));
        if let Some(length_max) = self.length_max.filter(|length_max| length > *length_max) {
            let length_max = usize::try_from(length_max).unwrap_or(usize::MAX);
            errors.push(FieldError::too_long(&place.path(), length_max));
        } else if let Some(length_min) = self.length_min.filter(|length_min| length < *length_min) {
            let detail = in_body(
                place,
                &format!("should be at least {length_min} chars long"),
            );
            errors.push(FieldError::invalid(&place.path(), text, &detail));
        } else if let Some(pattern) = pattern {
            let detail = in_body(place, &format!("should match '{}'", pattern.text()));
            errors.push(FieldError::invalid(&place.path(), text, &detail));
        }
        if !has_format(&self.format, text) {
            let detail = in_body(
                place,
                &format!("must be of type {}: {}", self.format, quote(text)),
            );
            errors.push(FieldError::type_invalid(&place.path(), text, &detail));
        }
        errors
    }

    fn check_number(&self, value: &Value, place: &Place<'_>, errors: &mut Vec<FieldError>) {
        if !self.is_in_range(value) {
            let kind = self.type_names();
            let format = match self.format.as_str() {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            errors.push(untyped(&format!(
                "Checked value must be of type {kind} {format} in {}",
                place.text()
            )));
        }
        let mut report = |rule: &str, bound: f64| {
            let bound = match value.as_i64() {
                Some(_) => (bound as i64).to_string(),
                None => format_float(bound),
            };
            let detail = in_body(place, &format!("should be {rule} {bound}"));
            errors.push(FieldError::invalid(&place.path(), value.clone(), &detail));
        };
        if let Some(factor) = self.multiple_of
            && !is_multiple(value, factor)
        {
            report("a multiple of", factor);
        }
        if let Some(Bound {
            value: bound,
            is_exclusive,
        }) = self.minimum
        {
            let (is_below, is_equal) = compare(value, bound);
            if is_below || (is_exclusive && is_equal) {
                let rule = if is_exclusive {
                    "greater than"
                } else {
                    "greater than or equal to"
                };
                report(rule, bound);
            }
        }
        if let Some(Bound {
            value: bound,
            is_exclusive,
        }) = self.maximum
        {
            let (is_below, is_equal) = compare(value, bound);
            if !(is_below || is_equal) || (is_exclusive && is_equal) {
                let rule = if is_exclusive {
                    "less than"
                } else {
                    "less than or equal to"
                };
                report(rule, bound);
            }
        }
    }

    fn is_in_range(&self, value: &Value) -> bool {
        match (self.kind, self.format.as_str()) {
            (Type::Integer, "int32") => value
                .as_i64()
                .or_else(|| whole(value))
                .is_some_and(|value| i32::try_from(value).is_ok()),
            (Type::Integer, _) => value.is_i64() || whole(value).is_some(),
            (Type::Number, "float") => value
                .as_f64()
                .is_some_and(|value| value.abs() <= f64::from(f32::MAX)),
            _ => true,
        }
    }

    fn check_list(
        &self,
        items: &[Value],
        before: Option<&Value>,
        place: &Place<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        if let Some(schema) = self.items.as_deref() {
            let before = self.items_by_identity(before);
            for (index, item) in items.iter().enumerate() {
                let before = match &self.list_type {
                    ListType::Map(keys) => before.get(&identity(item, keys).to_string()).copied(),
                    _ => None,
                };
                schema.check(item, before, &Place::Item(place, index), errors);
            }
        }
        let count = items.len() as u64;
        if let Some(count_min) = self.items_min.filter(|count_min| count < *count_min) {
            let detail = in_body(place, &format!("should have at least {count_min} items"));
            errors.push(FieldError::invalid(&place.path(), count, &detail));
        }
        if let Some(count_max) = self.items_max.filter(|count_max| count > *count_max) {
            errors.push(too_many(place, count, count_max));
        }
    }

    /// Returns the items of a list by their key fields; only a list-map has keys.
    fn items_by_identity<'before>(
        &self,
        before: Option<&'before Value>,
    ) -> BTreeMap<String, &'before Value> {
        let items = before.and_then(Value::as_array);
        match (&self.list_type, items) {
            (ListType::Map(keys), Some(items)) => items
                .iter()
                .map(|item| (identity(item, keys).to_string(), item))
                .collect(),
            _ => BTreeMap::new(),
        }
    }

    fn check_enumeration(&self, value: &Value, place: &Place<'_>) -> Option<FieldError> {
        let is_listed = self.enumeration.iter().any(|listed| {
            listed == value
                || (value.is_number() && listed.is_number() && listed.as_f64() == value.as_f64())
        });
        if self.enumeration.is_empty() || is_listed {
            return None;
        }
        let supported = self.enumeration.iter().map(|listed| match listed {
            Value::String(text) => text.clone(),
            other => crate::go_format::json(other),
        });
        Some(FieldError::not_supported(
            &place.path(),
            value.clone(),
            supported,
        ))
    }

    fn check_map(
        &self,
        map: &Map<String, Value>,
        before: Option<&Value>,
        place: &Place<'_>,
        errors: &mut Vec<FieldError>,
    ) {
        let count = map.len() as u64;
        if let Some(count_min) = self.properties_min.filter(|count_min| count < *count_min) {
            let detail = in_body(
                place,
                &format!("should have at least {count_min} properties"),
            );
            errors.push(FieldError::invalid(&place.path(), count, &detail));
        }
        if let Some(count_max) = self.properties_max.filter(|count_max| count > *count_max) {
            errors.push(too_many(place, count, count_max));
        }
        for (name, value) in map {
            let before = before.and_then(|before| before.get(name));
            let schema = match (&self.additional, self.properties.get(name)) {
                (_, Some(schema)) => schema,
                (Some(Additional::Schema(schema)), None) => schema,
                (Some(Additional::Allowed(false)), None) => {
                    let detail = in_body(&Place::Field(place, name), "is a forbidden property");
                    errors.push(FieldError::invalid(&place.path(), name.as_str(), &detail));
                    continue;
                }
                _ => continue,
            };
            schema.check(value, before, &Place::Field(place, name), errors);
        }
        for name in &self.required {
            if !map.contains_key(name) {
                let path = Place::Field(place, name).path();
                errors.push(FieldError::required(&path, ""));
            }
        }
    }
}

/// An error of a rule about several schemas; Kubernetes names the place in the text only.
fn untyped(text: &str) -> FieldError {
    FieldError::invalid(&Path::root(), "", text)
}

/// Returns a text about a value of the body.
fn in_body(place: &Place<'_>, rest: &str) -> String {
    format!("{} in body {rest}", place.text())
}

fn type_error(place: &Place<'_>, expected: &str, found: &str) -> FieldError {
    let detail = in_body(
        place,
        &format!("must be of type {expected}: {}", quote(found)),
    );
    FieldError::type_invalid(&place.path(), found, &detail)
}

fn too_many(place: &Place<'_>, count: u64, count_max: u64) -> FieldError {
    let unit = if count_max == 1 { "item" } else { "items" };
    FieldError {
        kind: FieldErrorType::TooMany,
        field: place.path(),
        bad_value: Some(count.into()),
        detail: format!("must have at most {count_max} {unit}"),
    }
}

/// Returns the errors of the alternative that fits best.
fn fewest(results: Vec<Vec<FieldError>>) -> Vec<FieldError> {
    results.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

/// Returns the type of a value and the format that Go decodes it to.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// The largest float whose neighbours are whole numbers.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

fn is_whole(value: &Value) -> bool {
    value
        .as_f64()
        .is_some_and(|value| value.abs() <= WHOLE_MAX && value.fract() == 0.0)
}

fn whole(value: &Value) -> Option<i64> {
    is_whole(value).then(|| value.as_f64().map(|value| value as i64))?
}

/// Returns whether a number is below a bound, and whether it equals it.
fn compare(value: &Value, bound: f64) -> (bool, bool) {
    match value.as_i64() {
        // Bounds of whole numbers are whole numbers, as in Kubernetes.
        Some(value) => (value < bound as i64, value == bound as i64),
        None => {
            let value = value.as_f64().unwrap_or_default();
            (value < bound, value == bound)
        }
    }
}

fn is_multiple(value: &Value, factor: f64) -> bool {
    match (value.as_i64(), factor.fract() == 0.0) {
        (Some(value), true) => (factor as i64) == 0 || value % (factor as i64) == 0,
        _ => {
            let quotient = value.as_f64().unwrap_or_default() / factor;
            (quotient - quotient.round()).abs() <= 1e-9 * quotient.abs().max(1.0)
        }
    }
}

/// Returns whether a text has a format. Formats that are not listed here are not checked.
fn has_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" => timestamp::parse(text).is_some(),
        "ipv4" => text.parse::<core::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<core::net::Ipv6Addr>().is_ok(),
        "uuid" => is_uuid(text),
        _ => true,
    }
}

fn is_uuid(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|letter| *letter != b'-').collect();
    digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit)
}
