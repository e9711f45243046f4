//! The declaration of a resource: its names, its versions with their lifecycles and schemas, its
//! conversions and its rules.
//!
//! ```
//! use portunus_apis::Lifecycle;
//! use portunus_apiserver::{Definition, VersionDefinition};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), portunus_apiserver::DefinitionError> {
//! let schema = json!({"type": "object", "properties": {
//!     "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
//! let widgets = Definition::new("example.io", "Widget", "widgets")
//!     .with_short_names(["wd"])
//!     .with_version(VersionDefinition::new("v1", Lifecycle::since("1.34"), schema)?);
//! # let _ = widgets;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portunus_apis::{Lifecycle, Resource, Subresource, Verb, Version, compare_kube_aware};
use portunus_objects::convert::Conversions;
use portunus_objects::metadata::{NameCheck, name_is_dns_subdomain};
use portunus_objects::schema::{Schema, SchemaError};
use portunus_objects::selector::SelectableFields;
use portunus_objects::table::{Columns, JsonPathError};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use tokio::sync::watch;

use crate::admission::{NoRules, Rules};
use crate::collection::{CollectionPublisher, History};
use crate::protobuf;

/// A declaration that cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The schema is not structural.
    #[error("the schema of version {version} cannot be used")]
    Schema {
        /// The version.
        version: String,
        /// The problem.
        #[source]
        source: Box<SchemaError>,
    },
    /// A column has a path that cannot be evaluated.
    #[error("a column of version {version} cannot be used")]
    Column {
        /// The version.
        version: String,
        /// The problem.
        #[source]
        source: Box<JsonPathError>,
    },
    /// The custom resource definition lacks a field or has one of the wrong type.
    #[error("the custom resource definition has no usable {field}")]
    CustomResource {
        /// The path of the field.
        field: &'static str,
    },
    /// The resource has no version.
    #[error("{resource} has no version: add one with with_version")]
    NoVersion {
        /// The resource.
        resource: String,
    },
    /// A version has no conversion.
    #[error("{resource} has no conversion for version {version}: add it to its conversions")]
    NoConversion {
        /// The resource.
        resource: String,
        /// The version.
        version: String,
    },
    /// A namespaced resource cannot be served from a collection.
    #[error("{resource} is namespaced, but a collection has cluster-scoped objects only")]
    NamespacedCollection {
        /// The resource.
        resource: String,
    },
}

/// One version of a resource.
#[derive(Debug, Clone)]
pub struct VersionDefinition {
    pub(crate) name: String,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) served_by_default: Option<bool>,
    pub(crate) document: Value,
    pub(crate) schema: Schema,
    pub(crate) columns: Columns,
    pub(crate) has_status: bool,
    /// Decodes bodies in protobuf format; without it they are refused.
    pub(crate) protobuf: Option<protobuf::Decoder>,
}

impl VersionDefinition {
    /// Creates a version from its lifecycle and its schema, in the form of a custom resource
    /// definition (`openAPIV3Schema`).
    ///
    /// # Errors
    /// If the schema is not structural.
    pub fn new(
        name: &str,
        lifecycle: Lifecycle,
        schema: Value,
    ) -> Result<VersionDefinition, DefinitionError> {
        let parsed = Schema::parse(&schema).map_err(|source| DefinitionError::Schema {
            version: name.to_owned(),
            source: Box::new(source),
        })?;
        Ok(VersionDefinition {
            name: name.to_owned(),
            lifecycle,
            served_by_default: None,
            document: schema,
            schema: parsed,
            columns: Columns::default(),
            has_status: false,
            protobuf: None,
        })
    }

    /// Sets the columns of tables.
    #[must_use]
    pub fn with_columns(mut self, columns: Columns) -> VersionDefinition {
        self.columns = columns;
        self
    }

    /// Adds the subresource `status`.
    #[must_use]
    pub fn with_status(mut self) -> VersionDefinition {
        self.has_status = true;
        self
    }

    /// Accepts bodies in Kubernetes' protobuf format, with a message that has the field numbers of
    /// the kind and whose serde form is the JSON of the kind; see [`protobuf`].
    #[must_use]
    pub fn with_protobuf<M>(mut self) -> VersionDefinition
    where
        M: prost::Message + Default + Serialize,
    {
        self.protobuf = Some(protobuf::decode_message::<M>);
        self
    }

    /// Declares whether it is served by default, where that differs from its stability.
    #[must_use]
    pub fn served_by_default(mut self, on: bool) -> VersionDefinition {
        self.served_by_default = Some(on);
        self
    }
}

/// Where the objects of a resource come from.
#[derive(Clone)]
pub(crate) enum Backing {
    Store,
    Collection(watch::Receiver<Arc<History>>),
}

/// A resource in all its versions.
#[derive(Clone)]
pub struct Definition {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) versions: Vec<VersionDefinition>,
    pub(crate) conversions: Option<Conversions>,
    pub(crate) selectable: SelectableFields,
    pub(crate) name_check: NameCheck,
    pub(crate) allows_unconditional_update: bool,
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) backing: Backing,
    /// How long an object lives after its last write; none for ever.
    pub(crate) ttl: Option<Duration>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Definition")
            .field("group", &self.group)
            .field("plural", &self.plural)
            .finish_non_exhaustive()
    }
}

impl Definition {
    /// Creates a namespaced resource without versions; the core group is empty.
    #[must_use]
    pub fn new(group: &str, kind: &str, plural: &str) -> Definition {
        Definition {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            versions: Vec::new(),
            conversions: None,
            selectable: SelectableFields::default(),
            name_check: name_is_dns_subdomain,
            allows_unconditional_update: false,
            rules: Arc::new(NoRules),
            backing: Backing::Store,
            ttl: None,
        }
    }

    /// Makes its objects cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Definition {
        self.namespaced = false;
        self
    }

    /// Sets the singular name; by default the kind in lower case.
    #[must_use]
    pub fn with_singular(mut self, name: &str) -> Definition {
        name.clone_into(&mut self.singular);
        self
    }

    /// Adds short names for the command line.
    #[must_use]
    pub fn with_short_names<'name>(
        mut self,
        names: impl IntoIterator<Item = &'name str>,
    ) -> Definition {
        let names = names.into_iter().map(str::to_owned);
        self.short_names.extend(names);
        self
    }

    /// Adds categories, such as `all`.
    #[must_use]
    pub fn with_categories<'name>(
        mut self,
        names: impl IntoIterator<Item = &'name str>,
    ) -> Definition {
        let names = names.into_iter().map(str::to_owned);
        self.categories.extend(names);
        self
    }

    /// Adds a version.
    #[must_use]
    pub fn with_version(mut self, version: VersionDefinition) -> Definition {
        self.versions.push(version);
        self
    }

    /// Sets the conversions between the versions; without them all versions have the same fields.
    #[must_use]
    pub fn with_conversions(mut self, conversions: Conversions) -> Definition {
        self.conversions = Some(conversions);
        self
    }

    /// Declares fields that field selectors may name, beside the name and the namespace.
    #[must_use]
    pub fn with_selectable_fields<'path>(
        mut self,
        paths: impl IntoIterator<Item = &'path str>,
    ) -> Definition {
        self.selectable = SelectableFields::declare(paths);
        self
    }

    /// Sets the check of names; by default a name is a DNS subdomain.
    #[must_use]
    pub fn with_name_check(mut self, check: NameCheck) -> Definition {
        self.name_check = check;
        self
    }

    /// Accepts updates without a resource version, which overwrite whatever is stored. Without it
    /// they are refused, as for custom resources of Kubernetes.
    #[must_use]
    pub fn with_unconditional_update(mut self) -> Definition {
        self.allows_unconditional_update = true;
        self
    }

    /// Sets the rules beyond the schema.
    #[must_use]
    pub fn with_rules(mut self, rules: impl Rules) -> Definition {
        self.rules = Arc::new(rules);
        self
    }

    /// Lets the store delete an object when this time has passed since its last write, or a little
    /// later: at most a twentieth of the time, and at most a minute. The store must grant leases.
    /// Zero keeps objects for ever.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Definition {
        self.ttl = (ttl > Duration::ZERO).then_some(ttl);
        self
    }

    /// Serves the objects of a collection, which clients can only read.
    #[must_use]
    pub fn from_collection(mut self, objects: &CollectionPublisher) -> Definition {
        self.backing = Backing::Collection(objects.subscribe());
        self
    }

    /// Returns the name of the resource with its group, such as `widgets.example.io`.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.group.is_empty() {
            return self.plural.clone();
        }
        format!("{}.{}", self.plural, self.group)
    }

    /// Fills in the conversions and checks that every version has one.
    pub(crate) fn completed(mut self) -> Result<(Definition, Conversions), DefinitionError> {
        let resource = self.full_name();
        let newest = self.versions.iter().map(|version| version.name.as_str());
        let newest = newest.max_by(|left, right| compare_kube_aware(left, right));
        let Some(newest) = newest.map(str::to_owned) else {
            return Err(DefinitionError::NoVersion { resource });
        };
        if self.namespaced && matches!(self.backing, Backing::Collection(_)) {
            return Err(DefinitionError::NamespacedCollection { resource });
        }
        let conversions = self.conversions.take().unwrap_or_else(|| {
            let others = self.versions.iter().filter(|other| other.name != newest);
            others.fold(Conversions::hub(&self.group, &newest), |all, version| {
                all.same_fields(&version.name)
            })
        });
        for version in &self.versions {
            if !conversions.versions().any(|known| known == version.name) {
                return Err(DefinitionError::NoConversion {
                    resource,
                    version: version.name.clone(),
                });
            }
        }
        Ok((self, conversions))
    }

    /// Returns the version with a name.
    pub(crate) fn version(&self, name: &str) -> Option<&VersionDefinition> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns the declaration of each version for `portunus-apis`.
    pub(crate) fn declared(&self) -> impl Iterator<Item = Version> {
        self.versions.iter().map(|version| {
            let verbs: &[Verb] = match self.backing {
                Backing::Store => &Verb::ALL,
                Backing::Collection(_) => &Verb::READ_ONLY,
            };
            let mut resource = Resource::new(&*self.plural, &*self.kind, version.lifecycle.clone())
                .with_short_names(self.short_names.iter().map(String::as_str))
                .with_categories(self.categories.iter().map(String::as_str))
                .with_verbs(verbs.iter().copied());
            resource.singular.clone_from(&self.singular);
            resource.namespaced = self.namespaced;
            if version.has_status {
                resource = resource.with_subresource(Subresource::new("status"));
            }
            if let Some(on) = version.served_by_default {
                resource = resource.served_by_default(on);
            }
            Version::new(&*version.name).with_resource(resource)
        })
    }
}
