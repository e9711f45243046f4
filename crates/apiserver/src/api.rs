//! What a process serves: the definitions of a program, resolved for its versions and flags.

use std::collections::HashMap;

use portunus_apis::{
    DeclarationErrors, Declarations, Group, GroupVersionResource, Lookup, Options, ServedApis,
    ServedResource, StartErrors, Version, not_served_message, resolve,
};
use portunus_objects::convert::Conversions;
use portunus_objects::status::Status;
use portunus_objects::{GroupKind, GroupResource};
use thiserror::Error;

use crate::definition::{Definition, DefinitionError, VersionDefinition};
use crate::failure::{Failure, Outcome};

/// Definitions that cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApiError {
    /// A definition is incomplete.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// Definitions contradict each other, or a lifecycle is out of order.
    #[error(transparent)]
    Declaration(#[from] DeclarationErrors),
    /// The flags of the process do not fit.
    #[error(transparent)]
    Start(#[from] StartErrors),
}

/// A resource of the process.
#[derive(Debug)]
pub(crate) struct ApiResource {
    pub(crate) definition: Definition,
    pub(crate) conversions: Conversions,
    /// Group and plural name, as answers name them.
    pub(crate) name: GroupResource,
    pub(crate) kind: GroupKind,
    /// The version in which objects are stored.
    pub(crate) storage_version: String,
}

impl ApiResource {
    /// Returns group and version as `apiVersion` has them.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.definition.group.is_empty() {
            return version.to_owned();
        }
        format!("{}/{version}", self.definition.group)
    }
}

/// A served version of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'api> {
    pub(crate) resource: &'api ApiResource,
    pub(crate) version: &'api VersionDefinition,
    pub(crate) served: &'api ServedResource,
}

/// What a process serves.
#[derive(Debug)]
pub struct Api {
    declarations: Declarations,
    options: Options,
    served: ServedApis,
    resources: HashMap<String, HashMap<String, ApiResource>>,
    /// The messages about known resources that are not served.
    not_served: HashMap<GroupVersionResource, String>,
}

impl Api {
    /// Resolves definitions for the versions and flags of a process.
    ///
    /// # Errors
    /// If a definition is illegal, or the flags do not fit the definitions.
    pub fn new(
        definitions: impl IntoIterator<Item = Definition>,
        options: Options,
    ) -> Result<Api, ApiError> {
        let definitions: Vec<Definition> = definitions.into_iter().collect();
        let declarations = declare(&definitions)?;
        let served = resolve(&declarations, &options)?;
        let mut resources: HashMap<String, HashMap<String, ApiResource>> = HashMap::new();
        for definition in definitions {
            let resource = complete(definition, &served)?;
            let group = resources
                .entry(resource.definition.group.clone())
                .or_default();
            group.insert(resource.definition.plural.clone(), resource);
        }
        let not_served = served.not_served().filter_map(|(name, _)| {
            let message = not_served_message(&declarations, &options, &name)?;
            Some((name, message))
        });
        let not_served = not_served.collect();
        Ok(Api {
            declarations,
            options,
            served,
            resources,
            not_served,
        })
    }

    /// Returns every resource, served or not.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &ApiResource> {
        self.resources.values().flat_map(HashMap::values)
    }

    /// Returns what is declared.
    #[must_use]
    pub fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    /// Returns the versions and flags.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns what is served.
    #[must_use]
    pub fn served(&self) -> &ServedApis {
        &self.served
    }

    /// Returns a served version of a resource, or the answer that explains why it is not served.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Outcome<Target<'_>> {
        let served = match self.served.lookup(group, version, plural) {
            Lookup::Served(served) => served,
            Lookup::NotServed(_) => {
                let name = GroupVersionResource::new(group, version, plural);
                let message = self.not_served.get(&name).map_or("", String::as_str);
                return Err(Status::unknown_path(message).into());
            }
            Lookup::Unknown => return Err(unknown()),
        };
        let resource = self.resources.get(group).and_then(|it| it.get(plural));
        let resource = resource.ok_or_else(unknown)?;
        let version = resource.definition.version(version).ok_or_else(unknown)?;
        Ok(Target {
            resource,
            version,
            served,
        })
    }

    /// Returns a resource by group and plural name, served or not.
    pub(crate) fn resource(&self, group: &str, plural: &str) -> Option<&ApiResource> {
        self.resources.get(group)?.get(plural)
    }
}

fn unknown() -> Failure {
    Status::unknown_path("").into()
}

fn complete(definition: Definition, served: &ServedApis) -> Result<ApiResource, DefinitionError> {
    let (definition, conversions) = definition.completed()?;
    let storage = served.storage_version(&definition.group, &definition.plural);
    let storage_version = storage.map_or_else(
        || conversions.hub_version().to_owned(),
        |storage| storage.version.to_string(),
    );
    Ok(ApiResource {
        name: GroupResource::new(&definition.group, &definition.plural),
        kind: GroupKind::new(&definition.group, &definition.kind),
        storage_version,
        definition,
        conversions,
    })
}

/// Merges the versions of all definitions of a group.
fn declare(definitions: &[Definition]) -> Result<Declarations, DeclarationErrors> {
    let mut groups: Vec<Group> = Vec::new();
    for definition in definitions {
        let known = groups.iter().position(|it| it.name == definition.group);
        let at = known.unwrap_or_else(|| {
            groups.push(Group::new(&*definition.group));
            groups.len() - 1
        });
        let group = &mut groups[at];
        for declared in definition.declared() {
            add_version(group, declared);
        }
    }
    Declarations::new(groups)
}

fn add_version(group: &mut Group, declared: Version) {
    let known = group.versions.iter_mut();
    match known.into_iter().find(|it| it.name == declared.name) {
        Some(version) => version.resources.extend(declared.resources),
        None => group.versions.push(declared),
    }
}
