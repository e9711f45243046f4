//! Collects settings from the command line, the environment or the config file, as text.

use std::collections::BTreeMap;

use portunus_gates::{Assignments, FlagError, Origin};
use serde_json::Value;
use thiserror::Error;

use super::flags::{FLAGS, Flag, Kind, Support, find};

const GATE_FLAGS: [&str; 2] = ["feature-gates", "cluster-feature-gates"];
const VERSION_FLAGS: [&str; 3] = [
    "emulated-version",
    "min-compatibility-version",
    "strict-emulation",
];

/// Settings by flag name; what nobody set is not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    by_name: BTreeMap<&'static str, String>,
    /// Gates that flags set beside a config file.
    gates_over_file: BTreeMap<&'static str, String>,
    is_of_file: bool,
    /// Flags that do nothing, for one line in the log.
    pub ignored: Vec<&'static str>,
}

impl Values {
    /// The text of a setting, or its default.
    pub fn get(&self, name: &'static str) -> &str {
        match self.by_name.get(name) {
            Some(text) => text,
            None => find(name).map_or("", |flag| flag.default),
        }
    }

    /// Whether somebody set it.
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

    /// From the command line, without the program's name. Flags may have one dash or two,
    /// their values behind `=` or as the next word; a bare boolean flag means true.
    pub fn from_arguments(arguments: &[String]) -> Result<Values, ValuesError> {
        let mut values = Values::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(body) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                return Err(ValuesError::NotAFlag { word: word.clone() });
            };
            let (name, value) = match body.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (body, None),
            };
            let flag = known(name)?;
            let value = match value {
                Some(value) => value,
                None if flag.kind == Kind::Bool => "true".to_owned(),
                None => match words.next() {
                    Some(next) => next.clone(),
                    None => return Err(ValuesError::NoValue { flag: flag.name }),
                },
            };
            values.set(flag, value)?;
        }
        Ok(values)
    }

    /// Adds what the environment says and nobody set yet: `ETCD_` and the flag's name in
    /// upper case with `_`. Unknown names are left alone: an environment is inherited.
    pub fn add_environment<'a>(
        &mut self,
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), ValuesError> {
        for (variable, value) in variables {
            let Some(name) = variable.strip_prefix("ETCD_") else {
                continue;
            };
            let name = name.to_lowercase().replace('_', "-");
            let Some(flag) = find(&name).filter(|flag| !self.is_set(flag.name)) else {
                continue;
            };
            if !value.is_empty() {
                self.set(flag, value.to_owned())?;
            }
        }
        Ok(())
    }

    /// From a YAML or JSON file whose top-level keys are flag names.
    pub fn from_config_file(text: &str) -> Result<Values, ValuesError> {
        let file: Value = serde_yaml_ng::from_str(text).map_err(|source| ValuesError::Yaml {
            reason: source.to_string(),
        })?;
        let Value::Object(map) = file else {
            return match file {
                Value::Null => Ok(Values::default()),
                _ => Err(ValuesError::NotAMap),
            };
        };
        let mut values = Values {
            is_of_file: true,
            ..Values::default()
        };
        for (key, value) in map {
            let nested = match key.as_str() {
                "client-transport-security" | "peer-transport-security" => Some("TLS"),
                "discovery-config" => Some("discovery"),
                "socket-options" => Some("socket options"),
                _ => None,
            };
            if let Some(part) = nested {
                if is_empty(&value) {
                    continue;
                }
                return Err(ValuesError::KeyLater { key, part });
            }
            let flag = known(&key)?;
            let text = config_text(flag, &value).ok_or_else(|| ValuesError::BadConfigValue {
                key: key.clone(),
                value: value.to_string(),
            })?;
            values.set(flag, text)?;
        }
        Ok(values)
    }

    /// Adds what was said beside the config file these are from. That is ignored, as with etcd,
    /// but for gates and the versions they are judged at: whoever tries a gate for one start
    /// would not find out that the file said otherwise.
    pub fn add_beside_file(&mut self, said: &Values) {
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

    fn set(&mut self, flag: &'static Flag, value: String) -> Result<(), ValuesError> {
        match flag.support {
            // Which version decides about an old name is known later.
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
        // Gate flags may be repeated; everything else: the last one counts.
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
    let names = FLAGS.iter().map(|flag| flag.name);
    let nearest = names
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(similarity, _)| *similarity > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    Err(ValuesError::Unknown {
        flag: name.chars().take(60).collect(),
        hint: match nearest {
            Some((_, nearest)) => format!("did you mean --{nearest}?"),
            None => "see portunus --help".to_owned(),
        },
    })
}

/// A config value as the flag would have it. Durations are nanoseconds in a file.
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

/// A nested group in which nothing is set.
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
    /// A word that is no flag.
    #[error("{word:?} is neither a flag nor a command: see portunus --help")]
    NotAFlag { word: String },
    /// No such flag.
    #[error("there is no flag --{flag}: {hint}")]
    Unknown { flag: String, hint: String },
    /// A flag without its value.
    #[error("--{flag} needs a value")]
    NoValue { flag: &'static str },
    /// Not built yet.
    #[error("--{flag}={value} is not supported yet ({part}): leave it out")]
    Later {
        flag: &'static str,
        value: String,
        part: &'static str,
    },
    /// A group of the config file that is not built yet.
    #[error("{key} in the config file is not supported yet ({part}): leave it out")]
    KeyLater { key: String, part: &'static str },
    /// Gone.
    #[error("--{flag} is gone: {instead}")]
    Removed {
        flag: &'static str,
        instead: &'static str,
    },
    /// Unreadable file.
    #[error("the config file is no YAML: {reason}")]
    Yaml { reason: String },
    /// A file that is a list or a number.
    #[error("the config file must be a map of flag names to values")]
    NotAMap,
    /// A value of the wrong shape.
    #[error("{key}: {value} in the config file cannot be used: write it as the flag takes it")]
    BadConfigValue { key: String, value: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Result<Values, ValuesError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Values::from_arguments(&words)
    }

    #[test]
    fn every_way_to_write_a_flag() {
        for words in [
            &["--name", "m1"][..],
            &["--name=m1"],
            &["-name", "m1"],
            &["-name=m1"],
        ] {
            assert_eq!(arguments(words).unwrap().get("name"), "m1", "{words:?}");
        }
        let values = arguments(&[
            "--strict-emulation",
            "--feature-gates=A=true",
            "--feature-gates",
            "B=false",
        ])
        .unwrap();
        assert_eq!(values.get("strict-emulation"), "true");
        assert_eq!(values.get("feature-gates"), "A=true,B=false");
        assert_eq!(values.get("election-timeout"), "1000");
        assert_eq!(
            arguments(&["--emulation-version=3.7"])
                .unwrap()
                .get("emulated-version"),
            "3.7"
        );
    }

    #[test]
    fn what_is_not_built_is_refused_unless_it_asks_for_nothing() {
        let refused = |words: &[&str]| arguments(words).unwrap_err().to_string();
        assert!(refused(&["--cert-file=a.pem"]).contains("not supported yet (TLS)"));
        assert!(refused(&["--auth-token=jwt"]).contains("authentication"));
        assert!(arguments(&["--auth-token=simple", "--pre-vote=true"]).is_ok());
        assert!(refused(&["--nmae=x"]).contains("did you mean --name?"));
        assert!(refused(&["--zzz"]).contains("--help"));
        assert!(refused(&["--name"]).contains("needs a value"));
        assert!(refused(&["serve"]).contains("neither a flag nor a command"));
        assert!(refused(&["--unsafe-no-fsync"]).contains("gone"));
        assert_eq!(arguments(&["--vv=1"]).unwrap().ignored, ["vv"]);
    }

    #[test]
    fn a_flag_beats_the_environment() {
        let mut values = arguments(&["--name=flag"]).unwrap();
        let environment = [
            ("ETCD_NAME", "env"),
            ("ETCD_ELECTION_TIMEOUT", "2000"),
            ("ETCD_UNKNOWN_THING", "x"),
            ("ETCD_DATA_DIR", ""),
            ("PATH", "/bin"),
        ];
        values.add_environment(environment).unwrap();
        assert_eq!(values.get("name"), "flag");
        assert_eq!(values.get("election-timeout"), "2000");
        assert!(!values.is_set("data-dir"));
        let tls = values.add_environment([("ETCD_CERT_FILE", "x.pem")]);
        assert!(tls.unwrap_err().to_string().contains("TLS"));
    }

    /// Proves: X14
    #[test]
    fn gates_of_flags_win_over_those_of_the_file_one_by_one() {
        let file = "name: m1\nfeature-gates: {A: true, B: true}\nemulated-version: 3.7\n";
        let mut values = Values::from_config_file(file).unwrap();
        let flags = [
            "--name=other",
            "--feature-gates=A=false",
            "--cluster-feature-gates=C=true",
            "--min-compatibility-version=3.6",
        ];
        let said = Values::from_arguments(&flags.map(str::to_owned)).unwrap();
        values.add_beside_file(&said);
        let gates = values.gates("feature-gates").unwrap();
        assert_eq!(gates.get("A"), Some((false, Origin::Flag)));
        assert_eq!(
            gates.all("A"),
            [(Origin::Flag, false), (Origin::Config, true)]
        );
        assert_eq!(gates.get("B"), Some((true, Origin::Config)));
        let cluster = values.gates("cluster-feature-gates").unwrap();
        assert_eq!(cluster.get("C"), Some((true, Origin::Flag)));
        assert_eq!(values.get("emulated-version"), "3.7");
        assert_eq!(values.get("min-compatibility-version"), "3.6");
        // Everything else is the file's alone.
        assert_eq!(values.get("name"), "m1");
        let alone = said.gates("feature-gates").unwrap();
        assert_eq!(alone.get("A"), Some((false, Origin::Flag)));
    }

    #[test]
    fn config_files() {
        let values = Values::from_config_file(
            "name: m1\nelection-timeout: 500\nbackend-batch-interval: 5000000\n\
             feature-gates:\n  A: true\n  B: false\nstrict-emulation: true\n\
             client-transport-security:\n  cert-file: ''\n",
        )
        .unwrap();
        assert_eq!(values.get("name"), "m1");
        assert_eq!(values.get("backend-batch-interval"), "5000000ns");
        assert_eq!(values.get("feature-gates"), "A=true,B=false");
        let refused = |text: &str| Values::from_config_file(text).unwrap_err().to_string();
        assert!(refused("client-transport-security:\n  cert-file: a.pem").contains("TLS"));
        assert!(refused("nmae: x").contains("did you mean"));
        assert!(refused("- a").contains("map"));
        assert!(refused("name: {a: b}").contains("cannot be used"));
        assert!(Values::from_config_file("").is_ok());
    }

    #[test]
    fn no_flag_is_listed_twice() {
        let mut names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
