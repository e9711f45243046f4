//! Collects settings from the command line, the environment or the config file, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use portunus_gates::{Assignments, FlagError, Origin};
use serde_json::Value;
use thiserror::Error;

use super::flags::{FLAGS, Flag, GROUPS, GROUPS_LATER, Kind, Support, find, find_in_group};

/// The flag that has two names.
const EMULATION_FLAG: &str = "emulated-version";
/// The prefix of flag names before they were stable.
const EXPERIMENTAL: &str = "experimental-";
/// Letters that a misspelt name may differ in.
const MISSPELT_MAX: usize = 3;

const GATE_FLAGS: [&str; 2] = ["feature-gates", "cluster-feature-gates"];
const VERSION_FLAGS: [&str; 3] = [
    "emulated-version",
    "min-compatibility-version",
    "strict-emulation",
];

/// Settings by flag name, without those that are not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    by_name: BTreeMap<&'static str, String>,
    /// Gates that flags set in addition to a config file.
    gates_over_file: BTreeMap<&'static str, String>,
    is_of_file: bool,
    /// Flags without effect, for one line in the log.
    pub ignored: Vec<&'static str>,
    /// Environment variables that look like settings but are not, for the log.
    pub unrecognized: Vec<UnrecognizedVariable>,
    /// The settings that could not be collected. The rest is checked all the same, so that one
    /// start reports every error.
    pub errors: Vec<ValuesError>,
    /// The version to emulate, with the name it was given by.
    emulation: Option<(String, String)>,
}

/// An environment variable with the prefix of settings that is no setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrecognizedVariable {
    /// Its name.
    pub name: String,
    /// The variable that was probably meant.
    pub similar: Option<String>,
}

impl Values {
    /// The text of a setting, or its default.
    pub fn get(&self, name: &'static str) -> &str {
        match self.by_name.get(name) {
            Some(text) => text,
            None => find(name).map_or("", |flag| flag.default),
        }
    }

    /// Whether the setting was given.
    pub fn is_set(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The gates that a flag or its key in the config file sets. The flag wins, gate by gate.
    pub fn gates(&self, flag: &'static str) -> Result<Assignments, FlagError> {
        let origin = match self.is_of_file {
            true => Origin::Config,
            false => Origin::Flag,
        };
        let mut gates = Assignments::parse(origin, self.get(flag))?;
        if let Some(text) = self.gates_over_file.get(flag) {
            gates.merge(&Assignments::parse(Origin::Flag, text)?);
        }
        Ok(gates)
    }

    /// Parses the command line, without the program's name. Flags may have one dash or two, their
    /// values behind `=` or as the next argument; a bare boolean flag means true.
    pub fn from_arguments(arguments: &[String]) -> Values {
        let mut values = Values::default();
        let mut words = arguments.iter().peekable();
        while let Some(word) = words.next() {
            let added = values.add_argument(word, &mut words);
            values.errors.extend(added.err());
        }
        values
    }

    fn add_argument<'a>(
        &mut self,
        word: &str,
        words: &mut Peekable<impl Iterator<Item = &'a String>>,
    ) -> Result<(), ValuesError> {
        let Some(body) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return Err(ValuesError::NotAFlag {
                word: word.to_owned(),
            });
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let flag = known(name).inspect_err(|_| {
            // The argument behind an unknown flag is its value, and no error of its own.
            if value.is_none() {
                words.next_if(|next| !next.starts_with('-'));
            }
        })?;
        let value = match value {
            Some(value) => value,
            None if flag.kind == Kind::Bool => "true".to_owned(),
            None => match words.next() {
                Some(next) => next.clone(),
                None => return Err(ValuesError::NoValue { flag: flag.name }),
            },
        };
        self.set(flag, &format!("--{name}"), value)
    }

    /// Adds environment variables for settings that no flag sets: `ETCD_` and the flag's name in
    /// upper case with `_`. Unknown names are only recorded: an environment is inherited.
    pub fn add_environment<'a>(&mut self, variables: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let flags: BTreeSet<&str> = self.by_name.keys().copied().collect();
        for (variable, value) in variables {
            let Some(name) = variable.strip_prefix("ETCD_") else {
                continue;
            };
            let name = name.to_lowercase().replace('_', "-");
            let Some(flag) = find(&name) else {
                let similar = similar(&name).and_then(find).map(Flag::variable);
                self.unrecognized.push(UnrecognizedVariable {
                    name: variable.to_owned(),
                    similar,
                });
                continue;
            };
            if !flags.contains(flag.name) && !value.is_empty() {
                let set = self.set(flag, variable, value.to_owned());
                self.errors.extend(set.err());
            }
        }
    }

    /// Parses a YAML or JSON file whose top-level keys are flag names.
    pub fn from_config_file(text: &str) -> Values {
        let mut values = Values {
            is_of_file: true,
            ..Values::default()
        };
        let file: Result<Value, _> = serde_yaml_ng::from_str(text);
        match file {
            Ok(Value::Object(map)) => {
                for (key, value) in map {
                    let added = values.add_key(&key, &value);
                    values.errors.extend(added.err());
                }
            }
            Ok(Value::Null) => {}
            Ok(_) => values.errors.push(ValuesError::NotAMap),
            Err(source) => values.errors.push(ValuesError::Yaml {
                reason: source.to_string(),
            }),
        }
        values
    }

    fn add_key(&mut self, key: &str, value: &Value) -> Result<(), ValuesError> {
        let group = GROUPS_LATER.iter().find(|(group, _)| *group == key);
        if let Some((_, part)) = group {
            return match is_empty(value) {
                true => Ok(()),
                false => Err(ValuesError::KeyLater {
                    key: key.to_owned(),
                    part,
                }),
            };
        }
        if GROUPS.iter().any(|(group, _)| *group == key) {
            return self.add_group(key, value);
        }
        let flag = known(key)?;
        self.add_value(flag, key, value)
    }

    /// Adds the keys of a nested group.
    fn add_group(&mut self, group: &str, value: &Value) -> Result<(), ValuesError> {
        let bad = || ValuesError::BadConfigValue {
            key: group.to_owned(),
            value: value.to_string().chars().take(60).collect(),
        };
        let map = match value {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(bad()),
        };
        for (key, value) in map {
            let full_key = format!("{group}.{key}");
            let added = match find_in_group(group, key) {
                Some(Ok(flag)) => self.add_value(flag, &full_key, value),
                Some(Err(known)) => Err(ValuesError::UnknownKey {
                    key: full_key,
                    known: known.join(", "),
                }),
                None => Err(bad()),
            };
            self.errors.extend(added.err());
        }
        Ok(())
    }

    fn add_value(
        &mut self,
        flag: &'static Flag,
        key: &str,
        value: &Value,
    ) -> Result<(), ValuesError> {
        let text = config_text(flag, value).ok_or_else(|| ValuesError::BadConfigValue {
            key: key.to_owned(),
            value: value.to_string(),
        })?;
        self.set(flag, key, text)
    }

    /// Settings that differ from their defaults, as flags.
    pub fn changed(&self) -> String {
        let changed = self.by_name.iter().filter(|(name, text)| {
            let default = find(name).map(|flag| flag.default);
            default != Some(text.as_str())
        });
        let gates = self.gates_over_file.iter();
        let flags = changed
            .chain(gates)
            .map(|(name, text)| format!("--{name}={text}"));
        flags.collect::<Vec<_>>().join(" ")
    }

    /// Adds flags given in addition to this config file. They are ignored, as in etcd, except for
    /// gates and the versions that gates depend on: an operator who tries a gate for one start
    /// would not notice that the file sets another value.
    pub fn add_beside_file(&mut self, said: &Values) {
        self.errors.splice(..0, said.errors.iter().cloned());
        for name in GATE_FLAGS {
            if let Some(text) = said.by_name.get(name) {
                self.gates_over_file.insert(name, text.clone());
            }
        }
        for name in VERSION_FLAGS {
            if let Some(text) = said.by_name.get(name) {
                self.by_name.insert(name, text.clone());
            }
        }
    }

    /// Sets a flag that was given by the name `by`.
    fn set(&mut self, flag: &'static Flag, by: &str, value: String) -> Result<(), ValuesError> {
        if flag.name == EMULATION_FLAG {
            let given = (by.to_owned(), value.clone());
            if let Some((earlier, text)) = self.emulation.replace(given)
                && earlier != by
                && text != value
            {
                return Err(ValuesError::Contradiction {
                    first: format!("{earlier}={text}"),
                    second: format!("{by}={value}"),
                });
            }
        }
        match flag.support {
            // The version that decides about an old name is known later.
            Support::Works | Support::OldGate(_) => {}
            Support::Ignored => {
                self.ignored.push(flag.name);
                return Ok(());
            }
            Support::Removed(instead) => {
                return Err(ValuesError::Removed {
                    flag: flag.name,
                    instead,
                });
            }
            Support::Later(part) => {
                return if value == flag.default {
                    Ok(())
                } else {
                    Err(ValuesError::Later {
                        flag: flag.name,
                        value,
                        part,
                    })
                };
            }
        }
        // Gate flags accumulate; of all other flags the last value counts.
        if GATE_FLAGS.contains(&flag.name)
            && let Some(earlier) = self.by_name.get_mut(flag.name)
        {
            earlier.push(',');
            earlier.push_str(&value);
            return Ok(());
        }
        self.by_name.insert(flag.name, value);
        Ok(())
    }
}

fn known(name: &str) -> Result<&'static Flag, ValuesError> {
    if let Some(flag) = find(name) {
        return Ok(flag);
    }
    let renamed = name.strip_prefix(EXPERIMENTAL).and_then(find);
    Err(ValuesError::Unknown {
        flag: name.chars().take(60).collect(),
        hint: match (renamed, similar(name)) {
            (Some(renamed), _) => format!("it is called --{} now", renamed.name),
            (None, Some(similar)) => format!("did you mean --{similar}?"),
            (None, None) => "see portunus --help".to_owned(),
        },
    })
}

/// Finds the flag whose name differs in few letters, and not in most of them.
fn similar(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix(EXPERIMENTAL).unwrap_or(name);
    let names = FLAGS.iter().map(|flag| flag.name);
    names
        .map(|known| (strsim::osa_distance(name, known), known))
        .filter(|(distance, known)| *distance <= MISSPELT_MAX.min(known.len() / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Converts a config value to the flag's syntax. Durations are nanoseconds in a file.
fn config_text(flag: &Flag, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) if flag.kind == Kind::Duration => Some(format!("{number}ns")),
        Value::Number(number) => Some(number.to_string()),
        Value::Null => Some(flag.default.to_owned()),
        Value::Array(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            Some(texts?.join(","))
        }
        Value::Object(map) if flag.name.ends_with("feature-gates") => {
            let pairs = map.iter().map(|(name, value)| match value {
                Value::Bool(value) => Some(format!("{name}={value}")),
                Value::String(value) => Some(format!("{name}={value}")),
                _ => None,
            });
            Some(pairs.collect::<Option<Vec<_>>>()?.join(","))
        }
        Value::Object(_) => None,
    }
}

/// Whether a nested group sets nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Why settings could not be collected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum ValuesError {
    /// An argument that is no flag.
    #[error("{word:?} is neither a flag nor a command: see portunus --help")]
    NotAFlag { word: String },
    /// A flag that does not exist.
    #[error("there is no flag --{flag}: {hint}")]
    Unknown { flag: String, hint: String },
    /// One setting given twice with different values, by two names.
    #[error("{first} and {second} contradict each other: give one of them")]
    Contradiction { first: String, second: String },
    /// A flag without its value.
    #[error("--{flag} needs a value")]
    NoValue { flag: &'static str },
    /// A flag that is not supported yet.
    #[error("--{flag}={value} is not supported yet ({part}): leave it out")]
    Later {
        flag: &'static str,
        value: String,
        part: &'static str,
    },
    /// A group of the config file that is not supported yet.
    #[error("{key} in the config file is not supported yet ({part}): leave it out")]
    KeyLater { key: String, part: &'static str },
    /// A key that a group of the config file does not have.
    #[error("there is no key {key} in the config file: the group has {known}")]
    UnknownKey { key: String, known: String },
    /// A flag that was removed.
    #[error("--{flag} is gone: {instead}")]
    Removed {
        flag: &'static str,
        instead: &'static str,
    },
    /// A config file that is not YAML.
    #[error("the config file is no YAML: {reason}")]
    Yaml { reason: String },
    /// A config file that is not a map.
    #[error("the config file must be a map of flag names to values")]
    NotAMap,
    /// A config value of the wrong type.
    #[error("{key}: {value} in the config file cannot be used: write it as the flag takes it")]
    BadConfigValue { key: String, value: String },
}

#[cfg(test)]
mod tests;
