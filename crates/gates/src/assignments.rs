//! Raw gate values by name and origin, before they are checked against a registry.
//!
//! `Name=bool` texts and maps from flags, environment and config files are collected in
//! one [`Assignments`]. It knows no features: a name is any text. For each name it keeps
//! the value of every origin, because `explain` also shows the overridden ones.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::error::{Classified, ErrorClass, quoted};

/// Where a value was set. The order is the precedence: the last origin wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A config file.
    Config,
    /// An environment variable.
    Environment,
    /// A command-line flag.
    Flag,
    /// The program's own code, for tests and embedding.
    Code,
}

impl Origin {
    const COUNT: usize = 4;

    const ALL: [Origin; Origin::COUNT] = [
        Origin::Config,
        Origin::Environment,
        Origin::Flag,
        Origin::Code,
    ];

    /// Returns the name for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Origin::Code => "code",
            Origin::Config => "config file",
            Origin::Environment => "environment",
            Origin::Flag => "flag",
        }
    }
}

/// Raw values by name and origin, never checked or resolved: a later change of version
/// must still distinguish set values from defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignments {
    by_name: BTreeMap<String, [Option<bool>; Origin::COUNT]>,
}

impl Assignments {
    /// Creates an empty map.
    pub fn new() -> Assignments {
        Assignments::default()
    }

    /// Parses `A=true,B=false`. Empty segments are skipped, blanks trimmed, the last
    /// value of a repeated name wins.
    ///
    /// ```
    /// use portunus_gates::{Assignments, Origin};
    /// let assigned = Assignments::parse(Origin::Flag, "A=true, B=0,,A=f")?;
    /// assert_eq!(assigned.get("A"), Some((false, Origin::Flag)));
    /// # Ok::<(), portunus_gates::FlagError>(())
    /// ```
    pub fn parse(origin: Origin, text: &str) -> Result<Assignments, FlagError> {
        let mut assigned = Assignments::new();
        for (at, segment) in segments(text) {
            let (name, value) = parse_pair(at, segment)?;
            assigned.set(origin, name, value);
        }
        Ok(assigned)
    }

    /// Builds assignments from a map of names to values.
    pub fn from_map<N: Into<String>>(
        origin: Origin,
        map: impl IntoIterator<Item = (N, bool)>,
    ) -> Assignments {
        let mut assigned = Assignments::new();
        for (name, value) in map {
            assigned.set(origin, name, value);
        }
        assigned
    }

    /// Parses a config-file value: either the flag's text, or a map of names to booleans.
    pub fn from_value(origin: Origin, value: &Value) -> Result<Assignments, FlagError> {
        match value {
            Value::Null => Ok(Assignments::new()),
            Value::String(text) => Assignments::parse(origin, text),
            Value::Object(map) => {
                let mut assigned = Assignments::new();
                for (name, value) in map {
                    let value = match value {
                        Value::Bool(value) => *value,
                        Value::String(text) => {
                            parse_bool(text).ok_or_else(|| FlagError::bad_bool(name, text, None))?
                        }
                        other => {
                            return Err(FlagError::bad_bool(name, &other.to_string(), None));
                        }
                    };
                    assigned.set(origin, name.trim(), value);
                }
                Ok(assigned)
            }
            other => Err(FlagError::BadShape {
                found: quoted(&other.to_string()),
            }),
        }
    }

    /// Parses variables such as `KUBE_FEATURE_Name=true`. Values that are not booleans are
    /// returned for the log instead of failing the call, because a process inherits its
    /// environment.
    pub fn from_environment<'a>(
        prefix: &str,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (Assignments, Vec<FlagError>) {
        let mut assigned = Assignments::new();
        let mut ignored = Vec::new();
        for (variable, text) in variables {
            let Some(name) = variable.strip_prefix(prefix) else {
                continue;
            };
            match parse_bool(text.trim()) {
                Some(value) => assigned.set(Origin::Environment, name, value),
                None => ignored.push(FlagError::bad_bool(variable, text, None)),
            }
        }
        (assigned, ignored)
    }

    /// Records one value.
    pub fn set(&mut self, origin: Origin, name: impl Into<String>, value: bool) {
        self.by_name.entry(name.into()).or_default()[origin as usize] = Some(value);
    }

    /// Adds all values of `other`. Where both have a value for one name and origin, that
    /// of `other` wins.
    pub fn merge(&mut self, other: &Assignments) {
        for (name, values) in &other.by_name {
            let mine = self.by_name.entry(name.clone()).or_default();
            for (mine, theirs) in mine.iter_mut().zip(values) {
                *mine = theirs.or(*mine);
            }
        }
    }

    /// Removes a name with the values of all origins. Returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        self.by_name.remove(name).is_some()
    }

    /// Returns the value with the highest precedence, and its origin.
    pub fn get(&self, name: &str) -> Option<(bool, Origin)> {
        self.by_name.get(name).and_then(winner)
    }

    /// Returns all values of a name, highest precedence first.
    pub fn all(&self, name: &str) -> Vec<(Origin, bool)> {
        let Some(values) = self.by_name.get(name) else {
            return Vec::new();
        };
        let set = |origin: Origin| values[origin as usize].map(|value| (origin, value));
        Origin::ALL.into_iter().rev().filter_map(set).collect()
    }

    /// Iterates over the names with their values of highest precedence, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool, Origin)> {
        self.by_name.iter().filter_map(|(name, values)| {
            winner(values).map(|(value, origin)| (name.as_str(), value, origin))
        })
    }

    /// Returns the raw map that a member publishes.
    pub fn to_map(&self) -> BTreeMap<String, bool> {
        self.iter()
            .map(|(name, value, _)| (name.to_owned(), value))
            .collect()
    }

    /// Returns whether no value is set.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

fn winner(values: &[Option<bool>; Origin::COUNT]) -> Option<(bool, Origin)> {
    let set = |origin: Origin| values[origin as usize].map(|value| (value, origin));
    Origin::ALL.into_iter().rev().find_map(set)
}

/// Iterates over the non-empty segments of a comma list, with their byte offsets.
pub(crate) fn segments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(',').filter_map(move |segment| {
        let start = at;
        at += segment.len() + 1;
        (!segment.is_empty()).then_some((start, segment))
    })
}

/// Parses one `Name=bool` that starts at byte `at` of the flag.
pub(crate) fn parse_pair(at: usize, segment: &str) -> Result<(&str, bool), FlagError> {
    let Some((name, value)) = segment.split_once('=') else {
        return Err(FlagError::MissingBool {
            name: quoted(segment.trim()),
            at,
        });
    };
    let (name, value) = (name.trim(), value.trim());
    match parse_bool(value) {
        Some(value) => Ok((name, value)),
        None => Err(FlagError::bad_bool(name, value, Some(at))),
    }
}

/// Parses the boolean spellings of Go's `strconv.ParseBool`, and no others.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Why a gate text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum FlagError {
    /// A name without `=`.
    #[error("missing boolean value for {name} (byte {at}): write it as Name=true or Name=false")]
    MissingBool { name: String, at: usize },
    /// A value that is no boolean.
    #[error("invalid value {name}={value}{place}: use true or false", place = place(*at))]
    BadBool {
        name: String,
        value: String,
        at: Option<usize>,
    },
    /// Neither a text nor a map.
    #[error(
        "{found} is no list of gates: use a text such as A=true,B=false or a map of names to true or false"
    )]
    BadShape { found: String },
}

fn place(at: Option<usize>) -> String {
    at.map_or_else(String::new, |at| format!(" (byte {at})"))
}

impl FlagError {
    fn bad_bool(name: &str, value: &str, at: Option<usize>) -> FlagError {
        FlagError::BadBool {
            name: quoted(name),
            value: quoted(value),
            at,
        }
    }
}

impl Classified for FlagError {
    fn id(&self) -> &'static str {
        match self {
            FlagError::MissingBool { .. } => "E-MISSING-BOOL",
            FlagError::BadBool { .. } => "E-BAD-BOOL",
            FlagError::BadShape { .. } => "E-BAD-SHAPE",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            FlagError::MissingBool { .. } => ErrorClass::MissingBool,
            FlagError::BadBool { .. } => ErrorClass::BadBool,
            FlagError::BadShape { .. } => ErrorClass::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: G32, G33, S1-1
    #[test]
    fn flag_text_parses_with_blanks_empty_segments_and_repeated_names() {
        let assigned =
            Assignments::parse(Origin::Flag, ",A=true,, B = f ,C=1,D=T,E=TRUE,F=False,A=0")
                .unwrap();
        let values: Vec<(&str, bool)> = assigned.iter().map(|(n, v, _)| (n, v)).collect();
        assert_eq!(
            values,
            [
                ("A", false),
                ("B", false),
                ("C", true),
                ("D", true),
                ("E", true),
                ("F", false)
            ]
        );
        assert!(Assignments::parse(Origin::Flag, "").unwrap().is_empty());
        // Only the first '=' separates.
        assert!(Assignments::parse(Origin::Flag, "A=b=true").is_err());
    }

    /// Proves: G32, G33
    #[test]
    fn unreadable_flag_text_is_refused_with_its_byte_offset() {
        for (text, id, shown) in [
            ("A=true,B", "E-MISSING-BOOL", "\"B\" (byte 7)"),
            ("A=true, ", "E-MISSING-BOOL", "\"\" (byte 7)"),
            ("A=yes", "E-BAD-BOOL", "\"A\"=\"yes\" (byte 0)"),
            ("A=tRUE", "E-BAD-BOOL", "\"tRUE\""),
            ("A=", "E-BAD-BOOL", "\"A\"=\"\""),
        ] {
            let error = Assignments::parse(Origin::Flag, text).unwrap_err();
            assert_eq!(error.id(), id, "{text}");
            assert!(error.to_string().contains(shown), "{error}");
        }
    }

    /// Proves: X14
    #[test]
    fn flag_overrides_config_file_per_name_and_both_values_are_kept() {
        let file = serde_json::json!({"A": false, "B": true, "C": "t"});
        let mut assigned = Assignments::from_value(Origin::Config, &file).unwrap();
        assigned.merge(&Assignments::parse(Origin::Flag, "A=true").unwrap());
        assigned.merge(&Assignments::parse(Origin::Flag, "D=true").unwrap());
        assert_eq!(assigned.get("A"), Some((true, Origin::Flag)));
        assert_eq!(
            assigned.all("A"),
            [(Origin::Flag, true), (Origin::Config, false)]
        );
        assert_eq!(assigned.get("B"), Some((true, Origin::Config)));
        assert_eq!(assigned.get("C"), Some((true, Origin::Config)));
        assert_eq!(assigned.get("D"), Some((true, Origin::Flag)));
        // A config file may hold the flag's text instead of a map.
        let text = Assignments::from_value(Origin::Config, &Value::from("A=false,B=1")).unwrap();
        assert_eq!(text.get("B"), Some((true, Origin::Config)));
        for bad in [serde_json::json!(["A"]), serde_json::json!(7)] {
            assert_eq!(
                Assignments::from_value(Origin::Config, &bad)
                    .unwrap_err()
                    .id(),
                "E-BAD-SHAPE"
            );
        }
        let bad = serde_json::json!({"A": 3});
        assert_eq!(
            Assignments::from_value(Origin::Config, &bad)
                .unwrap_err()
                .id(),
            "E-BAD-BOOL"
        );
    }

    /// Proves: G60
    #[test]
    fn environment_value_that_is_no_boolean_is_returned_and_ignored() {
        let (assigned, ignored) = Assignments::from_environment(
            "KUBE_FEATURE_",
            [
                ("KUBE_FEATURE_A", "true"),
                ("KUBE_FEATURE_B", "maybe"),
                ("PATH", "/bin"),
            ],
        );
        assert_eq!(assigned.get("A"), Some((true, Origin::Environment)));
        assert_eq!(assigned.get("B"), None);
        assert_eq!(ignored.len(), 1);
    }
}
