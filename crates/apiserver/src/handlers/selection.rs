//! Which objects of a collection a request selects.

use portunus_objects::selector::{FieldSelector, LabelSelector};
use portunus_objects::status::Status;
use serde_json::Value;

use super::context::Context;
use crate::api::ApiResource;
use crate::failure::Outcome;

/// The label and field selectors of a request.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(super) fn parse(context: &Context<'_>) -> Outcome<Selection> {
        let labels = LabelSelector::parse(context.query.get("labelSelector"))
            .map_err(|error| Status::bad_request(&error.to_string()))?;
        let fields = &context.target.resource.definition.selectable;
        let fields = FieldSelector::parse(context.query.get("fieldSelector"), fields)
            .map_err(|error| Status::bad_request(&error.to_string()))?;
        Ok(Selection { labels, fields })
    }

    /// Returns whether every object is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the only name that is selected, if there is one. Names that cannot be part of a
    /// key select nothing and are left to the filter.
    pub(super) fn name(&self) -> Option<&str> {
        let name = self.fields.exact_value("metadata.name")?;
        let is_plain = !name.is_empty() && !name.contains(['/', '\0', '%']);
        is_plain.then_some(name)
    }

    pub(super) fn matches(&self, resource: &ApiResource, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object, &resource.definition.selectable)
    }
}
