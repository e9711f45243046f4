//! Structural schemas: the OpenAPI v3 subset of Kubernetes' custom resources.
//!
//! ```text
//!  body ──decode──▶ value ──prune──▶ known fields ──default──▶ whole object ──validate──▶ errors
//!            └ duplicates    └ unknown paths ┘ strict field validation          └ ratchet: unchanged
//!                                                                                 values are not
//!                                                                                 reported again
//! ```
//!
//! Objects are nested at most [`crate::decode::DEPTH_MAX`] deep and schemas at most
//! [`SCHEMA_DEPTH_MAX`], so every walk here is bounded. CEL rules
//! (`x-kubernetes-validations`) are not evaluated.

mod defaulting;
mod list_type;
mod parse;
mod pattern;
mod prune;
mod strict;
mod validate;

pub use parse::*;
pub use strict::*;
pub use validate::ERRORS_MAX;

use std::collections::BTreeMap;

use serde_json::Value;

use pattern::Pattern;

/// The types that a value may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// Any type.
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// What a map may hold beside its properties.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    Allowed(bool),
    Schema(Box<Schema>),
}

/// Whether the items of a list have an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) is_exclusive: bool,
}

/// A structural schema. Make one with [`Schema::parse`].
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) kind: Type,
    pub(crate) is_nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) format: String,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Option<Additional>,
    pub(crate) required: Vec<String>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) list_type: ListType,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) length_min: Option<u64>,
    pub(crate) length_max: Option<u64>,
    pub(crate) items_min: Option<u64>,
    pub(crate) items_max: Option<u64>,
    pub(crate) properties_min: Option<u64>,
    pub(crate) properties_max: Option<u64>,
    pub(crate) preserves_unknown_fields: bool,
    pub(crate) is_embedded_resource: bool,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

impl Schema {
    /// Returns the schema of a field of a map.
    fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }
}
