//! `metav1.DeleteOptions`.

use prost::Message;
use serde::Serialize;

/// The options of a deletion, as far as they are known here.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteOptions {
    #[prost(int64, optional, tag = "1")]
    pub(crate) grace_period_seconds: Option<i64>,
    #[prost(message, optional, tag = "2")]
    pub(crate) preconditions: Option<Preconditions>,
    #[prost(bool, optional, tag = "3")]
    pub(crate) orphan_dependents: Option<bool>,
    #[prost(string, optional, tag = "4")]
    pub(crate) propagation_policy: Option<String>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) dry_run: Vec<String>,
}

/// `metav1.Preconditions`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preconditions {
    #[prost(string, optional, tag = "1")]
    pub(crate) uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) resource_version: Option<String>,
}
