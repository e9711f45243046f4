//! Conversion between the versions of a resource, through one hub version.
//!
//! ```text
//!   v1 ──to_hub──▶ hub ──from_hub──▶ v2alpha1
//! ```
//!
//! The hub is one of the versions, usually the newest. Each other version has two functions, so a
//! resource with n versions needs 2(n-1) of them. A version that cannot show a field must keep it,
//! for example in an annotation, so that an object survives the way to the hub and back.

use serde_json::Value;
use thiserror::Error;

use crate::metadata;

/// Changes an object of one version into another. `apiVersion` is set by [`Conversions`].
pub type ConvertFn = fn(&mut Value) -> Result<(), ConvertError>;

/// An object that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The resource has no such version.
    #[error("version {version:?} is unknown: {known} can be converted", known = .known.join(", "))]
    UnknownVersion {
        /// The version that was asked for.
        version: String,
        /// The versions of the resource.
        known: Vec<String>,
    },
    /// The object is of another group.
    #[error("apiVersion {api_version:?} is not of the group {group:?}")]
    WrongGroup {
        /// The version of the object.
        api_version: String,
        /// The group of the resource.
        group: String,
    },
    /// The object has a form that the conversion does not know.
    #[error("{0}")]
    Malformed(String),
}

#[derive(Debug, Clone)]
struct Spoke {
    version: String,
    to_hub: ConvertFn,
    from_hub: ConvertFn,
}

/// The versions of a resource with their conversions.
#[derive(Debug, Clone)]
pub struct Conversions {
    group: String,
    hub: String,
    spokes: Vec<Spoke>,
}

impl Conversions {
    /// Declares a resource with one version, the hub.
    #[must_use]
    pub fn hub(group: &str, version: &str) -> Conversions {
        Conversions {
            group: group.to_owned(),
            hub: version.to_owned(),
            spokes: Vec::new(),
        }
    }

    /// Declares another version with its two conversions.
    #[must_use]
    pub fn version(mut self, version: &str, to_hub: ConvertFn, from_hub: ConvertFn) -> Conversions {
        self.spokes.push(Spoke {
            version: version.to_owned(),
            to_hub,
            from_hub,
        });
        self
    }

    /// Declares another version with the same fields as the hub.
    #[must_use]
    pub fn same_fields(self, version: &str) -> Conversions {
        self.version(version, |_| Ok(()), |_| Ok(()))
    }

    /// Returns the hub version.
    #[must_use]
    pub fn hub_version(&self) -> &str {
        &self.hub
    }

    /// Returns all versions, the hub first.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        let spokes = self.spokes.iter().map(|spoke| spoke.version.as_str());
        std::iter::once(self.hub.as_str()).chain(spokes)
    }

    /// Converts an object from the version in its `apiVersion` to another one. A failed
    /// conversion gives the object back as it was.
    pub fn convert(&self, object: &mut Value, version: &str) -> Result<(), ConvertError> {
        let from = self.version_of(object)?.to_owned();
        let (from, to) = (self.spoke(&from)?, self.spoke(version)?);
        if from.map(|spoke| &spoke.version) == to.map(|spoke| &spoke.version) {
            return Ok(());
        }
        let mut converted = object.clone();
        if let Some(spoke) = from {
            (spoke.to_hub)(&mut converted)?;
        }
        if let Some(spoke) = to {
            (spoke.from_hub)(&mut converted)?;
        }
        let kind = metadata::kind(&converted).to_owned();
        metadata::set_type(&mut converted, &self.api_version(version), &kind);
        *object = converted;
        Ok(())
    }

    fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            return version.to_owned();
        }
        format!("{}/{version}", self.group)
    }

    fn version_of<'object>(&self, object: &'object Value) -> Result<&'object str, ConvertError> {
        let api_version = metadata::api_version(object);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group != self.group {
            return Err(ConvertError::WrongGroup {
                api_version: api_version.to_owned(),
                group: self.group.clone(),
            });
        }
        Ok(version)
    }

    /// Returns the functions of a version; none for the hub.
    fn spoke(&self, version: &str) -> Result<Option<&Spoke>, ConvertError> {
        if version == self.hub {
            return Ok(None);
        }
        let spoke = self.spokes.iter().find(|spoke| spoke.version == version);
        spoke.map(Some).ok_or_else(|| ConvertError::UnknownVersion {
            version: version.to_owned(),
            known: self.versions().map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rename(object: &mut Value, from: &str, to: &str) -> Result<(), ConvertError> {
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        let spec = spec.ok_or_else(|| ConvertError::Malformed("spec must be a map".into()))?;
        if let Some(value) = spec.remove(from) {
            spec.insert(to.to_owned(), value);
        }
        Ok(())
    }

    fn conversions() -> Conversions {
        Conversions::hub("g", "v3")
            .version(
                "v1",
                |object| rename(object, "old", "new"),
                |object| rename(object, "new", "old"),
            )
            .same_fields("v2")
    }

    #[test]
    fn objects_are_converted_through_the_hub() {
        let mut object = json!({"apiVersion": "g/v1", "kind": "K", "spec": {"old": 1}});
        conversions().convert(&mut object, "v2").unwrap();
        assert_eq!(
            object,
            json!({"apiVersion": "g/v2", "kind": "K", "spec": {"new": 1}})
        );
        conversions().convert(&mut object, "v3").unwrap();
        assert_eq!(
            object,
            json!({"apiVersion": "g/v3", "kind": "K", "spec": {"new": 1}})
        );
        conversions().convert(&mut object, "v1").unwrap();
        assert_eq!(
            object,
            json!({"apiVersion": "g/v1", "kind": "K", "spec": {"old": 1}})
        );
        assert_eq!(
            conversions().versions().collect::<Vec<_>>(),
            ["v3", "v1", "v2"]
        );
    }

    #[test]
    fn failed_conversion_leaves_the_object_unchanged() {
        let cases = [
            (
                json!({"apiVersion": "h/v1"}),
                "v2",
                "apiVersion \"h/v1\" is not of the group \"g\"",
            ),
            (
                json!({"apiVersion": "g/v9"}),
                "v2",
                "version \"v9\" is unknown: v3, v1, v2 can be converted",
            ),
            (
                json!({"apiVersion": "g/v1"}),
                "v9",
                "version \"v9\" is unknown: v3, v1, v2 can be converted",
            ),
            (
                json!({"apiVersion": "g/v1", "spec": 1}),
                "v2",
                "spec must be a map",
            ),
        ];
        for (object, version, text) in cases {
            let mut converted = object.clone();
            let error = conversions().convert(&mut converted, version).unwrap_err();
            assert_eq!(error.to_string(), text);
            assert_eq!(converted, object);
        }
    }
}
