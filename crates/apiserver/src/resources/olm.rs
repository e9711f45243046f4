//! The kinds of the Operator Lifecycle Manager.

use std::sync::Arc;

use crate::{Definition, Review, Rules, VersionDefinition};
use portunus_apis::Lifecycle;
use portunus_gates::{Features, Registry};
use portunus_objects::field::FieldError;
use portunus_objects::table::Columns;
use portunus_olm::{
    GROUP, KIND, OlmFeatures, PLURAL, SINGULAR, V1, V2ALPHA1, conversions, keep_hidden_gates,
    normalize, olm_versions, review, v1_schema, v2alpha1_schema, validate_name,
};
use serde_json::{Value, json};

use super::ResourcesError;

/// OLMConfig, the configuration of OLM with feature gates. v2alpha1 is served by default although
/// it is alpha: seed 003 asks for it beside v1.
pub fn olm_configs() -> Result<Definition, ResourcesError> {
    let features = Features::<OlmFeatures>::declared()
        .map_err(|error| ResourcesError::Features(error.to_string()))?;
    let columns = || {
        let valid = ".status.conditions[?(@.type=='GatesValid')].status";
        Columns::named()
            .column("Gates Valid", "string", valid)?
            .age()
    };
    let v1 = VersionDefinition::new(V1, Lifecycle::always(), v1_schema())?;
    let v2alpha1 = VersionDefinition::new(V2ALPHA1, Lifecycle::always(), v2alpha1_schema())?;
    Ok(Definition::new(GROUP, KIND, PLURAL)
        .cluster_scoped()
        .with_singular(SINGULAR)
        .with_categories(["olm"])
        .with_version(v1.with_status().with_columns(columns()?))
        .with_version(
            v2alpha1
                .served_by_default(true)
                .with_status()
                .with_columns(columns()?),
        )
        .with_conversions(conversions())
        .with_rules(OlmConfigRules {
            registry: features.registry().clone(),
        }))
}

/// The rules of seed 003.
struct OlmConfigRules {
    registry: Arc<Registry>,
}

impl Rules for OlmConfigRules {
    fn prepare(&self, version: &str, after: &mut Value, before: Option<&Value>) {
        if let Some(before) = before
            && version == V1
        {
            keep_hidden_gates(after, before);
        }
    }

    fn normalize(&self, after: &mut Value, before: Option<&Value>) -> Result<(), Vec<FieldError>> {
        if let Some(error) = validate_name(after) {
            return Err(vec![error]);
        }
        normalize(after, before).map_err(|error| vec![error])
    }

    fn review(&self, after: &Value, before: Option<&Value>) -> Review {
        let reviewed = review(&self.registry, olm_versions(), after, before);
        Review {
            errors: reviewed.errors,
            warnings: reviewed.warnings,
        }
    }
}

/// ClusterServiceVersion, the description of an installed operator. Its fields beyond those that
/// the controllers here read are kept as they are.
pub fn cluster_service_versions() -> Result<Definition, ResourcesError> {
    let schema = json!({
        "type": "object",
        "description": "ClusterServiceVersion describes an installed operator.",
        "properties": {
            "spec": {
                "type": "object",
                "description": "The operator.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "displayName": {"type": "string", "description": "The name for people."},
                    "version": {"type": "string", "description": "The version of the operator."},
                },
            },
            "status": {
                "type": "object",
                "description": "The state of the installation.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "phase": {"type": "string", "description": "The phase of the installation."},
                    "reason": {"type": "string", "description": "Why it is in this phase."},
                },
            },
        },
    });
    let columns = Columns::named()
        .column("Display", "string", ".spec.displayName")?
        .column("Version", "string", ".spec.version")?
        .column("Phase", "string", ".status.phase")?;
    let version = VersionDefinition::new("v1alpha1", Lifecycle::always(), schema)?;
    let version = version
        .served_by_default(true)
        .with_status()
        .with_columns(columns);
    Ok(
        Definition::new(GROUP, "ClusterServiceVersion", "clusterserviceversions")
            .with_short_names(["csv", "csvs"])
            .with_categories(["olm"])
            .with_version(version),
    )
}
