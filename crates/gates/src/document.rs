//! A registry as a document: JSON for programs and for the lint, Markdown for people.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::{Classified, ErrorClass};
use crate::feature::{Level, Reversibility, Touches};
use crate::registry::{Registered, Registry};
use crate::spec::{RawSpec, Spec, SpecError, complete};
use crate::stage::Stage;
use crate::version::MajorMinor;

/// An entry of a feature's history with the version that ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Period {
    /// The entry in force.
    #[serde(flatten)]
    pub spec: Spec,
    /// The version of the next entry; absent for the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<MajorMinor>,
}

/// Encodes the features of several registries as pretty JSON, sorted by name. The lint
/// compares registries with this document.
pub fn to_json<'a>(registries: impl IntoIterator<Item = &'a Registry>) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        features: Vec<Feature<'a>>,
    }
    #[derive(Serialize)]
    struct Feature<'a> {
        name: &'a str,
        level: Level,
        since: MajorMinor,
        doc: &'a str,
        owner: &'a str,
        touches: Touches,
        reversible: Reversibility,
        #[serde(skip_serializing_if = "Option::is_none")]
        inert: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        readable_since: Option<MajorMinor>,
        depends_on: &'a [String],
        specs: Vec<Period>,
    }
    let mut features: Vec<Feature<'_>> = registries
        .into_iter()
        .flat_map(Registry::sorted)
        .map(|feature| Feature {
            name: &feature.name,
            level: feature.level,
            since: feature.since(),
            doc: &feature.doc,
            owner: &feature.owner,
            touches: feature.touches,
            reversible: feature.reversible,
            inert: feature.inert.as_deref(),
            readable_since: feature.readable_since,
            depends_on: &feature.depends_on,
            specs: periods(feature),
        })
        .collect();
    features.sort_by_key(|feature| (feature.name, feature.level));
    // These types hold only strings, booleans and lists of them: they always serialise.
    let json = serde_json::to_string_pretty(&Document { features }).unwrap_or_default();
    json + "\n"
}

fn periods(feature: &Registered) -> Vec<Period> {
    let nexts = feature.specs.iter().skip(1).map(|next| Some(next.version));
    feature
        .specs
        .iter()
        .zip(nexts.chain([None]))
        .map(|(spec, until)| Period { spec: *spec, until })
        .collect()
}

/// Formats the features of several registries as a Markdown table, sorted by name.
pub fn to_markdown<'a>(registries: impl IntoIterator<Item = &'a Registry>) -> String {
    let mut features: Vec<&Registered> =
        registries.into_iter().flat_map(Registry::sorted).collect();
    features.sort_by(|a, b| (&a.name, a.level).cmp(&(&b.name, b.level)));
    let mut table = String::from(
        "| Feature | Level | Stages | Needs | Touches | Can be turned off | What it does |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for feature in features {
        let stages: Vec<String> = periods(feature).iter().map(stage_cell).collect();
        let needs = if feature.depends_on.is_empty() {
            "–".to_owned()
        } else {
            feature.depends_on.join(", ")
        };
        let reversible = match feature.reversible {
            Reversibility::Free => "always",
            Reversibility::UntilUsed => "until used",
            Reversibility::Never => "never",
        };
        let mut what = feature
            .doc
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ");
        if let Some(reason) = &feature.inert {
            what.push_str(&format!(" *No effect here: {reason}.*"));
        }
        if let Some(since) = feature.readable_since {
            what.push_str(&format!(
                " *A member writes with it only if its minimum compatibility version is {since} or later.*"
            ));
        }
        table.push_str(&format!(
            "| {} | {} | {} | {needs} | {} | {reversible} | {} |\n",
            feature.name,
            feature.level.text(),
            stages.join("<br>"),
            format!("{:?}", feature.touches).to_lowercase(),
            what.trim().replace('|', "\\|"),
        ));
    }
    table
}

fn stage_cell(period: &Period) -> String {
    let spec = &period.spec;
    if spec.stage == Stage::Removed {
        return format!("removed in {}", spec.version);
    }
    let value = if spec.default { "on" } else { "off" };
    let locked = if spec.locked { ", locked" } else { "" };
    let min_compat = spec.min_compat.map_or_else(String::new, |version| {
        format!(", data readable by {version}")
    });
    let until = match period.until {
        Some(until) if until > spec.version => format!(" to {}", until.minus_minors(1)),
        Some(_) => String::new(),
        None => " on".to_owned(),
    };
    format!(
        "{} {value}{locked} from {}{until}{min_compat}",
        spec.stage, spec.version
    )
}

/// A feature read back from JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentedFeature {
    /// The feature's name.
    pub name: String,
    /// The level that decides its value.
    pub level: Level,
    /// Its history, oldest entry first.
    pub specs: Vec<Spec>,
}

/// Decodes the document that [`to_json`] writes and checks every history.
pub fn from_json(json: &str) -> Result<Vec<DocumentedFeature>, DocumentError> {
    #[derive(Deserialize)]
    struct Document {
        features: Vec<Feature>,
    }
    #[derive(Deserialize)]
    struct Feature {
        name: String,
        level: Level,
        specs: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        version: Option<String>,
        stage: Stage,
        default: bool,
        #[serde(default)]
        locked: bool,
        #[serde(default)]
        min_compat: Option<String>,
    }
    let document: Document = serde_json::from_str(json).map_err(|error| DocumentError::Json {
        line: error.line(),
        column: error.column(),
        reason: error.to_string(),
    })?;
    document
        .features
        .into_iter()
        .map(|feature| {
            let raw: Vec<RawSpec> = feature
                .specs
                .into_iter()
                .map(|entry| RawSpec {
                    version: entry.version,
                    stage: entry.stage,
                    default: entry.default,
                    locked: entry.locked,
                    min_compat: entry.min_compat,
                })
                .collect();
            let specs = complete(&raw).map_err(|source| DocumentError::Spec {
                feature: feature.name.clone(),
                source,
            })?;
            Ok(DocumentedFeature {
                name: feature.name,
                level: feature.level,
                specs,
            })
        })
        .collect()
}

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the ones the messages print
pub enum DocumentError {
    /// The text is not JSON of the expected shape.
    #[error("the feature list is not readable at line {line}, column {column}: {reason}")]
    Json {
        line: usize,
        column: usize,
        reason: String,
    },
    /// A feature has an illegal history.
    #[error("the feature list has an illegal history for {feature}")]
    Spec { feature: String, source: SpecError },
}

impl Classified for DocumentError {
    fn id(&self) -> &'static str {
        match self {
            DocumentError::Json { .. } => "E-BAD-DOCUMENT",
            DocumentError::Spec { source, .. } => source.id(),
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Invalid
    }
}
