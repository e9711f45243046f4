//! `--runtime-config`: which APIs an operator switches on and off.
//!
//! | key | means |
//! | --- | --- |
//! | `api/all`, `api/ga`, `api/beta`, `api/alpha` | every version of the class |
//! | `group/version` | one version; `/v1`, `v1` and `api/v1` are the core group's |
//! | `group/version/resource` | one resource |
//!
//! The narrower key wins: resource before version before class. [`RuntimeConfig`] holds the
//! text; the rules that need the declarations are in [`Enablement`](crate::Enablement).

use std::collections::BTreeMap;
use std::fmt;

use portunus_gates::{Classified, ErrorClass, parse_bool};
use serde::Serialize;
use thiserror::Error;

use crate::declare::Declarations;
use crate::names::{GroupVersion, GroupVersionResource, Stability, VersionName};

/// A class of API versions that one key addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Every version.
    All,
    /// Versions such as `v1`.
    Ga,
    /// Versions such as `v1beta1`.
    Beta,
    /// Versions such as `v1alpha1`.
    Alpha,
}

impl Class {
    /// The classes in the order in which they apply, whatever their order in the text.
    pub const ORDER: [Class; 4] = [Class::All, Class::Ga, Class::Beta, Class::Alpha];

    /// Returns the key.
    pub const fn key(self) -> &'static str {
        match self {
            Class::All => "api/all",
            Class::Ga => "api/ga",
            Class::Beta => "api/beta",
            Class::Alpha => "api/alpha",
        }
    }

    /// Returns whether a version belongs to the class.
    pub fn has(self, version: &VersionName) -> bool {
        match self {
            Class::All => true,
            Class::Ga => version.stability() == Stability::Ga,
            Class::Beta => version.stability() == Stability::Beta,
            Class::Alpha => version.stability() == Stability::Alpha,
        }
    }

    fn of_key(key: &str) -> Option<Class> {
        Class::ORDER.into_iter().find(|class| class.key() == key)
    }
}

/// The keys and values of `--runtime-config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuntimeConfig {
    values: BTreeMap<String, String>,
}

impl RuntimeConfig {
    /// Parses `key=value,key=value`; see [`RuntimeConfig::add`].
    pub fn parse(text: &str) -> RuntimeConfig {
        let mut config = RuntimeConfig::default();
        config.add(text);
        config
    }

    /// Adds the pairs of one more flag. A key without `=` has an empty value; a repeated key
    /// overwrites.
    pub fn add(&mut self, text: &str) {
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.set(key.trim(), value.trim());
        }
    }

    /// Sets one key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(canonical(key), value.to_owned());
    }

    /// Removes one key.
    pub fn remove(&mut self, key: &str) {
        self.values.remove(&canonical(key));
    }

    /// Returns whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Iterates over keys and values by key; the core group is spelled `/v1`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.values.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Checks the keys and values against the declarations.
    pub(crate) fn check(
        &self,
        declarations: &Declarations,
    ) -> Result<Choices, Vec<RuntimeConfigError>> {
        if self.values.len() == 1
            && self
                .values
                .get(Class::All.key())
                .is_some_and(|v| v == "false")
        {
            return Err(vec![RuntimeConfigError::Nothing]);
        }
        let mut choices = Choices::default();
        let mut errors = Vec::new();
        let mut unknown_groups = Vec::new();
        for (key, value) in &self.values {
            match Choice::parse(declarations, key, value) {
                Ok(choice) => choices.add(choice),
                Err(RuntimeConfigError::UnknownGroups { names }) => unknown_groups.extend(names),
                Err(error) => errors.push(error),
            }
        }
        if !unknown_groups.is_empty() {
            unknown_groups.sort();
            unknown_groups.dedup();
            let names = unknown_groups;
            errors.insert(0, RuntimeConfigError::UnknownGroups { names });
        }
        if errors.is_empty() {
            Ok(choices)
        } else {
            Err(errors)
        }
    }
}

impl fmt::Display for RuntimeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in self.values.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// Returns the one spelling of a key: versions of the core group have three.
fn canonical(key: &str) -> String {
    let is_version = |text: &str| VersionName::from(text).stability() != Stability::Unstated;
    if is_version(key) {
        return format!("/{key}");
    }
    if let Some(rest) = key.strip_prefix("api/")
        && is_version(rest.split('/').next().unwrap_or_default())
    {
        return format!("/{rest}");
    }
    key.to_owned()
}

/// The checked pairs.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    pub(crate) classes: BTreeMap<Class, bool>,
    pub(crate) versions: BTreeMap<GroupVersion, bool>,
    pub(crate) resources: BTreeMap<GroupVersionResource, bool>,
}

impl Choices {
    fn add(&mut self, choice: Choice) {
        match choice {
            Choice::Class(class, on) => drop(self.classes.insert(class, on)),
            Choice::Version(version, on) => drop(self.versions.insert(version, on)),
            Choice::Resource(resource, on) => drop(self.resources.insert(resource, on)),
        }
    }
}

/// One checked pair.
enum Choice {
    Class(Class, bool),
    Version(GroupVersion, bool),
    Resource(GroupVersionResource, bool),
}

impl Choice {
    fn parse(
        declarations: &Declarations,
        key: &str,
        value: &str,
    ) -> Result<Choice, RuntimeConfigError> {
        if let Some(class) = Class::of_key(key) {
            return match value {
                "true" => Ok(Choice::Class(class, true)),
                "false" => Ok(Choice::Class(class, false)),
                _ => Err(RuntimeConfigError::Value {
                    key: key.to_owned(),
                    value: value.to_owned(),
                }),
            };
        }
        let tokens: Vec<&str> = key.split('/').collect();
        let (version, resource) = match tokens[..] {
            [group, version] => (GroupVersion::new(group, version), None),
            [group, version, resource] => (GroupVersion::new(group, version), Some(resource)),
            _ => return Err(RuntimeConfigError::Key(key.to_owned())),
        };
        let Some(group) = declarations.group(&version.group) else {
            let names = vec![version.to_string()];
            return Err(RuntimeConfigError::UnknownGroups { names });
        };
        if group.version(version.version.as_str()).is_none() {
            return Err(RuntimeConfigError::UnknownVersion(version));
        }
        let on = match value {
            "" => true,
            _ => parse_bool(value).ok_or_else(|| RuntimeConfigError::Bool {
                key: key.to_owned(),
                value: value.to_owned(),
            })?,
        };
        match resource {
            None => Ok(Choice::Version(version, on)),
            Some(name) if name.to_lowercase() != name => Err(RuntimeConfigError::Case {
                key: key.to_owned(),
                resource: name.to_owned(),
            }),
            Some(name) => Ok(Choice::Resource(version.resource(name), on)),
        }
    }
}

/// A key or value of runtime-config that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum RuntimeConfigError {
    /// Everything is off and nothing on.
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    /// A key that is neither a class nor has two or three parts.
    #[error("runtime-config invalid key {0}")]
    Key(String),
    /// A class with another value than true or false.
    #[error("invalid value {key}={value}")]
    Value { key: String, value: String },
    /// A value that is no boolean.
    #[error(
        "invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    Bool { key: String, value: String },
    /// A resource with a capital letter.
    #[error(
        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
    )]
    Case { key: String, resource: String },
    /// A version that the group does not have.
    #[error("group version {0} that has not been registered")]
    UnknownVersion(GroupVersion),
    /// Groups that this binary does not know.
    #[error("unknown api groups {}", names.join(","))]
    UnknownGroups { names: Vec<String> },
}

impl Classified for RuntimeConfigError {
    fn id(&self) -> &'static str {
        match self {
            RuntimeConfigError::Nothing => "E-RC-NOTHING",
            RuntimeConfigError::Key(_) => "E-RC-KEY",
            RuntimeConfigError::Value { .. } => "E-RC-VALUE",
            RuntimeConfigError::Bool { .. } => "E-RC-BOOL",
            RuntimeConfigError::Case { .. } => "E-RC-CASE",
            RuntimeConfigError::UnknownVersion(_) => "E-RC-VERSION",
            RuntimeConfigError::UnknownGroups { .. } => "E-RC-GROUP",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            RuntimeConfigError::Bool { .. } | RuntimeConfigError::Value { .. } => {
                ErrorClass::BadBool
            }
            RuntimeConfigError::UnknownVersion(_) | RuntimeConfigError::UnknownGroups { .. } => {
                ErrorClass::Unknown
            }
            _ => ErrorClass::Invalid,
        }
    }
}
