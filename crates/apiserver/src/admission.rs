//! Rules of a resource beyond its schema.

use portunus_objects::field::FieldError;
use serde_json::Value;

/// The result of [`Rules::review`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Review {
    /// Why the request is refused.
    pub errors: Vec<FieldError>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// Rules of a resource that a schema cannot express. All of them are pure: they see the object of
/// a write and the stored one, and are called again when a write lost a race.
pub trait Rules: Send + Sync + 'static {
    /// Completes an object in the version of the request, before it is defaulted and validated.
    /// `before` is the stored object in the same version, `None` for a create.
    fn prepare(&self, version: &str, after: &mut Value, before: Option<&Value>) {
        let _ = (version, after, before);
    }

    /// Changes an object in the hub version, or refuses it.
    ///
    /// # Errors
    /// The fields that are wrong.
    fn normalize(&self, after: &mut Value, before: Option<&Value>) -> Result<(), Vec<FieldError>> {
        let _ = (after, before);
        Ok(())
    }

    /// Judges a normalized object in the hub version.
    fn review(&self, after: &Value, before: Option<&Value>) -> Review {
        let _ = (after, before);
        Review::default()
    }
}

/// The rules of a resource without any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoRules;

impl Rules for NoRules {}
