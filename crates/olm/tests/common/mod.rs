//! One OLMConfig behind the rules that an API server applies to a request, stored as v1.

use std::fmt::Write;

use portunus_gates::{Features, Versions, feature, registry};
use portunus_objects::patch::{JsonPatch, MergePatch};
use portunus_objects::schema::{FieldValidation, Schema};
use portunus_objects::{GroupKind, field::FieldError, metadata, status::Status};
use portunus_olm::*;
use serde_json::{Value, json};

feature! {
    /// Accepts bundles with optional manifests.
    pub EnableOptionalManifest {
        name: "enableOptionalManifest",
        level: Component, owner: "bundles", touches: Nothing, reversible: Free,
        specs: [Spec::alpha("0.22")],
    }
}
feature! {
    /// Resolves optional manifests early.
    pub EagerManifest {
        name: "eagerManifest",
        level: Component, owner: "bundles", touches: Nothing, reversible: Free,
        specs: [Spec::alpha("0.22")],
        depends_on: [EnableOptionalManifest],
    }
}
feature! {
    /// Was tried and will be dropped.
    pub OldSolver {
        name: "oldSolver",
        level: Component, owner: "resolver", touches: Nothing, reversible: Free,
        specs: [Spec::beta("0.19").on(), Spec::deprecated("0.21").on()],
    }
}
feature! {
    /// Has become the only behaviour.
    pub NewSolver {
        name: "newSolver",
        level: Component, owner: "resolver", touches: Nothing, reversible: Free,
        specs: [Spec::alpha("0.18"), Spec::beta("0.19").on(), Spec::ga("0.22").on().locked()],
    }
}
registry! {
    /// The features of the transcripts.
    pub TestFeatures: Component =
        [DisableCopiedCsvs, EnableOptionalManifest, EagerManifest, OldSolver, NewSolver]
}

/// The stored object and the gates that follow it.
pub struct World {
    versions: Versions,
    live: LiveGates<TestFeatures>,
    features: Features<TestFeatures>,
    /// In v1, as it would be stored.
    stored: Option<Value>,
}

impl World {
    pub fn new(version: &str) -> World {
        let versions = Versions::emulating(version.parse().unwrap());
        let features = Features::declared().unwrap();
        World {
            versions,
            live: LiveGates::new(features.clone(), versions).unwrap(),
            features,
            stored: None,
        }
    }

    pub fn run(&mut self, command: &str, argument: &str, input: &str) -> String {
        match command {
            "create" => {
                assert!(self.stored.is_none(), "the object exists");
                self.answer(argument, whole(argument, input))
            }
            "update" => {
                let mut after = whole(argument, input);
                if argument == V1 {
                    keep_hidden_gates(&mut after, &self.show(V1));
                }
                self.answer(argument, after)
            }
            "patch" => {
                let body = yaml(input).to_string();
                let patch = MergePatch::parse(body.as_bytes()).unwrap();
                self.answer(argument, patch.apply(self.show(argument)))
            }
            "json-patch" => {
                let body = yaml(input).to_string();
                let patch = JsonPatch::parse(body.as_bytes()).unwrap();
                match patch.apply(self.show(argument)) {
                    Ok(after) => self.answer(argument, after),
                    Err(error) => format!("refused: {error}\n"),
                }
            }
            "get" => shown(&self.show(argument)),
            "gates" => self.gates(),
            "delete" => {
                self.stored = None;
                self.live.follow(None);
                String::new()
            }
            "version" => {
                let stored = self.stored.take();
                *self = World::new(argument);
                self.live.follow(stored.as_ref().map(hub).as_ref());
                self.stored = stored;
                String::new()
            }
            other => panic!("no such command: {other}"),
        }
    }

    /// Returns the stored object in a version.
    fn show(&self, version: &str) -> Value {
        let mut object = self.stored.clone().expect("the object exists");
        conversions().convert(&mut object, version).unwrap();
        object
    }

    fn answer(&mut self, version: &str, after: Value) -> String {
        match self.write(version, after) {
            Ok(warnings) => warnings
                .iter()
                .map(|warning| format!("warning: {warning}\n"))
                .collect(),
            Err(status) => format!("refused: {}\n", status.message),
        }
    }

    fn write(&mut self, version: &str, after: Value) -> Result<Vec<String>, Box<Status>> {
        let invalid = |errors: &[FieldError]| {
            Box::new(Status::invalid(
                &GroupKind::new(GROUP, KIND),
                SINGLETON,
                errors,
            ))
        };
        let schema: Schema = schema_of(version).unwrap().unwrap();
        let read = schema
            .read_value(after, Vec::new(), FieldValidation::Warn)
            .map_err(|error| Box::new(Status::bad_request(&error.to_string())))?;
        let before = self.stored.as_ref().map(hub);
        let mut errors =
            metadata::validate_create(&read.object, false, metadata::name_is_dns_subdomain);
        errors.extend(validate_name(&read.object));
        // Wrong types are reported before the rules about values.
        errors.extend(schema.validate(&read.object));
        if !errors.is_empty() {
            return Err(invalid(&errors));
        }
        let mut after = hub(&read.object);
        normalize(&mut after, before.as_ref()).map_err(|error| invalid(&[error]))?;
        let hub_schema: Schema = schema_of(V2ALPHA1).unwrap().unwrap();
        let mut errors = hub_schema.validate(&after);
        let review = review(
            self.features.registry(),
            self.versions,
            &after,
            before.as_ref(),
        );
        errors.extend(review.errors);
        if !errors.is_empty() {
            return Err(invalid(&errors));
        }
        self.live.follow(Some(&after));
        conversions().convert(&mut after, V1).unwrap();
        self.stored = Some(after);
        Ok(read.warnings.into_iter().chain(review.warnings).collect())
    }

    fn gates(&self) -> String {
        let mut out = String::new();
        let live = &self.live;
        for (name, value) in [
            ("disableCopiedCSVs", live.enabled(DisableCopiedCsvs)),
            (
                "enableOptionalManifest",
                live.enabled(EnableOptionalManifest),
            ),
            ("eagerManifest", live.enabled(EagerManifest)),
            ("oldSolver", live.enabled(OldSolver)),
            ("newSolver", live.enabled(NewSolver)),
        ] {
            let state = if value { "on" } else { "off" };
            writeln!(out, "{name}: {state}").unwrap();
        }
        let condition = gates_condition(&live.snapshot(), &json!({}), 0);
        let text = |key: &str| condition[key].as_str().unwrap().to_owned();
        writeln!(
            out,
            "{}={} {}: {}",
            text("type"),
            text("status"),
            text("reason"),
            text("message")
        )
        .unwrap();
        out
    }
}

fn hub(object: &Value) -> Value {
    let mut object = object.clone();
    conversions().convert(&mut object, V2ALPHA1).unwrap();
    object
}

fn yaml(input: &str) -> Value {
    serde_yaml_ng::from_str(input).unwrap()
}

/// Returns the whole object: the input may leave out what is always the same.
fn whole(version: &str, input: &str) -> Value {
    let mut object = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": KIND, "metadata": {"name": SINGLETON}});
    let given = yaml(input);
    for (name, value) in given.as_object().unwrap() {
        object[name] = value.clone();
    }
    object
}

fn shown(object: &Value) -> String {
    let mut shown = json!({});
    if let Some(annotations) = metadata::get(object, "annotations") {
        shown["annotations"] = annotations.clone();
    }
    shown["features"] = object["spec"]["features"].clone();
    serde_yaml_ng::to_string(&shown).unwrap()
}
