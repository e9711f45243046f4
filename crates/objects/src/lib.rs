//! One object of a Kubernetes-style API.
//!
//! An object is a [`serde_json::Value`]. This crate has every rule about one object that an API
//! server needs, with the error texts of Kubernetes. It is pure: no I/O, no clock, no randomness;
//! time and random text are arguments.
//!
//! | question | answer |
//! | --- | --- |
//! | is the text of a client an object? | [`decode`] |
//! | what is its name, version, owner? | [`metadata`] |
//! | are its fields known, complete and valid? | [`schema`] |
//! | what is it in another version? | [`convert`] |
//! | does a patch apply, and to what? | [`patch`] |
//! | does a selector match it? | [`selector`] |
//! | which answer does an error get? | [`status`] |
//! | how is it printed? | [`table`], [`partial`] |
//! | which field is wrong? | [`field`] |
//!
//! ```
//! use portunus_objects::{metadata, patch, selector::LabelSelector};
//! use serde_json::json;
//!
//! let object = json!({"metadata": {"name": "a", "labels": {"tier": "web"}}, "spec": {"size": 1}});
//! assert!(LabelSelector::parse("tier in (web, db)")?.matches(&object));
//!
//! let operations = patch::JsonPatch::parse(br#"[{"op": "replace", "path": "/spec/size", "value": 2}]"#)?;
//! let patched = operations.apply(object)?;
//! assert_eq!(patched["spec"]["size"], 2);
//! assert_eq!(metadata::name(&patched), "a");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod convert;
pub mod decode;
pub mod field;
pub mod go_format;
mod group;
pub mod metadata;
pub mod partial;
pub mod patch;
mod place;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
pub mod timestamp;

pub use group::{GroupKind, GroupResource};
